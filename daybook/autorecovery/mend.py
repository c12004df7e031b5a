"""Mends one ledger: look, plan, carry out one plan, and look again, until nothing is left that can be done.

Every look reads the metadata after a `sync` and the list of bookies anew, so that a task is never older than its reason
and a bookie that returned is left alone (rule 33). A fragment whose repair fails is passed over, so that it keeps no
other from being repaired (rule 35). An open ledger is fenced and recovered only when its grace period is over, and only
if it has a replacement (rule 31).
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import Final

from daybook.autorecovery.cluster import Cluster, LeaseLostError
from daybook.autorecovery.guard import Guarded
from daybook.autorecovery.listing import BookieListings
from daybook.autorecovery.orders import Order
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.client.driver.run import Startable, run_to_end
from daybook.core.audit.judgement import (
    HARMLESS,
    Findings,
    LedgerAudit,
    LedgerAuditor,
    OpenAction,
    Problem,
    RatingPolicy,
    Reason,
)
from daybook.core.effects import (
    Effect,
    Recovered,
    RecoveryFailed,
    RepairAbandoned,
    RepairFailed,
    RepairFinished,
)
from daybook.core.errors import MetadataError, NoSuchLedgerError
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import BookieInfo
from daybook.core.recovery.recovery import LedgerRecovery
from daybook.core.repair.plan import PlanKey, RepairPlan
from daybook.core.repair.repair import LedgerRepair
from daybook.metadata.store.store import Versioned
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger

_LOG: Final = get_logger(__name__)
_TRIES_OF_A_PLAN: Final = 3
"""A plan that comes up again after it was carried out, or was overtaken by others, is tried so often."""

_RECOVERY: Final[PlanKey] = ("recovery",)
_ENDS: Final = (RepairFinished, RepairFailed, RepairAbandoned, Recovered, RecoveryFailed)


class Outcome(Enum):
    """What became of a ledger."""

    REPAIRED = "repaired"
    SOUND = "sound"  # nothing was to be done
    DELETED = "deleted"
    WAITING = "waiting"  # a grace period or the delay of a lost bookie is not over
    FAILED = "failed"
    LOCKED = "locked"  # another worker has it
    LOCK_LOST = "lock lost"  # another worker may have it by now
    STOPPED = "stopped"  # this worker was told to stop


@dataclass(frozen=True, slots=True)
class LedgerResult:
    """What a worker did for one ledger. `why` says in words what is left to repair; `again_ms`: when to look again."""

    ledger_id: LedgerId
    outcome: Outcome
    why: str = ""
    unrecoverable: bool = False
    again_ms: int | None = None
    plans: int = 0
    copied_entries: int = 0
    copied_bytes: int = 0

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self.outcome in {Outcome.REPAIRED, Outcome.SOUND, Outcome.DELETED}


class LedgerMender:
    """Mends ledgers one by one; holds no state between them."""

    def __init__(
        self,
        cluster: Cluster,
        settings: AutoRecoverySettings,
        placement: RatingPolicy,
        *,
        should_stop: Callable[[], bool],
        on_copied: Callable[[int], None],
    ) -> None:
        """`should_stop` is asked between plans; `on_copied` is told the bytes that targets acknowledged."""
        self._cluster = cluster
        self._settings = settings
        self._placement = placement
        self._should_stop = should_stop
        self._on_copied = on_copied

    async def mend(self, ledger_id: LedgerId, order: Order, may_commit: Callable[[], bool]) -> LedgerResult:
        """Mend the ledger as far as possible.

        Raises LeaseLostError when `may_commit` says no, MetadataUnavailableError.
        """
        return await _Mending(self, ledger_id, order, may_commit).run()

    # What a mending uses.

    async def look(self, ledger_id: LedgerId, order: Order) -> tuple[Versioned[LedgerMetadata], "Look"]:
        """What is wrong with the ledger now. Raises NoSuchLedgerError, MetadataError."""
        cluster = self._cluster
        found = await cluster.ledgers.read(ledger_id, sync=True)
        registered = await cluster.directory.bookies()
        cluster.channels.bookies_changed(registered)
        listings = BookieListings(cluster.channels, calls_max=self._settings.calls_per_bookie_max)
        listed = await listings.of_ledger(ledger_id, found.value.bookies() & registered.keys())
        findings = Findings(
            registered,
            lost=order.lost(found.value, registered),
            leaving=order.leaving,
            limbo=frozenset(listed.limbo),
            listed=listed.entries,
            last_add_confirmed=listed.last_add_confirmed,
        )
        audit = LedgerAuditor(self._placement, cluster.rng).audit(
            found.value, findings, grace_is_over=order.grace_is_over(found.value)
        )
        return found, Look(audit, registered, listings.silent)

    async def repair(
        self,
        found: Versioned[LedgerMetadata],
        plan: RepairPlan,
        registered: AbstractSet[BookieId],
        may_commit: Callable[[], bool],
    ) -> tuple[Effect, LedgerRepair]:
        """Carry out one plan."""
        machine = LedgerRepair(
            found.value,
            found.version,
            plan,
            policy=self._settings.repair_policy(),
            unavailable=found.value.bookies() - registered,
            now_ms=monotonic_ms(),
        )
        return await self._run(machine, found, may_commit), machine

    async def recover(
        self,
        found: Versioned[LedgerMetadata],
        registered: Mapping[BookieId, BookieInfo],
        may_commit: Callable[[], bool],
    ) -> Effect:
        """Fence, recover and close an open ledger."""
        machine = LedgerRecovery(
            found.value.ledger_id,
            placement=self._placement,
            rng=self._cluster.rng,
            bookies=registered,
            now_ms=monotonic_ms(),
        )
        return await self._run(machine, found, may_commit)

    async def _run(
        self, machine: Startable, found: Versioned[LedgerMetadata], may_commit: Callable[[], bool]
    ) -> Effect:
        result = await run_to_end(
            Guarded(machine, may_commit, self._on_copied),
            found.value.ledger_id,
            found.value.password_hash,
            self._cluster,
            lambda effect: isinstance(effect, _ENDS),
            current=found,
        )
        if isinstance(result, RepairFailed) and isinstance(result.error, LeaseLostError):
            raise result.error
        return result

    @property
    def should_stop(self) -> bool:
        """Whether to begin no further plan."""
        return self._should_stop()


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a ledger: the verdict, who was registered, and who would not tell what it has."""

    audit: LedgerAudit
    registered: Mapping[BookieId, BookieInfo]
    silent: Mapping[BookieId, str]


