"""A bookie's life: how it starts on what it finds, when it serves, and how it ends.

A normal start compares the epochs of the disks with ZooKeeper's and serves (rule 58). Every other start happens under one claim of the
bookie's id, held without a break (rule 57): read what decides the start and which ledgers name the bookie, mark those as
limbo, durably, and only then stamp the cookie, or the epoch of disks that went back in time (rule 29). A bookie whose claim
was lost on the way begins again with the claim, because an old process may have accepted a ledger's first frame meanwhile.

A bookie that serves is writable or read-only. A failed journal or store, and a successor, end it without another answer
(rule 23, rule 57). How a life ended decides the exit code of its process, which tells others what must follow (exits.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias, assert_never

from daybook.core.bookie.exits import (
    EXIT_DISK_LOST,
    EXIT_FORGOTTEN,
    EXIT_NOT_STARTED,
    EXIT_STOPPED,
    EXIT_STORAGE_FAILED,
    EXIT_SUPERSEDED,
)
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata


class Start(Enum):
    """How a bookie may start, by its cookies."""

    NORMAL = "everything matches"
    FIRST = "a new bookie: create journal and store, stamp"
    REPLACEMENT = "authorised: create journal and store, mark limbo durably, stamp"


class Refusal(Enum):
    """Why a bookie may not start, as far as others can do something about it."""

    DISK_LOST = "ZooKeeper has its cookie, and all its directories are empty"
    FORGOTTEN = "its directories have its cookie, and ZooKeeper has none"
    OTHER = "a person must decide"


class LifeState(Enum):
    """Where a bookie is in its life."""

    JUDGING = "it reads what decides how it may start"
    COMPARING = "it compares the epochs of its disks with ZooKeeper's (rule 58)"
    CLAIMING = "it waits until no other process is the bookie, and keeps the others out (rule 57)"
    LISTING = "under its claim it reads what decides its start, and which ledgers name it"
    CREATING = "it records durably what it is about to do, and creates journal and store"
    MARKING = "it marks the ledgers that name it as limbo, durably (rule 29)"
    STAMPING = "it stamps its cookie, or the epoch of its disks, under the same claim"
    WRITABLE = "it serves and accepts normal writes"
    READ_ONLY = "it serves and refuses normal writes (rule 30)"
    STOPPING = "it takes no more calls, answers what it took, and flushes"
    REFUSED = "it may not start"
    FAILED = "nobody knows what is durable: it answers nothing, and its next start replays (rule 23)"
    SUPERSEDED = "another process is the bookie: it answers nothing (rule 57)"
    STOPPED = "everything is flushed and closed"


_SERVING: Final = (LifeState.WRITABLE, LifeState.READ_ONLY)
_ENDED: Final = (LifeState.REFUSED, LifeState.FAILED, LifeState.SUPERSEDED, LifeState.STOPPED)

TRANSITIONS: Final[Mapping[tuple[LifeState, LifeState], str]] = {
    (LifeState.JUDGING, LifeState.COMPARING): "all cookies are of one incarnation",
    (LifeState.JUDGING, LifeState.CLAIMING): "the bookie is new, or its replacement is authorised",
    (
        LifeState.JUDGING,
        LifeState.REFUSED,
    ): "the cookies contradict each other, and no replacement is authorised",
    (LifeState.COMPARING, LifeState.CLAIMING): "a disk went back in time",
    (LifeState.CLAIMING, LifeState.LISTING): "it has the claim",
    (LifeState.CLAIMING, LifeState.REFUSED): "nobody authorises the replacement any more",
    (LifeState.LISTING, LifeState.COMPARING): "its cookie was stamped, and only the answer was lost",
    (LifeState.LISTING, LifeState.CREATING): "journal and store do not exist",
    (LifeState.LISTING, LifeState.MARKING): "it must not report absent what it may have lost",
    (LifeState.LISTING, LifeState.STAMPING): "it is new and no ledger names it",
    (LifeState.LISTING, LifeState.CLAIMING): "the claim was lost",
    (LifeState.LISTING, LifeState.REFUSED): "nobody authorises the replacement any more",
    (LifeState.CREATING, LifeState.MARKING): "it replaces disks that were lost",
    (LifeState.CREATING, LifeState.STAMPING): "it is new and no ledger names it",
    (LifeState.MARKING, LifeState.STAMPING): "the marks are durable",
    (LifeState.STAMPING, LifeState.CLAIMING): "the claim was lost",
    (LifeState.STAMPING, LifeState.REFUSED): "nobody authorises the replacement any more",
    (LifeState.STAMPING, LifeState.COMPARING): "its cookie is stamped",
    (LifeState.STAMPING, LifeState.WRITABLE): "the epoch of its disks is stamped, and there is space",
    (LifeState.STAMPING, LifeState.READ_ONLY): "the epoch of its disks is stamped, and there is no space",
    (LifeState.COMPARING, LifeState.WRITABLE): "the disks are as new as ZooKeeper says, and there is space",
    (
        LifeState.COMPARING,
        LifeState.READ_ONLY,
    ): "the disks are as new as ZooKeeper says, and there is no space",
    (LifeState.WRITABLE, LifeState.READ_ONLY): "a disk is full, or an administrator refuses writes",
    (LifeState.READ_ONLY, LifeState.WRITABLE): "there is space again, and no administrator refuses writes",
    (LifeState.WRITABLE, LifeState.STOPPING): "it is asked to stop",
    (LifeState.READ_ONLY, LifeState.STOPPING): "it is asked to stop",
    (LifeState.STOPPING, LifeState.STOPPED): "nothing is left to write",
    (LifeState.WRITABLE, LifeState.FAILED): "a write, a sync or a commit failed",
    (LifeState.READ_ONLY, LifeState.FAILED): "a write, a sync or a commit failed",
    (LifeState.STOPPING, LifeState.FAILED): "a write, a sync or a commit failed",
    (LifeState.WRITABLE, LifeState.SUPERSEDED): "the claim or the cookie is another process's",
    (LifeState.READ_ONLY, LifeState.SUPERSEDED): "the claim or the cookie is another process's",
    (LifeState.STOPPING, LifeState.SUPERSEDED): "the claim or the cookie is another process's",
    (LifeState.FAILED, LifeState.SUPERSEDED): "the claim or the cookie is another process's",
}


_EXIT_CODES: Final[Mapping[LifeState, int]] = {
    LifeState.STOPPED: EXIT_STOPPED,
    LifeState.FAILED: EXIT_STORAGE_FAILED,
    LifeState.SUPERSEDED: EXIT_SUPERSEDED,
}
_EXIT_CODES_OF_REFUSALS: Final[Mapping[Refusal, int]] = {
    Refusal.DISK_LOST: EXIT_DISK_LOST,
    Refusal.FORGOTTEN: EXIT_FORGOTTEN,
}


# What goes in


@dataclass(frozen=True, slots=True)
class StartJudged:
    """How the bookie may start; `ledgers` are those that `must_mark`, read after a sync unless the start is normal."""

    start: Start
    ledgers: tuple[LedgerId, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgersListed:
    """The ledgers that `must_mark`, read after a sync: of a bookie whose disks went back in time."""

    ledgers: tuple[LedgerId, ...]


@dataclass(frozen=True, slots=True)
class ClaimTaken:
    """No other process is the bookie, and none can become it."""


@dataclass(frozen=True, slots=True)
class ClaimLost:
    """The claim ended, or it is unknown whether it stands."""


@dataclass(frozen=True, slots=True)
class StartRefused:
    """The bookie may not start on what was found, or nobody authorises this start any more."""

    why: Refusal = Refusal.OTHER


@dataclass(frozen=True, slots=True)
class Created:
    """Journal and store exist, and the disks record durably for whom."""


@dataclass(frozen=True, slots=True)
class LimboMarked:
    """The marks are durable."""


@dataclass(frozen=True, slots=True)
class Stamped:
    """The cookie, or the epoch, is on all disks and in ZooKeeper."""


@dataclass(frozen=True, slots=True)
class EpochsCompared:
    """Whether a disk went back in time."""

    went_back: bool


@dataclass(frozen=True, slots=True)
class WritesAllowed:
    """Whether space and the administrator allow normal writes; also before the bookie serves."""

    allowed: bool


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The process is asked to end."""


