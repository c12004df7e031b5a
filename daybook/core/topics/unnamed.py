"""Ledgers that a crash left behind: made for a topic, and named by nothing (rule 28, rule 38, rule 56).

An owner makes a ledger first and names it afterwards, in the topic's list or in a cursor's node; it takes the name away first and deletes
the ledger afterwards. An owner that ends in between leaves a ledger that nobody names. A ledger that is not named now may be named a
moment later, so its age proves nothing. Two things prove that it never will be:

- Another owner made it. Each owner puts the token of its take-over into what it makes, and every change of the list or of a cursor
  requires the version of the list as that owner wrote it. Once the list has another token, the maker's changes fail.
- It is a ledger of messages whose id is below the list's newest one: a list takes ledgers in the order of their ids.

So the owner of the topic decides, with a list and cursors that it read after a `sync`; where the topic is gone, nothing can name the ledger.
A ledger with any other key in its custom metadata serves a purpose that this module does not know, and stays. The grace is for what nobody
thought of.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from daybook.core.errors import TopicNameError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import TOPIC_KEY, LedgerMetadata
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.ledger_list import LedgerList
from daybook.core.topics.name import TopicName

SUBSCRIPTION_KEY: Final = "daybook/subscription"
"""In the custom metadata of a cursor's ledger, beside the topic."""
OWNER_KEY: Final = "daybook/owner"
"""The token of the owner that made a ledger for a topic."""

_KEYS: Final = frozenset({TOPIC_KEY, SUBSCRIPTION_KEY, OWNER_KEY})


def made_by(topic: str, owner_token: str, subscription: str | None = None) -> dict[str, bytes]:
    """The custom metadata of a ledger of messages, or of the cursor of `subscription`."""
    marks = {TOPIC_KEY: topic.encode(), OWNER_KEY: owner_token.encode()}
    if subscription is not None:
        marks[SUBSCRIPTION_KEY] = subscription.encode()
    return marks


@dataclass(frozen=True, slots=True)
class TopicLedger:
    """A ledger that was made for a topic, as its metadata says."""

    ledger_id: LedgerId
    topic: TopicName
    owner_token: str
    """Of the owner that made it; empty for an owner of an earlier release."""
    is_of_cursor: bool
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
        return cls(
            metadata.ledger_id, topic, token, SUBSCRIPTION_KEY in marks, created_at_ms=metadata.created_at_ms
        )

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
        listed = () if self.ledger_list is None else self.ledger_list.ledgers
        return any(each.ledger_id == ledger_id for each in listed) or any(
            each.cursor_ledger == ledger_id for each in self.cursors
        )

    def never_names(self, ledger: TopicLedger, owner_token: str) -> bool:
        """Whether nothing names the ledger, and nothing ever will. `owner_token`: of the topic's owner, who asks."""
        if self.names(ledger.ledger_id):
            return False
        if self.ledger_list is None:
            return True
        if self.ledger_list.owner_token == owner_token != ledger.owner_token:
            return True
        return not ledger.is_of_cursor and ledger.ledger_id < self.ledger_list.newest
