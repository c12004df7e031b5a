"""Ledgers that a crash left behind: made for a topic, and named by nothing (rule 28, rule 38, rule 56).

An owner makes a ledger first and names it afterwards, in the topic's list or in a cursor's node; it takes the name away first and deletes
the ledger afterwards. An owner that ends in between leaves a ledger that nobody names. So does one that gives the topic up while it does not
know whether the list names its newest ledger, since it may not delete that. A ledger that is not named now may be named a moment later, so
its age proves nothing. Two things prove that it never will be:

- Another owner made it. Each owner puts the token of its take-over into what it makes, and every change of the list or of a cursor
  requires the version of the list as that owner wrote it. Once the list has another token, the maker's changes fail.
- It is a ledger of messages whose id is below the list's newest one: a list takes ledgers in the order of their ids.

So the owner of the topic decides, with a list and cursors that it read after a `sync`; where the topic is gone, nothing can name the ledger.
A compacted ledger is named by the list as well, and so is the copy of a ledger that was offloaded (rule 72), but their ids prove nothing: they may
be named after newer ones were.
A ledger with any other key in its custom metadata serves a purpose that this module does not know, and stays; so does one that a job wrote
(JOB_KEY), which its owner may be asked to name at any time (compaction/commit.py, offload/restore.py): its age decides, see COMMIT_AGE_MS_MAX. The grace is for what
nobody thought of.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from daybook.core.errors import TopicNameError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import POOL_KEY, TOPIC_KEY, LedgerMetadata
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.ledger_list import LedgerList
from daybook.core.topics.name import TopicName

SUBSCRIPTION_KEY: Final = "daybook/subscription"
"""In the custom metadata of a cursor's ledger, beside the topic."""
OWNER_KEY: Final = "daybook/owner"
"""The token of the owner that made a ledger for a topic."""
COMPACTION_KEY: Final = "daybook/compaction"
"""In the custom metadata of a compacted ledger, beside the topic; its value has no meaning."""
RESTORED_KEY: Final = "daybook/restored"
"""In the custom metadata of the copy of a ledger that was offloaded, beside the topic: the id of that ledger."""

JOB_KEY: Final = "spark-job"
"""In the custom metadata of a ledger that a job wrote: the id of that run."""
TASK_KEY: Final = "spark-task"
"""Beside it: which part of the job wrote it."""
COMMIT_AGE_MS_MAX: Final = 12 * 3600 * 1000
"""An owner names no ledger of a job that is older. So whoever finds one that is twice as old, and that no list names, may delete it: both clocks
would have to differ by hours for the owner to name it later."""

_KEYS: Final = frozenset({TOPIC_KEY, SUBSCRIPTION_KEY, OWNER_KEY, POOL_KEY, COMPACTION_KEY, RESTORED_KEY})


def made_by_compaction(topic: str, owner_token: str, *, pool: str = "") -> dict[str, bytes]:
    """The custom metadata of a compacted ledger; it stays in `pool`, if one is given."""
    return {**made_by(topic, owner_token, pool=pool), COMPACTION_KEY: b""}


def made_by_compaction_job(topic: str, job: str, task: str, *, pool: str = "") -> dict[str, bytes]:
    """The custom metadata of a compacted ledger that a task of a job writes; it stays in `pool`, if one is given."""
    return {COMPACTION_KEY: b"", **_made_by_job(topic, job, task, pool)}


def made_by_restore_job(
    topic: str, ledger_id: LedgerId, job: str, task: str, *, pool: str = ""
) -> dict[str, bytes]:
    """The custom metadata of the copy of a ledger that a task of a job writes; it stays in `pool`, if one is given."""
    return {RESTORED_KEY: str(ledger_id).encode(), **_made_by_job(topic, job, task, pool)}


def _made_by_job(topic: str, job: str, task: str, pool: str) -> dict[str, bytes]:
    marks = {TOPIC_KEY: topic.encode(), JOB_KEY: job.encode(), TASK_KEY: task.encode()}
    if pool:
        marks[POOL_KEY] = pool.encode()
    return marks


def made_by(
    topic: str, owner_token: str, subscription: str | None = None, *, pool: str = ""
) -> dict[str, bytes]:
    """The custom metadata of a ledger of messages, or of the cursor of `subscription`; it stays in `pool`, if one is given."""
    marks = {TOPIC_KEY: topic.encode(), OWNER_KEY: owner_token.encode()}
    if subscription is not None:
        marks[SUBSCRIPTION_KEY] = subscription.encode()
    if pool:
        marks[POOL_KEY] = pool.encode()
    return marks


@dataclass(frozen=True, slots=True)
class TopicLedger:
    """A ledger that was made for a topic, as its metadata says."""

    ledger_id: LedgerId
    topic: TopicName
    owner_token: str
    """Of the owner that made it; empty for an owner of an earlier release."""
    holds_messages: bool
    """Whether producers' messages were written to it: no cursor's ledger, no compacted one, and no copy."""
    created_at_ms: int

    @classmethod
    def of(cls, metadata: LedgerMetadata) -> Self | None:
        """None for a ledger that was not made for a topic, or for more than that."""
        marks: Mapping[str, bytes] = metadata.custom_metadata
        if TOPIC_KEY not in marks or not marks.keys() <= _KEYS:
            return None
        try:
            topic = TopicName.parse(marks[TOPIC_KEY].decode())
            token = marks.get(OWNER_KEY, b"").decode()
        except (TopicNameError, UnicodeDecodeError):
            return None
        holds_messages = marks.keys().isdisjoint((SUBSCRIPTION_KEY, COMPACTION_KEY, RESTORED_KEY))
        return cls(metadata.ledger_id, topic, token, holds_messages, created_at_ms=metadata.created_at_ms)

    def is_older(self, grace_ms: int, unix_ms: int) -> bool:
        """Whether it is old enough to be judged."""
        return unix_ms - self.created_at_ms >= grace_ms


@dataclass(frozen=True, slots=True)
class NamedLedgers:
    """What a topic names: its list, and all its cursors' nodes, read after the list. Without a list there is no such topic."""

    ledger_list: LedgerList | None
    cursors: tuple[CursorRecord, ...] = ()

    def names(self, ledger_id: LedgerId) -> bool:
        """Whether the list or a cursor names the ledger."""
        is_listed = self.ledger_list is not None and ledger_id in self.ledger_list.named_ids
        return is_listed or any(each.cursor_ledger == ledger_id for each in self.cursors)

    def never_names(self, ledger: TopicLedger, owner_token: str) -> bool:
        """Whether nothing names the ledger, and nothing ever will. `owner_token`: of the topic's owner, who asks."""
        if self.names(ledger.ledger_id):
            return False
        if self.ledger_list is None:
            return True
        if self.ledger_list.owner_token == owner_token != ledger.owner_token:
            return True
        return ledger.holds_messages and ledger.ledger_id < self.ledger_list.newest
