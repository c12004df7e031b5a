"""The auditor as a process: one of several candidates, elected, acting only while it certainly leads (rule 34).

A term begins with fresh clocks and a full cycle, because what another auditor observed is not known here; a bookie that
is away then has its whole delay again, which errs on the side of patience (rule 33). And each task that was set aside gets one
more try: a bookie that it waits for may have come while nobody led (rule 35).
"""

import asyncio
import math
from collections.abc import Callable
from typing import Any, Final

from daybook.autorecovery.cluster import (
    Cluster,
    LeaseLostError,
    is_set_within,
    unless,
    while_held,
)
from daybook.autorecovery.cycles import AuditCycles
from daybook.autorecovery.metrics import AuditorMetrics
from daybook.autorecovery.report import AuditReport
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.core.errors import DaybookError
from daybook.core.placement.policy import RatingPolicy
from daybook.metadata.election import Election
from daybook.metadata.lease import Lease
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger

_LOG: Final = get_logger(__name__)
_RELEASE_S: Final = 1.0


class ElectedAuditor:
    """Campaigns, audits while elected, and campaigns again."""

    def __init__(
        self,
        cluster: Cluster,
        settings: AutoRecoverySettings,
        *,
        name: str,
        placement: RatingPolicy | None = None,
        metrics: AuditorMetrics | None = None,
        on_report: Callable[[AuditReport], None] = lambda _: None,
    ) -> None:
        """`name` says who leads, for people."""
        self.is_leader = False
        self.last_clean_full_audit_began_ms: int | None = None
        """When, by the monotonic clock, the last full cycle of this process began that found everything replicated.

        It proves nothing about a bookie that came back later.
        """
        self._full_wanted = False
        self._audits: AuditCycles | None = None
        self._cluster = cluster
        self._settings = settings
        self._placement = placement
        self._metrics = metrics or AuditorMetrics()
        self._on_report = on_report
        self._election = Election(cluster.store, cluster.layout.auditor, name)

    def request_full_audit(self) -> None:
        """Have the next cycle be a full one, and soon; one that is under way may have begun too early and does not count."""
        self._full_wanted = True
        if self._audits is not None:
            self._audits.news.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        while not stop.is_set():
            lease = await unless(stop, self._election.campaign())
            if lease is None:
                return
            self._leads(is_leader=True)
            try:
                await while_held(lease, self._lead(lease, stop))
            except LeaseLostError as error:
                _LOG.warning("no longer the auditor", why=str(error))
            finally:
                self._leads(is_leader=False)
                await self._step_down(lease, stop)

    async def _step_down(self, lease: Lease, stop: asyncio.Event) -> None:
        """Leave the election, or the next campaign would wait for this one.

        A process that stops does not wait for a store that is away: its session ends anyway.
        """
        releasing = asyncio.ensure_future(lease.release(timeout_s=math.inf))
        stopped = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({releasing, stopped}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({releasing}, timeout=_RELEASE_S)
        finally:
            releasing.cancel()
            stopped.cancel()
            await asyncio.gather(releasing, stopped, return_exceptions=True)

    def _leads(self, *, is_leader: bool) -> None:
        self.is_leader = is_leader
        self._metrics.elected.set(is_leader)
        if is_leader:
            _LOG.info("elected as the auditor")

    async def _lead(self, lease: Lease, stop: asyncio.Event) -> None:
        """One term."""
        audits = AuditCycles(
            self._cluster,
            self._settings,
            placement=self._placement,
            metrics=self._metrics,
            may_act=lambda: lease.is_certain,
        )
        audits.begin_term()
        self._audits = audits
        next_full_ms = monotonic_ms()
        while not stop.is_set():
            began_ms = monotonic_ms()
            full, self._full_wanted = self._full_wanted or began_ms >= next_full_ms, False
            try:
                report = await audits.cycle(full=full)
                if full:
                    next_full_ms = monotonic_ms() + self._settings.full_audit_interval_ms
                    if report.is_fully_replicated:
                        self.last_clean_full_audit_began_ms = began_ms
                self._on_report(report)
                await self._wait_for_news(audits, report, next_full_ms, stop)
            except LeaseLostError:
                raise
            except (
                DaybookError
            ) as error:  # whatever the store or a ledger is like: the next cycle may go better
                self._full_wanted |= full
                _LOG.warning("an audit ended early", why=str(error))
                await is_set_within(
                    stop, min(self._settings.retry_first_ms, self._settings.audit_interval_ms)
                )

    async def _wait_for_news(
        self, audits: AuditCycles, report: AuditReport, next_full_ms: int, stop: asyncio.Event
    ) -> None:
        """Wait until a cycle can find something: bookies came or are lost, a grace period or an interval is over."""
        until_ms = min(monotonic_ms() + self._settings.audit_interval_ms, next_full_ms)
        if report.found.waiting:
            until_ms = min(until_ms, monotonic_ms() + max(1, self._settings.open_grace_ms))
        watcher = asyncio.ensure_future(audits.observe_always())
        try:
            await audits.observe()
            while not audits.news.is_set():
                check_ms = audits.next_check_ms()
                wake_ms = until_ms if check_ms is None else min(until_ms, check_ms)
                await _first_of(audits.news, stop, watcher, wake_ms - monotonic_ms())
                if stop.is_set() or monotonic_ms() >= until_ms:
                    return
                if check_ms is not None and monotonic_ms() >= check_ms:
                    await audits.observe()
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)


async def _first_of(
    news: asyncio.Event, stop: asyncio.Event, watcher: asyncio.Future[None], timeout_ms: float
) -> None:
    """Wait for news, for the stop or for the time; raise what the watcher raises."""
    waits = [asyncio.ensure_future(event.wait()) for event in (news, stop)]
    ended: set[asyncio.Future[Any]] = {*waits, watcher}
    try:
        await asyncio.wait(ended, timeout=max(0.0, timeout_ms) / 1000, return_when=asyncio.FIRST_COMPLETED)
        if watcher.done():
            watcher.result()
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
