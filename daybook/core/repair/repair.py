"""Brings the replicas of one ledger back: copies first, then names the new bookie in metadata (rule 32).

Each position of a fragment is repaired in its own place. A bookie that is lost, badly placed or to be drained gets a
successor; a live bookie that lacks entries gets them back, without a change of metadata. Only fragments whose end is
known are repaired: the last one of an open ledger must be fenced and recovered first (rule 31). One fragment follows
the other (fragment.py); around them stands what concerns the whole plan:

- A bookie in limbo may lose its disk once more. The mark's nonce is read before the first copy, and only that one is
  cleared, after everything the bookie owes is copied, and if it still owes the same and its limbo may end (rule 29).
- Copies that end without a compare-and-set of their own end with a read of the metadata: the ledger may have changed
  meanwhile (rule 56).
"""

from collections.abc import Set as AbstractSet
from typing import assert_never

from daybook.core.effects import (
    ClearLimbo,
    ReadLimbo,
    ReadMetadata,
    RepairEffect,
    RepairFinished,
    RepairRequest,
)
from daybook.core.errors import Code
from daybook.core.events import (
    BookieFailed,
    BookiesChanged,
    CasAnswered,
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
from daybook.core.ids import BookieId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.machine import RequestIds
from daybook.core.repair.copy import RepairPolicy
from daybook.core.repair.fragment import FragmentEvent, FragmentWork, Question, RepairState
from daybook.core.repair.plan import RepairPlan, may_end_limbo, why_obsolete, why_refused


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
        policy = RepairPolicy() if policy is None else policy
        ids = RequestIds()
        question = Question(ids, policy.metadata_retry_ms)
        self.plan = plan
        self._state = RepairState(metadata, version, policy, frozenset(unavailable), now_ms, ids, question)
        self._fragments = list(plan.fragments)
        self._work: FragmentWork | None = None
        self._nonce: str | None = None

    @property
    def metadata(self) -> LedgerMetadata:
        """The newest metadata that is known."""
        return self._state.metadata

    @property
    def copied_entries(self) -> int:
        """The entries that copies which are done have brought to their targets."""
        return self._state.copied_entries

    @property
    def copied_bytes(self) -> int:
        """The bytes of the frames that held `copied_entries`."""
        return self._state.copied_bytes

    @property
    def is_done(self) -> bool:
        """Whether the last effect was the verdict."""
        return self._state.result is not None

    def start(self) -> list[RepairEffect]:
        """Begin. A plan that breaks rule 31 or rule 29 fails at once."""
        return self._with_result(self._begin())

    def step(self, event: RepairEvent) -> list[RepairEffect]:
        """Take an event; answers to requests that no longer matter are dropped (rule 18)."""
        return [] if self.is_done else self._with_result(self._take(event))

    def _with_result(self, requests: list[RepairRequest]) -> list[RepairEffect]:
        result = self._state.result
        return [*requests] if result is None else [*requests, result]

    def _take(self, event: RepairEvent) -> list[RepairRequest]:
        state = self._state
        match event:
            case Tick(now_ms):
                state.now_ms = now_ms
                return state.question.tick(now_ms) if self._work is None else self._working(event)
            case ReadAnswered() | FrameAcked() | FrameFailed():
                return self._working(event)
            case LimboRead() | LimboCleared() | CasAnswered() | MetadataRead() | MetadataUnreadable():
                return self._answered(event) if state.question.is_answered_by(event.request_id) else []
            case BookieFailed(bookie, code):
                is_asked = bookie == state.question.bookie
                return self._no_answer(bookie, code) if is_asked else self._working(event)
            case BookiesChanged():
                return []  # a repair keeps to its plan
            case LockLost():
                return self._lock_lost()
            case _:
                assert_never(event)

    def _answered(
        self, event: LimboRead | LimboCleared | CasAnswered | MetadataRead | MetadataUnreadable
    ) -> list[RepairRequest]:
        """The answer to the request under way: a fragment's, or one of the whole plan's."""
        match event:
            case MetadataUnreadable():
                self._state.question.unreadable(self._state.now_ms)
                return []
            case LimboRead(bookie, _, code) | LimboCleared(bookie, _, code) if code is not Code.OK:
                return self._no_answer(bookie, code)
            case LimboCleared():
                return self._limbo_cleared(event)
            case LimboRead() if self._work is None:
                return self._nonce_read(event)
            case MetadataRead() if self._work is None:
                return self._confirmed(event.metadata)
            case LimboRead() | MetadataRead() | CasAnswered():
                return self._working(event)
            case _:
                assert_never(event)

    def _begin(self) -> list[RepairRequest]:
        if refusal := why_refused(self.metadata, self.plan):
            return self._state.fail(refusal)
        bookie = self.plan.clear_limbo
        if bookie is None:
            return self._next_fragment()
        return self._read_nonce(bookie)

    # Fragments

    def _next_fragment(self) -> list[RepairRequest]:
        if not self._fragments:
            self._work = None
            return self._confirm()
        self._work = FragmentWork(self._fragments.pop(0), self._state)
        return self._then_next(self._work, self._work.start())

    def _working(self, event: FragmentEvent) -> list[RepairRequest]:
        """Pass `event` to the fragment at work, if one is."""
        return [] if self._work is None else self._then_next(self._work, self._work.step(event))

    def _then_next(self, work: FragmentWork, requests: list[RepairRequest]) -> list[RepairRequest]:
        return requests + self._next_fragment() if work.is_done else requests

    # Limbo, and the end

    def _read_nonce(self, bookie: BookieId) -> list[RepairRequest]:
        return self._state.question.ask(lambda number: ReadLimbo(bookie, number))

    def _nonce_read(self, event: LimboRead) -> list[RepairRequest]:
        if event.nonce is None:
            return self._finish()
        self._nonce = event.nonce
        return self._next_fragment()

    def _confirm(self) -> list[RepairRequest]:
        """Copies without a compare-and-set of their own: has the ledger changed under them (rule 56)?"""
        if self.plan.clear_limbo is None and not self._state.refilled:
            return self._finish()
        return self._state.question.ask(ReadMetadata)

    def _confirmed(self, now: LedgerMetadata | None) -> list[RepairRequest]:
        if now is None:
            return self._state.abandon("the ledger is deleted")
        before, self._state.metadata = self._state.metadata, now
        bookie = self.plan.clear_limbo
        if bookie is None:
            why = next(filter(None, (why_obsolete(now, repair) for repair in self._state.refilled)), None)
            return self._state.abandon(why) if why else self._finish()
        if now.stripes_of(bookie) != before.stripes_of(bookie) or not may_end_limbo(now, bookie):
            return self._state.fail(
                f"what {bookie} owes changed during its repair, or the ledger is being recovered; it stays in limbo, and the "
                "repair is tried again"
            )
        nonce = self._nonce
        assert nonce is not None
        return self._state.question.ask(lambda number: ClearLimbo(bookie, number, nonce))

    def _limbo_cleared(self, event: LimboCleared) -> list[RepairRequest]:
        if event.cleared:
            return self._finish()
        return self._state.fail(
            f"{event.bookie} lost its disk again during the repair; it stays in limbo, and the repair is tried again"
        )

    def _lock_lost(self) -> list[RepairRequest]:
        """Another worker may have the ledger now: stop at once (rule 34). What was sent does no harm."""
        return self._state.fail(
            "this worker's lock is gone with its session; another worker, or this one with a new session, starts the "
            "repair again"
        )

    def _no_answer(self, bookie: BookieId, code: Code) -> list[RepairRequest]:
        return self._state.fail(f"{bookie} does not answer ({code.name}); the repair is tried again")

    def _finish(self) -> list[RepairRequest]:
        self._state.result = RepairFinished(self.metadata)
        return []
