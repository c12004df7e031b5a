"""The simulator that runs beside a workload simulates while that runs, and is gone afterwards."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench import runner
from bench.many import cpu_seconds
from bench.sides import WorkloadError
from bench.simulator import BUSY_S, members, simulator
from bench.workloads import workloads
from daybook.local.child import wait_for_exit
from tests.unit.bench.results import writing_side

END_MS = 20_000


@pytest.mark.integration
def test_it_simulates_beside_the_block_and_is_gone_after_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DAYBOOK_RECORDS", str(tmp_path / "records.jsonl"))
    with simulator() as session:
        assert os.getpgid(session) == session
        processes = members(session)
        assert sum(cpu_seconds(pid) for pid in processes if pid != session) >= BUSY_S
    assert all(wait_for_exit(pid, END_MS) for pid in processes)
    assert not (tmp_path / "records.jsonl").exists()


@pytest.mark.integration
def test_a_workload_beside_a_simulator_that_ended_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.simulator.SEEDS", "0..0")
    monkeypatch.setattr("bench.simulator.BUSY_S", 1e6)  # one seed does not take so long
    with pytest.raises(WorkloadError, match="ended with exit code"), simulator():
        pass


def test_the_row_is_written_while_it_simulates_and_no_other_row_is(monkeypatch: pytest.MonkeyPatch) -> None:
    is_there: list[bool] = []
    written: list[tuple[str, bool]] = []

    @contextmanager
    def recorded() -> Iterator[int]:
        is_there.append(True)
        yield 0
        is_there.clear()

    side = writing_side(15.0, lambda work: written.append((work.name, bool(is_there))))
    monkeypatch.setattr(runner, "simulator", recorded)
    for work in workloads(1.0):
        if "1,000/s" in work.name:
            runner.measure(side, work, 0.0)
    assert written == [("1 KiB at 1,000/s", False), ("1 KiB at 1,000/s beside make sim", True)]


def test_one_row_runs_beside_it_and_is_otherwise_that_of_the_quiet_machine() -> None:
    (beside,) = (work for work in workloads(1.0) if work.beside_sim)
    quiet = next(work for work in workloads(1.0) if work.name == "1 KiB at 1,000/s")
    assert beside.name == f"{quiet.name} beside make sim"
    assert (beside.count, beside.rate_per_s, beside.ledgers) == (quiet.count, quiet.rate_per_s, quiet.ledgers)
