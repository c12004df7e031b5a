"""What comes out of the machines of a client: requests to bookies and to the metadata store, and results for the user.

The other half of the vocabulary of events.py. The driver carries out a request; its id comes back with the answer. The
unions at the end say which machine gives which results.

`SendFrames` and `Complete`, which every batch causes, have an `__init__` of their own: the one that a frozen dataclass gets stays
interpreted where this module is compiled, and takes twenty times as long. They are not frozen, and nobody changes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from daybook.core.errors import DaybookError
from daybook.core.format.entries import Entry
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import LedgerMetadata

# Requests to bookies.


@dataclass(frozen=True, slots=True)
class SendFrame:
    """Send `frame` to `bookie`; frames to one bookie arrive in the order they were sent."""

    bookie: BookieId
    send_id: int
    frame: bytes


@dataclass(init=False, slots=True, unsafe_hash=True)
class SendFrames:
    """Send a batch: to each of `bookies` the frame at the same place of `frames`, with send ids that count from `first_send_id`.

    One effect for all of them, because a writer makes one for every batch.
    """

    bookies: tuple[BookieId, ...]
    first_send_id: int
    frames: tuple[bytes, ...]

    def __init__(self, bookies: tuple[BookieId, ...], first_send_id: int, frames: tuple[bytes, ...]) -> None:
        self.bookies = bookies
        self.first_send_id = first_send_id
        self.frames = frames

    def each(self) -> list[SendFrame]:
        """The same sends one by one."""
        return [
            SendFrame(bookie, send_id, frame)
            for send_id, (bookie, frame) in enumerate(
                zip(self.bookies, self.frames, strict=True), self.first_send_id
            )
        ]


@dataclass(frozen=True, slots=True)
class PublishLac:
    """Send `row` of a table of LACs (format/lac_table.py) to `bookies`. No event answers; `LacLost` says where it may have vanished."""

    bookies: tuple[BookieId, ...]
    row: bytes


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


# Requests to the metadata store.


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


# What `LedgerWriter` reports to its user.


@dataclass(init=False, slots=True, unsafe_hash=True)
class Complete:
    """The entries first … last of the append `token` are acknowledged: the promise holds from here on.

    With deferred sync they are only accepted: there the promise is `Forced` (rule 22).
    """

    token: int
    first: EntryId
    last: EntryId

    def __init__(self, token: int, first: EntryId, last: EntryId) -> None:
        self.token = token
        self.first = first
        self.last = last


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
    """The bookies that the writer continues without, for want of a spare (rule 45); empty when that ended."""

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


# What recovery, deletion, readers and repair report to theirs.


@dataclass(frozen=True, slots=True)
class Recovered:
    """Recovery has closed the ledger, or found it closed: `metadata` is final (rule 11)."""

    metadata: LedgerMetadata


@dataclass(frozen=True, slots=True)
class RecoveryFailed:
    """Recovery cannot decide now; the ledger stays IN_RECOVERY. Start a new recovery later (rule 6)."""

    error: DaybookError


@dataclass(frozen=True, slots=True)
class DeletionReady:
    """Nobody can be acknowledged on the ledger any more: delete or close it if it still is at `version` (rule 61).

    `unfenced` are the bookies of its last ensemble that were not fenced because they are lost. Of an unclosed ledger
    `last_add_confirmed` is the highest that is known, with the payload bytes up to it.
    """

    metadata: LedgerMetadata
    version: int
    unfenced: tuple[BookieId, ...]
    last_add_confirmed: EntryId = -1
    length_at_lac: int = 0


@dataclass(frozen=True, slots=True)
class DeletionRefused:
    """The ledger must not be deleted now; it stays IN_RECOVERY, or is gone already."""

    error: DaybookError


@dataclass(frozen=True, slots=True)
class Deliver:
    """Entries in order, gapless, checked, each exactly once; together they have `size_bytes` of payload."""

    entries: Sequence[Entry]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class MetadataKnown:
    """The ledger's metadata is `metadata` by now, for whatever reads it next (rule 59)."""

    metadata: LedgerMetadata


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
    """The fragment could not be repaired now. `unrecoverable`: no registered bookie has an entry it needs, and each answered."""

    error: DaybookError
    unrecoverable: bool = False


@dataclass(frozen=True, slots=True)
class RepairAbandoned:
    """There is nothing left to repair here: someone else deleted or changed it meanwhile (rule 56). No harm is done."""

    why: str


# Which machine gives what: requests, which a driver carries out, and results, which it passes to the machine's user.

MetadataRequest: TypeAlias = CasMetadata | ReadMetadata
ReplayRequest: TypeAlias = SendRead | SendFrame
"""Of the part of a recovery that reads what may have been written, and writes it back."""
RepairRequest: TypeAlias = ReplayRequest | ReadLimbo | ClearLimbo | MetadataRequest

WriterResult: TypeAlias = (
    Complete | Fail | Forced | Closed | HandleEnded | Degraded | Quarantined | EnsembleChanged
)
RecoveryResult: TypeAlias = Recovered | RecoveryFailed
"""The last effect, as of a deletion and a repair."""
DeletionResult: TypeAlias = DeletionReady | DeletionRefused
ReaderResult: TypeAlias = Deliver | MetadataKnown | ReadFinished | ReadFailed
"""Of `LedgerReader`; `ReadFinished` or `ReadFailed` is the last effect."""
LacResult: TypeAlias = LacKnown | MetadataKnown | ReadFailed
"""Of `LacReader` and `LacTail`; the last effect is `ReadFailed`, or of a reader the LAC, or of a tail the close."""
RepairResult: TypeAlias = RepairFinished | RepairFailed | RepairAbandoned

WriterEffect: TypeAlias = SendFrame | SendFrames | PublishLac | SendForce | MetadataRequest | WriterResult
RecoveryEffect: TypeAlias = SendFence | ReplayRequest | MetadataRequest | RecoveryResult
DeletionEffect: TypeAlias = SendFence | MetadataRequest | DeletionResult
ReaderEffect: TypeAlias = SendRead | ReadMetadata | ReaderResult
LacEffect: TypeAlias = SendLacRead | ReadMetadata | LacResult
RepairEffect: TypeAlias = RepairRequest | RepairResult

Effect: TypeAlias = WriterEffect | RecoveryEffect | DeletionEffect | ReaderEffect | LacEffect | RepairEffect

EffectT = TypeVar("EffectT", bound=Effect)
"""What one machine gives, of those that a driver runs."""
