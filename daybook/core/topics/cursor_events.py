"""What goes into the machine of a cursor and what comes out of it.

Answers about ledgers are those of daybook/core/topics/events.py: `LedgerCreated`, `LedgerEnded`, `LedgerDeleted`, `LedgerRequestFailed`.
`CasAnswered` and `MetadataUnreadable` of daybook.core.events answer for the node.
"""

from dataclasses import dataclass
from typing import TypeAlias

from daybook.core.errors import DaybookError
from daybook.core.events import CasAnswered, MetadataUnreadable
from daybook.core.ids import LedgerId
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.events import (
    CloseLedger,
    DeleteLedger,
    LedgerCreated,
    LedgerDeleted,
    LedgerEnded,
    LedgerRequestFailed,
    Retrying,
)

# Events.


@dataclass(frozen=True, slots=True)
class CursorTick:
    """Time: ms of a monotonic clock. Everything that is persisted is persisted at a tick, or on request."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class ListMoved:
    """The topic's owner has written the list: what is written to the node from now on checks this version."""

    list_version: int


@dataclass(frozen=True, slots=True)
class FlushRequested:
    """Persist what is acknowledged now, without waiting for the second to end."""


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """Persist what is acknowledged, leave nothing open, and end."""


@dataclass(frozen=True, slots=True)
class DeleteRequested:
    """The subscription ends: delete the node and the ledger, and end."""


@dataclass(frozen=True, slots=True)
class CursorRead:
    """The answer to `ReadCursor`; `record` None: there is no such node.

    If the read was to judge, the list was read before the node, after a `sync`: `is_owner` says whether it is still this owner's.
    """

    request_id: int
    record: CursorRecord | None
    version: int = -1
    is_owner: bool = True
    list_version: int = -1


@dataclass(frozen=True, slots=True)
class LastRecordRead:
    """The answer to `ReadLastRecord`: the ledger is closed; `data` is its last entry, None if it has none."""

    request_id: int
    data: bytes | None


@dataclass(frozen=True, slots=True)
class RecordAppended:
    """The answer to `AppendRecord`: the record is durable."""

    request_id: int


CursorEvent: TypeAlias = (
    CursorTick
    | ListMoved
    | FlushRequested
    | CloseRequested
    | DeleteRequested
    | CursorRead
    | LastRecordRead
    | RecordAppended
    | CasAnswered
    | MetadataUnreadable
    | LedgerCreated
    | LedgerEnded
    | LedgerDeleted
    | LedgerRequestFailed
)

# Effects: requests.


@dataclass(frozen=True, slots=True)
class ReadCursor:
    """Read the node; if it is to `judge`, first the list, after a `sync`."""

    request_id: int
    judge: bool


@dataclass(frozen=True, slots=True)
class CreateCursor:
    """Create the node if the list is at `list_version`. CONFLICT: it is not, or there is a node."""

    request_id: int
    record: CursorRecord
    list_version: int


@dataclass(frozen=True, slots=True)
class PutCursor:
    """Write the node if its version is still `expected_version` and the list's `list_version`."""

    request_id: int
    record: CursorRecord
    expected_version: int
    list_version: int


@dataclass(frozen=True, slots=True)
class DeleteCursor:
    """Delete the node if the list is at `list_version`. A node that is not there counts as deleted."""

    request_id: int
    list_version: int


@dataclass(frozen=True, slots=True)
class CreateCursorLedger:
    """Create a ledger whose custom metadata names the topic and the subscription."""

    request_id: int


@dataclass(frozen=True, slots=True)
class ReadLastRecord:
    """Fence, recover and close the ledger, or find it closed, and read its last entry."""

    request_id: int
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class AppendRecord:
    """Append a record to the ledger, which this owner has created."""

    request_id: int
    ledger_id: LedgerId
    data: bytes


# Effects: results.


@dataclass(frozen=True, slots=True)
class CursorOpened:
    """`Cursor.acks` is there from now on."""


@dataclass(frozen=True, slots=True)
class CursorPersisted:
    """What `Cursor.acks` was at `version` survives this broker."""

    version: int


@dataclass(frozen=True, slots=True)
class RecordLost:
    """A warning: the newest record cannot be read, and the node's older one counts; more is delivered again."""

    ledger_id: LedgerId
    error: DaybookError


@dataclass(frozen=True, slots=True)
class HolesDropped:
    """A warning, once until all fits again: so many ranges are not persisted, and would be delivered again (rule 40)."""

    count: int


@dataclass(frozen=True, slots=True)
class CursorEnded:
    """The last effect, but for the deletion of a ledger that no node names. None: it was closed or deleted as requested."""

    error: DaybookError | None


CursorEffect: TypeAlias = (
    ReadCursor
    | CreateCursor
    | PutCursor
    | DeleteCursor
    | CreateCursorLedger
    | ReadLastRecord
    | AppendRecord
    | CloseLedger
    | DeleteLedger
    | CursorOpened
    | CursorPersisted
    | RecordLost
    | HolesDropped
    | Retrying
    | CursorEnded
)
