"""What the tests of auto-recovery with real processes do: an auditor and workers at work, ledgers, commands."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import daybook
from daybook.autorecovery.cycles import AuditCycles
from daybook.autorecovery.elected import ElectedAuditor
from daybook.autorecovery.metrics import WorkerMetrics
from daybook.autorecovery.report import AuditReport
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.autorecovery.worker import RepairWorker
from daybook.client.verify import CopyReport, verify_ledger
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.local.cluster import LocalCluster
from tests.fixtures.cluster import connect_to

SETTINGS = AutoRecoverySettings(
    audit_interval_ms=300,
    full_audit_interval_ms=300,
    open_grace_ms=500,
    retry_first_ms=200,
    retry_max_ms=1_000,
)
SESSION_MS = 3_000
VICTIM = "bookie-0"
TIMEOUT_S = 200.0
"""Of one test; on a machine with nothing else to do each takes a few seconds."""


class Healing:
    """An auditor and two workers, each with a client of its own."""

    def __init__(self) -> None:
        self.reports: list[AuditReport] = []
        self.metrics = WorkerMetrics()
        self._news = asyncio.Event()

    def report(self, report: AuditReport) -> None:
        self.reports.append(report)
        self._news.set()

    async def until(self, condition: Callable[[AuditReport], bool]) -> AuditReport:
        """The first full report from now on for which `condition` holds."""
        seen = len(self.reports) + 1  # the round under way may have begun before
        while True:
            for report in self.reports[seen:]:
                if report.full and condition(report):
                    return report
            seen = max(seen, len(self.reports))
            self._news.clear()
            await self._news.wait()

    @property
    def copied_bytes(self) -> float:
        value = self.metrics.registry.get_sample_value("daybook_replication_worker_num_bytes_written_total")
        assert value is not None
        return value


@contextlib.asynccontextmanager
async def healing(cluster: LocalCluster) -> AsyncIterator[Healing]:
    started = Healing()
    stop = asyncio.Event()
    async with connect_to(cluster) as first, connect_to(cluster) as second:
        auditor = ElectedAuditor(first, SETTINGS, name="auditor", on_report=started.report)
        workers = [
            RepairWorker(client, SETTINGS, name=name, metrics=started.metrics)
            for name, client in (("one", first), ("two", second))
        ]
        running = [asyncio.ensure_future(auditor.run(stop))]
        running += [asyncio.ensure_future(worker.serve()) for worker in workers]
        try:
            yield started
        finally:
            stop.set()
            for worker in workers:
                worker.stop.set()
            await asyncio.gather(*running)


def run(work: Callable[[], Any]) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(TIMEOUT_S):
            return await work()

    return asyncio.run(limited())


async def write(
    client: daybook.Client,
    on: BookieId | None = None,
    *,
    entries: int = 300,
    close: bool = True,
    **quorum: Any,
) -> LedgerId:
    """A ledger with entries, one of whose bookies is `on`; each copy is synced, so that a kill takes nothing from it."""
    for _ in range(50):
        ledger = await client.create_ledger(**quorum)
        if on is None or on in (await client.ledgers.read(ledger.id)).value.bookies():
            break
        await ledger.close()
    else:
        raise AssertionError(f"no ensemble with {on}")
    await ledger.append_many([b"%d of %d" % (n, ledger.id) * 20 for n in range(entries)])
    await ledger.replicated()
    if close:
        await ledger.close()
    else:
        await ledger.abandon()
    return ledger.id


async def metadata_of(client: daybook.Client, ledger_id: LedgerId) -> LedgerMetadata:
    return (await client.ledgers.read(ledger_id)).value


async def faults(client: daybook.Client, *ledger_ids: LedgerId) -> list[CopyReport]:
    """The copies that metadata names and that are not there, not intact or not the same as the others."""
    reports = [await verify_ledger(client, ledger_id) for ledger_id in ledger_ids]
    return [copy for report in reports for copy in report.copies if not copy.is_whole]


async def everything(client: daybook.Client) -> list[LedgerMetadata]:
    return [found.value async for found in client.list_ledgers()]


async def until_replicated(client: daybook.Client) -> None:
    """Look until every ledger has all its replicas; somebody else mends them."""
    audits = AuditCycles(client, SETTINGS)
    while not (await audits.cycle(full=True)).is_fully_replicated:
        continue


async def gone(client: daybook.Client) -> None:
    """Return once the victim's registration is gone."""
    async for bookies in client.directory.watch_bookies():
        if VICTIM not in bookies:
            return


async def locked(client: daybook.Client, ledger_id: LedgerId) -> None:
    """Return once a worker has the ledger."""
    async for holder in client.store.watch_node(client.layout.task_lock(ledger_id)):
        if holder is not None:
            return


def command(cluster: LocalCluster, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """A `daybook` process."""
    return subprocess.Popen(
        [sys.executable, "-c", "from daybook.cli.main import app; app()", *arguments],
        env={**os.environ, "DAYBOOK_DIR": str(cluster.directory), "COLUMNS": "200", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def done(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err
