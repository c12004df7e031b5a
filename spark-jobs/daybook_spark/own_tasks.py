"""A block of Spark jobs that none of its tasks outlives, so that what follows may delete what tasks have written.

A job that fails returns while others of its tasks still run: Spark asks them to end, and kills the process of one that does not listen after
`spark.python.task.killTimeout` (two seconds). A task that makes a ledger within that time, behind the search for the job's ledgers, leaves
it to a retention (rule 71). A copy of a task that Spark repeats out of impatience (speculation) may outlive a job that succeeds.

What ends is what Spark counts. It counts a task as ended once it has asked for the end of its process, which on a busy machine runs for some
milliseconds more. What it makes in these is left to a retention, too.
"""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkContext, StatusTracker
from pyspark.sql import SparkSession

from daybook.runtime.clock import monotonic_s
from daybook.runtime.logs import get_logger

END_S: Final = 30.0
"""How long tasks are waited for: one whose executor is cut off may run for longer."""
_POLL_S: Final = 0.1
_GROUP: Final = "spark.jobGroup.id"
_RUNNING: Final = "RUNNING"

log = get_logger(__name__)


@contextmanager
def own_tasks(spark: SparkSession) -> Iterator[str]:
    """Run the jobs of this thread within the block as one job group, whose name it gives; when the block is left, its tasks have ended, or END_S are over."""
    context, group = spark.sparkContext, uuid.uuid4().hex
    former = context.getLocalProperty(_GROUP)
    context.setLocalProperty(_GROUP, group)
    try:
        yield group
    finally:
        try:
            context.cancelJobGroup(group)  # what an interrupt left running
            last = _run_last(context, group)
            context.setLocalProperty(_GROUP, former)  # type: ignore[arg-type]  # None removes it
            _wait(context.statusTracker(), group, last)
        except Py4JError as error:  # Spark itself has ended, and the block's own error says more
            log.warning("nobody knows whether tasks of a job still run", why=str(error))


def _run_last(context: SparkContext, group: str) -> str:
    """Run a job without tasks, which needs no slot, in a group of its own, and return that.

    The tracker learns of everything late, but in its order: once it knows this job, it knows all that began before.
    """
    last = f"{group}-last"
    context.setLocalProperty(_GROUP, last)
    context.emptyRDD().collect()
    return last


def _wait(tracker: StatusTracker, group: str, last: str) -> None:
    """Return once the tracker knows the group `last`, and no task of `group` runs any more, or END_S are over."""
    deadline_s = monotonic_s() + END_S
    while not tracker.getJobIdsForGroup(last) or _has_tasks(tracker, group):
        if monotonic_s() > deadline_s:
            log.warning("tasks of a job still run: what they leave a retention deletes (rule 71)")
            return
        time.sleep(_POLL_S)


def _has_tasks(tracker: StatusTracker, group: str) -> bool:
    """Whether a job of the group, or a task of it, runs."""
    jobs = list(filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group))))
    if any(job.status == _RUNNING for job in jobs):
        return True
    ids = {stage for job in jobs for stage in job.stageIds}
    return any(stage.numActiveTasks for stage in filter(None, map(tracker.getStageInfo, ids)))
