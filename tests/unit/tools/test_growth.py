"""Each part of `make growth`, with sizes that prove nothing: it measures what docs/growth.md shows, and leaves nothing running."""

from pathlib import Path
from typing import Any

import pytest

from daybook.local.child import processes_with
from tools.growth import large_store, ledgers, open_ledgers
from tools.growth.page import UNITS, load

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

OF_A_CGROUP = frozenset({"page_cache_mib"})


class Noted:
    """What was measured, by what it is of."""

    def __init__(self) -> None:
        self.figures: dict[str, dict[str, Any]] = {}

    def __call__(self, what: str, size: int, **figures: Any) -> None:
        assert size > 0
        assert figures.keys() & UNITS.keys(), f"{what} shows nothing on the page"
        self.figures[what] = figures

    def are_those_of(self, part: str, *, without: frozenset[str] = frozenset()) -> bool:
        """Whether the page has the same figures of this part, but for those that cannot be had `without` a right."""
        on_the_page: dict[str, set[str]] = {}
        for record in load():
            if record["part"] == part:
                on_the_page.setdefault(record["what"], set()).update((record.keys() & UNITS.keys()) - without)
        return on_the_page == {what: figures.keys() & UNITS.keys() for what, figures in self.figures.items()}


def test_many_ledgers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "REPAIR_S", 60.0)
    noted = Noted()
    ledgers.measure_ledgers([4], tmp_path, noted)
    assert noted.are_those_of("ledgers")
    assert noted.figures["plan after a loss"]["tasks"] == 3, "three of four ledgers name each bookie"
    assert noted.figures["repair"]["ledgers"] == 3, "all are mended before the time is over"
    assert noted.figures["list"]["rss_mib"] > 20


def test_open_ledgers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_ledgers, "IDLE_S", 0.2)
    noted = Noted()
    open_ledgers.measure_open_ledgers([20], tmp_path, noted)
    assert noted.are_those_of("open-ledgers")
    assert noted.figures["a last entry is seen"]["longest_ms"] < 10_000


def test_a_large_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_store, "LEDGER_MIB", 4)
    monkeypatch.setattr(large_store, "RANDOM_READS", 40)
    noted = Noted()
    large_store.measure_large_store([8], tmp_path, noted)
    assert noted.figures["store"]["on_disk_mib"] >= 8
    limited = "limit_mib" in noted.figures["write"]
    assert limited or "no cgroup" in noted.figures["write"]["limit"], "an ordinary user may make none"
    assert noted.are_those_of("large-store", without=frozenset() if limited else OF_A_CGROUP)
    assert processes_with([str(tmp_path / "bookie-0" / "bookie.toml")]) == []
