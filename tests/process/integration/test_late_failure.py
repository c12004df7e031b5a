"""A bookie that is killed before it has what the others acknowledged, and a ledger that nobody appends to any more.

The ledger stays open, and nothing is appended or closed: its writer ends the fragment that has the gap, and auditor and worker
copy what is missing.
"""

import asyncio
import signal

import pytest

from daybook.autorecovery.cycles import AuditCycles
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.autorecovery.worker import RepairWorker
from daybook.client.client import Client
from daybook.client.ledger import Ledger
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerState
from daybook.local.cluster import LocalCluster
from tests.fixtures.cluster import connect_to, stands_still
from tests.process.integration.kit import (
    PATIENCE_S,
    PATIENT,
    eventually,
    kill_all,
    off,
    start_all,
    until_gone,
    until_registered,
)

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("nobody_stalls_by_chance")]

HELD_BY_ALL = 1
"""The entries that every bookie has before one of them stands still."""
OWED = 3


async def fails_late(cluster: LocalCluster, ledger: Ledger, victim: str) -> None:
    """`victim` stands still while entries are acknowledged by the others, and then it is killed."""
    await ledger.append(b"held by all")
    await ledger.replicated()
    cluster.kill_bookie(victim, signal.SIGSTOP)
    await eventually(lambda: stands_still(cluster.file.bookie(victim).pid))
    for number in range(OWED):
        await ledger.append(b"owed %d" % number)
    assert ledger.ensemble_changes == 0
    await off(kill_all, cluster, victim)


async def reasons(audits: AuditCycles, ledger_id: LedgerId, *, full: bool) -> list[str]:
    """What a cycle of the auditor finds wrong with the ledger."""
    report = await audits.cycle(full=full)
    assert ledger_id not in report.found.unread
    return [reason for reason, ledgers in report.found.by_reason.items() if ledger_id in ledgers]


async def is_repaired_while_open(client: Client, ledger: Ledger) -> None:
    """A quick audit finds the gap, a worker fills it, and a full audit finds nothing; the writer's handle is none the worse."""
    audits = AuditCycles(client, AutoRecoverySettings())
    assert await reasons(audits, ledger.id, full=False) == ["gap"]
    async with asyncio.timeout(PATIENCE_S):
        done = await RepairWorker(client, AutoRecoverySettings(), name="a test").drain()
    assert done.results[ledger.id].is_done, done.results[ledger.id].why
    assert done.results[ledger.id].copied_entries == OWED
    assert await reasons(audits, ledger.id, full=True) == []
    assert (await client.ledgers.read(ledger.id)).value.state is LedgerState.OPEN
    assert await ledger.append(b"more") == HELD_BY_ALL + OWED
    assert ledger.ensemble_changes == 1


async def test_rule_45_an_idle_open_ledger_is_fully_replicated_again_after_a_bookie_failed_late(
    cluster: LocalCluster,
) -> None:
    async with connect_to(cluster, writer_policy=PATIENT) as client:
        await until_registered(client)
        ledger = await client.create_ledger()
        victim = ledger.ensemble()[1]
        await fails_late(cluster, ledger, victim)
        await eventually(lambda: ledger.ensemble_changes == 1)
        before, after = ledger.metadata.fragments
        assert (victim in before.bookies, victim in after.bookies) == (True, False)
        assert after.first_entry == HELD_BY_ALL + OWED
        await off(start_all, cluster)
        await until_registered(client)
        await is_repaired_while_open(client, ledger)
        await ledger.close()


async def test_rule_45_without_a_spare_an_idle_open_ledger_is_fully_replicated_again_once_the_bookie_is_back(
    cluster: LocalCluster,
) -> None:
    async with connect_to(cluster, writer_policy=PATIENT) as client:
        await until_registered(client)
        ledger = await client.create_ledger()
        victim = ledger.ensemble()[1]
        (spare,) = set(client.bookies()) - set(ledger.ensemble())
        await off(cluster.stop_bookies, spare)
        await until_gone(client, spare)
        await fails_late(cluster, ledger, victim)
        await eventually(lambda: ledger.is_degraded)
        assert ledger.ensemble_changes == 0
        await off(cluster.start_bookie, victim)
        await eventually(lambda: not ledger.is_degraded)
        before, after = ledger.metadata.fragments
        assert before.bookies == after.bookies
        await off(start_all, cluster)
        await until_registered(client)
        await is_repaired_while_open(client, ledger)
        await ledger.close()
