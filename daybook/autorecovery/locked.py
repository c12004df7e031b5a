"""One ledger under its lock: take the lock, mend, and settle the task that the work was done for.

The work ends at the instant the lock may have passed to another worker, and nothing is settled after it (rule 34). A
task is done by deleting the version that was read under the lock, so that what was marked meanwhile stays; one that
failed is set aside for a time that doubles, and blocks no other (rule 35).
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from daybook.autorecovery.cluster import Cluster, LeaseLostError, while_held
from daybook.autorecovery.mend import LedgerMender, LedgerResult, Outcome
from daybook.autorecovery.metrics import WorkerMetrics
from daybook.autorecovery.orders import Order
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.autorecovery.words import UNRECOVERABLE
from daybook.core.errors import DaybookError
from daybook.core.ids import LedgerId
from daybook.metadata.lease import Lease
from daybook.metadata.store.store import Versioned
from daybook.metadata.tasks import RepairTask, RepairTasks
from daybook.runtime.clock import monotonic_ms, unix_ms
from daybook.runtime.logs import get_logger

_LOG: Final = get_logger(__name__)


class LockedRepair:
    """Mends ledgers under their locks."""

    def __init__(
        self,
        cluster: Cluster,
        settings: AutoRecoverySettings,
        mender: LedgerMender,
        name: str,
        metrics: WorkerMetrics,
    ) -> None:
        """`name` says who holds the locks."""
        self._tasks = RepairTasks(cluster.store, cluster.layout)
        self._settings = settings
        self._mender = mender
        self._name = name
        self._metrics = metrics

    async def repair(
        self, ledger_id: LedgerId, order_of: Callable[[RepairTask | None], Order | None]
    ) -> LedgerResult:
        """Mend one ledger as `order_of` its task says; None: there is nothing to do. Nothing escapes but cancelling."""
        started_ms = monotonic_ms()
        self._metrics.under_way.inc()
        try:
            result = await self._repair(ledger_id, order_of)
        finally:
            self._metrics.under_way.dec()
        self._metrics.seconds.observe((monotonic_ms() - started_ms) / 1000)
        self._metrics.ledgers.labels(result.outcome.value).inc()
        self._metrics.entries.inc(result.copied_entries)
        log = _LOG.warning if result.outcome is Outcome.FAILED else _LOG.info
        log("ledger", ledger_id=ledger_id, outcome=result.outcome.value, why=result.why)
        return result

    async def _repair(
        self, ledger_id: LedgerId, order_of: Callable[[RepairTask | None], Order | None]
    ) -> LedgerResult:
        lease: Lease | None = None
        try:
            lease = await self._tasks.lock(ledger_id, self._name)
            if lease is None:
                return LedgerResult(ledger_id, Outcome.LOCKED, "another worker repairs it")
            return await while_held(lease, self._under_lock(ledger_id, order_of, lease))
        except LeaseLostError as error:
            return LedgerResult(ledger_id, Outcome.LOCK_LOST, str(error))
        except DaybookError as error:
            again_ms = monotonic_ms() + self._settings.retry_first_ms
            return LedgerResult(ledger_id, Outcome.FAILED, str(error), again_ms=again_ms)
        finally:
            if lease is not None:
                await lease.release(timeout_s=math.inf)  # or this worker would wait for itself

    async def _under_lock(
        self, ledger_id: LedgerId, order_of: Callable[[RepairTask | None], Order | None], lease: Lease
    ) -> LedgerResult:
        task = await self._tasks.read(ledger_id)
        order = order_of(task.value if task else None)
        if order is None:
            return LedgerResult(ledger_id, Outcome.SOUND)
        result = await self._mender.mend(ledger_id, order, lambda: lease.is_certain)
        if task is None or not lease.is_certain:
            return result
        return await self._settle(task, result)

    async def _settle(self, task: Versioned[RepairTask], result: LedgerResult) -> LedgerResult:
        """Delete the task, or set it aside."""
        if result.is_done:
            if await self._tasks.done(result.ledger_id, task.version):
                return result
            return replace(result, outcome=Outcome.WAITING, why="more was found meanwhile", again_ms=0)
        if result.outcome is Outcome.FAILED:
            pause_ms = self._settings.pause_ms(task.value.attempts + 1)
            why = f"{UNRECOVERABLE}{result.why}" if result.unrecoverable else result.why
            await self._tasks.set_aside(task, until_ms=unix_ms() + pause_ms, why=why)
        return result
