"""A row below 99 % of its rate failed: its latencies are not those of a load at that rate."""

from collections.abc import Sequence
from io import StringIO
from typing import Any

import pytest
import typer
from rich.console import Console

import bench.__main__ as program
import bench.broker.report as brokers
from bench import runner
from bench.broker.workloads import NULL, OURS, PEER, REACHED, Row, workloads
from bench.pace import paced
from bench.report import TIMES, failures_of, results_table
from bench.result import Result
from bench.rounds import PEER as BOOKKEEPER
from bench.rounds import ratios_of, rows_of
from bench.workloads import workloads as ledger_workloads
from tests.unit.bench.results import WORKLOAD, result, writing_side

RATE_PER_S = 1_000


def at_a_rate(*reached: float) -> Sequence[tuple[int, Result]]:
    """A row of as many rounds."""
    return [
        (number, result(entries_per_s=each, rate_per_s=RATE_PER_S, p50_ms=1.0))
        for number, each in enumerate(reached, 1)
    ]


@pytest.mark.parametrize(
    ("reached", "has_failed"), [(1000.3, False), (990.0, False), (989.9, True), (540.0, True)]
)
def test_a_row_below_99_percent_of_its_rate_failed(reached: float, *, has_failed: bool) -> None:
    ((_, measured),) = at_a_rate(reached)
    assert measured.is_failed is has_failed
    assert measured.record()["is_failed"] is has_failed
    assert measured.record()["part_of_rate"] == pytest.approx(reached / RATE_PER_S)


def test_a_row_without_a_rate_does_not_fail() -> None:
    measured = result(entries_per_s=1.0, p50_ms=1.0)
    assert not measured.is_failed
    assert measured.part_of_rate is None


def test_what_the_rounds_reached_counts_by_its_median() -> None:
    (kept,), (missed,) = rows_of(at_a_rate(500.0, 1000.0, 995.0)), rows_of(at_a_rate(1000.0, 980.0, 981.0))
    assert not kept.median.is_failed
    assert missed.median.is_failed


def test_a_failed_row_says_so_in_tables_ratios_and_at_the_end() -> None:
    theirs = [(1, result(BOOKKEEPER, entries_per_s=1000.0, rate_per_s=RATE_PER_S, p50_ms=2.0))]
    rows = rows_of([*at_a_rate(540.0), *theirs])
    shown = lines_of(results_table("", [row.median for row in rows], TIMES))
    ours, peer = (line for line in shown if WORKLOAD in line)
    assert ("failed" in ours, "54.0%" in ours) == (True, True)
    assert ("failed" in peer, "100.0%" in peer) == (False, True)
    assert [ratio.record()["failed"] for ratio in ratios_of(rows)] == [["Daybook"]]
    (sentence,) = failures_of(rows)
    assert "540/s of 1,000/s" in sentence


@pytest.mark.parametrize(("reached", "exit_code"), [(540.0, 1), (1000.0, None)])
def test_a_failed_row_is_a_failure_of_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, reached: float, exit_code: int | None
) -> None:
    monkeypatch.setattr(
        program, "run_side", lambda *_, is_peer: iter([each for _, each in at_a_rate(reached)])
    )
    monkeypatch.setattr(program, "write_report", lambda *_: None)
    ended: int | None = None
    try:
        program.main(scale=0.001, only=WORKLOAD, out=tmp_path, data=tmp_path)
    except typer.Exit as failed:
        ended = failed.exit_code
    assert ended == exit_code


def test_the_rate_of_a_workload_is_compared_with_what_its_client_reached() -> None:
    paced_row = next(work for work in ledger_workloads(1.0) if work.name == WORKLOAD)
    in_flight = next(work for work in ledger_workloads(1.0) if work.name == "1 KiB, one in flight")
    assert paced_row.rate_per_s == RATE_PER_S
    side = writing_side(seconds=2 * paced_row.count / RATE_PER_S)
    measured = runner.measure(side, paced_row, 0.0)
    assert measured.part_of_rate == pytest.approx(0.5)
    assert measured.is_failed
    assert not runner.measure(side, in_flight, 0.0).is_failed


def test_a_row_at_a_rate_is_long_beside_the_latency_of_its_last_entry() -> None:
    assert paced(1_000, 15.0, 1.0) == 15_000
    assert paced(1_000, 15.0, 0.001) == 5_000


def broker_rows(name: str, reached: dict[str, float], p50_ms: dict[str, float]) -> dict[str, Row]:
    """The rows of a workload of brokers after a round, by their figures."""
    (work,) = (each for each in workloads(1.0) if each.name == name)
    rows = {row.figure.key: row for row in work.rows()}
    for key, figures in ((REACHED, reached), ("publish_p50_ms", p50_ms)):
        for side, value in figures.items():
            rows[key].rounds[side].append(value)
    return rows


BROKERS = "1 KiB at 1,000/s without batches"


def test_ours_keeps_no_aim_where_it_did_not_reach_the_rate() -> None:
    p50_ms = {OURS: 1.0, PEER: 2.0}
    kept = broker_rows(BROKERS, {OURS: 995.0, PEER: 1000.0}, p50_ms)
    failed = broker_rows(BROKERS, {OURS: 980.0, PEER: 1000.0}, p50_ms)
    assert [kept[key].is_met for key in (REACHED, "publish_p50_ms")] == [True, True]
    assert [failed[key].is_met for key in (REACHED, "publish_p50_ms")] == [False, False]
    (sentence,) = brokers.failures_of(list(failed.values()))
    assert "980/s of 1,000/s" in sentence
    assert brokers.failures_of(list(kept.values())) == []


def test_a_peer_that_did_not_reach_the_rate_sets_no_bound() -> None:
    p50_ms = {OURS: 3.0, PEER: 2.0, NULL: 0.1}
    assert broker_rows(BROKERS, {OURS: 1000.0, PEER: 1000.0}, p50_ms)["publish_p50_ms"].is_met is False
    row = broker_rows(BROKERS, {OURS: 1000.0, PEER: 500.0, NULL: 1000.0}, p50_ms)["publish_p50_ms"]
    assert (row.aim, row.is_met, row.failed_sides) == (None, None, [PEER])


def test_a_failed_side_says_so_in_the_table_and_the_record_of_brokers() -> None:
    rows = broker_rows(BROKERS, {OURS: 980.0, PEER: 1000.0}, {OURS: 1.0, PEER: 2.0})
    line = next(line for line in lines_of(brokers._table(list(rows.values()))) if "publish p50" in line)
    assert "1.00 failed" in line
    assert "2.00 failed" not in line
    assert brokers._record(rows["publish_p50_ms"])["failed"] == [OURS]


def lines_of(table: Any) -> list[str]:
    console = Console(file=StringIO(), width=200)
    console.print(table)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()
