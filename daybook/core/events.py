"""What goes into the ledger machines and what comes out of them.

`LedgerWriter`, `LedgerRecovery`, `LedgerReader` and `LedgerRepair` share this vocabulary, so that one driver (the
client's, the simulator's, the explorer's) serves them all: it carries out effects and feeds answers back as events; it
decides nothing. Every request carries an id that its answer repeats, so that a machine can drop what comes too late
(rule 18). An answer that never comes is turned into a failure by the driver's time-out, never by a guess.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from daybook.core.errors import Code, DaybookError
from daybook.core.frame import Buffer, Entry
from daybook.core.ids import BookieId, EntryId
from daybook.core.metadata import LedgerMetadata
from daybook.core.placement import BookieInfo

# Events from the user of a machine.


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


# Events from bookies. `CONNECTION_LOST` and `TIMEOUT` are the driver's own codes for an answer that never came.


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
class ForceAnswered:
    """The answer to `SendForce`; `boot_id` tells whether the bookie restarted since it took the frames."""

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
    entries: tuple[Entry, ...] = ()
    damaged: tuple[EntryId, ...] = ()
    through: EntryId = -1
    limbo: bool = False
    last_add_confirmed: EntryId = -1
    length_at_lac: int = 0


@dataclass(frozen=True, slots=True)
class LimboRead:
    """The answer to `ReadLimbo`: the nonce of the ledger's mark on `bookie`, None if it has none (rule 29).

    `boot_id` tells whether the bookie restarted since it acknowledged frames.
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
    """The bookies that are registered now, by id; `BookieInfo.writable` tells the read-only ones apart."""

    bookies: Mapping[BookieId, BookieInfo]


# Events from the metadata store.


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


Event: TypeAlias = (
    AppendRequested
    | FlushRequested
    | ForceRequested
    | CloseRequested
    | Consumed
    | Tick
    | FrameAcked
    | FrameFailed
    | ForceAnswered
    | FenceAnswered
    | ReadAnswered
    | LacAnswered
    | LimboRead
    | LimboCleared
    | BookieFailed
    | BookiesChanged
    | CasAnswered
    | MetadataRead
    | MetadataUnreadable
    | MetadataConnection
    | LockLost
)


# Effects.


@dataclass(frozen=True, slots=True)
class SendFrame:
    """Send `frame` to `bookie`; frames to one bookie arrive in the order they were sent."""

    bookie: BookieId
    send_id: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class SendForce:
    """Ask `bookie` to sync what this ledger sent it deferred (rule 22)."""

    bookie: BookieId
    request_id: int


@dataclass(frozen=True, slots=True)
class SendFence:
    """Fence the ledger on `bookie` and read its LAC, in one request."""

    bookie: BookieId
    request_id: int


@dataclass(frozen=True, slots=True)
class SendRead:
    """Read the entries first … last that `bookie` holds, up to `bytes_max` (at least one entry).

    `fence`: a recovery read, which fences the ledger first (rule 2).
    """

    bookie: BookieId
    request_id: int
    first: EntryId
    last: EntryId
    bytes_max: int
    fence: bool = False


@dataclass(frozen=True, slots=True)
class ReadLimbo:
    """Ask `bookie` whether the ledger is in limbo there, for its nonce, and for its boot id."""

    bookie: BookieId
    request_id: int


@dataclass(frozen=True, slots=True)
class ClearLimbo:
    """End the ledger's limbo on `bookie` if `nonce` still stands; durable before it is answered (rule 29)."""

    bookie: BookieId
    request_id: int
    nonce: str


@dataclass(frozen=True, slots=True)
class SendLacRead:
    """Ask `bookie` for its LAC, without fencing.

    `wait_ms` > 0 is a long poll: it is answered when the bookie knows more than (`known_lac`, `known_fenced`), or after
    that long.
    """

    bookie: BookieId
    request_id: int
    known_lac: EntryId = -1
    known_fenced: bool = False
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class CasMetadata:
    """Write `metadata` if the version is still `expected_version`."""

    request_id: int
    metadata: LedgerMetadata
    expected_version: int


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Sync, then read the ledger's metadata."""

    request_id: int


