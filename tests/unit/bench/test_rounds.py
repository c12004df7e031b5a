"""Sides take turns, rounds come to medians, and a ratio has both figures of one round."""

from collections.abc import Callable, Iterator, Mapping
from io import StringIO
from typing import Any

import pytest
import typer
from rich.console import Console

import bench.__main__ as program
from bench.report import WIDTH, ratio_table
from bench.result import Result
from bench.rounds import OURS, PEER, Ratio, in_turn, ratios_of, rows_of
from bench.sides import Side, WorkloadError
from tests.unit.bench.results import WORKLOAD, result

P50_MS = {OURS: {1: 1.0, 2: 6.0, 3: 2.0}, PEER: {1: 4.0, 2: 4.0, 3: 1.0}}
"""The ratios are 0.25, 1.5 and 2; that of the medians would be 0.5."""


def in_rounds(p50_ms: Mapping[str, Mapping[int, float]]) -> list[tuple[int, Result]]:
    return [
        (number, result(side, p50_ms=value))
        for side, values in p50_ms.items()
        for number, value in values.items()
    ]


def only_ratio(results: list[tuple[int, Result]]) -> Ratio:
    (ratio,) = ratios_of(rows_of(results))
    return ratio


def test_each_round_begins_with_the_next_side() -> None:
    assert [in_turn(("a", "b"), number) for number in (1, 2, 3)] == [("a", "b"), ("b", "a"), ("a", "b")]
    assert in_turn(("a", "b", "c"), 3) == ("c", "a", "b")
    assert in_turn(("a",), 2) == ("a",)


def test_the_figures_of_a_row_are_the_medians_of_its_rounds() -> None:
    (row,) = rows_of(
        [
            (1, result(p50_ms=1.0, p99_ms=30.0)),
            (2, result(p50_ms=9.0, p99_ms=10.0)),
            (3, result(p50_ms=2.0, p99_ms=20.0)),
        ]
    )
    assert (row.median.p50_ms, row.median.p99_ms, row.median.read_per_s) == (2.0, 20.0, None)
    assert (row.median.name, row.median.entries) == (WORKLOAD, 15_000)
    record = row.record()
    assert record["p50_ms"] == 2.0
    assert [record["rounds"][number]["p50_ms"] for number in ("1", "2", "3")] == [1.0, 9.0, 2.0]


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds() -> None:
    ratio = only_ratio(in_rounds(P50_MS))
    assert ratio.rounds == {1: 0.25, 2: 1.5, 3: 2.0}
    assert (ratio.median, ratio.spread) == (1.5, (0.25, 2.0))
    assert (ratio.ours, ratio.theirs) == (2.0, 4.0)
    record = ratio.record()
    assert (record["median"], record["least"], record["largest"]) == (1.5, 0.25, 2.0)
    assert record["rounds"] == {"1": 0.25, "2": 1.5, "3": 2.0}


def test_a_round_that_one_side_did_not_measure_has_no_ratio() -> None:
    ratio = only_ratio(in_rounds({OURS: {1: 1.0, 3: 2.0}, PEER: {1: 4.0, 2: 9.0, 3: 1.0}}))
    assert ratio.rounds == {1: 0.25, 3: 2.0}
    assert ratios_of(rows_of(in_rounds({OURS: {1: 1.0}, PEER: {2: 4.0}}))) == []


def test_the_table_has_the_ratio_of_each_round_with_its_median_and_spread() -> None:
    console = Console(file=StringIO(), width=WIDTH)
    console.print(ratio_table([only_ratio(in_rounds(P50_MS))]))
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    cells = [cell.strip() for line in shown.splitlines() if WORKLOAD in line for cell in line.split("│")]
    assert cells[1:-1] == [WORKLOAD, "p50 ms", "2.00", "4.00", "0.25  1.50  2.00", "1.50", "0.25 to 2.00"]


def test_the_sides_alternate_round_by_round(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Of the program itself, with sides that only say what they were asked."""
    turns: list[str] = []
    written: list[Any] = []

    class Recorded:
        def __init__(self, name: str) -> None:
            self.name = name

    def run_side(
        side: Side, _work: Any, _step: Any, on_failure: Callable[[WorkloadError], None], *, is_peer: bool
    ) -> Iterator[Result]:
        turns.append(side.name)
        assert is_peer == (side.name == PEER)
        if len(turns) == 3:
            on_failure(WorkloadError("it ended"))
        else:
            yield result(side.name, p50_ms=float(len(turns)))

    class Peer(Recorded):
        def __init__(self, *_: Any) -> None:
            super().__init__(PEER)

    monkeypatch.setattr(program, "DaybookSide", lambda _directory: Recorded(OURS))
    monkeypatch.setattr(program, "BookKeeperSide", Peer)
    monkeypatch.setattr(program, "run_side", run_side)
    monkeypatch.setattr(program, "write_report", lambda rows, rounds_s, *_: written.extend((rows, rounds_s)))
    with pytest.raises(typer.Exit) as ended:
        program.main(peer=True, rounds=3, scale=0.001, only=WORKLOAD, out=tmp_path, data=tmp_path)
    assert turns == [OURS, PEER, PEER, OURS, OURS, PEER]
    rows, rounds_s = written
    assert [(row.median.side, sorted(row.rounds)) for row in rows] == [(OURS, [1, 2, 3]), (PEER, [1, 3])]
    assert len(rounds_s) == 3
    assert ended.value.exit_code == 1
