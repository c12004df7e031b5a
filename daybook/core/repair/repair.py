"""Brings the replicas of one ledger back: copies first, then names the new bookie in metadata (rule 32).

Each position of a fragment is repaired in its own place. A bookie that is lost, badly placed or to be drained gets a
successor; a live bookie that lacks entries gets them back, without a change of metadata. Only fragments whose end is
known are repaired: the last one of an open ledger must be fenced and recovered first (rule 31).

What can go wrong between the first copy and the compare-and-set decides the shape of this machine:
- The metadata moved on (rule 56). Another process repairs a fragment that changed: stop, no harm is done. If it is
  unchanged but the ledger is CLOSED, the change may be the successor's own: a bookie that metadata does not name may
  remove its replicas after raising the version (rule 47), so the copy begins again before the next attempt. Of a
  ledger that is not CLOSED nothing is removed, and the compare-and-set alone is repeated.
- The successor's disk was lost. Before metadata names it, no limbo mark would show that; so its boot id must be the same
  from the first copy until after the compare-and-set, or the copy begins again.
- A bookie in limbo loses its disk once more. The mark's nonce is read before the first copy, and only that one is
  cleared, after everything the bookie owes is copied and while the ledger is still CLOSED (rule 29).
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import assert_never

from daybook.core.effects import (
    CasMetadata,
    ClearLimbo,
    Effect,
    ReadLimbo,
    ReadMetadata,
    RepairAbandoned,
    RepairFailed,
    RepairFinished,
)
from daybook.core.errors import Code, DaybookError, RepairError
from daybook.core.events import (
    BookieFailed,
    BookiesChanged,
    CasAnswered,
    CasOutcome,
    FrameAcked,
    FrameFailed,
    LimboCleared,
    LimboRead,
    LockLost,
    MetadataRead,
    MetadataUnreadable,
    ReadAnswered,
    RepairEvent,
    Tick,
)
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.machine import RequestIds, RetryTimer
from daybook.core.repair.copy import PositionCopy, RepairPolicy
from daybook.core.repair.plan import (
    CopyJob,
    FragmentRepair,
    RepairPlan,
    index_of,
    limbo_plan,
    owed,
    why_obsolete,
)


class _Phase(Enum):
    """What the machine waits for."""

    READ_NONCE = auto()
    COPY = auto()
    CAS = auto()
    REREAD = auto()
    VERIFY = auto()
    CONFIRM = auto()
    CLEAR = auto()
    ENDED = auto()


@dataclass(slots=True)
class _Attempt:
    """One attempt at one fragment: its copies, and the check of its successors."""

    copies: list[tuple[CopyJob, PositionCopy]]
    at: int = 0
    unverified: list[tuple[CopyJob, PositionCopy]] = field(default_factory=list)


class LedgerRepair:
    """`start()`, then `step(event)`; ends with RepairFinished, RepairFailed or RepairAbandoned, exactly once.

    `metadata` and `version` are what the plan was made from. `unavailable` bookies are not asked for entries.
    Safe to run twice, and beside anything else: copies are the same bytes whoever makes them.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        version: int,
        plan: RepairPlan,
        *,
        policy: RepairPolicy | None = None,
        unavailable: AbstractSet[BookieId] = frozenset(),
        now_ms: int = 0,
    ) -> None:
        """Nothing is sent before `start`."""
        self.metadata = metadata
        self.version = version
        self.plan = plan
        self.copied_entries = 0
        self.copied_bytes = 0
        self._policy = RepairPolicy() if policy is None else policy
        self._unavailable = frozenset(unavailable)
        self._now_ms = now_ms
        self._phase = _Phase.READ_NONCE
        self._ids = RequestIds()
        self._request = 0
        self._retry = RetryTimer(self._policy.metadata_retry_ms)
        self._nonce: str | None = None
        self._fragments = list(plan.fragments)
        self._attempts = 0
        self._under_way = _Attempt([])

    @property
    def is_done(self) -> bool:
        """Whether the last effect was the verdict."""
        return self._phase is _Phase.ENDED

    def start(self) -> list[Effect]:
        """Begin. A plan that breaks rule 31 or rule 29 fails at once."""
        if refusal := self._why_not():
            return self._fail(RepairError(f"ledger {self.metadata.ledger_id}: {refusal}"))
        if self.plan.clear_limbo is not None:
            return self._ask(_Phase.READ_NONCE, lambda number: ReadLimbo(self._limbo_bookie(), number))
        return self._next_fragment()

    def step(self, event: RepairEvent) -> list[Effect]:
        """Take an event; answers to requests that no longer matter are dropped (rule 18)."""
        if self.is_done:
            return []
        match event:
            case Tick(now_ms):
                self._now_ms = now_ms
                return self._tick()
            case ReadAnswered() | FrameAcked() | FrameFailed():
                return self._copying(event)
            case LimboRead() | LimboCleared() | CasAnswered() | MetadataRead() | MetadataUnreadable():
                return self._answered(event) if event.request_id == self._request else []
            case BookieFailed(bookie, code):
                return self._bookie_failed(bookie, code)
            case BookiesChanged():
                return []  # a repair keeps to its plan
            case LockLost():
                return self._lock_lost()
            case _:
                assert_never(event)

    def _answered(
        self, event: LimboRead | LimboCleared | CasAnswered | MetadataRead | MetadataUnreadable
    ) -> list[Effect]:
        """The answer to the request under way."""
        match event:
            case LimboRead():
                return self._limbo_read(event)
            case LimboCleared():
                return self._limbo_cleared(event)
            case CasAnswered():
                return self._cas_answered(event)
            case MetadataRead():
                return self._metadata_read(event)
            case MetadataUnreadable():
                self._retry.start(self._now_ms)
                return []
            case _:
                assert_never(event)

    def _why_not(self) -> str | None:
        """Why this plan must not be carried out on the metadata it was made from."""
        if (bookie := self.plan.clear_limbo) is not None and not self.metadata.is_closed:
            return "limbo ends only for a CLOSED ledger: recover it first (rule 29)"
        assert bookie is None or self.plan == limbo_plan(self.metadata, bookie)
        for repair in self.plan.fragments:
            index = index_of(self.metadata, repair.first_entry)
            if index is not None and self.metadata.fragment_end(index) is None:
                return (
                    f"its last fragment, at entry {repair.first_entry}, is open: fence and recover the ledger "
                    "before it is repaired (rule 31)"
                )
        return None

    def _limbo_bookie(self) -> BookieId:
        assert self.plan.clear_limbo is not None
        return self.plan.clear_limbo

    def _next_fragment(self) -> list[Effect]:
        self._attempts = 0
        return self._copy_fragment() if self._fragments else self._confirm()

    def _copy_fragment(self) -> list[Effect]:
        """Begin the copies of the fragment at the front, from the first entry on."""
        self._attempts += 1
        if self._attempts > self._policy.attempts_max:
            return self._give_up()
        repair = self._fragments[0]
        why = why_obsolete(self.metadata, repair)
        if why:
            return self._abandon(why)
        index = index_of(self.metadata, repair.first_entry)
        assert index is not None
        copies: list[tuple[CopyJob, PositionCopy]] = []
        for job in repair.jobs:
            what = owed(self.metadata, index, job, repair, self._unavailable)
            copies.append((job, PositionCopy(what, self._policy, self._ids)))
        self._under_way = _Attempt(copies)
        self._phase = _Phase.COPY
        self._request = 0  # no answer is waited for: one that comes twice is none to the copies (rule 18)
        return self._pump()

    def _pump(self) -> list[Effect]:
        """Go on with the copy under way, and with the next one when it is done."""
        effects: list[Effect] = []
        while self._under_way.at < len(self._under_way.copies):
            _, copy = self._under_way.copies[self._under_way.at]
            effects += copy.pump(self._now_ms)
            if copy.error is not None:
                is_target = copy.target_has_failed
                return [*effects, *self._fail(copy.error, unrecoverable=not is_target)]
            if not copy.is_done:
                return effects
            self.copied_entries += copy.copied_entries
            self.copied_bytes += copy.copied_bytes
            self._under_way.at += 1
        return effects + self._copied()

    def _copying(self, event: ReadAnswered | FrameAcked | FrameFailed) -> list[Effect]:
        if self._phase is not _Phase.COPY:
            return []
        _, copy = self._under_way.copies[self._under_way.at]
        effects: list[Effect] = []
        match event:
            case ReadAnswered():
                effects = copy.read_answered(event, self._now_ms)
            case FrameAcked():
                copy.frame_acked(event)
            case _:
                copy.frame_failed(event)
        return effects + self._pump()

    def _copied(self) -> list[Effect]:
        """Everything of this fragment has been acknowledged."""
        copies = self._under_way.copies
        if any(job.replaces and _restarted(copy.boot_ids) for job, copy in copies):
            return self._copy_fragment()
        if any(job.replaces for job, _ in copies):
            return self._cas()
        del self._fragments[0]
        return self._next_fragment()

    # Metadata

    def _cas(self) -> list[Effect]:
        changed = self._renamed(self.metadata)
        return self._ask(_Phase.CAS, lambda number: CasMetadata(number, changed, self.version))

    def _renamed(self, metadata: LedgerMetadata) -> LedgerMetadata:
        """`metadata` with the successors in the places of those they follow."""
        first = self._fragments[0].first_entry
        for job in self._fragments[0].jobs:
            if job.replaces:
                metadata = metadata.with_replica(first, job.old, job.target)
        return metadata

    def _cas_answered(self, event: CasAnswered) -> list[Effect]:
        if event.outcome is CasOutcome.DONE:
            self.metadata, self.version = self._renamed(self.metadata), event.version
            return self._named()
        return self._ask(_Phase.REREAD, ReadMetadata)

    def _metadata_read(self, event: MetadataRead) -> list[Effect]:
        if event.metadata is None:
            return self._abandon("the ledger is deleted")
        if self._phase is _Phase.CONFIRM:
            return self._confirmed(event.metadata)
        first = self._fragments[0].first_entry
        before, is_same_version = self._fragment(first), event.version == self.version
        ours = self._renamed(self.metadata).fragment_of(first)
        self.metadata, self.version = event.metadata, event.version
        if self._fragment(first) == ours:
            return self._named()
        why = self._why_changed(before)
        if why:
            return self._abandon(why)
        return self._cas_again() if is_same_version else self._after_conflict()

    def _fragment(self, first_entry: EntryId) -> Fragment | None:
        index = index_of(self.metadata, first_entry)
        return None if index is None else self.metadata.fragments[index]

    def _why_changed(self, before: Fragment | None) -> str | None:
        """Why the fragment under repair is no longer what was copied; None if it is."""
        repair = self._fragments[0]
        why = why_obsolete(self.metadata, repair)
        if why is None and self._fragment(repair.first_entry) != before:
            why = f"another position at entry {repair.first_entry} changed"
        return why

    def _after_conflict(self) -> list[Effect]:
        """The fragment is unchanged, but the version moved on: has the successor still got its copies?"""
        return self._copy_fragment() if self.metadata.is_closed else self._cas_again()

    def _cas_again(self) -> list[Effect]:
        self._attempts += 1
        return self._give_up() if self._attempts > self._policy.attempts_max else self._cas()

    def _named(self) -> list[Effect]:
        """Metadata names the successors: any later loss of their disks puts them in limbo. And an earlier one?"""
        copies = self._under_way.copies
        self._under_way.unverified = [
            (job, copy) for job, copy in copies if job.replaces and copy.copied_entries
        ]
        jobs = tuple(CopyJob(job.position, job.target, job.target) for job, _ in copies if job.replaces)
        self._fragments[0] = FragmentRepair(self._fragments[0].first_entry, jobs)
        return self._verify()

    def _verify(self) -> list[Effect]:
        if not self._under_way.unverified:
            del self._fragments[0]
            return self._next_fragment()
        target = self._under_way.unverified[0][0].target
        return self._ask(_Phase.VERIFY, lambda number: ReadLimbo(target, number))

    def _verified(self, event: LimboRead) -> list[Effect]:
        _, copy = self._under_way.unverified.pop(0)
        if _restarted(copy.boot_ids | {event.boot_id}):
            return self._copy_fragment()
        return self._verify()

    # Limbo

    def _limbo_read(self, event: LimboRead) -> list[Effect]:
        if event.code is not Code.OK:
            return self._no_answer(event.bookie, event.code)
        if self._phase is _Phase.VERIFY:
            return self._verified(event)
        if event.nonce is None:
            return self._finish()
        self._nonce = event.nonce
        return self._next_fragment()

    def _confirm(self) -> list[Effect]:
        """Copies without a compare-and-set of their own: has the ledger changed under them (rule 56)?"""
        if self.plan.clear_limbo is None and all(repair.replaces for repair in self.plan.fragments):
            return self._finish()
        return self._ask(_Phase.CONFIRM, ReadMetadata)

    def _confirmed(self, now: LedgerMetadata) -> list[Effect]:
        before, self.metadata = self.metadata, now
        bookie = self.plan.clear_limbo
        if bookie is None:
            refilled = [repair for repair in self.plan.fragments if not repair.replaces]
            why = next(filter(None, (why_obsolete(now, repair) for repair in refilled)), None)
            return self._abandon(why) if why else self._finish()
        if now.stripes_of(bookie) != before.stripes_of(bookie):
            return self._fail(
                RepairError(
                    f"ledger {now.ledger_id}: what {bookie} owes changed during its repair; it stays in limbo, and "
                    "the repair is tried again"
                )
            )
        nonce = self._nonce
        assert nonce is not None
        return self._ask(_Phase.CLEAR, lambda number: ClearLimbo(bookie, number, nonce))

    def _limbo_cleared(self, event: LimboCleared) -> list[Effect]:
        if event.code is not Code.OK:
            return self._no_answer(event.bookie, event.code)
        if event.cleared:
            return self._finish()
        return self._fail(
            RepairError(
                f"ledger {self.metadata.ledger_id}: {event.bookie} lost its disk again during the repair; it stays "
                "in limbo, and the repair is tried again"
            )
        )

    # Waiting and ending

    def _ask(self, phase: _Phase, request: Callable[[int], Effect]) -> list[Effect]:
        """Send the one request whose answer `phase` waits for."""
        self._phase = phase
        self._request = self._ids.next()
        self._retry.stop()
        return [request(self._request)]

    def _tick(self) -> list[Effect]:
        if self._phase is _Phase.COPY:
            return self._pump()
        if self._retry.fires(self._now_ms):
            return self._ask(self._phase, ReadMetadata)
        return []

    def _bookie_failed(self, bookie: BookieId, code: Code) -> list[Effect]:
        if self._phase is _Phase.COPY:
            _, copy = self._under_way.copies[self._under_way.at]
            if bookie == copy.owed.target:
                copy.target_failed(code)
            else:
                copy.read_failed(bookie, code)
            return self._pump()
        waits_for = {
            _Phase.READ_NONCE: self.plan.clear_limbo,
            _Phase.CLEAR: self.plan.clear_limbo,
            _Phase.VERIFY: self._under_way.unverified[0][0].target if self._under_way.unverified else None,
        }
        return self._no_answer(bookie, code) if waits_for.get(self._phase) == bookie else []

    def _lock_lost(self) -> list[Effect]:
        """Another worker may have the ledger now: stop at once (rule 34). What was sent does no harm."""
        msg = (
            f"ledger {self.metadata.ledger_id}: this worker's lock is gone with its session; another worker, or this one "
            "with a new session, starts the repair again"
        )
        return self._fail(RepairError(msg))

    def _no_answer(self, bookie: BookieId, code: Code) -> list[Effect]:
        msg = f"ledger {self.metadata.ledger_id}: {bookie} does not answer ({code.name}); the repair is tried again"
        return self._fail(RepairError(msg))

    def _give_up(self) -> list[Effect]:
        msg = (
            f"ledger {self.metadata.ledger_id}: its metadata or a bookie kept changing, {self._policy.attempts_max} "
            "attempts failed; the repair is tried again later"
        )
        return self._fail(RepairError(msg))

    def _finish(self) -> list[Effect]:
        self._phase = _Phase.ENDED
        return [RepairFinished(self.metadata)]

    def _fail(self, error: DaybookError, *, unrecoverable: bool = False) -> list[Effect]:
        self._phase = _Phase.ENDED
        return [RepairFailed(error, unrecoverable)]

    def _abandon(self, why: str) -> list[Effect]:
        self._phase = _Phase.ENDED
        return [RepairAbandoned(f"ledger {self.metadata.ledger_id}: {why}")]


def _restarted(boot_ids: AbstractSet[str]) -> bool:
    """Whether a bookie whose answers carried these boot ids restarted between them."""
    return len(boot_ids) > 1
