"""One fragment of a repair: its copies, then the compare-and-set that names the successors, then a check of them.

What can go wrong between the first copy and the compare-and-set decides the shape of this part:
- The metadata moved on (rule 56). Another process repairs a fragment that changed: stop, no harm is done. If it is
  unchanged but the ledger is CLOSED, the change may be the successor's own: a bookie that metadata does not name may
  remove its replicas after raising the version (rule 47), so the copy begins again before the next attempt. Of a
  ledger that is not CLOSED nothing is removed, and the compare-and-set alone is repeated.
- The successor's disk was lost. Before metadata names it, no limbo mark would show that; so its boot id must be the same
  from the first copy until after the compare-and-set, or the copy begins again.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias, assert_never

from daybook.core.effects import (
    CasMetadata,
    ClearLimbo,
    ReadLimbo,
    ReadMetadata,
    RepairAbandoned,
    RepairFailed,
    RepairRequest,
    RepairResult,
)
from daybook.core.errors import DaybookError, RepairError
from daybook.core.events import (
    BookieFailed,
    CasAnswered,
    CasOutcome,
    FrameAcked,
    FrameFailed,
    LimboRead,
    MetadataRead,
    ReadAnswered,
    Tick,
)
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.machine import RequestIds, RetryTimer
from daybook.core.repair.copy import PositionCopy, RepairPolicy
from daybook.core.repair.plan import CopyJob, FragmentRepair, index_of, owed, why_changed, why_obsolete

FragmentEvent: TypeAlias = (
    ReadAnswered | FrameAcked | FrameFailed | CasAnswered | MetadataRead | LimboRead | BookieFailed | Tick
)


class Question:
    """The one request, beside those of copies, that a repair waits for; a read of metadata that failed is repeated."""

    def __init__(self, ids: RequestIds, retry_ms: int) -> None:
        self.bookie: BookieId | None = None
        """The bookie that must answer, if it is one."""
        self._ids = ids
        self._retry = RetryTimer(retry_ms)
        self._id = 0

    def ask(self, request: Callable[[int], RepairRequest]) -> list[RepairRequest]:
        """Send what `request` makes of an id; the answer to an earlier one is dropped (rule 18)."""
        self._id = self._ids.next()
        self._retry.stop()
        effect = request(self._id)
        self.bookie = effect.bookie if isinstance(effect, ReadLimbo | ClearLimbo) else None
        return [effect]

    def drop(self) -> None:
        """Wait for no answer: one that comes twice is none to what follows (rule 18)."""
        self._id, self.bookie = 0, None

    def is_answered_by(self, request_id: int) -> bool:
        """Whether the answer to `request_id` is the one that is waited for."""
        return request_id == self._id

    def unreadable(self, now_ms: int) -> None:
        """The metadata could not be read: ask again after a pause."""
        self._retry.start(now_ms)

    def tick(self, now_ms: int) -> list[RepairRequest]:
        """Repeat the read when its pause is over."""
        return self.ask(ReadMetadata) if self._retry.fires(now_ms) else []


@dataclass(slots=True)
class RepairState:
    """What a repair knows and has done; the machine and its fragments share it. `result` ends the repair."""

    metadata: LedgerMetadata
    version: int
    policy: RepairPolicy
    unavailable: frozenset[BookieId]
    now_ms: int
    ids: RequestIds
    question: Question
    copied_entries: int = 0
    copied_bytes: int = 0
    refilled: list[FragmentRepair] = field(default_factory=list)
    """The copies that no compare-and-set followed: only a read of the metadata tells whether they were still wanted."""
    result: RepairResult | None = None

    def fail(self, why: str) -> list[RepairRequest]:
        """End the repair for now; nothing is sent."""
        return self.fail_with(RepairError(f"ledger {self.metadata.ledger_id}: {why}"))

    def fail_with(self, error: DaybookError, *, unrecoverable: bool = False) -> list[RepairRequest]:
        """End the repair for now with `error`; nothing is sent."""
        self.result = RepairFailed(error, unrecoverable)
        return []

    def abandon(self, why: str) -> list[RepairRequest]:
        """End the repair for good; nothing is sent."""
        self.result = RepairAbandoned(f"ledger {self.metadata.ledger_id}: {why}")
        return []


class _Phase(Enum):
    """What the fragment waits for."""

    COPY = auto()
    CAS = auto()
    REREAD = auto()
    VERIFY = auto()
    DONE = auto()


@dataclass(slots=True)
class _Attempt:
    """One attempt: its copies, and the check of its successors."""

    copies: list[tuple[CopyJob, PositionCopy]]
    at: int = 0
    unverified: list[tuple[CopyJob, PositionCopy]] = field(default_factory=list)


class FragmentWork:
    """`start()`, then `step(event)`, until it `is_done`, or until it has ended the whole repair (`state.result`).

    Only answers that `state.question` waits for may be given to it.
    """

    def __init__(self, repair: FragmentRepair, state: RepairState) -> None:
        self._repair = repair
        self._state = state
        self._phase = _Phase.COPY
        self._attempts = 0
        self._under_way = _Attempt([])

    @property
    def is_done(self) -> bool:
        """Whether the fragment is repaired."""
        return self._phase is _Phase.DONE

    def start(self) -> list[RepairRequest]:
        """Begin the copies, from the first entry on."""
        self._attempts += 1
        if self._attempts > self._state.policy.attempts_max:
            return self._give_up()
        metadata = self._state.metadata
        why = why_obsolete(metadata, self._repair)
        if why:
            return self._state.abandon(why)
        index = index_of(metadata, self._repair.first_entry)
        assert index is not None
        copies: list[tuple[CopyJob, PositionCopy]] = []
        for job in self._repair.jobs:
            what = owed(metadata, index, job, self._repair, self._state.unavailable)
            copies.append((job, PositionCopy(what, self._state.policy, self._state.ids)))
        self._under_way = _Attempt(copies)
        self._phase = _Phase.COPY
        self._state.question.drop()
        return self._pump()

    def step(self, event: FragmentEvent) -> list[RepairRequest]:
        """Take an event; what follows from it."""
        match event:
            case Tick():
                is_copying = self._phase is _Phase.COPY
                return self._pump() if is_copying else self._state.question.tick(self._state.now_ms)
            case ReadAnswered() | FrameAcked() | FrameFailed() | BookieFailed():
                return self._copying(event)
            case CasAnswered():
                return self._cas_answered(event)
            case MetadataRead():
                return self._metadata_read(event)
            case LimboRead():
                return self._verified(event)
            case _:
                assert_never(event)

    # Copies

    def _pump(self) -> list[RepairRequest]:
        """Go on with the copy under way, and with the next one when it is done."""
        effects: list[RepairRequest] = []
        while self._under_way.at < len(self._under_way.copies):
            _, copy = self._under_way.copies[self._under_way.at]
            effects += copy.pump(self._state.now_ms)
            if copy.error is not None:
                self._state.fail_with(copy.error, unrecoverable=copy.is_nowhere)
                return effects
            if not copy.is_done:
                return effects
            self._state.copied_entries += copy.copied_entries
            self._state.copied_bytes += copy.copied_bytes
            self._under_way.at += 1
        return effects + self._copied()

    def _copying(self, event: ReadAnswered | FrameAcked | FrameFailed | BookieFailed) -> list[RepairRequest]:
        if self._phase is not _Phase.COPY:
            return []
        _, copy = self._under_way.copies[self._under_way.at]
        effects: list[RepairRequest] = []
        match event:
            case ReadAnswered():
                effects += copy.read_answered(event, self._state.now_ms)
            case FrameAcked():
                copy.frame_acked(event)
            case FrameFailed():
                copy.frame_failed(event)
            case BookieFailed(bookie, code):
                copy.bookie_failed(bookie, code)
            case _:
                assert_never(event)
        return effects + self._pump()

    def _copied(self) -> list[RepairRequest]:
        """Everything of this fragment has been acknowledged."""
        copies = self._under_way.copies
        if any(job.replaces and has_restarted(copy.boot_ids) for job, copy in copies):
            return self.start()
        if any(job.replaces for job, _ in copies):
            return self._cas()
        self._state.refilled.append(self._repair)
        return self._finish()

    # Metadata

    def _ask(self, phase: _Phase, request: Callable[[int], RepairRequest]) -> list[RepairRequest]:
        """Send the request whose answer `phase` waits for."""
        self._phase = phase
        return self._state.question.ask(request)

    def _cas(self) -> list[RepairRequest]:
        changed = self._renamed(self._state.metadata)
        return self._ask(_Phase.CAS, lambda number: CasMetadata(number, changed, self._state.version))

    def _renamed(self, metadata: LedgerMetadata) -> LedgerMetadata:
        """`metadata` with the successors in the places of those they follow."""
        for job in self._repair.jobs:
            if job.replaces:
                metadata = metadata.with_replica(self._repair.first_entry, job.old, job.target)
        return metadata

    def _cas_answered(self, event: CasAnswered) -> list[RepairRequest]:
        if event.outcome is CasOutcome.DONE:
            self._state.metadata, self._state.version = self._renamed(self._state.metadata), event.version
            return self._named()
        return self._ask(_Phase.REREAD, ReadMetadata)

    def _metadata_read(self, event: MetadataRead) -> list[RepairRequest]:
        if event.metadata is None:
            return self._state.abandon("the ledger is deleted")
        first = self._repair.first_entry
        before, is_same_version = self._fragment(first), event.version == self._state.version
        ours = self._renamed(self._state.metadata).fragment_of(first)
        self._state.metadata, self._state.version = event.metadata, event.version
        if self._fragment(first) == ours:
            return self._named()
        why = why_changed(self._state.metadata, self._repair, before)
        if why:
            return self._state.abandon(why)
        return self._cas_again() if is_same_version else self._after_conflict()

    def _fragment(self, first_entry: EntryId) -> Fragment | None:
        index = index_of(self._state.metadata, first_entry)
        return None if index is None else self._state.metadata.fragments[index]

    def _after_conflict(self) -> list[RepairRequest]:
        """The fragment is unchanged, but the version moved on: has the successor still got its copies?"""
        return self.start() if self._state.metadata.is_closed else self._cas_again()

    def _cas_again(self) -> list[RepairRequest]:
        self._attempts += 1
        return self._give_up() if self._attempts > self._state.policy.attempts_max else self._cas()

    # The successors

    def _named(self) -> list[RepairRequest]:
        """Metadata names the successors: any later loss of their disks puts them in limbo. And an earlier one?"""
        copies = self._under_way.copies
        self._under_way.unverified = [
            (job, copy) for job, copy in copies if job.replaces and copy.copied_entries
        ]
        jobs = tuple(CopyJob(job.position, job.target, job.target) for job, _ in copies if job.replaces)
        self._repair = FragmentRepair(self._repair.first_entry, jobs)
        return self._verify()

    def _verify(self) -> list[RepairRequest]:
        if not self._under_way.unverified:
            return self._finish()
        target = self._under_way.unverified[0][0].target
        return self._ask(_Phase.VERIFY, lambda number: ReadLimbo(target, number))

    def _verified(self, event: LimboRead) -> list[RepairRequest]:
        _, copy = self._under_way.unverified.pop(0)
        return self.start() if has_restarted(copy.boot_ids | {event.boot_id}) else self._verify()

    def _finish(self) -> list[RepairRequest]:
        self._phase = _Phase.DONE
        self._state.question.drop()
        return []

    def _give_up(self) -> list[RepairRequest]:
        return self._state.fail(
            f"its metadata or a bookie kept changing, {self._state.policy.attempts_max} attempts failed; the repair is "
            "tried again later"
        )


def has_restarted(boot_ids: AbstractSet[str]) -> bool:
    """Whether a bookie whose answers carried these boot ids restarted between them."""
    return len(boot_ids) > 1
