"""What goes into the machines of a client; effects.py says what comes out of them.

Writer, recovery, deletion, readers and repair share this vocabulary, so that one driver (the client's, the simulator's,
the explorer's) serves them all. Every answer carries the id of its request, so that a machine can drop what comes too
late (rule 18). The unions at the end say which machine takes which events.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from daybook.core.errors import Code
from daybook.core.format.entries import Entry
from daybook.core.format.frame import Buffer
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import BookieInfo

# Requests of a machine's user.


@dataclass(frozen=True, slots=True)
class AppendRequested:
    """Append `payloads`; `Complete(token, …)` or `Fail(token, …)` answers for all of them at once.

    `entry_ids` only for ledgers whose ids the caller assigns (rule 55); one for each payload.
    """

    token: int
    payloads: Sequence[Buffer]
    entry_ids: Sequence[EntryId] | None = None


@dataclass(frozen=True, slots=True)
class FlushRequested:
    """A channel has room: seal what was appended into frames and send them.

    Until then appends gather, so that a frame holds as much as came in while the last one was under way.
    """


@dataclass(frozen=True, slots=True)
class ForceRequested:
    """Make everything appended so far durable on the whole ensemble (rule 22)."""

    token: int


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """Close the ledger at the last confirmed entry once everything that is pending is decided."""

    token: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time, in ms of a monotonic clock; the only clock a machine has."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Consumed:
    """The user of a reader is done with `size_bytes` of the payloads it was given: that much more may be read ahead."""

    size_bytes: int


# Answers of bookies. `CONNECTION_LOST` and `TIMEOUT` are the driver's own codes for an answer that never came.


@dataclass(frozen=True, slots=True)
class FrameAcked:
    """`bookie` has the frame of `SendFrame(send_id)` durably (or accepted it, if it was sent deferred)."""

    bookie: BookieId
    send_id: int
    boot_id: str = ""


@dataclass(frozen=True, slots=True)
class FrameFailed:
    """`bookie` refused the frame, or it is unknown whether it has it."""

    bookie: BookieId
    send_id: int
    code: Code


@dataclass(frozen=True, slots=True)
class LacLost:
    """A row of `PublishLac` for `bookie` may have vanished, be it with its stream; a new stream can be had."""

    bookie: BookieId


@dataclass(frozen=True, slots=True)
class ForceAnswered:
    """The answer to `SendForce`; `boot_id` shows whether the bookie restarted since it took the frames."""

    bookie: BookieId
    request_id: int
    code: Code
    boot_id: str = ""


@dataclass(frozen=True, slots=True)
class FenceAnswered:
    """The answer to `SendFence`. The fence is durable if `code` is OK, in limbo too; then the LAC proves nothing."""

    bookie: BookieId
    request_id: int
    code: Code
    last_add_confirmed: EntryId = -1
    length_at_lac: int = 0
    limbo: bool = False


@dataclass(frozen=True, slots=True)
class ReadAnswered:
    """The answer to `SendRead`.

    With code OK it speaks for the entries `first … through` of the request that the bookie's stripe holds: those in
    `entries` are found, those in `damaged` are there but unreadable (unknown), the others are explicitly not there, but
    for a bookie in `limbo`, which cannot vouch for what it lacks. With another code it proves nothing.
    `last_add_confirmed` and `length_at_lac` piggyback what the bookie knows.
    """

    bookie: BookieId
    request_id: int
    code: Code
    entries: Sequence[Entry] = ()
    damaged: tuple[EntryId, ...] = ()
    through: EntryId = -1
    limbo: bool = False
    last_add_confirmed: EntryId = -1
    length_at_lac: int = 0


@dataclass(frozen=True, slots=True)
class LimboRead:
    """The answer to `ReadLimbo`: the nonce of the ledger's mark on `bookie`, None if it has none (rule 29).

    `boot_id` shows whether the bookie restarted since it acknowledged frames.
    """

    bookie: BookieId
    request_id: int
    code: Code
    nonce: str | None = None
    boot_id: str = ""


@dataclass(frozen=True, slots=True)
class LimboCleared:
    """The answer to `ClearLimbo`: `cleared` is False where another nonce stands, because the disk was lost again."""

    bookie: BookieId
    request_id: int
    code: Code
    cleared: bool = False


@dataclass(frozen=True, slots=True)
class LacAnswered:
    """The answer to `SendLacRead`. In `limbo` it proves nothing; `fenced`: a recovery has begun."""

    bookie: BookieId
    request_id: int
    code: Code
    last_add_confirmed: EntryId = -1
    limbo: bool = False
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class BookieFailed:
    """The channel to `bookie` is gone: every request to it that has no answer yet is unknown."""

    bookie: BookieId
    code: Code = Code.CONNECTION_LOST


@dataclass(frozen=True, slots=True)
class BookiesChanged:
    """The bookies that are registered now, by id; `BookieInfo.writable` distinguishes the read-only ones."""

    bookies: Mapping[BookieId, BookieInfo]


# Answers of the metadata store.


class CasOutcome(Enum):
    """What is known of a compare-and-set."""

    DONE = "done"
    CONFLICT = "the version had moved on"
    UNKNOWN = "no answer: it may or may not have been applied; sync and read"


@dataclass(frozen=True, slots=True)
class CasAnswered:
    """The answer to `CasMetadata`; `version` is the new one if DONE."""

    request_id: int
    outcome: CasOutcome
    version: int = -1


@dataclass(frozen=True, slots=True)
class MetadataRead:
    """The answer to `ReadMetadata`: metadata None means the ledger is deleted."""

    request_id: int
    metadata: LedgerMetadata | None
    version: int = -1


@dataclass(frozen=True, slots=True)
class MetadataUnreadable:
    """`ReadMetadata` got no answer; the machine asks again after a while."""

    request_id: int


@dataclass(frozen=True, slots=True)
class MetadataConnection:
    """Whether the metadata store answers now (rule 46)."""

    connected: bool


@dataclass(frozen=True, slots=True)
class LockLost:
    """The worker's lock on the ledger is gone, or may be by its own monotonic clock (rule 34)."""


# Which machine takes what. `step` raises AssertionError for an event outside its machine's union (daybook/core/__init__.py).

News: TypeAlias = Tick | BookieFailed | BookiesChanged
"""What a driver passes to every machine, unasked."""

MetadataAnswer: TypeAlias = MetadataRead | MetadataUnreadable | CasAnswered
FrameAnswer: TypeAlias = FrameAcked | FrameFailed

WriterEvent: TypeAlias = (
    LacLost
    | AppendRequested
    | FlushRequested
    | ForceRequested
    | CloseRequested
    | FrameAnswer
    | ForceAnswered
    | MetadataAnswer
    | MetadataConnection
    | News
)
RecoveryEvent: TypeAlias = FenceAnswered | ReadAnswered | FrameAnswer | MetadataAnswer | News
DeletionEvent: TypeAlias = FenceAnswered | MetadataAnswer | News
ReaderEvent: TypeAlias = Consumed | ReadAnswered | MetadataRead | MetadataUnreadable | News
"""Of `LedgerReader`, which reads entries."""
LacEvent: TypeAlias = LacAnswered | MetadataRead | MetadataUnreadable | News
"""Of `LacReader` and `LacTail`, which read how far a reader may go."""
RepairEvent: TypeAlias = (
    ReadAnswered | FrameAnswer | LimboRead | LimboCleared | MetadataAnswer | LockLost | News
)

Event: TypeAlias = WriterEvent | RecoveryEvent | DeletionEvent | ReaderEvent | LacEvent | RepairEvent
