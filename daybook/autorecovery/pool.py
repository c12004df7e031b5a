"""Several ledgers at a time: the part of a worker that every way of finding work shares.

A worker that is stopping begins nothing more; what is being copied has a while to end, because a copy that is cut
short begins again from its first entry.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from daybook.autorecovery.cluster import Cluster
from daybook.autorecovery.locked import LockedRepair
from daybook.autorecovery.metrics import WorkerMetrics
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.autorecovery.steps import WorkSteps
from daybook.core.ids import LedgerId
from daybook.core.placement.policy import RatingPolicy
from daybook.core.repair.order import Order
from daybook.core.repair.task import RepairTask
from daybook.core.repair.work import LedgerResult, Outcome
from daybook.metadata.tasks import RepairTasks


@dataclass(frozen=True, slots=True)
class WorkProgress:
    """How far a worker is; `total` grows as work is found."""

    total: int
    done: int
    failed: int
    copied_bytes: int


@dataclass(slots=True)
class WorkReport:
    """What a worker did, by ledger. `stopped`: somebody stopped it before the end."""

    results: dict[LedgerId, LedgerResult] = field(default_factory=dict)
    stopped: bool = False
    disabled: bool = False
    """Repair is switched off for the cluster, so that tasks are left."""

    @property
    def not_done(self) -> list[LedgerResult]:
        """The ledgers that are not as they were asked to be."""
        return [
            self.results[ledger_id]
            for ledger_id in sorted(self.results)
            if not self.results[ledger_id].is_done
        ]

    @property
    def is_complete(self) -> bool:
        """Whether everything that was asked for is repaired."""
        return not self.stopped and not self.disabled and not self.not_done

    def record(self) -> dict[str, Any]:
        """For JSON."""
        results = [self.results[ledger_id] for ledger_id in sorted(self.results)]
        return {
            "complete": self.is_complete,
            "stopped": self.stopped,
            "disabled": self.disabled,
            "copied_entries": sum(result.copied_entries for result in results),
            "copied_bytes": sum(result.copied_bytes for result in results),
            "ledgers": [
                {name: value for name, value in asdict(result).items() if name != "again_ms"}
                | {"outcome": result.outcome.value}
                for result in results
            ],
        }


class WorkPool:
    """Repairs ledgers, `ledgers_at_a_time` of them, and keeps the report."""

    def __init__(
        self,
        cluster: Cluster,
        settings: AutoRecoverySettings,
        *,
        name: str,
        placement: RatingPolicy,
        metrics: WorkerMetrics,
        on_progress: Callable[[WorkProgress], None],
    ) -> None:
        """See `RepairWorker`."""
        self.stop = asyncio.Event()
        self.disabled = False
        """Whether repair is switched off for the cluster, as far as known."""
        self.obeys_switch = True
        self.report = WorkReport()
        self._cluster = cluster
        self._settings = settings
        self._tasks = RepairTasks(cluster.store, cluster.layout)
        self._metrics = metrics
        self._on_progress = on_progress
        self._copied_bytes = 0
        self._done = self._failed = 0
        self._known: set[LedgerId] = set()
        steps = WorkSteps(
            cluster,
            settings,
            placement,
            should_stop=lambda: self.stop.is_set() or (self.disabled and self.obeys_switch),
            on_copied=self._copied,
        )
        self._locked = LockedRepair(cluster, settings, steps, name, metrics)

    def begin(self, ledger_ids: Iterable[LedgerId]) -> None:
        """A new report; these are known to be wanted."""
        self.report = WorkReport()
        self._known = set(ledger_ids)
        self._copied_bytes = self._done = self._failed = 0
        self._report_progress()

    def end(self) -> WorkReport:
        """The report."""
        self.report.stopped = self.stop.is_set()
        return self.report

    async def read_switch(self) -> bool:
        """Whether repair is switched off for the cluster, now."""
        self.disabled = await self._tasks.disabled()
        return self.disabled

    async def repair_all(
        self,
        found: Mapping[LedgerId, RepairTask | None],
        order_of: Callable[[RepairTask | None], Order | None],
    ) -> None:
        """Repair these ledgers; the results are in the report, for each. `found` has the task of each that was not asked for by its id."""
        ledger_ids = list(found)
        start = self._cluster.rng.randrange(len(ledger_ids))
        queue = [*ledger_ids[start:], *ledger_ids[:start]]  # two workers that begin together meet less often
        queue.reverse()
        self._known.update(queue)
        for ledger_id in queue:
            self.drop(ledger_id)

        async def work() -> None:
            while queue and not self.stop.is_set():
                ledger_id = queue.pop()
                self._note(await self._locked.repair(ledger_id, order_of, found[ledger_id]))

        workers = [asyncio.ensure_future(work()) for _ in range(self._settings.ledgers_at_a_time)]
        switch = asyncio.ensure_future(self._follow_switch())
        try:
            await self._until_done_or_stopped(workers)
        finally:
            for task in (*workers, switch):
                task.cancel()
            await asyncio.gather(*workers, switch, return_exceptions=True)
        for ledger_id in ledger_ids:
            if ledger_id not in self.report.results:
                self._note(LedgerResult(ledger_id, Outcome.STOPPED, "the worker was told to stop"))

    def drop(self, ledger_id: LedgerId) -> None:
        """Forget the result of a ledger that is repaired again, if it has one."""
        result = self.report.results.pop(ledger_id, None)
        if result is not None:
            self._count(result, -1)

    def _note(self, result: LedgerResult) -> None:
        self.report.results[result.ledger_id] = result
        self._count(result, 1)
        self._report_progress()

    def _count(self, result: LedgerResult, by: int) -> None:
        self._done += by * result.is_done
        self._failed += by * (result.outcome is Outcome.FAILED)

    async def _until_done_or_stopped(self, workers: Sequence[asyncio.Future[None]]) -> None:
        stopped = asyncio.ensure_future(self.stop.wait())
        done = asyncio.ensure_future(_all_of(workers))
        try:
            await asyncio.wait({done, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                await asyncio.wait({done}, timeout=self._settings.stop_grace_ms / 1000)
            if done.done():
                done.result()
        finally:
            stopped.cancel()
            done.cancel()
            await asyncio.gather(stopped, done, return_exceptions=True)

    async def _follow_switch(self) -> None:
        """Know of the cluster's switch while ledgers are repaired: it is asked between fragments (rule 33)."""
        async for disabled in self._tasks.watch_disabled():
            self.disabled = disabled

    def _copied(self, size_bytes: int) -> None:
        self._copied_bytes += size_bytes
        self._metrics.bytes.inc(size_bytes)
        self._report_progress()

    def _report_progress(self) -> None:
        self._on_progress(WorkProgress(len(self._known), self._done, self._failed, self._copied_bytes))


async def _all_of(tasks: Sequence[asyncio.Future[None]]) -> None:
    """Wait for all; raise what one raises."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()
