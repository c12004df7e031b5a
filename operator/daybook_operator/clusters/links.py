"""The operator's links to Daybook clusters: one for each (ZooKeeper, cluster), with a client, its repair tasks and its auditor.

A link is opened when an object first needs it and goes on trying by itself, so that a ZooKeeper that does not answer
costs its own objects a short wait and others nothing. The leader's link audits: it campaigns for /auditor like any other
auditor, and has a full audit made after bookies came back, because only one that began later proves that they have what
they owe (rule 47). While another process is the auditor, the link looks for itself and marks nothing (rule 34).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from typing import Final

from daybook.autorecovery.cluster import LeaseLostError, is_set_within
from daybook.autorecovery.cycles import AuditCycles
from daybook.autorecovery.elected import ElectedAuditor
from daybook.autorecovery.metrics import AuditorMetrics
from daybook.autorecovery.report import AuditReport
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.client.client import Client
from daybook.core.errors import DaybookError, MetadataUnavailableError
from daybook.core.ids import BookieId, LedgerId
from daybook.core.placement.policies import PlacementSettings, make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.repair.judgement import HARMLESS, Reason
from daybook.core.repair.task import DueTimes, RepairTask, is_harmless
from daybook.core.writer.policy import WriterPolicy
from daybook.metadata.bookies import BookieDirectory
from daybook.metadata.instance import ensure_cluster, read_instance
from daybook.metadata.layout import Layout
from daybook.metadata.store.settings import zookeeper_options
from daybook.metadata.store.store import MetadataStore, Versioned
from daybook.metadata.store.zookeeper import ZooKeeperOptions, ZooKeeperStore
from daybook.metadata.tasks import RepairTasks
from daybook.runtime.clock import monotonic_ms, unix_ms
from daybook.runtime.logs import get_logger
from daybook.runtime.tls import TlsFiles, client_credentials
from daybook_operator.clusters.ledger_index import LedgerIndex
from daybook_operator.metrics import LabelledRegistries
from daybook_operator.plan.effects import ClusterRef
from daybook_operator.plan.recovery.audit_debt import AuditDebt
from daybook_operator.plan.zookeeper_access import are_among
from daybook_operator.settings import OperatorSettings

_LOG: Final = get_logger(__name__)
_RETRY_MS: Final = 1_000
_TASKS_FRESH_MS: Final = 500
_TASK_READS_MAX: Final = 32

OnChange = Callable[[ClusterRef], None]
OnLedger = Callable[[ClusterRef, LedgerId], None]


@dataclass(frozen=True, slots=True)
class LinkContext:
    """What all links share. `on_change`: bookies, tasks or audits of a cluster changed; `on_ledger`: a followed ledger did."""

    settings: OperatorSettings
    auditing: AutoRecoverySettings
    name: str
    registries: LabelledRegistries
    on_change: OnChange
    on_ledger: OnLedger


class ClusterLink:
    """A connected cluster. Made by `Clusters.link`."""

    def __init__(self, ref: ClusterRef, client: Client, context: LinkContext) -> None:
        """`client` is open."""
        self.ref = ref
        self.client = client
        self.tasks = RepairTasks(client.store, client.layout)
        self.due_times = DueTimes()
        self.last_report: AuditReport | None = None
        """Of the last audit of this process, quick or full."""
        self.last_full_report: AuditReport | None = None
        self.unmended: dict[LedgerId, tuple[str, ...]] = {}
        """What the last audit found wrong with ledgers that no worker can mend now: no bookie is free, or it is too early."""
        self.came_at_ms = unix_ms()
        """When, by the wall clock, a bookie last came or started anew; what was before this link is not known."""
        self._context = context
        self._stop = asyncio.Event()
        self._wake = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []
        self._followed: dict[LedgerId, asyncio.Task[None]] = {}
        self._boots: dict[BookieId, str] | None = None
        self._task_list: tuple[Versioned[RepairTask], ...] = ()
        self._tasks_read_ms: int | None = None
        self._reading_tasks = asyncio.Lock()
        self._auditor: ElectedAuditor | None = None
        self._auditing: asyncio.Task[None] | None = None
        self._audit_stop = asyncio.Event()
        self._placement = PlacementSettings("zone")
        self._debt = AuditDebt(monotonic_ms(), context.settings.full_audit_pause_ms)
        self._spawn("bookies", self._watch_bookies)
        self._spawn("tasks", self._watch_tasks)
        self.ledgers = LedgerIndex(
            client.store, client.layout, client.ledgers, self.tasks, lambda: context.on_change(ref)
        )
        self._spawn("full audits", self._make_owed_audits)
        self._spawn("ledgers", self.ledgers.run)

    @property
    def is_auditor(self) -> bool:
        """Whether this process is the elected auditor now."""
        return self._auditor is not None and self._auditor.is_leader

    def is_audited_since(self, bookies: Mapping[BookieId, BookieInfo]) -> bool:
        """Whether this process' last audit, as the elected auditor, began after the last of `bookies` came.

        Such an audit sets free, for another try, what was set aside before.
        """
        boots = {bookie: info.boot_id for bookie, info in bookies.items()}
        return (
            boots == self._boots
            and self.last_report is not None
            and self.last_report.began_at_ms > self.came_at_ms
        )

    def want_full_audit(self, *, after_ms: int, is_waited_for: bool) -> None:
        """Have full audits made until one that began after this time of the wall clock is clean.

        At once if something stands still until then (`is_waited_for`).
        """
        if self._debt.want(after_ms, is_waited_for=is_waited_for):
            self._wake.set()

    # Auditing.

    async def audit(self, placement: PlacementSettings) -> None:
        """Campaign for /auditor and audit by this policy from here on, if that is not so already."""
        if self._auditing is not None and placement == self._placement:
            return
        await self._end_auditing()
        self._placement = placement
        self._audit_stop = asyncio.Event()
        self._auditor = ElectedAuditor(
            self.client,
            self._context.auditing,
            name=self._context.name,
            placement=make_policy(placement),
            metrics=AuditorMetrics(self._context.registries.add(str(self.ref))),
            on_report=self._reported,
        )
        auditor, stop = self._auditor, self._audit_stop
        self._auditing = asyncio.create_task(
            self._for_ever("auditor", lambda: auditor.run(stop), stop),
            name=f"auditor of {self.ref}",
            context=Context(),  # of no reconcile, so that its log lines name none
        )
        self._wake.set()

    async def _end_auditing(self) -> None:
        if self._auditing is not None:
            self._audit_stop.set()
            await asyncio.wait({self._auditing}, timeout=2)
            self._auditing.cancel()
            await asyncio.gather(self._auditing, return_exceptions=True)
            self._context.registries.remove(str(self.ref))
            self._auditing, self._auditor = None, None

    def _reported(self, report: AuditReport) -> None:
        self.last_report = report
        if report.full:
            self.last_full_report = report
            began_ms = None if self._auditor is None else self._auditor.last_clean_full_audit_began_ms
            self._debt.ended(
                began_ms=began_ms or 0,
                began_wall_ms=report.began_at_ms,
                took_ms=report.duration_ms,
                is_clean=report.is_fully_replicated and began_ms is not None,
            )
        self._tasks_read_ms = None
        before, self.unmended = self.unmended, _unmended(report)
        for ledger_id in sorted({each for each, _ in before.items() ^ self.unmended.items()}):
            self._context.on_ledger(self.ref, ledger_id)
        self._wake.set()
        self._context.on_change(self.ref)

    async def _make_owed_audits(self) -> None:
        """Have full audits made as they are owed: after each return of a bookie, and for who waits for one."""
        while True:
            self._wake.clear()
            due_ms, now_ms = self._next_audit_ms(), monotonic_ms()
            if due_ms is None or due_ms > now_ms:
                await is_set_within(self._wake, None if due_ms is None else due_ms - now_ms)
                continue
            self._debt.asked(now_ms)
            if self.is_auditor and self._auditor is not None:
                self._auditor.request_full_audit()
            else:
                await self._look_for_itself()

    def _next_audit_ms(self) -> int | None:
        """When to have a full audit made that could settle that everything is replicated; None while none could."""
        can_settle = all(is_harmless(task.value.reasons) for task in self._task_list)
        if self._auditor is None or not can_settle:
            return None
        return self._debt.due_ms(monotonic_ms(), unix_ms())

    async def _look_for_itself(self) -> None:
        """A full audit beside another process, which is the auditor."""
        audits = AuditCycles(
            self.client,
            self._context.auditing,
            placement=make_policy(self._placement),
            may_act=lambda: False,
        )
        began_ms = monotonic_ms()
        try:
            report = await audits.cycle(full=True)
        except LeaseLostError:
            return  # there is something to mark, so it is not clean; marking is the auditor's
        self.last_full_report = report
        self._debt.ended(
            began_ms=began_ms,
            began_wall_ms=report.began_at_ms,
            took_ms=report.duration_ms,
            is_clean=report.is_fully_replicated,
        )
        self._context.on_change(self.ref)

    # What changes.

    async def read_tasks(self, *, fresh: bool = False) -> tuple[Versioned[RepairTask], ...]:
        """All repair tasks, by ledger; as they were half a second ago at the most, or now. Raises MetadataUnavailableError."""
        async with self._reading_tasks:
            now_ms = monotonic_ms()
            is_known = self._tasks_read_ms is not None and now_ms - self._tasks_read_ms < _TASKS_FRESH_MS
            if is_known and not fresh:
                return self._task_list
            before = {task.value.ledger_id: task for task in self._task_list}
            slots = asyncio.Semaphore(_TASK_READS_MAX)

            async def read(ledger_id: LedgerId) -> Versioned[RepairTask] | None:
                async with slots:
                    return await self.tasks.read(ledger_id)

            found = await asyncio.gather(*[read(ledger_id) async for ledger_id in self.tasks.ids()])
            self._task_list = tuple(task for task in found if task is not None)
            self._tasks_read_ms = now_ms
        after = {task.value.ledger_id: task for task in self._task_list}
        for ledger_id in sorted(before.keys() | after.keys()):
            if before.get(ledger_id) != after.get(ledger_id):
                self.ledgers.doubt(ledger_id)
                self._context.on_ledger(self.ref, ledger_id)
        if before != after:
            self._wake.set()
        return self._task_list

    async def _watch_tasks(self) -> None:
        async for _ in self.tasks.watch_signal():
            self._tasks_read_ms = None
            self._context.on_change(self.ref)

    async def _watch_bookies(self) -> None:
        async for bookies in self.client.directory.watch_bookies():
            boots = {bookie: info.boot_id for bookie, info in bookies.items()}
            if self._boots is None or boots.items() - self._boots.items():
                self.came_at_ms = unix_ms()
                self._debt.came(monotonic_ms())
                self._wake.set()
            self._boots = boots
            self._context.on_change(self.ref)

    def follow(self, ledger_id: LedgerId) -> None:
        """Tell of every change of the ledger's metadata from here on."""
        if ledger_id not in self._followed:
            self._followed[ledger_id] = asyncio.create_task(
                self._for_ever("a ledger's watch", lambda: self._watch_ledger(ledger_id), self._stop),
                name=f"watch of ledger {ledger_id}",
                context=Context(),
            )

    def unfollow(self, ledger_id: LedgerId) -> None:
        """Tell no more."""
        following = self._followed.pop(ledger_id, None)
        if following is not None:
            following.cancel()

    async def _watch_ledger(self, ledger_id: LedgerId) -> None:
        async for _ in self.client.ledgers.watch(ledger_id):
            self._context.on_ledger(self.ref, ledger_id)

    # Life.

    def _spawn(self, part: str, work: Callable[[], Awaitable[None]]) -> None:
        self._running.append(
            asyncio.create_task(self._for_ever(part, work, self._stop), name=f"{part} of {self.ref}")
        )

    async def _for_ever(self, part: str, work: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
        """Begin `work` again whenever the store was away; anything unforeseen is told and tried again as well."""
        while not stop.is_set():
            try:
                await work()
            except MetadataUnavailableError:
                _LOG.warning("ZooKeeper does not answer", cluster=str(self.ref), part=part)
            except Exception:  # noqa: BLE001 - a defect in one part must not end the others, nor go unheard
                _LOG.exception("a part of a link ended", cluster=str(self.ref), part=part)
            if not stop.is_set():
                await is_set_within(stop, _RETRY_MS)

    async def close(self) -> None:
        """Step down as auditor and disconnect."""
        await self._end_auditing()
        self._stop.set()
        tasks = [*self._running, *self._followed.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.client.close()


class Clusters:
    """All links."""

    def __init__(self, context: LinkContext) -> None:
        """None yet."""
        self._context = context
        self._opening: dict[ClusterRef, asyncio.Task[ClusterLink]] = {}

    async def link(self, ref: ClusterRef) -> ClusterLink:
        """The link to `ref`, which is formatted if nobody has. Raises MetadataUnavailableError, MetadataError.

        Waits a bounded time for ZooKeeper; the attempt goes on, so that a later call finds it done.
        """
        opening = self._opening.get(ref)
        if opening is None or (opening.done() and not _is_open(opening)):
            opening = asyncio.create_task(self._open(ref), name=f"link to {ref}", context=Context())
            self._opening[ref] = opening
        timeout_s = self._context.settings.zookeeper_timeout_ms / 1000
        await asyncio.wait({opening}, timeout=timeout_s)
        if not opening.done():
            raise _unanswered(ref)
        return opening.result()

    async def peek(self, ref: ClusterRef) -> tuple[str, dict[BookieId, str]]:
        """The instance id of a cluster and the boots of its registered bookies; nothing is formatted or kept.

        Raises UnknownClusterError where there is none, MetadataUnavailableError.
        """
        layout = Layout(ref.cluster)
        try:
            async with asyncio.timeout(self._context.settings.zookeeper_timeout_ms / 1000):
                store = await ZooKeeperStore.open(ref.zookeeper, self._options(ref))
                try:
                    await store.sync(layout.root)
                    instance = await read_instance(store, layout)
                    bookies = await BookieDirectory(store, layout).bookies()
                finally:
                    await store.close()
        except TimeoutError as error:
            raise _unanswered(ref) from error
        return instance.instance_id, {bookie: info.boot_id for bookie, info in bookies.items()}

    def find(self, ref: ClusterRef) -> ClusterLink | None:
        """The link to `ref`, if it is open."""
        opening = self._opening.get(ref)
        return opening.result() if opening is not None and _is_open(opening) else None

    async def keep_only(self, refs: Iterable[ClusterRef]) -> None:
        """Close the links that nothing needs any more."""
        for ref in sorted(self._opening.keys() - set(refs), key=str):
            await self._close(self._opening.pop(ref))

    async def close(self) -> None:
        """Close all links."""
        await asyncio.gather(*(self._close(opening) for opening in self._opening.values()))
        self._opening.clear()

    async def _close(self, opening: asyncio.Task[ClusterLink]) -> None:
        if _is_open(opening):
            await opening.result().close()
        else:
            opening.cancel()
            with suppress(asyncio.CancelledError, DaybookError):
                await opening

    def _options(self, ref: ClusterRef) -> ZooKeeperOptions:
        """Credentials are for servers of the operator's own ZooKeeper: who may edit a pool may name any server, and would be shown them."""
        options = zookeeper_options()
        is_own = are_among(ref.zookeeper, self._context.settings.zookeeper)
        return options if is_own else options.anonymous()

    async def _open(self, ref: ClusterRef) -> ClusterLink:
        settings = self._context.settings

        async def open_store() -> MetadataStore:
            store = await ZooKeeperStore.open(ref.zookeeper, self._options(ref))
            try:
                await ensure_cluster(store, Layout(ref.cluster), created_at_ms=unix_ms())
            except BaseException:
                await store.close()
                raise
            return store

        files = TlsFiles(settings.tls_certificate, settings.tls_key, settings.tls_ca)
        client = Client(
            open_store,
            cluster=ref.cluster,
            placement=make_policy(),
            writer_policy=WriterPolicy(),
            credentials=client_credentials(files) if settings.speaks_tls else lambda: None,
            zone="",
            rack="",
            name=self._context.name,
        )
        await client.__aenter__()
        _LOG.info("linked to a cluster", cluster=str(ref))
        return ClusterLink(ref, client, self._context)


def _unanswered(ref: ClusterRef) -> MetadataUnavailableError:
    msg = f"ZooKeeper at {ref.zookeeper} does not answer: check that it runs and that the address is right"
    return MetadataUnavailableError(msg)


def _unmended(report: AuditReport) -> dict[LedgerId, tuple[str, ...]]:
    """By ledger; what is harmless and what a task is about are left out."""
    with_task = frozenset(report.under_replicated)
    found: dict[LedgerId, tuple[str, ...]] = {}
    for reason, ledger_ids in report.by_reason.items():
        if Reason(reason) not in HARMLESS:
            for ledger_id in ledger_ids:
                if ledger_id not in with_task:
                    found[ledger_id] = (*found.get(ledger_id, ()), reason)
    return found


def _is_open(opening: asyncio.Task[ClusterLink]) -> bool:
    return opening.done() and not opening.cancelled() and opening.exception() is None