@dataclass(frozen=True, slots=True)
class StorageClosed:
    """Everything is written and closed."""


@dataclass(frozen=True, slots=True)
class StorageFailed:
    """A write, a sync or a commit failed, for another reason than want of room."""

    reason: str


@dataclass(frozen=True, slots=True)
class Superseded:
    """Another process is the bookie."""

    reason: str


LifeEvent: TypeAlias = (
    StartJudged
    | LedgersListed
    | ClaimTaken
    | ClaimLost
    | StartRefused
    | Created
    | LimboMarked
    | Stamped
    | EpochsCompared
    | WritesAllowed
    | StopAsked
    | StorageClosed
    | StorageFailed
    | Superseded
)


# What comes out


@dataclass(frozen=True, slots=True)
class JudgeStart:
    """Read the cookies and what else decides the start. Answer: StartJudged; under a claim, ClaimLost."""


@dataclass(frozen=True, slots=True)
class CompareEpochs:
    """Open journal and store if they are not open; compare the disks with ZooKeeper. Answer: EpochsCompared."""


@dataclass(frozen=True, slots=True)
class TakeClaim:
    """Wait until there is no other claim, and take it. Answer: ClaimTaken; StartRefused."""


@dataclass(frozen=True, slots=True)
class ListLedgers:
    """Read after a sync which ledgers `must_mark`. Answer: LedgersListed; ClaimLost."""


