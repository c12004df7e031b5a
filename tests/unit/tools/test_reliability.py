"""docs/reliability.md is what the generator makes of the records, and the generator adds up what it should."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.model.sim.regressions import REGRESSIONS
from tests.model.sim.trace import STATES
from tests.process.chaos.records import VARIABLE, write_record
from tools.reliability.page import KEPT, PAGE, UnknownRecordError, load, page, summed, take


def record(kind: str, seed: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "seed": seed,
        "counts": {"cuts": 10},
        "violations": 0,
        "seconds": 60.0,
        "commit": "1a2b3c4",
        "date": "2026-01-31",
        **changes,
    }


def test_the_page_is_what_the_generator_makes_of_the_records() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(load(KEPT)), "run `make reliability`"


def test_runs_of_one_kind_and_commit_are_added_up() -> None:
    one, two = summed(
        [
            record("power cuts", 1),
            record("power cuts", 2, date="2026-02-01", violations=1),
            record("power cuts", 3, commit="5d6e7f8"),
        ]
    )
    assert (one.commit, one["cuts"], one.seconds, one.date, one.violations) == (
        "1a2b3c4",
        20,
        120,
        "2026-02-01",
        1,
    )
    assert one.seeds == [(1, 2)]
    assert (two.commit, two["cuts"], two.seeds) == ("5d6e7f8", 10, [(3, 3)])


def test_a_seed_that_ran_twice_at_a_commit_counts_once_and_the_longer_run_stands() -> None:
    (row,) = summed(
        [record("power cuts"), record("power cuts", counts={"cuts": 30}, seconds=90.0), record("power cuts")]
    )
    assert (row["cuts"], row.seconds) == (30, 90.0)


def test_pieces_of_a_long_simulation_are_one_range_of_seeds() -> None:
    pieces = [record("simulator", seed, counts={"seeds": 100}) for seed in (100, 0, 300)]
    (row,) = summed(pieces)
    assert row.seeds == [(0, 199), (300, 399)]
    assert "300 seeds (2 a second)" in page(pieces)
    assert "`make sim SEEDS=0..399`" in page(pieces)


def test_a_violation_stands_out() -> None:
    assert "| **2** |" in page([record("chaos", violations=2)])
    assert "**" not in page([record("chaos")]).partition("## The runs")[2].partition("##")[0]


def test_an_alarm_counts_until_it_is_repaired() -> None:
    seed, found = next((seed, found) for seed, found in REGRESSIONS.items() if found.commit)
    around = {"counts": {"seeds": 10}, "commit": found.commit, "violations": 2}
    assert "| **1** |" in page([record("simulator", seed - 5, **around)])
    assert "| 0, 1 repaired |" in page([record("simulator", seed - 5, **around | {"violations": 1})])
    assert "| **2** |" in page([record("simulator", seed + 1, **around)]), "another seed"
    assert "| **2** |" in page([record("simulator", seed - 5, **around | {"commit": "another"})])


def test_what_does_the_same_at_every_commit_is_not_added_up_over_commits() -> None:
    made = page([record("explorer: small", 0, counts={"worlds": n}, commit=str(n)) for n in (700, 900)])
    assert "| worlds explored | 900 |" in made


def test_figures_are_of_all_rows() -> None:
    made = page(
        [
            record(
                "simulator", 0, counts={"seeds": 5, "events": 7000, "fault: loss": 3, "state: no spare": 2}
            ),
            record("chaos", 4, counts={"fault: pause": 2, "fault: loss": 1}),
            record("chaos", 5, counts={"fault: pause": 4}),
            record("bit-flips: store", counts={"bits": 9, "meta: refused": 8, "leaf: harmless": 1}),
            record("fuzz", counts={"frame": 1000, "cookie": 20}),
            record("mutants", 0, counts={"mutants": 60, "rules": 50}, violations=1),
        ]
    )
    for line in (
        "| events simulated | 7,000 |",
        "| classes of faults | 2 |",
        f"| named states reached | 1 of {len(STATES)} |",
        "| seeds of chaos with real processes | 2 |",
        "| faults injected into real processes | 7 |",
        "| loss | 3 | 1 |",
        "| pause | – | 6 |",
        "| store | meta | 8 | 0 | 8 |",
        "| hostile inputs | 1,020 |",
        "| mutants caught | 59 of 60 |",
        "| violations | 1 |",
    ):
        assert line in made, line


def test_records_are_taken_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "new.jsonl"))
    write_record("chaos", 1, {"fault: kill": 1}, 0, 1.0)
    new = load(write_record("chaos", 2, {"fault: kill": 2}, 0, 1.0))
    kept = tmp_path / "records" / "kept.jsonl"
    assert [take(new[:1], kept), take(new, kept), take(new, kept)] == [1, 1, 0]
    assert load(kept) == new


@pytest.mark.parametrize("line", [{"kind": "chaos"}, record("séance")])
def test_what_is_no_record_is_refused(tmp_path: Path, line: dict[str, Any]) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text(json.dumps(line) + "\n", encoding="utf-8")
    with pytest.raises(UnknownRecordError, match=r"records\.jsonl:1"):
        load(file)
