"""What the worker's and the auditor's machines ask of their owner, and what the owner answers.

The machines that copy and recover speak of frames and reads (`daybook.core.effects`). Those that decide what is repaired
(`work`, `daybook.core.audit.examination`) speak of whole steps: read a task, examine a ledger, carry out a plan. Each asks
for one step at a time and waits for its answer. A step that the metadata store does not answer has no answer either: the
owner gives the machine up, and another one begins again later.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TypeAlias

from daybook.core.effects import Recovered, RecoveryFailed, RepairAbandoned, RepairFailed, RepairFinished
from daybook.core.events import LockLost
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import BookieInfo
from daybook.core.repair.plan import RepairPlan
from daybook.core.repair.task import RepairTask

# Requests.


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Read the ledger's task; `TaskRead` answers."""

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class ReadLedger:
    """Read the ledger's metadata; `LedgerRead`, `LedgerGone` or `LedgerUnreadable` answers."""

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class ListEntries:
    """Ask each of `bookies` which entries of the ledger it holds; `EntriesListed` answers."""

    ledger_id: LedgerId
    bookies: AbstractSet[BookieId]


@dataclass(frozen=True, slots=True)
class Examine:
    """Read the metadata after a `sync`, then the list of bookies, then list the entries of those that metadata names.

    `Examined`, `LedgerGone` or `LedgerUnreadable` answers; `StopRequested` if the worker is to begin nothing more.
    """

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class Recover:
    """Fence, recover and close the ledger; `RepairEnded` answers."""

    examined: "Examined"


@dataclass(frozen=True, slots=True)
class Repair:
    """Carry out `plan` on the metadata that was examined; `RepairEnded` answers."""

    examined: "Examined"
    plan: RepairPlan


@dataclass(frozen=True, slots=True)
class Wait:
    """Let the time for a second examination pass; `Waited` answers."""


@dataclass(frozen=True, slots=True)
class MarkTask:
    """Write a task, or add to the one there is; `TaskMarked` answers."""

    ledger_id: LedgerId
    reasons: tuple[str, ...]
    bookies: tuple[BookieId, ...]


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """Delete the task if it is still at `version`; `TaskDeleted` answers."""

    ledger_id: LedgerId
    version: int


@dataclass(frozen=True, slots=True)
class SetTaskAside:
    """Keep workers from `task` for `pause_ms`, unless it changed since `version`; `TaskWritten` answers (rule 35)."""

    task: RepairTask
    version: int
    pause_ms: int
    why: str


@dataclass(frozen=True, slots=True)
class SetTaskFree:
    """Make `task` due, unless it changed since `version`; `TaskWritten` answers."""

    task: RepairTask
    version: int


WorkRequest: TypeAlias = ReadTask | Examine | Recover | Repair | DeleteTask | SetTaskAside
"""What a worker's machine asks for."""
AuditRequest: TypeAlias = ReadTask | ReadLedger | ListEntries | Wait | DeleteTask | MarkTask | SetTaskFree
"""What an auditor's machine asks for."""


# Answers.


@dataclass(slots=True)
class Listed:
    """What the bookies that answered hold of one ledger.

    `limbo`: those that cannot vouch for what they lack. `last_add_confirmed` is the highest that a bookie outside limbo
    knows; None if none answered. `silent`: who did not answer, and why.
    """

    entries: dict[BookieId, IntervalSet] = field(default_factory=dict)
    limbo: set[BookieId] = field(default_factory=set)
    last_add_confirmed: EntryId | None = None
    silent: Mapping[BookieId, str] = field(default_factory=dict)

    def add(
        self, bookie: BookieId, entries: IntervalSet, last_add_confirmed: EntryId, *, limbo: bool
    ) -> None:
        """`bookie` answered."""
        self.entries[bookie] = entries
        if limbo:
            self.limbo.add(bookie)
        elif self.last_add_confirmed is None or last_add_confirmed > self.last_add_confirmed:
            self.last_add_confirmed = last_add_confirmed


@dataclass(frozen=True, slots=True)
class TaskRead:
    """The task at its version; None if there is none."""

    task: RepairTask | None
    version: int = -1


@dataclass(frozen=True, slots=True)
class LedgerRead:
    """The ledger's metadata at its version."""

    metadata: LedgerMetadata
    version: int


@dataclass(frozen=True, slots=True)
class LedgerGone:
    """The ledger is deleted, or never was."""


@dataclass(frozen=True, slots=True)
class LedgerUnreadable:
    """The ledger's metadata is damaged, or of a later release."""

    why: str


@dataclass(frozen=True, slots=True)
class EntriesListed:
    """Which entries the bookies hold."""

    listed: Listed


@dataclass(frozen=True, slots=True)
class Examined:
    """Metadata, then the registered bookies, then what they hold; `now_ms` by the monotonic clock."""

    metadata: LedgerMetadata
    version: int
    registered: Mapping[BookieId, BookieInfo]
    listed: Listed
    now_ms: int


@dataclass(frozen=True, slots=True)
class RepairEnded:
    """How a repair or a recovery ended, and what it copied."""

    how: RepairFinished | RepairFailed | RepairAbandoned | Recovered | RecoveryFailed
    copied_entries: int = 0
    copied_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Waited:
    """The time has passed."""


@dataclass(frozen=True, slots=True)
class TaskMarked:
    """The task as it is stored now."""

    task: RepairTask
    version: int


@dataclass(frozen=True, slots=True)
class TaskDeleted:
    """Whether the task is gone; otherwise something was added to it meanwhile."""

    deleted: bool


@dataclass(frozen=True, slots=True)
class TaskWritten:
    """The task was changed, unless another process changed it before."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The worker is to begin nothing more."""


WorkEvent: TypeAlias = (
    TaskRead
    | Examined
    | LedgerGone
    | LedgerUnreadable
    | RepairEnded
    | TaskDeleted
    | TaskWritten
    | StopRequested
    | LockLost
)
"""What a worker's machine is given."""
AuditEvent: TypeAlias = (
    TaskRead
    | LedgerRead
    | LedgerGone
    | LedgerUnreadable
    | EntriesListed
    | Waited
    | TaskDeleted
    | TaskMarked
    | TaskWritten
)
"""What an auditor's machine is given."""
