"""One ledger under its lock: take the lock, and carry out the steps that `daybook.core.repair.work` asks for.

The work ends at the instant the lock may have passed to another worker, and nothing is settled after it (rule 34).
"""

import math
from collections.abc import Callable
from typing import Final

from daybook.autorecovery.cluster import Cluster, LeaseLostError, while_held
from daybook.autorecovery.metrics import WorkerMetrics
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.autorecovery.steps import WorkSteps
from daybook.core.errors import DaybookError
from daybook.core.ids import LedgerId
from daybook.core.repair.judgement import LedgerJudge
from daybook.core.repair.order import Order
from daybook.core.repair.task import RepairTask
from daybook.core.repair.work import LedgerResult, LedgerWork, Outcome
from daybook.metadata.lease import Lease
from daybook.metadata.tasks import RepairTasks
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger

_LOG: Final = get_logger(__name__)


class LockedRepair:
    """Repairs ledgers under their locks."""

    def __init__(
        self,
        cluster: Cluster,
        settings: AutoRecoverySettings,
        steps: WorkSteps,
        name: str,
        metrics: WorkerMetrics,
    ) -> None:
        """`name` says who holds the locks."""
        self._tasks = RepairTasks(cluster.store, cluster.layout)
        self._settings = settings
        self._steps = steps
        self._rng = cluster.rng
        self._back_off = settings.back_off()
        self._name = name
        self._metrics = metrics

    async def repair(
        self,
        ledger_id: LedgerId,
        order_of: Callable[[RepairTask | None], Order | None],
        found: RepairTask | None = None,
    ) -> LedgerResult:
        """Repair one ledger as `order_of` its task says; None: there is nothing to do. Nothing escapes but cancelling.

        `found` is the task before the lock was taken, if the worker found one.
        """
        started_ms = monotonic_ms()
        self._metrics.under_way.inc()
        try:
            result = await self._repair(ledger_id, order_of, found)
        finally:
            self._metrics.under_way.dec()
        self._metrics.seconds.observe((monotonic_ms() - started_ms) / 1000)
        self._metrics.ledgers.labels(result.outcome.value).inc()
        self._metrics.entries.inc(result.copied_entries)
        log = _LOG.warning if result.outcome is Outcome.FAILED else _LOG.info
        log("ledger", ledger_id=ledger_id, outcome=result.outcome.value, why=result.why)
        return result

    async def _repair(
        self,
        ledger_id: LedgerId,
        order_of: Callable[[RepairTask | None], Order | None],
        found: RepairTask | None,
    ) -> LedgerResult:
        lease: Lease | None = None
        try:
            lease = await self._tasks.lock(ledger_id, self._name)
            if lease is None:
                return LedgerResult(ledger_id, Outcome.LOCKED, "another worker repairs it")
            judge = LedgerJudge(self._steps.placement, self._rng)
            work = LedgerWork(ledger_id, order_of, judge, self._back_off, found)
            return await while_held(lease, self._under_lock(work, lease))
        except LeaseLostError as error:
            return LedgerResult(ledger_id, Outcome.LOCK_LOST, str(error))
        except DaybookError as error:
            again_ms = monotonic_ms() + self._settings.retry_first_ms
            return LedgerResult(ledger_id, Outcome.FAILED, str(error), again_ms=again_ms)
        finally:
            if lease is not None:
                await lease.release(timeout_s=math.inf)  # or this worker would wait for itself

    async def _under_lock(self, work: LedgerWork, lease: Lease) -> LedgerResult:
        requests = work.start()
        while requests:
            (request,) = requests
            requests = work.step(await self._steps.answer(request, lambda: lease.is_certain))
        assert work.result is not None
        return work.result
