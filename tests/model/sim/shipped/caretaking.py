"""The processes that keep replicas whole, as they ship: the elected auditor, the repair worker, a decommissioning.

One process runs an auditor and a worker, as `daybook autorecovery` does, and is started again when it has died. What they
make of the cluster is judged where it lands: in metadata and on disks.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from daybook.autorecovery.decommission import Decommission
from daybook.autorecovery.elected import ElectedAuditor
from daybook.autorecovery.report import AuditReport
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.autorecovery.worker import RepairWorker
from daybook.client.client import Client
from daybook.core.errors import DaybookError, MetadataUnavailableError
from daybook.core.ids import BookieId
from tests.model.sim.audit_checks import OPEN_GRACE_MS, RETRY_FIRST_MS
from tests.model.sim.shipped.loop import SCALE
from tests.model.sim.shipped.pretence import START_S
from tests.model.sim.shipped.process import ShippedProcess

if TYPE_CHECKING:
    from tests.model.sim.bookie_model import SimBookie
    from tests.model.sim.cluster import Cluster

_PAUSE_S: Final = 0.5
_AUDIT_EVERY_MS: Final = 90


class Caretaker(ShippedProcess):
    """An auditor and a worker, for as long as the run lasts."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        super().__init__(cluster, name)
        rng = self.world.rng(f"{name}/settings")
        self._settings = AutoRecoverySettings(
            audit_interval_ms=_AUDIT_EVERY_MS * SCALE,
            full_audit_interval_ms=_AUDIT_EVERY_MS * SCALE * rng.choice((1, 3)),
            open_grace_ms=OPEN_GRACE_MS * SCALE,
            second_look_ms=rng.choice((0, 200)),
            reads_per_second=rng.choice((20, 500)),
            retry_first_ms=RETRY_FIRST_MS * SCALE,
            retry_max_ms=4 * RETRY_FIRST_MS * SCALE,
            bytes_per_second=rng.choice((0, 1000)),
        )
        self._stop = asyncio.Event()

    async def work(self) -> None:
        """Audit and repair; connect again when ZooKeeper was unavailable."""
        await _connected(self, self._serve)

    async def _serve(self, client: Client) -> None:
        auditor = ElectedAuditor(
            client, self._settings, name=self.name, placement=self.cluster.placement, on_report=self._reported
        )
        worker = RepairWorker(client, self._settings, name=self.name, placement=self.cluster.placement)
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self.watched(auditor.run(self._stop)))
            parts.create_task(self.watched(worker.serve()))

    def _reported(self, report: AuditReport) -> None:
        """FullyReplicated is reported of what the cycle read from its beginning on (rule 45, rule 47)."""
        cluster = self.cluster
        if self.world.tracing:
            self.note(
                f"audited: {report.found.by_reason}, blocked {report.found.blocked}, waiting {report.found.waiting}"
            )
        if not report.full:
            return
        cluster.fully_replicated = report.is_fully_replicated and report.found.ledgers == len(
            self.store.ledgers
        )
        began_us = (report.began_at_ms - START_S * 1000) * 1000 // SCALE
        oracles = [oracle for oracle in cluster.checkers.oracles.values() if not oracle.deleted]
        was_calm = not cluster.is_faulty and began_us > cluster.healed_us
        was_calm &= all(oracle.end is not None and oracle.changed_us < began_us for oracle in oracles)
        if report.is_fully_replicated and was_calm:
            cluster.checkers.nothing_is_under_replicated(began_us)


class Operator(ShippedProcess):
    """Takes one bookie out of the cluster, for good."""

    def __init__(self, cluster: "Cluster", name: str, bookie: BookieId) -> None:
        super().__init__(cluster, name)
        self._bookie = bookie
        self._never = asyncio.Event()

    async def work(self) -> None:
        """Drain it, stop it, forget it; begin again where that was cut short."""
        rng = self.world.rng(f"{self.name}/when")
        await asyncio.sleep(self.cluster.swarm.fault_window_us * SCALE / 1e6 * rng.random())
        self.store.leaving.add(self._bookie)
        while not self.cluster.is_taken_out(self._bookie):
            await _connected(self, self._take_out)
            await asyncio.sleep(_PAUSE_S)

    async def _take_out(self, client: Client) -> None:
        work = Decommission(client, self._bookie)
        try:
            await work.drain(self._never)
            self.note(f"has drained {self._bookie}")
            bookie = await self._stop_for_good(work)
            await work.forget()
        except MetadataUnavailableError:
            raise
        except DaybookError as error:
            self.note(f"does not take out {self._bookie}: {error}")
            self.cluster.bookies[self._bookie].stay()
            return
        self.note(f"has taken {self._bookie} out")
        self.world.tally.state("bookie decommissioned")
        bookie.throw_away()
        self.cluster.checkers.disks_changed()

    async def _stop_for_good(self, work: Decommission) -> "SimBookie":
        """Return the last process of the bookie, which is stopped.

        A replacement may have taken over since the drain began, and another may while one stops: the operator stops
        whatever process is the bookie, until none is registered.
        """
        while True:
            bookie = self.cluster.bookies[self._bookie]
            bookie.leave()
            is_enough = asyncio.Event()
            asyncio.get_running_loop().call_later(_PAUSE_S, is_enough.set)
            if await work.wait_until_stopped(is_enough):
                return bookie


async def _connected(process: ShippedProcess, work: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    """Do `work` with a client; once more when ZooKeeper was unavailable for too long."""
    while True:
        try:
            async with process.client() as client:
                await work(client)
                return
        except* MetadataUnavailableError as group:
            process.note(f"begins again: {group.exceptions[0]}")
        await asyncio.sleep(_PAUSE_S)
