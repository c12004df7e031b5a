"""The witnesses of `make e2e` can say no: without a cluster, what they conclude from what they are given."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from tests.cluster.nodes import NodeCluster
from tests.kubernetes.e2e.code import IN_POD, digest_of
from tests.kubernetes.e2e.repairs import TASKS, Repairs, StepError
from tests.kubernetes.e2e.traces import left_behind, traces
from tests.kubernetes.e2e.world import World

BEFORE = datetime(2030, 1, 1, 11, tzinfo=UTC)
HARMED = datetime(2030, 1, 1, 12, tzinfo=UTC)


def job(name: str, *ledgers: int, over: str = "", created: str = "2030-01-01T12:00:05Z") -> dict[str, Any]:
    keys = ",".join(f"{ledger}:0:1700000000000" for ledger in ledgers)
    conditions = [{"type": over, "status": "True"}] if over else []
    return {
        "metadata": {"name": name, "creationTimestamp": created, "annotations": {TASKS: keys}},
        "status": {"conditions": conditions},
    }


def test_jobs_that_succeeded_account_for_what_was_owed() -> None:
    repairs = Repairs()
    repairs.note([job("bk-recovery-1", 1, 2, over="Complete"), job("bk-recovery-2", 3, over="Complete")])
    held = {"bk-recovery-1-x7-1": [1, 2], "bk-recovery-2-y8-1": [3]}
    assert repairs.account(HARMED, [1, 3], held) == "2 Jobs, 3 ledgers"
    repairs.note([])
    assert repairs.account(HARMED, [1, 3], {}) == "2 Jobs, 3 ledgers", (
        "they are deleted some time after they end"
    )
    assert Repairs().account(HARMED, [], {}) == "no Job needed"


@pytest.mark.parametrize(
    "listed",
    [
        [],
        [job("bk-recovery-1", 1, over="Failed")],
        [job("bk-recovery-1", 1)],
        [job("bk-recovery-1", 2, over="Complete")],
        [job("bk-recovery-1", 1, over="Complete", created="2030-01-01T11:59:59Z")],
    ],
    ids=["no Job", "it failed", "it goes on", "another ledger", "before the harm"],
)
def test_a_ledger_that_no_job_mended_fails_the_step(listed: list[dict[str, Any]]) -> None:
    repairs = Repairs()
    repairs.note(listed)
    with pytest.raises(StepError, match=r"ledgers \[1\] were owed a repair"):
        repairs.account(HARMED, [1], {})


def test_a_worker_that_is_no_job_fails_the_step_though_nothing_was_owed() -> None:
    repairs = Repairs()
    repairs.note([job("bk-recovery-1", 1, over="Complete")])
    with pytest.raises(StepError, match="not by Jobs alone"):
        repairs.account(BEFORE, [], {"bk-recovery-1-x7-1": [1], "some-host-4711": [2]})


def test_a_process_and_a_directory_that_are_left_are_told(tmp_path: Path) -> None:
    before = traces(tmp_path / "cluster")
    assert left_behind(before, before) == []
    (tmp_path / "cluster").mkdir()
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()", str(tmp_path / "cluster")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert sleeper.stdout is not None
        sleeper.stdout.readline()  # right after the fork a process has no command line yet
        left = left_behind(before, traces(tmp_path / "cluster"))
    finally:
        sleeper.kill()
        sleeper.communicate()
    assert [each.partition(":")[0] for each in left] == ["processes", "files"]
    assert left_behind(before, traces(tmp_path / "cluster", files=False)) == []


def test_a_pod_digests_its_packages_as_the_tree_does() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_POD, "daybook"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == digest_of("daybook")
    assert digest_of("daybook") != digest_of("daybook_bookie")


def test_what_takes_longer_than_is_asked_is_missed() -> None:
    world = World(cast("NodeCluster", None), ())
    assert world.judged("without receipts at most", 8.0, 8.0) == "without receipts at most 8.0 s (asked: 8)"
    assert world.missed == []
    said = world.judged("without receipts at most", 8.1, 8.0)
    assert world.missed == [said]
