"""Minutes of drawn faults on five bookies while writers write and readers read; then everything heals and is judged.

Safety is judged offline on the recorded histories (tests/process/integration/recorded.py): nothing acknowledged is lost, reordered or
changed, nothing appears that nobody wrote, nothing a reader saw is gone. Liveness is asked for at the end only: once the
faults are over, writers go on, every ledger can be closed, and auto-recovery brings every replica back.
"""

import asyncio
import random
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from daybook.autorecovery.elected import ElectedAuditor
from daybook.autorecovery.report import AuditReport
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.autorecovery.worker import RepairWorker
from daybook.core.errors import DaybookError
from daybook.core.writer.policy import WriterPolicy
from daybook.local.cluster_file import ClusterError
from daybook.metadata.tasks import RepairTasks
from tests.fixtures.cluster import connect_to
from tests.process.chaos import network
from tests.process.chaos.bookies import Bookies
from tests.process.chaos.faults import FaultMaker
from tests.process.integration.history import Kind
from tests.process.integration.recorded import load, save
from tests.process.integration.workload import Workload, running

BOOKIES: Final = 5
WORKLOADS: Final = (((3, 3, 2), 400), ((5, 3, 2), 1_000_000), ((2, 2, 2), 1_000))
"""Quorums, and after how many entries a writer begins a new ledger."""
LOST_AFTER_S: Final = 3.0
HEAL_S: Final = 90.0
VIOLATIONS_SHOWN: Final = 20
RECOVERY: Final = AutoRecoverySettings(
    audit_interval_ms=500,
    full_audit_interval_ms=1_000,
    open_grace_ms=2_000,
    retry_first_ms=200,
    retry_max_ms=1_000,
)


class Storm:
    """One run, drawn from a seed."""

    def __init__(self, directory: Path, library: Path, seed: int, *, can_partition: bool) -> None:
        """`run` does it."""
        numbers = range(BOOKIES)
        hosts = [network.zookeeper_for_bookie(number) for number in numbers] if can_partition else []
        self.bookies = Bookies(
            directory,
            library,
            BOOKIES,
            seed=seed,
            hosts=[network.bookie_address(number) for number in numbers] if can_partition else [],
            zookeeper_hosts=hosts,
        )
        self.counts = Counter({"bookies without a lane": self.bookies.without_lane})
        self.violations: list[str] = []
        self._seed = seed
        self._can_partition = can_partition

    async def run(self, minutes: float) -> None:
        """Faults for so long, then none; `violations` says what was wrong."""
        rng = random.Random(self._seed)
        async with AsyncExitStack() as stack:
            works = [
                await stack.enter_async_context(
                    running(
                        self.bookies.cluster,
                        quorum=quorum,
                        roll_entries=roll,
                        seed=self._seed + n,
                        zookeeper_hosts=self._roads_to_zookeeper(n),
                        policy=WriterPolicy(),
                    )
                )
                for n, (quorum, roll) in enumerate(WORKLOADS)
            ]
            reports = await stack.enter_async_context(_auto_recovery(self.bookies))
            try:
                await self._rage(
                    FaultMaker(self.bookies, works, rng, can_partition=self._can_partition), minutes
                )
                await self._heal(works, reports)
            except (AssertionError, TimeoutError, ClusterError, DaybookError) as error:
                self.violations.append("".join(traceback.format_exception(error)))
            self.violations += [f"called corruption: {line}" for line in self.bookies.complaints()]
            self._judge_files(works)
            for work in works:
                self.counts["ledgers"] += len(work.history.ledgers)
                self.counts["acknowledged entries"] += work.history.acknowledged_entries
                self.counts["handles ended"] += len(work.ends)

    def _roads_to_zookeeper(self, work: int) -> tuple[str, str]:
        """Where the writer and the readers of a workload reach ZooKeeper."""
        if not self._can_partition:
            return "", ""
        return network.zookeeper_for_client(2 * work), network.zookeeper_for_client(2 * work + 1)

    def _judge_files(self, works: list[Workload]) -> None:
        """Write the histories down and judge what was written: `python -m tests.process.integration.recorded` says the same.

        A run that broke off has ledgers that were never read back, which is no finding of its own.
        """
        for number, work in enumerate(works):
            file = self.bookies.cluster.directory / f"history-{number}.jsonl"
            save(work.history, file)
            found = load(file).judge()
            if self.violations:
                found = [violation for violation in found if violation.kind is not Kind.UNREAD]
            self.violations += [f"{file.name}: {violation}" for violation in found[:VIOLATIONS_SHOWN]]

    async def _rage(self, faults: FaultMaker, minutes: float) -> None:
        ends_at = time.monotonic() + 60 * minutes
        while time.monotonic() < ends_at:
            for kind in await faults.one():
                self.counts[f"fault: {kind}"] += 1

    async def _heal(self, works: list[Workload], reports: "Reports") -> None:
        """Everything runs: writers go on, ledgers close and are what they must be, and every replica comes back."""
        await asyncio.gather(*(work.acknowledge() for work in works))
        for work in works:
            await work.end()
        async with asyncio.timeout(HEAL_S):
            report = await reports.fully_replicated()
        self.counts["audited ledgers"] += report.found.ledgers


class Reports:
    """What the auditor says, round by round."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.rounds: list[AuditReport] = []
        self._news = asyncio.Event()

    def add(self, report: AuditReport) -> None:
        """A round ended."""
        self.rounds.append(report)
        self._news.set()

    async def fully_replicated(self) -> AuditReport:
        """The first round that begins from now on and finds every replica in its place."""
        seen = len(self.rounds) + 1  # the round under way may have begun before
        while True:
            for report in self.rounds[seen:]:
                if report.full and report.is_fully_replicated:
                    return report
            seen = max(seen, len(self.rounds))
            self._news.clear()
            await self._news.wait()


@asynccontextmanager
async def _auto_recovery(bookies: Bookies) -> AsyncIterator[Reports]:
    """An auditor and a worker."""
    reports, stop = Reports(), asyncio.Event()
    async with connect_to(bookies.cluster) as client:
        await RepairTasks(client.store, client.layout).set_lost_bookie_delay_s(LOST_AFTER_S)
        auditor = ElectedAuditor(client, RECOVERY, name="auditor", on_report=reports.add)
        worker = RepairWorker(client, RECOVERY, name="worker")
        serving = [asyncio.create_task(auditor.run(stop)), asyncio.create_task(worker.serve())]
        try:
            yield reports
        finally:
            stop.set()
            worker.stop.set()
            await asyncio.gather(*serving)
