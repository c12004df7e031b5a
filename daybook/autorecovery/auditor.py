"""Rounds of the auditor over all ledgers: reads what is needed, has the core judge it, marks and removes tasks.

A round reads metadata at a limited rate (rule 37). A quick one is about lost bookies, limbo and placement, which
metadata and one question to each bookie tell; a full one also compares what every bookie lists with everything that it
owes (rule 47). Between full ones only what is new is compared: ledgers that were closed or changed since, and those with
a task, because a task is removed only after a look at everything that it could be about.

Who is away is observed all the time, so that a bookie that returns while a round goes on is no longer lost for the rest
of it (rule 33). Nothing is written without the leadership, where there is one (rule 34).
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from daybook.autorecovery.cluster import Cluster, LeaseLostError, is_set_within
from daybook.autorecovery.listing import BookieListings, Listed
from daybook.autorecovery.metrics import AuditorMetrics
from daybook.autorecovery.report import AuditReport, ledgers_by_reason, publish
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.autorecovery.words import bookies_of, is_unrecoverable, named_with, words_of
from daybook.core.audit.auditor import Auditor
from daybook.core.audit.judgement import Findings, LedgerAudit, RatingPolicy, Reason
from daybook.core.errors import MetadataError, NoSuchLedgerError
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.store.store import Versioned
from daybook.metadata.tasks import RepairTask, RepairTasks
from daybook.runtime.clock import monotonic_ms, unix_ms
from daybook.runtime.logs import get_logger

_LOG: Final = get_logger(__name__)
_PACE_MS: Final = 20
"""How often the rate of reads is looked at while it forbids the next one."""


@dataclass(slots=True)
class _Round:
    """What one round gathers."""

    full: bool
    compares_new: bool
    listings: BookieListings
    limbo: Mapping[LedgerId, frozenset[BookieId]]
    with_task: frozenset[LedgerId]
    returned: frozenset[BookieId]
    disabled: bool
    audits: list[LedgerAudit] = field(default_factory=list)
    unrecoverable: set[LedgerId] = field(default_factory=set)
    marked: int = 0
    removed: int = 0


class LedgerAudits:
    """Rounds over the ledgers of a cluster; remembers what was observed between them."""

    def __init__(
        self,
        cluster: Cluster,
        settings: AutoRecoverySettings,
        *,
        placement: RatingPolicy | None = None,
        metrics: AuditorMetrics | None = None,
        lost_delay_s: float | None = None,
        may_act: Callable[[], bool] = lambda: True,
        on_progress: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> None:
        """`lost_delay_s` replaces the cluster's setting. `may_act` is asked before each write; `on_progress(done, total)` counts the ledgers of a round."""
        self.news = asyncio.Event()
        """Set when bookies came or are lost, so that a round has something to find."""
        self._cluster = cluster
        self._settings = settings
        self._metrics = metrics or AuditorMetrics()
        self._lost_delay_s = lost_delay_s
        self._may_act = may_act
        self._on_progress = on_progress
        self._tasks = RepairTasks(cluster.store, cluster.layout)
        self._core = Auditor(placement or make_policy(), cluster.rng, settings.auditor_policy(0))
        self._registered: Mapping[BookieId, BookieInfo] = {}
        self._cookies: frozenset[BookieId] = frozenset()
        self._returned: set[BookieId] = set()
        self._compared: dict[LedgerId, int] = {}

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
        for bookie in self._cookies - cookies - registered.keys():
            self._core.bookies.forget(bookie)  # decommissioned: nobody waits for it
        self._core.bookies.expect(cookies)
        self._cookies = cookies
        self._observed(registered)

    async def observe_always(self) -> None:
        """Observe every change of the list of bookies, for ever. Raises MetadataUnavailableError."""
        async for registered in self._cluster.directory.watch_bookies():
            self._observed(registered)

    def _observed(self, registered: Mapping[BookieId, BookieInfo]) -> None:
        before, lost = self._registered.keys(), self._core.bookies.lost()
        writable = {bookie for bookie, info in registered.items() if info.writable}
        self._core.bookies.observe(monotonic_ms(), writable, registered.keys() - writable)
        self._registered = registered
        self._cluster.channels.bookies_changed(registered)
        came = registered.keys() - before if before else frozenset()
        self._returned |= came
        if came or self._core.bookies.lost() != lost:
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

    # Rounds.

    async def once(self, stop: asyncio.Event, *, full: bool) -> AuditReport:
        """A round that knows who is lost: it waits for the delay of who is away, and of whom only metadata names.

        One in the middle of which a bookie was lost, or came back, judged its first ledgers by what was so before, and is
        followed by another.

        One that is not `full` asks bookies about those ledgers alone that have a task: nothing is new to who looks once.
        """
        while True:
            await self.wait_out_delays(stop)
            lost = self._core.bookies.lost()
            report = await self.round(full=full, compare_new=full)
            await self.observe()
            is_settled = self.next_check_ms() is None and lost == self._core.bookies.lost()
            if stop.is_set() or (is_settled and lost == set(report.lost_bookies)):
                return report

    async def round(self, *, full: bool, compare_new: bool = True) -> AuditReport:
        """Go through all ledgers once. `compare_new`: also compare, in a quick round, what was not compared before.

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

    async def _begin(self, *, full: bool, compare_new: bool) -> _Round:
        cluster = self._cluster
        listings = BookieListings(cluster.channels, calls_max=self._settings.calls_per_bookie_max)
        limbo = await listings.limbo(self._registered)
        with_task = frozenset([ledger_id async for ledger_id in self._tasks.ids()])
        await cluster.store.sync(cluster.layout.ledgers)
        ledger_ids = {ledger_id async for ledger_id in cluster.ledgers.ids()} | with_task
        if full:
            self._compared.clear()
        returned, self._returned = frozenset(self._returned), set()
        self._core.begin(monotonic_ms(), sorted(ledger_ids))
        disabled = await self._tasks.disabled()
        return _Round(full, compare_new, listings, limbo, with_task, returned, disabled)

    async def _go_through(self, this: _Round) -> None:
        """Judge every ledger, as fast as the core hands them out."""
        running: set[asyncio.Future[None]] = set()
        never = asyncio.Event()
        done = total = 0
        try:
            while running or not self._core.cycle_is_over:
                batch = self._core.next_reads(monotonic_ms())
                total += len(batch)
                running |= {asyncio.ensure_future(self._judge(ledger_id, this)) for ledger_id in batch}
                if not running:
                    await is_set_within(never, _PACE_MS)
                    continue
                ended, running = await asyncio.wait(
                    running, timeout=_PACE_MS / 1000, return_when=asyncio.FIRST_COMPLETED
                )
                await asyncio.gather(*ended)  # the first error ends the round; the others were heard too
                done += len(ended)
                self._on_progress(done, total)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _judge(self, ledger_id: LedgerId, this: _Round) -> None:
        """Read one ledger, have it judged, and see to its task."""
        task = await self._tasks.read(ledger_id) if ledger_id in this.with_task else None
        try:
            found = await self._cluster.ledgers.read(ledger_id)
        except NoSuchLedgerError:
            self._core.skip(ledger_id, deleted=True)
            self._compared.pop(ledger_id, None)
            if task is not None:
                await self._remove(task, this)
            return
        except MetadataError as error:
            _LOG.error("a ledger cannot be judged", ledger_id=ledger_id, why=str(error))
            self._core.skip(ledger_id, deleted=False)
            return
        audit = self._core.judge(found.value, await self._look(found, task, this), monotonic_ms())
        this.audits.append(audit)
        if audit.gap_checked and not audit.problems and found.value.is_closed:
            self._compared[ledger_id] = found.version
        if not this.disabled:
            await self._see_to_task(audit, task, this)

    async def _look(
        self, found: Versioned[LedgerMetadata], task: Versioned[RepairTask] | None, this: _Round
    ) -> Findings:
        """What is known of the ledger; what a live writer's stragglers may bring yet is looked at twice."""

        async def look() -> Findings:
            return self._findings(found.value, await self._listed(found, task, this), task, this)

        first = await look()
        if not self._core.needs_second_look(found.value, first):
            return first
        await is_set_within(asyncio.Event(), self._settings.second_look_ms)
        return first.seen_again(await look())

    async def _listed(
        self, found: Versioned[LedgerMetadata], task: Versioned[RepairTask] | None, this: _Round
    ) -> Listed | None:
        """What the bookies list, if that is to be compared now."""
        ledger_id = found.value.ledger_id
        is_new = (
            this.compares_new and found.value.is_closed and self._compared.get(ledger_id) != found.version
        )
        if not (this.full or is_new or task is not None):
            return None
        return await this.listings.of_ledger(ledger_id, found.value.bookies() & self._registered.keys())

    def _findings(
        self,
        metadata: LedgerMetadata,
        listed: Listed | None,
        task: Versioned[RepairTask] | None,
        this: _Round,
    ) -> Findings:
        in_limbo = this.limbo.get(metadata.ledger_id, frozenset()) & metadata.bookies()
        leaving = named_with(Reason.LEAVING, task.value.reasons) if task else frozenset()
        return Findings(
            self._registered,
            lost=self._core.bookies.lost(),
            leaving=leaving,
            limbo=in_limbo if listed is None else in_limbo | listed.limbo,
            listed=None if listed is None else listed.entries,
            last_add_confirmed=None if listed is None else listed.last_add_confirmed,
        )

    # Tasks.

    async def _see_to_task(
        self, audit: LedgerAudit, task: Versioned[RepairTask] | None, this: _Round
    ) -> None:
        words = words_of(audit)
        if task is not None and is_unrecoverable(task.value):
            this.unrecoverable.add(audit.ledger_id)
        if task is not None and _is_outdated(task.value, words, audit):
            # What is no longer so must not be acted on later: the whole task goes, and what is left comes anew.
            await self._remove(task, this)
            task = None
        if not audit.needs_task:
            return
        self._refuse_without_leadership()
        marked = await self._tasks.mark(
            audit.ledger_id, reasons=words, bookies=bookies_of(audit), now_ms=unix_ms()
        )
        this.marked += task is None or marked.version != task.version
        if this.returned and marked.value.not_before_ms:
            await self._tasks.set_free(marked)

    async def _remove(self, task: Versioned[RepairTask], this: _Round) -> None:
        self._refuse_without_leadership()
        if await self._tasks.done(task.value.ledger_id, task.version):
            this.removed += 1

    def _refuse_without_leadership(self) -> None:
        if not self._may_act():
            msg = "another auditor may be elected by now: nothing is marked without the leadership"
            raise LeaseLostError(msg)

    def _end(self, this: _Round, began_at_ms: int, duration_ms: int) -> AuditReport:
        cycle = self._core.report()
        lost = self._core.bookies.lost()
        report = AuditReport(
            full=this.full,
            is_fully_replicated=this.full and cycle.is_fully_replicated,
            ledgers=cycle.ledgers,
            under_replicated=tuple(sorted(audit.ledger_id for audit in this.audits if audit.needs_task)),
            by_reason=ledgers_by_reason(this.audits),
            blocked=cycle.blocked,
            waiting=cycle.waiting,
            unread=cycle.unread,
            without_replica=cycle.without_replica,
            below_ack_quorum=cycle.below_ack_quorum,
            below_write_quorum=cycle.below_write_quorum,
            unrecoverable=tuple(sorted(this.unrecoverable)),
            lost_bookies=tuple(sorted(lost)),
            missing_bookies=tuple(sorted(self._core.bookies.missing() - lost)),
            silent_bookies=this.listings.silent,
            tasks_marked=this.marked,
            tasks_removed=this.removed,
            disabled=this.disabled,
            duration_ms=duration_ms,
            began_at_ms=began_at_ms,
        )
        publish(self._metrics, report, cycle)
        _LOG.info(
            "audit",
            full=report.full,
            ledgers=report.ledgers,
            under_replicated=len(report.under_replicated),
            fully_replicated=report.is_fully_replicated,
            marked=report.tasks_marked,
            removed=report.tasks_removed,
        )
        return report


def _is_outdated(task: RepairTask, words: tuple[str, ...], audit: LedgerAudit) -> bool:
    """Whether the task says something that is no longer so; a bookie that does not tell leaves that open."""
    if any(problem.reason in {Reason.MISSING, Reason.UNLISTED} for problem in audit.problems):
        return False
    return not (audit.problems or audit.plans) or bool(set(task.reasons) - set(words))