@dataclass(frozen=True, slots=True)
class Complete:
    """The entries first … last of the append `token` are acknowledged: the promise holds from here on.

    With deferred sync they are only accepted: there the promise is `Forced` (rule 22).
    """

    token: int
    first: EntryId
    last: EntryId


@dataclass(frozen=True, slots=True)
class Fail:
    """The request `token` failed. After LedgerFencedError its outcome is unknown, not "not written" (rule 13)."""

    token: int
    error: DaybookError


@dataclass(frozen=True, slots=True)
class Forced:
    """The force `token` is done: everything up to `last_add_confirmed` is durable on the whole ensemble."""

    token: int
    last_add_confirmed: EntryId


@dataclass(frozen=True, slots=True)
class Closed:
    """The ledger is closed with `metadata`. `token` is None where no one asked (a handle that ended by itself)."""

    token: int | None
    metadata: LedgerMetadata


@dataclass(frozen=True, slots=True)
class HandleEnded:
    """The writer can write no more, for this reason; every pending request has failed before."""

    error: DaybookError


@dataclass(frozen=True, slots=True)
class Degraded:
    """The bookies that the writer goes on without, for want of a spare (rule 45); empty when that ended."""

    missing: tuple[BookieId, ...]


@dataclass(frozen=True, slots=True)
class Quarantined:
    """`bookie` is slow or failing: new ensembles should avoid it until `until_ms`."""

    bookie: BookieId
    until_ms: int


@dataclass(frozen=True, slots=True)
class EnsembleChanged:
    """Metadata now names `bookies` from `first_entry` on; for logs and metrics."""

    first_entry: EntryId
    bookies: tuple[BookieId, ...]


@dataclass(frozen=True, slots=True)
class Recovered:
    """Recovery has closed the ledger, or found it closed: `metadata` is final (rule 11)."""

    metadata: LedgerMetadata


@dataclass(frozen=True, slots=True)
class RecoveryFailed:
    """Recovery cannot decide now; the ledger stays IN_RECOVERY. Start a new recovery later (rule 6)."""

    error: DaybookError


@dataclass(frozen=True, slots=True)
class Deliver:
    """Entries in order, gapless, checked, each exactly once."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class LacKnown:
    """The LAC is at least `last_add_confirmed`; for one reader it never goes back. `closed`: it is final."""

    last_add_confirmed: EntryId
    closed: LedgerMetadata | None = None


@dataclass(frozen=True, slots=True)
class ReadFinished:
    """Everything that was asked for has been delivered."""


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """No replica can serve the next entry."""

    error: DaybookError


@dataclass(frozen=True, slots=True)
class RepairFinished:
    """The fragment is repaired: copied, and named so in metadata where that changed."""

    metadata: LedgerMetadata


@dataclass(frozen=True, slots=True)
class RepairFailed:
    """The fragment could not be repaired now. `unrecoverable`: no reachable bookie has an entry it needs."""

    error: DaybookError
    unrecoverable: bool = False


@dataclass(frozen=True, slots=True)
class RepairAbandoned:
    """There is nothing left to repair here: someone else deleted or changed it meanwhile (rule 56). No harm is done."""

    why: str


Effect: TypeAlias = (
    SendFrame
    | SendForce
    | SendFence
    | SendRead
    | SendLacRead
    | ReadLimbo
    | ClearLimbo
    | CasMetadata
    | ReadMetadata
    | Complete
    | Fail
    | Forced
    | Closed
    | HandleEnded
    | Degraded
    | Quarantined
    | EnsembleChanged
    | Recovered
    | RecoveryFailed
    | Deliver
    | LacKnown
    | ReadFinished
    | ReadFailed
    | RepairFinished
    | RepairFailed
    | RepairAbandoned
)
