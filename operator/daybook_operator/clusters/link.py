"""The operator's link to one Daybook cluster: a client, and what is followed of it (bookies, tasks, ledgers, audits)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context

from daybook.client.client import Client
from daybook.core.ids import BookieId, LedgerId
from daybook.core.placement.policy import BookieInfo
from daybook.core.repair.task import DueTimes, is_harmless
from daybook.metadata.tasks import RepairTasks
from daybook.runtime.clock import unix_ms
from daybook_operator.clusters.audits import Audits
from daybook_operator.clusters.context import LinkContext, run_until
from daybook_operator.clusters.ledger_index import LedgerIndex
from daybook_operator.clusters.task_list import TaskList
from daybook_operator.plan.effects import ClusterRef


class ClusterLink:
    """A connected cluster. Made by `Clusters.link`."""

    def __init__(self, ref: ClusterRef, client: Client, context: LinkContext) -> None:
        """`client` is open."""
        self.ref = ref
        self.client = client
        self.tasks = RepairTasks(client.store, client.layout)
        self.due_times = DueTimes()
        self.ledgers = LedgerIndex(client.store, client.layout, client.ledgers, self.tasks, self._changed)
        self.audits = Audits(
            ref, client, context, can_end_clean=self._are_tasks_harmless, on_report=self._audited
        )
        self.task_list = TaskList(self.tasks, self._task_changed, self.audits.reconsider)
        self._context = context
        self._came_at_ms = unix_ms()
        """When, by the wall clock, a bookie last came or started anew; what was before this link is not known."""
        self._boots: dict[BookieId, str] | None = None
        self._stop = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []
        self._followed: dict[LedgerId, asyncio.Task[None]] = {}
        self._spawn("bookies", self._watch_bookies)
        self._spawn("tasks", self._watch_tasks)
        self._spawn("full audits", self.audits.make_owed)
        self._spawn("ledgers", self.ledgers.run)

    def is_audited_since(self, bookies: Mapping[BookieId, BookieInfo]) -> bool:
        """Whether this process' last audit, as the elected auditor, began after the last of `bookies` came.

        Such an audit sets free, for another try, what was set aside before.
        """
        boots = {bookie: info.boot_id for bookie, info in bookies.items()}
        report = self.audits.last_report
        return boots == self._boots and report is not None and report.began_at_ms > self._came_at_ms

    # Ledgers that a resource stands for.

    def follow(self, ledger_id: LedgerId) -> None:
        """Report every change of the ledger's metadata from here on."""
        if ledger_id not in self._followed:
            self._followed[ledger_id] = asyncio.create_task(
                run_until(self._stop, "a ledger's watch", self.ref, lambda: self._watch_ledger(ledger_id)),
                name=f"watch of ledger {ledger_id}",
                context=Context(),
            )

    def unfollow(self, ledger_id: LedgerId) -> None:
        """Report no more."""
        following = self._followed.pop(ledger_id, None)
        if following is not None:
            following.cancel()

    async def _watch_ledger(self, ledger_id: LedgerId) -> None:
        async for _ in self.client.ledgers.watch(ledger_id):
            self._context.on_ledger(self.ref, ledger_id)

    # What changes.

    async def _watch_tasks(self) -> None:
        async for _ in self.tasks.watch_signal():
            self.task_list.expire()
            self._changed()

    async def _watch_bookies(self) -> None:
        async for bookies in self.client.directory.watch_bookies():
            boots = {bookie: info.boot_id for bookie, info in bookies.items()}
            if self._boots is None or boots.items() - self._boots.items():
                self._came_at_ms = unix_ms()
                self.audits.bookie_came()
            self._boots = boots
            self._changed()

    def _changed(self) -> None:
        self._context.on_change(self.ref)

    def _task_changed(self, ledger_id: LedgerId) -> None:
        self.ledgers.doubt(ledger_id)
        self._context.on_ledger(self.ref, ledger_id)

    def _audited(self) -> None:
        self.task_list.expire()
        self._changed()

    def _are_tasks_harmless(self) -> bool:
        return all(is_harmless(task.value.reasons) for task in self.task_list.known)

    # Life.

    def _spawn(self, part: str, work: Callable[[], Awaitable[None]]) -> None:
        self._running.append(
            asyncio.create_task(run_until(self._stop, part, self.ref, work), name=f"{part} of {self.ref}")
        )

    async def close(self) -> None:
        """Step down as auditor and disconnect."""
        await self.audits.close()
        self._stop.set()
        tasks = [*self._running, *self._followed.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.client.close()
