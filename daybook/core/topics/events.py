"""What goes into the machine of a topic's ledgers and what comes out of it.

Requests to ledgers are whole operations here (create, close, recover): the client's machines carry them out. `CasAnswered` and
`MetadataUnreadable` of daybook.core.events answer for the list as they do for a ledger's metadata. What comes with every entry is a plain
tuple, or has an `__init__` of its own (see daybook.core.effects).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from daybook.core.errors import DaybookError
from daybook.core.events import CasAnswered, MetadataUnreadable
from daybook.core.format.frame import Buffer
from daybook.core.ids import EntryId, LedgerId
from daybook.core.topics.ledger_list import Compaction, LedgerList, Position
from daybook.core.topics.offload.changes import OffloadChange
from daybook.core.topics.trimming import Retention

# Events.


class PublishRequested(NamedTuple):
    """Append these entries, in order. `Published` and `PublishFailed` answer for the oldest ones first."""

    payloads: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class TrimRequested:
    """Drop the ledgers that nobody needs: all that is up to every one of `marks`, and no longer retained (rule 51).

    `marks` are positions as they are persisted: of every subscription, of a replication, of a compaction that is under way. They hold now,
    and not later: a trim that cannot begin at once is dropped, and the driver asks again.
    """

    marks: tuple[Position, ...]
    retention: Retention


@dataclass(frozen=True, slots=True)
class CompactionWritten:
    """The ledgers of a compaction are closed: name them in place of the former ones, which go after that (rule 41). None: have none.

    The driver asks for one at a time, and only for one that was planned on the compaction that the list names.
    """

    compaction: Compaction | None


@dataclass(frozen=True, slots=True)
class RollRequested:
    """Begin another ledger for what comes next, although the open one is not full: another would have more copies."""


@dataclass(frozen=True, slots=True)
class TerminateRequested:
    """A person ends the topic for good: refuse what comes now, finish what came before, and record the end. It can be read on."""


@dataclass(frozen=True, slots=True)
class UnloadRequested:
    """Another broker is to own the topic: refuse what comes now, finish what came before, and close the ledger."""


@dataclass(frozen=True, slots=True)
class TopicTick:
    """Time: ms of a monotonic clock, and ms since 1970 for what the list records."""

    now_ms: int
    unix_ms: int


@dataclass(frozen=True, slots=True)
class ListRead:
    """The answer to `ReadList`, read after a `sync`; None: the topic does not exist."""

    request_id: int
    ledger_list: LedgerList | None
    version: int = -1


@dataclass(frozen=True, slots=True)
class LedgerCreated:
    """The answer to `CreateLedger`: the ledger exists, and nothing was written to it."""

    request_id: int
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class LedgerEnded:
    """The answer to `CloseLedger` and `RecoverLedger`: the ledger is closed for good, with so many entries and bytes."""

    request_id: int
    entries: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LedgerRequestFailed:
    """Another answer to a request about a ledger: it was not carried out, or nobody knows."""

    request_id: int
    error: DaybookError


@dataclass(frozen=True, slots=True)
class LedgerDeleted:
    """The answer to `DeleteLedger`: the ledger does not exist any more."""

    request_id: int


class Appended(NamedTuple):
    """The entries of the ledger up to `through` are acknowledged."""

    ledger_id: LedgerId
    through: EntryId


@dataclass(frozen=True, slots=True)
class HandleFailed:
    """Nothing more can be appended to the ledger. Whether what is not acknowledged is in it, nobody knows (rule 13)."""

    ledger_id: LedgerId
    error: DaybookError


OwnerOrder: TypeAlias = (
    TrimRequested | CompactionWritten | OffloadChange | RollRequested | TerminateRequested | UnloadRequested
)
"""What an owner is to do when the phase allows it."""

LedgerAnswer: TypeAlias = LedgerCreated | LedgerEnded | LedgerRequestFailed | LedgerDeleted

ManagedLedgerEvent: TypeAlias = (
    PublishRequested
    | OwnerOrder
    | TopicTick
    | ListRead
    | MetadataUnreadable
    | CasAnswered
    | LedgerAnswer
    | Appended
    | HandleFailed
)

# Effects: requests.


@dataclass(frozen=True, slots=True)
class ReadList:
    """Sync, then read the list."""

    request_id: int


@dataclass(frozen=True, slots=True)
class CasList:
    """Write the list if its version is still `expected_version`."""

    request_id: int
    ledger_list: LedgerList
    expected_version: int


@dataclass(frozen=True, slots=True)
class RecoverLedger:
    """Fence, recover and close the ledger, or find it closed."""

    request_id: int
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class CreateLedger:
    """Create a ledger whose custom metadata names the topic, with an id above `above`: those of a topic rise."""

    request_id: int
    above: LedgerId


@dataclass(frozen=True, slots=True)
class CloseLedger:
    """Close the ledger through the handle that writes to it."""

    request_id: int
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class DeleteLedger:
    """Delete a ledger that no list names, and none will."""

    request_id: int
    ledger_id: LedgerId


@dataclass(init=False, slots=True)
class Append:
    """Append these entries to the ledger, behind all that was appended before."""

    ledger_id: LedgerId
    payloads: Sequence[Buffer]

    def __init__(self, ledger_id: LedgerId, payloads: Sequence[Buffer]) -> None:
        self.ledger_id = ledger_id
        self.payloads = payloads


# Effects: results.


@dataclass(frozen=True, slots=True)
class ListKnown:
    """The list is `ledger_list` now, at `version`; the first one says that the topic is served (rule 38)."""

    ledger_list: LedgerList
    version: int
    size_bytes: int
    """Of the list, as `measured_bytes` has them."""


@dataclass(init=False, slots=True, unsafe_hash=True)
class Published:
    """The oldest `count` entries that were not answered are acknowledged, as `first_entry` and so on of the ledger."""

    ledger_id: LedgerId
    first_entry: EntryId
    count: int

    def __init__(self, ledger_id: LedgerId, first_entry: EntryId, count: int) -> None:
        self.ledger_id = ledger_id
        self.first_entry = first_entry
        self.count = count


@dataclass(frozen=True, slots=True)
class PublishFailed:
    """The oldest `count` entries that were not answered are refused. After NotOwnerError their outcome is unknown; after TopicFullError none
    of them is in the topic."""

    count: int
    error: DaybookError


@dataclass(frozen=True, slots=True)
class Retrying:
    """A request failed, and the machine asks again after a pause; for logs."""

    error: DaybookError


@dataclass(frozen=True, slots=True)
class TopicEnded:
    """The last effect, but for the deletion of a ledger that no list names. None: the topic was unloaded as requested."""

    error: DaybookError | None


ManagedLedgerEffect: TypeAlias = (
    ReadList
    | CasList
    | RecoverLedger
    | CreateLedger
    | CloseLedger
    | DeleteLedger
    | Append
    | ListKnown
    | Published
    | PublishFailed
    | Retrying
    | TopicEnded
)
