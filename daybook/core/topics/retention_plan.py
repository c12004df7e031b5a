"""What a retention job may ask for and delete: it is not the owner of any topic, and decides by metadata that it reads (rule 71).

Owners trim the topics that they have in memory, and delete what crashes left behind. A topic that nobody uses is in no owner's memory, and a
ledger that a job wrote is no owner's to judge. So a job plans trims, which the owner judges again and does (rule 38), and deletes ledgers.

A ledger goes only if nothing names it and nothing ever will. The job reads the ledger first, then after a `sync` the topic's list and its
cursors, all of them or none (rule 28). What it finds proves one of these:

- The topic is gone.
- An owner made the ledger, and the list has another token than its maker's. The maker wrote its token into the list before it made anything, so
  another owner has taken over since, and every change of the maker fails (unnamed.py). A maker without a token is of an earlier release, and
  proves nothing.
- It is a ledger of messages whose id is below the list's newest one.
- A job wrote it, and it is twice as old as what an owner names (COMMIT_AGE_MS_MAX).

A ledger without the mark of a topic, or with a key that nobody here knows, is not judged.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Self

from daybook.core.ledger.metadata import POOL_KEY, LedgerMetadata
from daybook.core.topics.cursor_record import NO_LEDGER, CursorRecord
from daybook.core.topics.ledger_list import LedgerList, ListedLedger, Position
from daybook.core.topics.trimming import Retention, trimmed
from daybook.core.topics.unnamed import COMMIT_AGE_MS_MAX, JOB_KEY, TASK_KEY, NamedLedgers, TopicLedger

GRACE_MS: Final = 2 * COMMIT_AGE_MS_MAX
"""The age from which a ledger is judged. A shorter one is for the ledgers of owners alone."""
_JOB_KEYS: Final = frozenset({JOB_KEY, TASK_KEY})


@dataclass(frozen=True, slots=True)
class MarkedLedger:
    """A ledger that was made for a topic, by an owner of it or by a job."""

    ledger: TopicLedger
    is_of_job: bool
    pool: str = ""

    @classmethod
    def of(cls, metadata: LedgerMetadata) -> Self | None:
        """None for a ledger that was not made for a topic, or for more than that."""
        custom = metadata.custom_metadata
        is_of_job = JOB_KEY in custom
        if is_of_job:
            rest = {key: value for key, value in custom.items() if key not in _JOB_KEYS}
            metadata = replace(metadata, custom_metadata=rest)
        ledger = TopicLedger.of(metadata)
        if ledger is None:
            return None
        return cls(ledger, is_of_job, custom.get(POOL_KEY, b"").decode(errors="replace"))

    def is_old(self, grace_ms: int, unix_ms: int) -> bool:
        """Whether it is old enough to be judged: for a job's ledger never less than GRACE_MS, whatever `grace_ms` says."""
        least_ms = max(grace_ms, GRACE_MS) if self.is_of_job else grace_ms
        return self.ledger.is_older(least_ms, unix_ms)

    def never_named(self, names: NamedLedgers) -> bool:
        """Whether nothing names it and nothing ever will. `names` were read after the ledger, and it is old enough."""
        if names.names(self.ledger.ledger_id):
            return False
        if names.ledger_list is None or self.is_of_job:
            return True
        known = names.ledger_list.owner_token if self.ledger.owner_token else ""
        return names.never_names(self.ledger, known)


@dataclass(frozen=True, slots=True)
class TrimPlan:
    """The first ledgers of a topic that its retention does not keep."""

    ledgers: tuple[ListedLedger, ...] = ()
    is_certain: bool = True
    """False: the owner may know of more acknowledgements, or of a ledger that nobody closed, and is asked before anything is planned."""

    @property
    def size_bytes(self) -> int:
        """Of one copy."""
        return sum(ledger.size_bytes for ledger in self.ledgers)


def plan_trim(
    ledger_list: LedgerList,
    cursors: Iterable[CursorRecord],
    retention: Retention,
    grace_ms: int,
    unix_ms: int,
) -> TrimPlan:
    """What may be trimmed, by metadata alone: `cursors` are the records in the nodes of all subscriptions.

    A cursor that has a ledger is further than its node says, so only the owner knows its mark; the plan has what is past the retention whatever
    that mark is. An open ledger that is older than retention and grace was left by an owner that ended: the next one closes it.
    """
    records = tuple(cursors)
    settled = [record.mark_delete for record in records if record.cursor_ledger == NO_LEDGER]
    count = trimmed(ledger_list, settled, retention, unix_ms)
    is_certain = count == 0 or len(settled) == len(records)
    return TrimPlan(
        ledger_list.ledgers[:count], is_certain and not _was_left(ledger_list, retention, grace_ms, unix_ms)
    )


def plan_with(
    ledger_list: LedgerList, marks: Iterable[Position], retention: Retention, unix_ms: int
) -> TrimPlan:
    """What may be trimmed by the marks that the owner reports."""
    return TrimPlan(ledger_list.ledgers[: trimmed(ledger_list, tuple(marks), retention, unix_ms)])


def _was_left(ledger_list: LedgerList, retention: Retention, grace_ms: int, unix_ms: int) -> bool:
    last = ledger_list.ledgers[-1] if ledger_list.ledgers else None
    if last is None or not last.is_open or retention.time_ms is None:
        return False
    return unix_ms - last.created_at_ms >= retention.time_ms + grace_ms
