"""The audits of a cluster, as the operator has them made.

The leader campaigns for /auditor like any other auditor, and has a full audit made after bookies came back, because only
one that began later proves that they have what they owe (rule 47). While another process is the auditor, this one audits
for itself and marks nothing (rule 34).
"""

import asyncio
from collections.abc import Callable
from contextvars import Context

from daybook.autorecovery.cluster import LeaseLostError, is_set_within
from daybook.autorecovery.cycles import AuditCycles
from daybook.autorecovery.elected import ElectedAuditor
from daybook.autorecovery.metrics import AuditorMetrics
from daybook.autorecovery.report import AuditReport
from daybook.client.client import Client
from daybook.core.ids import LedgerId
from daybook.core.placement.policies import PlacementSettings, make_policy
from daybook.core.repair.judgement import HARMLESS, Reason
from daybook.runtime.clock import monotonic_ms, unix_ms
from daybook_operator.clusters.context import LinkContext, run_until
from daybook_operator.plan.effects import ClusterRef
from daybook_operator.plan.recovery.audit_debt import AuditDebt


class Audits:
    """What this process audits of one cluster, and what it found."""

    def __init__(
        self,
        ref: ClusterRef,
        client: Client,
        context: LinkContext,
        *,
        can_end_clean: Callable[[], bool],
        on_report: Callable[[], None],
    ) -> None:
        """Nothing is audited before `campaign`. `can_end_clean`: no task is known that a full audit would find anew."""
        self.last_report: AuditReport | None = None
        """Of the last audit of this process, quick or full."""
        self.last_full_report: AuditReport | None = None
        self.without_task: dict[LedgerId, tuple[str, ...]] = {}
        """What the last audit found wrong with ledgers that no worker can repair now: no bookie is free, or it is too early."""
        self._ref = ref
        self._client = client
        self._context = context
        self._can_end_clean = can_end_clean
        self._on_report = on_report
        self._debt = AuditDebt(monotonic_ms(), context.settings.full_audit_pause_ms)
        self._wake = asyncio.Event()
        self._placement = PlacementSettings("zone")
        self._auditor: ElectedAuditor | None = None
        self._campaign: asyncio.Task[None] | None = None
        self._campaign_ends = asyncio.Event()

    @property
    def is_auditor(self) -> bool:
        """Whether this process is the elected auditor now."""
        return self._auditor is not None and self._auditor.is_leader

    def want_full_audit(self, *, after_ms: int, is_waited_for: bool) -> None:
        """Have full audits made until one that began after this time of the wall clock is clean.

        At once if something stands still until then (`is_waited_for`).
        """
        if self._debt.want(after_ms, is_waited_for=is_waited_for):
            self._wake.set()

    def bookie_came(self) -> None:
        """A bookie came, or started anew: a full audit is owed."""
        self._debt.came(monotonic_ms())
        self._wake.set()

    def reconsider(self) -> None:
        """Tasks changed: whether an audit can end clean may have changed as well."""
        self._wake.set()

    # The elected auditor.

    async def campaign(self, placement: PlacementSettings) -> None:
        """Campaign for /auditor and audit by this policy from here on, if that is not so already."""
        if self._campaign is not None and placement == self._placement:
            return
        await self.close()
        self._placement = placement
        self._campaign_ends = asyncio.Event()
        self._auditor = ElectedAuditor(
            self._client,
            self._context.auditing,
            name=self._context.name,
            placement=make_policy(placement),
            metrics=AuditorMetrics(self._context.registries.add(str(self._ref))),
            on_report=self._reported,
        )
        auditor, ends = self._auditor, self._campaign_ends
        self._campaign = asyncio.create_task(
            run_until(ends, "auditor", self._ref, lambda: auditor.run(ends)),
            name=f"auditor of {self._ref}",
            context=Context(),  # of no reconcile, so that its log lines name none
        )
        self._wake.set()

    async def close(self) -> None:
        """Step down as auditor."""
        if self._campaign is not None:
            self._campaign_ends.set()
            await asyncio.wait({self._campaign}, timeout=2)
            self._campaign.cancel()
            await asyncio.gather(self._campaign, return_exceptions=True)
            self._context.registries.remove(str(self._ref))
            self._campaign, self._auditor = None, None

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
        before, self.without_task = self.without_task, _without_task(report)
        for ledger_id in sorted({each for each, _ in before.items() ^ self.without_task.items()}):
            self._context.on_ledger(self._ref, ledger_id)
        self._wake.set()
        self._on_report()

    # Full audits that are owed.

    async def make_owed(self) -> None:
        """Have full audits made as they are owed: after each return of a bookie, and for who waits for one."""
        while True:
            self._wake.clear()
            due_ms, now_ms = self._next_ms(), monotonic_ms()
            if due_ms is None or due_ms > now_ms:
                await is_set_within(self._wake, None if due_ms is None else due_ms - now_ms)
                continue
            self._debt.asked(now_ms)
            if self.is_auditor and self._auditor is not None:
                self._auditor.request_full_audit()
            else:
                await self._audit_without_marking()

    def _next_ms(self) -> int | None:
        """When to have a full audit made that could settle that everything is replicated; None while none could."""
        if self._auditor is None or not self._can_end_clean():
            return None
        return self._debt.due_ms(monotonic_ms(), unix_ms())

    async def _audit_without_marking(self) -> None:
        """A full audit beside another process, which is the auditor."""
        audits = AuditCycles(
            self._client,
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
        self._context.on_change(self._ref)


def _without_task(report: AuditReport) -> dict[LedgerId, tuple[str, ...]]:
    """What was found, by ledger; what is harmless and what a task is about are left out."""
    with_task = frozenset(report.found.under_replicated)
    found: dict[LedgerId, tuple[str, ...]] = {}
    for reason, ledger_ids in report.found.by_reason.items():
        if Reason(reason) not in HARMLESS:
            for ledger_id in ledger_ids:
                if ledger_id not in with_task:
                    found[ledger_id] = (*found.get(ledger_id, ()), reason)
    return found
