"""Who repaired what: after each harm the replicas must come back by recovery Jobs, and by nobody else.

There are two witnesses. The API server: which Jobs there were, for which ledgers, and how they ended. ZooKeeper: who held the
lock of a ledger under repair. A lock that no Job's pod held, or a ledger that was owed a repair and was in no Job that
came to its end, fails the step.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

TASKS: Final = "daybook.dev/tasks"


class StepError(Exception):
    """A step did not come to its end, or something was lost; the message says what was seen last."""


@dataclass(frozen=True, slots=True)
class Job:
    """A recovery Job as it was seen last. One that is gone without having failed found its ledgers repaired."""

    name: str
    created: datetime
    ledgers: frozenset[int]
    succeeded: bool
    failed: bool
    gone: bool = False

    @property
    def did_it(self) -> bool:
        """Whether it came to its end."""
        return self.succeeded or (self.gone and not self.failed)


class Repairs:
    """All recovery Jobs of a run."""

    def __init__(self) -> None:
        """None yet."""
        self._jobs: dict[str, Job] = {}

    def note(self, listed: Iterable[Mapping[str, Any]]) -> None:
        """Take a list of the Jobs that there are: they are deleted some time after they end."""
        here = {job.name: job for job in map(_job, listed)}
        self._jobs = {name: replace(job, gone=True) for name, job in self._jobs.items()} | here

    def account(self, since: datetime, owed: Iterable[int], holders: Mapping[str, list[int]]) -> str:
        """What the Jobs did since then, in words. Raises StepError if `owed` ledgers were repaired otherwise, or not."""
        strangers = {who: ids for who, ids in holders.items() if self._job_of(who) is None}
        if strangers:
            raise StepError(
                f"not by Jobs alone: these repaired ledgers and are no recovery Jobs: {strangers}"
            )
        new = [job for job in self._jobs.values() if job.created >= since]
        repaired = frozenset[int]().union(*(job.ledgers for job in new if job.did_it))
        if left := sorted(set(owed) - repaired):
            raise StepError(f"ledgers {left} were owed a repair, and no Job of {new} that succeeded had them")
        if not new:
            return "no Job needed"
        failed = sum(job.failed for job in new)
        did = f"{len(new)} Job{'s' * (len(new) > 1)}, {len(repaired)} ledgers"
        return did + (f", {failed} failed" if failed else "")

    def _job_of(self, holder: str) -> Job | None:
        """A worker's name begins with that of its pod, and that with its Job's."""
        return next((job for name, job in self._jobs.items() if holder.startswith(f"{name}-")), None)

    def __len__(self) -> int:
        """How many there were."""
        return len(self._jobs)


def _job(listed: Mapping[str, Any]) -> Job:
    meta, status = listed["metadata"], listed.get("status") or {}
    keys = (meta.get("annotations") or {}).get(TASKS, "")
    over = {each["type"] for each in status.get("conditions", ()) if each["status"] == "True"}
    return Job(
        meta["name"],
        datetime.fromisoformat(meta["creationTimestamp"]),
        frozenset(int(key.partition(":")[0]) for key in keys.split(",") if key),
        "Complete" in over,
        "Failed" in over,
    )
