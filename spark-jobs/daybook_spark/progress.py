"""How far the tasks of a job are, for whoever shows it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkStageInfo, StatusTracker
from pyspark.sql import SparkSession

OnProgress = Callable[[int, int], None]
"""Receives the finished tasks, and all."""
_POLL_S: Final = 0.2


@contextmanager
def tasks_progress(spark: SparkSession, on_progress: OnProgress) -> Iterator[None]:
    """Report the finished and all tasks of the stages that run meanwhile."""
    tracker = spark.sparkContext.statusTracker()
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(_POLL_S):
            largest = _largest_stage(tracker)
            if largest is not None:
                on_progress(largest.numCompletedTasks, largest.numTasks)

    follower = threading.Thread(target=follow, name="job-progress", daemon=True)
    follower.start()
    try:
        yield
    finally:
        ended.set()
        follower.join()


def _largest_stage(tracker: StatusTracker) -> SparkStageInfo | None:
    """The stage with the most tasks among those that run; None if none runs, or if Spark cannot say."""
    try:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except Py4JError:  # a stage, or Spark itself, ended between two questions
        return None
    known = [stage for stage in stages if stage is not None]
    return max(known, key=lambda stage: stage.numTasks, default=None)
