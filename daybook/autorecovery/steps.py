"""The steps of one ledger's turn, carried out: what `daybook.core.repair.work` asks for, as calls over the wire.

An examination reads the metadata after a `sync` and the list of bookies anew, so that a repair is never older than its
reason (rule 33). Nothing is committed or settled once the lock may be lost (rule 34).
"""

from collections.abc import Callable
from typing import Any, Final

from daybook.autorecovery.cluster import Cluster, LeaseLostError
from daybook.autorecovery.guard import Guarded
from daybook.autorecovery.listing import BookieListings
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.client.driver.run import run_to_end
from daybook.core.effects import (
    Recovered,
    RecoveryEffect,
    RecoveryFailed,
    RepairAbandoned,
    RepairEffect,
    RepairFailed,
    RepairFinished,
)
from daybook.core.errors import MetadataError, NoSuchLedgerError
from daybook.core.events import LockLost
from daybook.core.ids import LedgerId
from daybook.core.machine import Machine
from daybook.core.placement.policy import RatingPolicy
from daybook.core.recovery.recovery import LedgerRecovery
from daybook.core.repair.plan import RepairPlan
from daybook.core.repair.repair import LedgerRepair
from daybook.core.repair.requests import (
    DeleteTask,
    Examine,
    Examined,
    LedgerGone,
    LedgerUnreadable,
    ReadTask,
    Recover,
    Repair,
    RepairEnded,
    SetTaskAside,
    StopRequested,
    TaskDeleted,
    TaskRead,
    TaskWritten,
    WorkEvent,
    WorkRequest,
)
from daybook.metadata.store.store import Versioned
from daybook.metadata.tasks import RepairTasks
from daybook.runtime.clock import monotonic_ms, unix_ms
from daybook.runtime.logs import get_logger

_LOG: Final = get_logger(__name__)


class WorkSteps:
    """Carries out steps; holds no state between them."""

    def __init__(
        self,
        cluster: Cluster,
        settings: AutoRecoverySettings,
        placement: RatingPolicy,
        *,
        should_stop: Callable[[], bool],
        on_copied: Callable[[int], None],
    ) -> None:
        """`should_stop` is asked before each examination; `on_copied` is given the bytes that targets acknowledged."""
        self.placement = placement
        self._cluster = cluster
        self._settings = settings
        self._should_stop = should_stop
        self._on_copied = on_copied
        self._tasks = RepairTasks(cluster.store, cluster.layout)

    async def answer(self, request: WorkRequest, has_lock: Callable[[], bool]) -> WorkEvent:
        """Carry out one request.

        Raises LeaseLostError if the lock may be lost, MetadataUnavailableError.
        """
        match request:
            case ReadTask(ledger_id):
                found = await self._tasks.read(ledger_id)
                return TaskRead(None) if found is None else TaskRead(found.value, found.version)
            case Examine():
                return StopRequested() if self._should_stop() else await self._examine(request.ledger_id)
            case Recover():
                return await self._recover(request.examined, has_lock)
            case Repair():
                return await self._repair(request.examined, request.plan, has_lock)
            case DeleteTask(ledger_id, version):
                if not has_lock():
                    return LockLost()
                return TaskDeleted(await self._tasks.done(ledger_id, version))
            case SetTaskAside(task, version, pause_ms, why):
                if not has_lock():
                    return LockLost()
                until_ms = unix_ms() + pause_ms
                await self._tasks.set_aside(Versioned(task, version), until_ms=until_ms, why=why)
                return TaskWritten()

    async def _examine(self, ledger_id: LedgerId) -> Examined | LedgerGone | LedgerUnreadable:
        cluster = self._cluster
        try:
            found = await cluster.ledgers.read(ledger_id, sync=True)
        except NoSuchLedgerError:
            return LedgerGone()
        except MetadataError as error:
            return LedgerUnreadable(str(error))
        registered = await cluster.directory.bookies()
        cluster.channels.bookies_changed(registered)
        listings = BookieListings(cluster.channels, calls_max=self._settings.calls_per_bookie_max)
        listed = await listings.of_ledger(ledger_id, found.value.bookies() & registered.keys())
        return Examined(found.value, found.version, registered, listed, monotonic_ms())

    async def _repair(
        self, examined: Examined, plan: RepairPlan, has_lock: Callable[[], bool]
    ) -> RepairEnded:
        """Carry out one plan."""
        machine = LedgerRepair(
            examined.metadata,
            examined.version,
            plan,
            policy=self._settings.repair_policy(),
            unavailable=examined.metadata.bookies() - examined.registered.keys(),
            now_ms=monotonic_ms(),
        )
        ended = await self._run(machine, examined, has_lock)
        return RepairEnded(ended.how, machine.copied_entries, machine.copied_bytes)

    async def _recover(self, examined: Examined, has_lock: Callable[[], bool]) -> RepairEnded:
        """Fence, recover and close an open ledger."""
        _LOG.info("recovering an open ledger", ledger_id=examined.metadata.ledger_id)
        machine = LedgerRecovery(
            examined.metadata.ledger_id,
            placement=self.placement,
            rng=self._cluster.rng,
            bookies=examined.registered,
            now_ms=monotonic_ms(),
        )
        return await self._run(machine, examined, has_lock)

    async def _run(
        self,
        machine: Machine[Any, RepairEffect | RecoveryEffect],
        examined: Examined,
        has_lock: Callable[[], bool],
    ) -> RepairEnded:
        ledger_id = examined.metadata.ledger_id
        result = await run_to_end(
            Guarded(machine, has_lock, self._on_copied),
            ledger_id,
            examined.metadata.password_hash,
            self._cluster,
            current=Versioned(examined.metadata, examined.version),
        )
        assert isinstance(
            result, RepairFinished | RepairFailed | RepairAbandoned | Recovered | RecoveryFailed
        )
        if isinstance(result, RepairFailed | RecoveryFailed):
            if isinstance(result.error, LeaseLostError):
                raise result.error
            _LOG.warning("repair failed", ledger_id=ledger_id, why=str(result.error))
        return RepairEnded(result)
