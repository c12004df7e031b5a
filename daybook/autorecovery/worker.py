"""The repair worker: finds ledgers to repair, by id or from the tasks in the store, and repairs them under locks.

It is safe to run twice and beside any other worker (rule 56): locks keep two from the same ledger, and where a lock
fails them the compare-and-set against the version they started from does. Work that was asked for by id goes through
the same locks and tasks, so that a worker in a Kubernetes Job and one outside never get in each other's way.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Final

from daybook.autorecovery.asked import AskedOrder, Patience
from daybook.autorecovery.cluster import Changes, Cluster, is_set_within
from daybook.autorecovery.metrics import WorkerMetrics
from daybook.autorecovery.pool import WorkPool, WorkProgress, WorkReport
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.core.errors import MetadataError, MetadataUnavailableError
from daybook.core.ids import BookieId, LedgerId
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import RatingPolicy
from daybook.core.repair.order import Order, TaskOrder
from daybook.core.repair.task import DueTimes, RepairTask
from daybook.core.repair.work import LedgerResult, Outcome
from daybook.metadata.store.read_ahead import read_ahead
from daybook.metadata.store.store import Versioned
from daybook.metadata.tasks import RepairTasks
from daybook.runtime.clock import monotonic_ms, unix_ms
from daybook.runtime.logs import get_logger

_LOG: Final = get_logger(__name__)
_LOCKS_WATCHED_MAX: Final = 100
TASKS_AT_ONCE: Final = 1000
"""A pass over the tasks ends when so many ledgers can be repaired: of a hundred thousand the first ones need not wait
until the last one was read."""
_HELD: Final = frozenset({Outcome.LOCKED, Outcome.LOCK_LOST})


class RepairWorker:
    """Repairs ledgers until they are done, until no task is left, or for ever; see the methods. One at a time of them."""

    def __init__(
        self,
        cluster: Cluster,
        settings: AutoRecoverySettings,
        *,
        name: str,
        placement: RatingPolicy | None = None,
        metrics: WorkerMetrics | None = None,
        on_progress: Callable[[WorkProgress], None] = lambda _: None,
    ) -> None:
        """`name` is written into the locks, for people; `on_progress` is called often."""
        self._cluster = cluster
        self._settings = settings
        self._tasks = RepairTasks(cluster.store, cluster.layout)
        self._due_times = DueTimes(settings.retry_max_ms)
        self._pool = WorkPool(
            cluster,
            settings,
            name=name,
            placement=placement or make_policy(),
            metrics=metrics or WorkerMetrics(),
            on_progress=on_progress,
        )

    @property
    def stop(self) -> asyncio.Event:
        """Set it, and no further fragment is begun; what is being copied has `stop_grace_ms` to end."""
        return self._pool.stop

    # By id.

    async def repair(
        self, ledger_ids: Iterable[LedgerId], *, lost_delay_s: float | None = None
    ) -> WorkReport:
        """Repair these ledgers, whatever the switch says; wait out delays and grace periods, try again what fails.

        `lost_delay_s` replaces the cluster's delay of lost bookies. Raises MetadataUnavailableError.
        """
        return await self._repair_named(sorted(set(ledger_ids)), None, lost_delay_s)

    async def repair_bookie(self, bookie: BookieId, *, lost_delay_s: float | None = None) -> WorkReport:
        """Repair every ledger that names `bookie`, as far as that bookie is concerned; see `repair`."""
        await self._cluster.store.sync(self._cluster.layout.ledgers)
        named = [
            found.value.ledger_id
            async for found in self._cluster.ledgers.read_all()
            if bookie in found.value.bookies()
        ]
        return await self._repair_named(named, bookie, lost_delay_s)

    async def _repair_named(
        self, left: list[LedgerId], bookie: BookieId | None, lost_delay_s: float | None
    ) -> WorkReport:
        delay_s = await self._tasks.lost_bookie_delay_s() if lost_delay_s is None else lost_delay_s
        patience = Patience(round(delay_s * 1000), self._settings.open_grace_ms)
        self._pool.obeys_switch = False
        self._pool.begin(left)
        failures: dict[LedgerId, int] = {}
        while left and not self.stop.is_set():
            with Changes(self._cluster.store) as changes:
                layout = self._cluster.layout
                await changes.watch_children([layout.available, layout.read_only])
                await self._pool.repair_all(
                    dict.fromkeys(left), lambda task: AskedOrder(task, patience, bookie)
                )
                left = self._to_try_again(left, failures)
                if left:
                    held = [i for i in left if self._ended_as(i, *_HELD)]
                    await self._wait_for_locks(changes, held, self._pause_ms(left, failures))
        return self._pool.end()

    def _to_try_again(self, ledger_ids: list[LedgerId], failures: dict[LedgerId, int]) -> list[LedgerId]:
        """Those that wait, and those that failed less than `attempts_max` times; `failures` is brought up to date."""
        again = []
        for ledger_id in ledger_ids:
            if self._ended_as(ledger_id, Outcome.FAILED):
                failures[ledger_id] = failures.get(ledger_id, 0) + 1
                if failures[ledger_id] < self._settings.attempts_max:
                    again.append(ledger_id)
            elif self._ended_as(ledger_id, Outcome.WAITING, *_HELD):
                again.append(ledger_id)
        return again

    def _pause_ms(self, ledger_ids: list[LedgerId], failures: dict[LedgerId, int]) -> int | None:
        """How long until the first of these is worth another examination, even if nothing changes; None: a change must come."""
        now_ms = monotonic_ms()
        pauses = []
        for ledger_id in ledger_ids:
            again_ms = self._pool.report.results[ledger_id].again_ms
            if self._ended_as(ledger_id, Outcome.FAILED):
                pauses.append(self._settings.back_off().pause_ms(failures[ledger_id]))
            elif again_ms is not None:
                pauses.append(again_ms - now_ms)
        return min(pauses, default=None)

    # From tasks.

    async def drain(self, wanted: Callable[[RepairTask], bool] = lambda _: True) -> WorkReport:
        """Repair what has a task that is `wanted` until none is left but those whose repair failed.

        Tasks that were set aside are tried, too: who drains has a reason. Raises MetadataUnavailableError.
        """
        self._pool.begin(())
        while not self.stop.is_set():
            if await self._pool.read_switch():
                self._pool.report.disabled = True
                break
            with Changes(self._cluster.store) as changes:
                await changes.watch([self._cluster.layout.task_signal])
                todo, held = await self._to_drain(wanted)
                if todo:
                    await self._pool.repair_all(todo, _by_task(wanted))
                elif held:
                    await self._wait_for_locks(changes, held, None)
                else:
                    break
        return self._pool.end()

    async def _to_drain(
        self, wanted: Callable[[RepairTask], bool]
    ) -> tuple[dict[LedgerId, RepairTask], list[LedgerId]]:
        """Ledgers to repair, and those that another worker has; what failed comes again only with a new reason."""
        results = self._pool.report.results
        for ledger_id in [i for i in results if self._ended_as(i, *_HELD)]:
            self._pool.drop(ledger_id)
        locked = set(await self._tasks.locked())
        todo: dict[LedgerId, RepairTask] = {}
        held: list[LedgerId] = []
        async with aclosing(read_ahead(self._tasks.ids(), self._read)) as tasks:
            async for task in tasks:
                ledger_id = task.value.ledger_id
                if not wanted(task.value) or _has_failed(results.get(ledger_id), task.value):
                    continue
                if ledger_id in locked:
                    held.append(ledger_id)
                else:
                    todo[ledger_id] = task.value
                if len(todo) == TASKS_AT_ONCE:
                    break
        return todo, held

    async def serve(self) -> None:
        """Repair what has a task and is due, for ever; wait for the store when it is away."""
        paused: dict[LedgerId, int] = {}
        while not self.stop.is_set():
            try:
                await self._serve_once(paused)
            except MetadataUnavailableError as error:
                _LOG.warning("no tasks can be read while the store does not answer", why=str(error))
                await is_set_within(self.stop, self._settings.retry_first_ms)

    async def _serve_once(self, paused: dict[LedgerId, int]) -> None:
        """One pass over the tasks, and a wait for news. `paused`: until when this worker leaves ledgers alone."""
        layout = self._cluster.layout
        with Changes(self._cluster.store) as changes:
            await changes.watch([layout.task_signal, layout.repair_disabled])
            is_off = await self._pool.read_switch()
            due, next_ms = ({}, None) if is_off else await self._due(paused)
            self._pool.begin(due)
            if due:
                await self._pool.repair_all(due, _by_task(lambda _: True))
            held = [i for i in due if self._ended_as(i, *_HELD)]
            for ledger_id in due:
                again_ms = self._pool.report.results[ledger_id].again_ms
                paused.pop(ledger_id, None)
                if again_ms is not None:
                    paused[ledger_id] = again_ms
            if len(held) == len(due):
                await self._wait_for_locks(changes, held, next_ms)

    async def _due(self, paused: dict[LedgerId, int]) -> tuple[dict[LedgerId, RepairTask], int | None]:
        """The tasks of ledgers whose turn it is, those that another worker has among them, and in how many ms the next one's is."""
        locked = set(await self._tasks.locked())
        due: dict[LedgerId, RepairTask] = {}
        waits: list[int] = []
        free = 0
        seen: set[LedgerId] = set()
        unix, monotonic = unix_ms(), monotonic_ms()
        async with aclosing(read_ahead(self._tasks.ids(), self._read)) as tasks:
            async for task in tasks:
                ledger_id = task.value.ledger_id
                seen.add(ledger_id)
                not_before_ms = self._due_times.not_before_ms(
                    task.value, unix_ms=unix, monotonic_ms=monotonic
                )
                wait_ms = max(not_before_ms - unix, paused.get(ledger_id, 0) - monotonic)
                if wait_ms > 0:
                    waits.append(wait_ms)
                    continue
                due[ledger_id] = task.value
                free += ledger_id not in locked
                if free == TASKS_AT_ONCE:
                    break
            else:
                self._due_times.keep_only(seen)
        return due, min(waits, default=None)

    async def _read(self, ledger_id: LedgerId) -> Versioned[RepairTask] | None:
        """The task; None if it is gone, or of no known format."""
        try:
            return await self._tasks.read(ledger_id)
        except MetadataError as error:
            _LOG.error("a task is passed over", ledger_id=ledger_id, why=str(error))
            return None

    async def _wait_for_locks(self, changes: Changes, held: list[LedgerId], timeout_ms: float | None) -> None:
        """Wait for a lock of `held` to go, or for another of `changes`, unless one is gone already."""
        watched = held[:_LOCKS_WATCHED_MAX]
        await changes.watch(self._cluster.layout.task_lock(ledger_id) for ledger_id in watched)
        if watched and not set(watched) <= set(await self._tasks.locked()):
            return
        await changes.wait(timeout_ms, self.stop)

    def _ended_as(self, ledger_id: LedgerId, *outcomes: Outcome) -> bool:
        return self._pool.report.results[ledger_id].outcome in outcomes


def _has_failed(result: LedgerResult | None, task: RepairTask) -> bool:
    """Whether the task was tried in vain, and nothing was added to it since."""
    if result is None or result.outcome not in {Outcome.FAILED, Outcome.PAUSED}:
        return False
    return task.not_before_ms > 0 or result.again_ms is not None


def _by_task(wanted: Callable[[RepairTask], bool]) -> Callable[[RepairTask | None], Order | None]:
    """Orders by what a task says; without one there is nothing to do any more."""
    return lambda task: TaskOrder(task) if task is not None and wanted(task) else None