@dataclass(frozen=True, slots=True)
class CreateStorage:
    """Record durably what is about to happen, then create journal and store. Answer: Created."""


@dataclass(frozen=True, slots=True)
class MarkLimbo:
    """Mark each as limbo with a new nonce, durably. Answer: LimboMarked."""

    ledgers: tuple[LedgerId, ...]


@dataclass(frozen=True, slots=True)
class StampCookie:
    """Stamp the disks, then ZooKeeper under the claim. Answer: Stamped; ClaimLost, StartRefused."""


@dataclass(frozen=True, slots=True)
class StampEpoch:
    """Raise the epoch on the disks, then in ZooKeeper under the claim. Answer: Stamped; ClaimLost."""


@dataclass(frozen=True, slots=True)
class Serve:
    """Answer clients, and register."""


@dataclass(frozen=True, slots=True)
class StopAnswering:
    """No thread may answer anything any more."""


LifeEffect: TypeAlias = (
    JudgeStart
    | CompareEpochs
    | TakeClaim
    | ListLedgers
    | CreateStorage
    | MarkLimbo
    | StampCookie
    | StampEpoch
    | Serve
    | StopAnswering
)


class BookieLife:
    """One process of a bookie, from its start to its end."""

    def __init__(self, bookie: BookieId) -> None:
        self.state = LifeState.JUDGING
        self.end_reason = ""
        """Why the process `must_end`."""
        self._bookie = bookie
        self._refusal = Refusal.OTHER
        self._went_back = False
        """The start ends with the stamp of an epoch, not of a cookie."""
        self._is_created = False
        self._allows_writes = True
        self._to_mark: tuple[LedgerId, ...] = ()
        self._start = Start.NORMAL

    @property
    def is_serving(self) -> bool:
        """Whether clients are answered."""
        return self.state in _SERVING

    @property
    def must_end(self) -> bool:
        """Whether the process must end without another answer."""
        return self.state in (LifeState.FAILED, LifeState.SUPERSEDED)

    @property
    def is_done(self) -> bool:
        """Whether the life has ended; `state` says how."""
        return self.state in _ENDED

    @property
    def exit_code(self) -> int:
        """The exit code of a process that ends now. One that ends before it served, for whatever reason, did not start."""
        if self.state is LifeState.REFUSED:
            return _EXIT_CODES_OF_REFUSALS.get(self._refusal, EXIT_NOT_STARTED)
        return _EXIT_CODES.get(self.state, EXIT_NOT_STARTED)

    def must_mark(self, metadata: LedgerMetadata) -> bool:
        """Whether the bookie may have lost something of the ledger when it lost its disks (rule 29)."""
        return self._bookie in metadata.bookies()

    def start(self) -> list[LifeEffect]:
        """See Machine."""
        return [JudgeStart()]

    def step(self, event: LifeEvent) -> list[LifeEffect]:  # noqa: C901 - one case for each kind of event
        """See Machine."""
        match event:
            case StartJudged(start, ledgers):
                return self._judged(start, ledgers)
            case LedgersListed(ledgers):
                return self._mark(ledgers)
            case ClaimTaken():
                self._become(LifeState.LISTING)
                return [ListLedgers() if self._went_back else JudgeStart()]
            case ClaimLost():
                return self._claim()
            case StartRefused(why):
                self._refusal = why
                self._become(LifeState.REFUSED)
                return []
            case Created():
                self._is_created = True
                return self._mark_and_stamp()
            case LimboMarked():
                return self._stamp()
            case Stamped():
                return self._serve() if self._went_back else self._compare()
            case EpochsCompared():
                self._went_back = event.went_back
                return self._claim() if self._went_back else self._serve()
            case WritesAllowed():
                self._allows_writes = event.allowed
                if self.is_serving and self.state is not self._serving_state():
                    self._become(self._serving_state())
                return []
            case StopAsked():
                self._leave(LifeState.STOPPING)
                return []
            case StorageClosed():
                self._leave(LifeState.STOPPED)
                return []
            case StorageFailed(reason):
                return self._stop_answering(LifeState.FAILED, reason)
            case Superseded(reason):
                return self._stop_answering(LifeState.SUPERSEDED, reason)
            case _:
                assert_never(event)

    # The start

    def _judged(self, start: Start, ledgers: tuple[LedgerId, ...]) -> list[LifeEffect]:
        if start is Start.NORMAL:
            return self._compare()
        if self.state is LifeState.JUDGING:
            return self._claim()
        self._start, self._to_mark = start, ledgers
        if self._is_created:
            return self._mark_and_stamp()
        self._become(LifeState.CREATING)
        return [CreateStorage()]

    def _mark_and_stamp(self) -> list[LifeEffect]:
        return self._mark(self._to_mark) if self._start is Start.REPLACEMENT else self._stamp()

    def _mark(self, ledgers: tuple[LedgerId, ...]) -> list[LifeEffect]:
        self._become(LifeState.MARKING)
        return [MarkLimbo(ledgers)]

    def _claim(self) -> list[LifeEffect]:
        self._become(LifeState.CLAIMING)
        return [TakeClaim()]

    def _stamp(self) -> list[LifeEffect]:
        self._become(LifeState.STAMPING)
        return [StampEpoch() if self._went_back else StampCookie()]

    def _compare(self) -> list[LifeEffect]:
        self._become(LifeState.COMPARING)
        return [CompareEpochs()]

    def _serve(self) -> list[LifeEffect]:
        self._become(self._serving_state())
        return [Serve()]

    def _serving_state(self) -> LifeState:
        return LifeState.WRITABLE if self._allows_writes else LifeState.READ_ONLY

    # The end

    def _leave(self, state: LifeState) -> bool:
        """Change to a state of the end; False, and nothing happens, where another end came first."""
        if (self.state, state) not in TRANSITIONS:
            return False
        self._become(state)
        return True

    def _stop_answering(self, state: LifeState, reason: str) -> list[LifeEffect]:
        if not self._leave(state):
            return []
        self.end_reason = reason
        return [StopAnswering()]

    def _become(self, state: LifeState) -> None:
        assert (self.state, state) in TRANSITIONS, f"a bookie does not change from {self.state} to {state}"
        self.state = state
