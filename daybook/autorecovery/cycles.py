"""Audit cycles over all ledgers of a cluster: reads what the core's auditor asks for, and writes and removes tasks.

The auditor reads metadata at a limited rate (rule 37) and observes all the time who is registered, so that a bookie that
returns during a cycle is no longer lost for the rest of it (rule 33). Nothing is written without the leadership, where
there is one (rule 34).
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from daybook.autorecovery.cluster import Cluster, LeaseLostError, is_set_within
from daybook.autorecovery.listing import BookieListings
from daybook.autorecovery.metrics import AuditorMetrics
from daybook.autorecovery.report import AuditReport, publish
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.core.audit.auditor import Auditor
from daybook.core.audit.cycle import CycleScope
from daybook.core.audit.examination import LedgerExamination
from daybook.core.errors import MetadataError, NoSuchLedgerError
from daybook.core.ids import BookieId, LedgerId
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo, RatingPolicy
from daybook.core.repair.requests import (
    AuditEvent,
    AuditRequest,
    DeleteTask,
    EntriesListed,
    LedgerGone,
    LedgerRead,
    LedgerUnreadable,
    ListEntries,
    MarkTask,
    ReadLedger,
    ReadTask,
    SetTaskFree,
    TaskDeleted,
    TaskMarked,
    TaskRead,
    TaskWritten,
    Wait,
    Waited,
)
from daybook.metadata.store.store import Versioned
from daybook.metadata.tasks import RepairTasks
from daybook.runtime.clock import monotonic_ms, unix_ms
from daybook.runtime.logs import get_logger

_LOG: Final = get_logger(__name__)
_PACE_MS: Final = 20
"""How often the pace is asked again while it forbids the next read."""
_BLOCKED_SHOWN_MAX: Final = 3


@dataclass(slots=True)
class _Cycle:
    """What belongs to one cycle."""

    scope: CycleScope
    listings: BookieListings
    disabled: bool


class AuditCycles:
    """Runs the auditor's cycles; what was observed is remembered between them."""

    def __init__(
        self,
        cluster: Cluster,
        settings: AutoRecoverySettings,
        *,
        placement: RatingPolicy | None = None,
        metrics: AuditorMetrics | None = None,
        lost_delay_s: float | None = None,
        may_act: Callable[[], bool] = lambda: True,
        marks: bool = True,
        on_progress: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> None:
        """`lost_delay_s` replaces the cluster's setting. `may_act` is asked before each write. Without `marks` nothing is written. `on_progress(done, total)` counts the ledgers of a cycle."""
        self.news = asyncio.Event()
        """Set when bookies came or are lost, so that a cycle has something to find."""
        self._cluster = cluster
        self._settings = settings
        self._metrics = metrics or AuditorMetrics()
        self._lost_delay_s = lost_delay_s
        self._may_act = may_act
        self._marks = marks
        self._on_progress = on_progress
        self._tasks = RepairTasks(cluster.store, cluster.layout)
        self._core = Auditor(placement or make_policy(), cluster.rng, settings.auditor_policy(0))

    def begin_term(self) -> None:
        """The auditor was elected: what came while it did not lead is not known here."""
        self._core.begin_term()

    # Who is there.

    async def observe(self) -> None:
        """Read the list of bookies, the delay and the switch, now."""
        delay_s = self._lost_delay_s
        if delay_s is None:
            delay_s = await self._tasks.lost_bookie_delay_s()
        self._core.bookies.delay_ms = round(delay_s * 1000)
        self._core.bookies.set_enabled(enabled=not await self._tasks.disabled())
        cookies = frozenset(await self._cluster.directory.cookies())
        registered = await self._cluster.directory.bookies()
        self._core.expect(cookies, registered.keys())
        self._observed(registered)

    async def observe_always(self) -> None:
        """Observe every change of the list of bookies, for ever. Raises MetadataUnavailableError."""
        async for registered in self._cluster.directory.watch_bookies():
            self._observed(registered)

    def _observed(self, registered: Mapping[BookieId, BookieInfo]) -> None:
        is_news = self._core.observe(monotonic_ms(), registered)
        self._cluster.channels.bookies_changed(registered)
        if is_news:
            self.news.set()

    def next_check_ms(self) -> int | None:
        """When, by the monotonic clock, to observe again, because a delay is over; None while nobody is away."""
        return self._core.bookies.next_check_ms()

    async def wait_out_delays(self, stop: asyncio.Event) -> None:
        """Observe until nobody is away whose delay is not over: each is back, or lost."""
        await self.observe()
        while (until_ms := self.next_check_ms()) is not None:
            if await is_set_within(stop, until_ms - monotonic_ms()):
                return
            await self.observe()

    # Cycles.

    async def once(self, stop: asyncio.Event, *, full: bool) -> AuditReport:
        """A cycle that knows who is lost: it waits for the delay of who is away, and of whom only metadata names.

        If a bookie was lost or came back during a cycle, the cycle judged its first ledgers by what was so before, and
        another one follows.

        A cycle that is not `full` lists the entries of those ledgers alone that have a task: for a single one nothing is
        new.
        """
        while True:
            await self.wait_out_delays(stop)
            lost = self._core.bookies.lost()
            report = await self.cycle(full=full, compare_new=full)
            await self.observe()
            is_settled = self.next_check_ms() is None and lost == self._core.bookies.lost()
            if stop.is_set() or (is_settled and lost == set(report.lost_bookies)):
                return report

    async def cycle(self, *, full: bool, compare_new: bool = True) -> AuditReport:
        """Go through all ledgers once. `compare_new`: also list, in a quick cycle, what was not compared before.

        Raises LeaseLostError, MetadataUnavailableError.
        """
        started_ms, began_at_ms = monotonic_ms(), unix_ms()
        self.news.clear()
        await self.observe()
        watcher = asyncio.ensure_future(self.observe_always())
        try:
            this = await self._begin(full=full, compare_new=compare_new)
            await self._go_through(this)
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        return self._end(this, began_at_ms, monotonic_ms() - started_ms)

    async def _begin(self, *, full: bool, compare_new: bool) -> _Cycle:
        cluster = self._cluster
        listings = BookieListings(cluster.channels, calls_max=self._settings.calls_per_bookie_max)
        limbo = await listings.limbo(self._core.registered)
        with_task = frozenset([ledger_id async for ledger_id in self._tasks.ids()])
        await cluster.store.sync(cluster.layout.ledgers)
        ledger_ids = {ledger_id async for ledger_id in cluster.ledgers.ids()} | with_task
        disabled = await self._tasks.disabled()
        scope = CycleScope(with_task, limbo, full, compare_new, enabled=self._marks and not disabled)
        self._core.begin(monotonic_ms(), sorted(ledger_ids), scope)
        return _Cycle(scope, listings, disabled)

    async def _go_through(self, this: _Cycle) -> None:
        """Examine every ledger, as fast as the core hands them out."""
        running: set[asyncio.Future[None]] = set()
        never = asyncio.Event()
        done = total = 0
        try:
            while running or not self._core.cycle_is_over:
                batch = self._core.next_examinations(monotonic_ms())
                total += len(batch)
                running |= {asyncio.ensure_future(self._examine(examination, this)) for examination in batch}
                if not running:
                    await is_set_within(never, _PACE_MS)
                    continue
                ended, running = await asyncio.wait(
                    running, timeout=_PACE_MS / 1000, return_when=asyncio.FIRST_COMPLETED
                )
                await asyncio.gather(*ended)  # the first error ends the cycle; the others were seen too
                done += len(ended)
                self._on_progress(done, total)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _examine(self, examination: LedgerExamination, this: _Cycle) -> None:
        """Carry out what the examination asks for, one request after the other."""
        requests = examination.start()
        while requests:
            (request,) = requests
            requests = examination.step(await self._answer(request, this))
        if examination.unreadable:
            _LOG.error(
                "a ledger cannot be judged", ledger_id=examination.ledger_id, why=examination.unreadable
            )

    async def _answer(self, request: AuditRequest, this: _Cycle) -> AuditEvent:
        match request:
            case ReadTask(ledger_id):
                found = await self._tasks.read(ledger_id)
                return TaskRead(None) if found is None else TaskRead(found.value, found.version)
            case ReadLedger(ledger_id):
                return await self._read(ledger_id)
            case ListEntries(ledger_id, bookies):
                return EntriesListed(await this.listings.of_ledger(ledger_id, bookies))
            case Wait():
                await is_set_within(asyncio.Event(), self._settings.second_look_ms)
                return Waited()
            case DeleteTask(ledger_id, version):
                self._refuse_without_leadership()
                return TaskDeleted(await self._tasks.done(ledger_id, version))
            case MarkTask(ledger_id, reasons, bookies):
                self._refuse_without_leadership()
                marked = await self._tasks.mark(ledger_id, reasons=reasons, bookies=bookies, now_ms=unix_ms())
                return TaskMarked(marked.value, marked.version)
            case SetTaskFree(task, version):
                self._refuse_without_leadership()
                await self._tasks.set_free(Versioned(task, version))
                return TaskWritten()

    async def _read(self, ledger_id: LedgerId) -> LedgerRead | LedgerGone | LedgerUnreadable:
        try:
            found = await self._cluster.ledgers.read(ledger_id)
        except NoSuchLedgerError:
            return LedgerGone()
        except MetadataError as error:
            return LedgerUnreadable(str(error))
        return LedgerRead(found.value, found.version)

    def _refuse_without_leadership(self) -> None:
        if not self._may_act():
            msg = "another auditor may be elected by now: nothing is marked without the leadership"
            raise LeaseLostError(msg)

    def _end(self, this: _Cycle, began_at_ms: int, duration_ms: int) -> AuditReport:
        bookies = self._core.bookies
        report = AuditReport(
            full=this.scope.full,
            found=self._core.report(),
            lost_bookies=tuple(sorted(bookies.lost())),
            missing_bookies=tuple(sorted(bookies.missing() - bookies.lost())),
            silent_bookies=this.listings.silent,
            disabled=this.disabled,
            duration_ms=duration_ms,
            began_at_ms=began_at_ms,
        )
        publish(self._metrics, report)
        _LOG.info(
            "audit",
            full=report.full,
            ledgers=report.found.ledgers,
            under_replicated=len(report.found.under_replicated),
            fully_replicated=report.is_fully_replicated,
            marked=report.found.tasks_marked,
            removed=report.found.tasks_removed,
        )
        if report.found.blocked:
            _LOG.warning(
                "repairs lack bookies",
                fragments=len(report.found.blocked),
                why=report.found.blocked[:_BLOCKED_SHOWN_MAX],
            )
        return report
