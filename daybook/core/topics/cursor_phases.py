"""A cursor: how far one subscription is, made durable while it moves, under the topic's owner.

The owner reads the cursor's node. If the node names a ledger, the ledger's last entry is a newer record; the owner recovers and closes the
ledger first, since the former owner may have left it open. A ledger that is gone or cannot be read is no loss: the node has an
older record, and more is delivered again.

While positions move, the state is persisted at most once a second, as an entry of a ledger of the cursor's own. A ledger gets its first
record before the node names it, so a ledger that is named always has one. A ledger that is full or old gives way to a new one,
which begins with the whole state: this is how a cursor's history is compacted. When nothing has moved for a while, and when the
cursor is closed, the node gets the state and names no ledger. Only then is the ledger deleted; so is one that no node ever named,
once that is certain.

Trimming relies on what is persisted, never on what is only acknowledged (rule 40). A record has a bounded number of ranges; what lies
beyond is delivered again after a fail-over, and a warning says so. After a seek the node gets the state at once, since an older
record in it could pass what the seek went back to.

Every write of the node checks the version of the topic's list as well. Where the check fails, the owner reads both anew: its own list may
have moved on, and another broker may own the topic, which ends everything (rule 38).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class CursorPhase(Enum):
    """What a cursor does."""

    READING = "the node is being read"
    BEGINNING = "the node is being created"
    RECOVERING = "the last record of the ledger that the node names is being read"
    RESTING = "no ledger is open"
    STORING = "the node gets the state, and is to name no ledger"
    CREATING = "a ledger is being created"
    FILLING = "the ledger gets its first record"
    NAMING = "the node is to name the ledger"
    OPEN = "the last record of the ledger is the newest one"
    APPENDING = "the ledger gets another record"
    CLOSING = "the ledger is being closed, and keeps what the node has no room for"
    DELETING = "the node is being deleted"
    ENDED = "the cursor is not held"


TRANSITIONS: Final[Mapping[tuple[CursorPhase, CursorPhase], str]] = {
    (CursorPhase.READING, CursorPhase.BEGINNING): "there is none, and one is to begin",
    (CursorPhase.READING, CursorPhase.RECOVERING): "the node names a ledger",
    (CursorPhase.READING, CursorPhase.RESTING): "the node has the newest record",
    (CursorPhase.READING, CursorPhase.ENDED): "there is no such subscription, or another owner",
    (CursorPhase.BEGINNING, CursorPhase.RESTING): "it is created",
    (CursorPhase.BEGINNING, CursorPhase.READING): "it is there already, another owner's, or nobody knows",
    (CursorPhase.RECOVERING, CursorPhase.RESTING): "the record is read, or given up",
    (CursorPhase.RESTING, CursorPhase.STORING): "the first move after a pause, idle, sought, or to be closed",
    (CursorPhase.RESTING, CursorPhase.CREATING): "positions move",
    (CursorPhase.RESTING, CursorPhase.DELETING): "the subscription ends",
    (CursorPhase.RESTING, CursorPhase.ENDED): "closed",
    (CursorPhase.STORING, CursorPhase.RESTING): "it is stored",
    (CursorPhase.STORING, CursorPhase.ENDED): "another owner was first (rule 38)",
    (CursorPhase.CREATING, CursorPhase.FILLING): "the ledger exists",
    (CursorPhase.CREATING, CursorPhase.RESTING): "there is no ledger: again after a pause",
    (CursorPhase.CREATING, CursorPhase.OPEN): "there is no new ledger: the old one continues",
    (CursorPhase.FILLING, CursorPhase.NAMING): "it has a record",
    (CursorPhase.FILLING, CursorPhase.RESTING): "it takes none: another one after a pause",
    (CursorPhase.FILLING, CursorPhase.OPEN): "it takes none: the old one continues",
    (CursorPhase.NAMING, CursorPhase.OPEN): "it is named",
    (CursorPhase.NAMING, CursorPhase.ENDED): "another owner was first (rule 38)",
    (CursorPhase.OPEN, CursorPhase.APPENDING): "positions move",
    (CursorPhase.OPEN, CursorPhase.CREATING): "it is full or old",
    (CursorPhase.OPEN, CursorPhase.STORING): "idle, sought, or to be closed",
    (CursorPhase.OPEN, CursorPhase.CLOSING): "to be closed, and the node has no room for the state",
    (CursorPhase.OPEN, CursorPhase.DELETING): "the subscription ends",
    (CursorPhase.APPENDING, CursorPhase.OPEN): "it is appended",
    (CursorPhase.APPENDING, CursorPhase.RESTING): "the ledger takes no more: another one after a pause",
    (CursorPhase.CLOSING, CursorPhase.ENDED): "it is closed, or the next owner closes it",
    (CursorPhase.DELETING, CursorPhase.ENDED): "it is deleted, or another owner's",
}
