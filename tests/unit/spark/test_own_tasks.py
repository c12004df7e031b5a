"""Once the block is left, none of its tasks runs, whether its job failed or was interrupted; the tasks of others do.

Spark counts a task as ended a moment before its process is: so Spark is asked for its count, and the process has to follow.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from daybook_spark.own_tasks import own_tasks
from pyspark import InheritableThread

from tests.unit.spark.gate import Gate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def one_of_each(port: int, port_of_failing: int) -> Callable[[Iterable[int]], Iterable[int]]:
    """Of two tasks the first fails once its gate is open, and the second waits at another one."""

    def run(numbers: Iterable[int]) -> Iterable[int]:
        import socket

        for number in numbers:
            with socket.create_connection(("127.0.0.1", port if number else port_of_failing)) as door:
                door.recv(1)
            if not number:
                raise ValueError(number)
            yield number

    return run


def active_tasks(spark: "SparkSession", group: str) -> int:
    """The tasks of a job group that run, as Spark counts them."""
    tracker = spark.sparkContext.statusTracker()
    ids = tracker.getJobIdsForGroup(group)
    assert ids, "a block's jobs are in its group"
    jobs = filter(None, map(tracker.getJobInfo, ids))
    stages = filter(None, (tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds))
    return sum(stage.numActiveTasks for stage in stages)


def test_a_job_that_fails_ends_with_the_last_of_its_tasks(spark: "SparkSession") -> None:
    with Gate() as gate, Gate() as gate_of_failing:

        def let_it_fail() -> None:
            gate.wait_for(1)
            gate_of_failing.open()

        opener = threading.Thread(target=let_it_fail)
        opener.start()
        tasks = spark.sparkContext.parallelize([0, 1], 2)
        with (
            pytest.raises(Exception, match=r"ValueError|ConnectionRefusedError"),
            own_tasks(spark) as group,
        ):
            tasks.mapPartitions(one_of_each(gate.port, gate_of_failing.port)).collect()
        assert active_tasks(spark, group) == 0
        gate.wait_until_gone()
        opener.join()


def test_a_block_that_is_interrupted_ends_its_tasks_and_leaves_those_of_others(
    spark: "SparkSession",
) -> None:
    tasks = spark.sparkContext.parallelize([1], 1)

    def collect(gate: Gate) -> list[int]:
        return tasks.mapPartitions(one_of_each(gate.port, 0)).collect()

    def collect_until_cancelled(gate: Gate) -> None:
        with pytest.raises(Exception, match="cancelled"):
            collect(gate)

    with ThreadPoolExecutor() as threads, Gate() as others, Gate() as own:
        of_others = threads.submit(collect, others)
        others.wait_for(1)
        of_block = InheritableThread(lambda: collect_until_cancelled(own), session=spark)
        with contextlib.suppress(KeyboardInterrupt), own_tasks(spark) as group:
            of_block.start()
            own.wait_for(1)
            raise KeyboardInterrupt
        assert active_tasks(spark, group) == 0
        own.wait_until_gone()
        assert others.waiting() == 1
        of_block.join()
        others.open()
        assert of_others.result() == [1]
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None