class _Mending:
    """One ledger being mended."""

    def __init__(
        self, mender: LedgerMender, ledger_id: LedgerId, order: Order, may_commit: Callable[[], bool]
    ) -> None:
        self._mender = mender
        self._ledger_id = ledger_id
        self._order = order
        self._may_commit = may_commit
        self._setbacks: dict[PlanKey, RepairFailed | RecoveryFailed] = {}
        self._tries: dict[PlanKey, int] = {}
        self._plans = 0
        self._copied_entries = 0
        self._copied_bytes = 0

    async def run(self) -> LedgerResult:
        """Look and act until nothing is left that can be done."""
        while not self._mender.should_stop:
            try:
                found, look = await self._mender.look(self._ledger_id, self._order)
            except NoSuchLedgerError:
                return self._result(Outcome.DELETED)
            except MetadataError as error:
                return self._result(Outcome.FAILED, str(error))
            audit = look.audit
            if audit.open_action is OpenAction.RECOVER and _RECOVERY not in self._setbacks:
                await self._recover(found, look)
                continue
            plan = next((plan for plan in audit.plans if plan.key not in self._setbacks), None)
            if plan is None:
                return self._verdict(found.value, look)
            await self._repair(found, plan, look)
        return self._result(Outcome.STOPPED, "the worker was told to stop")

    async def _recover(self, found: Versioned[LedgerMetadata], look: Look) -> None:
        _LOG.info("recovering an open ledger", ledger_id=self._ledger_id)
        effect = await self._mender.recover(found, look.registered, self._may_commit)
        self._note(_RECOVERY, effect)

    async def _repair(self, found: Versioned[LedgerMetadata], plan: RepairPlan, look: Look) -> None:
        effect, machine = await self._mender.repair(found, plan, look.registered.keys(), self._may_commit)
        self._copied_entries += machine.copied_entries
        self._copied_bytes += machine.copied_bytes
        self._note(plan.key, effect)

    def _note(self, key: PlanKey, effect: Effect) -> None:
        """Remember how a plan ended; one that failed, or comes up again and again, is passed over."""
        if isinstance(effect, RepairFailed | RecoveryFailed):
            self._setbacks[key] = effect
            _LOG.warning("repair failed", ledger_id=self._ledger_id, why=str(effect.error))
            return
        if isinstance(effect, RepairFinished | Recovered):
            self._plans += 1
        self._tries[key] = self._tries.get(key, 0) + 1
        if self._tries[key] >= _TRIES_OF_A_PLAN:
            msg = f"ledger {self._ledger_id}: {_TRIES_OF_A_PLAN} repairs of the same place did not last"
            self._setbacks[key] = RepairFailed(MetadataError(msg))

    def _verdict(self, metadata: LedgerMetadata, look: Look) -> LedgerResult:
        """Nothing more can be done now: is everything as it should be?"""
        audit = look.audit
        left = [problem for problem in audit.problems if self._is_left(metadata, problem)]
        again_ms = self._order.again_ms()
        awaited = audit.open_action is OpenAction.WAIT or any(p.reason is Reason.MISSING for p in left)
        if again_ms is not None and awaited and not self._setbacks:
            return self._result(Outcome.WAITING, _in_words(left, look), again_ms=again_ms)
        if not left and not self._setbacks:
            return self._result(Outcome.REPAIRED if self._plans else Outcome.SOUND)
        why = [str(setback.error) for setback in self._setbacks.values()]
        why += audit.blocked or ([] if why else [_in_words(left, look)])
        unrecoverable = any(isinstance(s, RepairFailed) and s.unrecoverable for s in self._setbacks.values())
        return self._result(Outcome.FAILED, "; ".join(why), unrecoverable=unrecoverable)

    def _is_left(self, metadata: LedgerMetadata, problem: Problem) -> bool:
        """Whether the order is unfulfilled because of `problem`; what an open fragment lacks is its writer's to give."""
        if problem.reason is Reason.LEAVING:
            return problem.bookie in self._order.leaving
        if problem.reason in HARMLESS or problem.reason is Reason.OPEN_GAP:
            return False
        is_open = not metadata.is_closed and problem.first_entry == metadata.last_fragment.first_entry
        if is_open and not self._order.waits:
            return False  # the auditor says when it is time for the open fragment
        return self._order.concerns(problem)

    def _result(
        self, outcome: Outcome, why: str = "", *, unrecoverable: bool = False, again_ms: int | None = None
    ) -> LedgerResult:
        return LedgerResult(
            self._ledger_id,
            outcome,
            why,
            unrecoverable,
            again_ms,
            self._plans,
            self._copied_entries,
            self._copied_bytes,
        )


def _in_words(problems: list[Problem], look: Look) -> str:
    parts = []
    for problem in problems:
        silence = look.silent.get(problem.bookie)
        text = f"entry {problem.first_entry}: {problem.bookie or 'its recovery'} is {problem.reason.value}"
        parts.append(f"{text} ({silence})" if silence else text)
    return ", ".join(parts)
