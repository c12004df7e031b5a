"""Once the block is left, none of its tasks runs, whether its job failed or was interrupted; the tasks of others do."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

import pytest
from daybook_spark.own_tasks import own_tasks
from pyspark import InheritableThread

from tests.unit.spark.gate import Gate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

LIMIT_S = 120


class Waiting:
    """For `with`: one task comes here, and waits until it is killed or the block ends."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(LIMIT_S)
        self._task: socket.socket | None = None
        self.port = int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.let_go()

    def accept(self) -> None:
        """Return once the task waits."""
        self._task, _ = self._listener.accept()
        self._task.settimeout(0)

    def let_go(self) -> None:
        """Have the task end."""
        if self._task is not None:
            self._task.close()

    def runs(self) -> bool:
        """Whether it still does."""
        assert self._task is not None
        with contextlib.suppress(BlockingIOError):
            return self._task.recv(1) != b""
        return True


def one_of_each(port: int, port_of_failing: int) -> Callable[[Iterable[int]], Iterable[int]]:
    """Of two tasks the first fails once its port lets it, and the second waits."""

    def run(numbers: Iterable[int]) -> Iterable[int]:
        import socket

        for number in numbers:
            with socket.create_connection(("127.0.0.1", port if number else port_of_failing)) as door:
                door.recv(1)
            if not number:
                raise ValueError(number)
            yield number

    return run


def test_a_job_that_fails_ends_with_the_last_of_its_tasks(spark: "SparkSession") -> None:
    with Waiting() as waiting, Gate() as gate:

        def let_it_fail() -> None:
            waiting.accept()
            gate.open()

        opener = threading.Thread(target=let_it_fail)
        opener.start()
        tasks = spark.sparkContext.parallelize([0, 1], 2)
        with pytest.raises(Exception, match=r"ValueError|ConnectionRefusedError"), own_tasks(spark):
            tasks.mapPartitions(one_of_each(waiting.port, gate.port)).collect()
        assert not waiting.runs()
        opener.join()


def test_a_block_that_is_interrupted_ends_its_tasks_and_leaves_those_of_others(
    spark: "SparkSession",
) -> None:
    tasks = spark.sparkContext.parallelize([1], 1)

    def collect(port: int) -> list[int]:
        return tasks.mapPartitions(one_of_each(port, 0)).collect()

    def collect_until_cancelled(port: int) -> None:
        with pytest.raises(Exception, match="cancelled"):
            collect(port)

    with ThreadPoolExecutor() as threads, Waiting() as others, Waiting() as own:
        of_others = threads.submit(collect, others.port)
        others.accept()
        of_block = InheritableThread(lambda: collect_until_cancelled(own.port), session=spark)
        with contextlib.suppress(KeyboardInterrupt), own_tasks(spark):
            of_block.start()
            own.accept()
            raise KeyboardInterrupt
        assert (own.runs(), others.runs()) == (False, True)
        of_block.join()
        others.let_go()
        assert of_others.result() == [1]
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None
