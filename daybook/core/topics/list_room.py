"""How much room a topic's list has left: it is one node of ZooKeeper, of at most 1,000,000 bytes.

A list that is half full grows more slowly: a ledger is used for as long as the policy allows, however full or idle it is. In a list that
is nearly full no ledger begins: the open one is written on, and where none is open messages are refused until ledgers were trimmed. What
room is left then is for the changes that must be possible whatever happens: a take-over, the end of the open ledger, a trim.
"""

from dataclasses import replace
from enum import Enum
from typing import Final

from daybook.core.errors import TopicFullError
from daybook.core.topics.ledger_list import LedgerList
from daybook.core.topics.open_ledger import ManagedLedgerPolicy

SCARCE_BYTES: Final = 500_000
NEARLY_FULL_BYTES: Final = 800_000
"""From here on a person is to be told."""
FULL_BYTES: Final = 900_000
RECOMPACTED_BYTES_MAX: Final = 950_000
"""How large a full list may become by a compaction in place of an earlier one, whose horizon is what holds the trim up (rule 51)."""
MEASURED_LEDGERS: Final = 20
"""A list of fewer ledgers has ample room and is not measured: a row with two places of 1,000 characters has at most 25,000 bytes."""
NEVER_MS: Final = 1 << 62


class Room(Enum):
    """What the size of a list allows."""

    AMPLE = "ledgers begin and end as the policy says"
    SCARCE = "a ledger is used for as long as the policy allows"
    NONE = "no ledger begins"


def measured_bytes(ledger_list: LedgerList) -> int:
    """The size of a list as it is stored; 0 for one of fewer than MEASURED_LEDGERS."""
    compacted = () if ledger_list.compaction is None else ledger_list.compaction.ledgers
    if len(ledger_list.ledgers) + len(compacted) < MEASURED_LEDGERS:
        return 0
    return len(ledger_list.to_json())


def room_in(size_bytes: int) -> Room:
    """The room in a list of so many bytes, as `measured_bytes` has them."""
    if size_bytes >= FULL_BYTES:
        return Room.NONE
    return Room.SCARCE if size_bytes >= SCARCE_BYTES else Room.AMPLE


def limits(policy: ManagedLedgerPolicy, room: Room) -> ManagedLedgerPolicy:
    """When the open ledger is to end, where the list has this room."""
    if room is Room.AMPLE:
        return policy
    age_ms = policy.age_ms_max if room is Room.SCARCE else NEVER_MS
    return replace(policy, age_ms_min=age_ms, idle_ms_max=max(age_ms, policy.idle_ms_max))


def check_room(topic: str, current: LedgerList, target: LedgerList) -> None:
    """Refuse an order that makes a full list larger: to name files, copies or compacted ledgers. Raises TopicFullError."""
    is_again = current.compaction not in (None, target.compaction)
    size_bytes = measured_bytes(target)
    limit = RECOMPACTED_BYTES_MAX if is_again else FULL_BYTES
    if size_bytes >= limit and size_bytes > measured_bytes(current):
        raise topic_full(topic)


def topic_full(topic: str) -> TopicFullError:
    """The error for whoever needs room in the list."""
    msg = (
        f"topic {topic} has as many ledgers as its list can name ({FULL_BYTES} bytes): shorten its retention, consume what its"
        " subscriptions have not acknowledged, delete those that nobody uses, and compact it again if it was compacted; it goes on once"
        " ledgers were trimmed"
    )
    return TopicFullError(msg)
