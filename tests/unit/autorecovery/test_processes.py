"""Auto-recovery with real bookies, a real ZooKeeper and real processes, one cluster for the whole module.

Each test leaves every bookie running and every ledger whole, for the next one.
"""

import asyncio
import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from daybook.autorecovery.cycles import AuditCycles
from daybook.autorecovery.report import AuditReport
from daybook.autorecovery.worker import RepairWorker
from daybook.client.verify import CopyReport
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.local.cluster import LocalCluster
from daybook.local.cluster_file import CLUSTER_FILE
from daybook.metadata.tasks import RepairTasks
from tests.fixtures.cluster import connect_to, make_cluster
from tests.unit.autorecovery.healing import (
    SESSION_MS,
    SETTINGS,
    VICTIM,
    command,
    done,
    everything,
    faults,
    gone,
    healing,
    locked,
    metadata_of,
    run,
    until_replicated,
    write,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("healing")
    with make_cluster(directory, bookies=5, settings={"session_timeout_ms": SESSION_MS}) as started:
        yield started


# A bookie that is gone for good, told once, looked at by several tests.


@dataclass
class Story:
    """What happened when a bookie with five ledgers died."""

    dense: LedgerMetadata
    striped: LedgerMetadata
    lonely: LedgerId
    orphan: LedgerMetadata
    without_spare: LedgerMetadata
    faults: list[CopyReport]
    tasks: list[LedgerId]
    report: AuditReport
    faults_after_return: list[CopyReport] = field(default_factory=list)
    tasks_after_return: list[LedgerId] = field(default_factory=list)


@pytest.fixture(scope="module")
def story(own: LocalCluster) -> Story:
    async def tell() -> Story:
        async with connect_to(own) as client, healing(own) as healer:
            tasks = RepairTasks(client.store, client.layout)
            await tasks.set_lost_bookie_delay_s(2.0)
            dense = await write(client, VICTIM, entries=3000)
            striped = await write(client, VICTIM, ensemble_size=4, write_quorum=3)
            lonely = await write(client, VICTIM, ensemble_size=1, write_quorum=1, ack_quorum=1)
            orphan = await write(client, VICTIM, close=False)
            without_spare = await write(client, VICTIM, close=False, ensemble_size=5)
            await asyncio.to_thread(own.kill_bookie, VICTIM)
            healed = {dense, striped, orphan}
            report = await healer.until(
                lambda r: (
                    (r.lost_bookies, r.found.under_replicated, r.found.unrecoverable, r.found.waiting)
                    == ((VICTIM,), (lonely,), (lonely,), ())
                )
            )
            story = Story(
                dense=await metadata_of(client, dense),
                striped=await metadata_of(client, striped),
                lonely=lonely,
                orphan=await metadata_of(client, orphan),
                without_spare=await metadata_of(client, without_spare),
                faults=await faults(client, *healed),
                tasks=[ledger_id async for ledger_id in tasks.ids()],
                report=report,
            )
            await asyncio.to_thread(own.start_bookie, VICTIM)
            await healer.until(lambda r: r.is_fully_replicated)
            story.faults_after_return = await faults(client, *healed, lonely)
            story.tasks_after_return = [ledger_id async for ledger_id in tasks.ids()]
            await client.delete_ledger(lonely)
            await client.delete_ledger(without_spare)
            return story

    told = run(tell)
    assert isinstance(told, Story)
    return told


def test_a_bookie_that_is_gone_for_good_is_replaced_and_every_copy_is_identical(story: Story) -> None:
    assert VICTIM not in story.dense.bookies() | story.striped.bookies()
    assert story.faults == []


def test_rule_35_an_unrecoverable_ledger_blocked_no_other(story: Story) -> None:
    assert story.tasks == [story.lonely]
    assert story.report.found.without_replica == (story.lonely,)
    assert story.faults_after_return == []
    assert story.tasks_after_return == []


def test_rule_31_a_dead_writers_ledger_was_closed_and_repaired_after_its_grace_period(story: Story) -> None:
    assert story.orphan.is_closed
    assert story.orphan.last_entry == 299
    assert VICTIM not in story.orphan.bookies()


def test_rule_31_a_ledger_without_a_replacement_was_left_to_its_writer(story: Story) -> None:
    assert not story.without_spare.is_closed
    assert VICTIM in story.without_spare.bookies()


# Others.


def test_rule_33_a_bookie_that_returns_within_the_delay_costs_no_copy(own: LocalCluster) -> None:
    async def work() -> None:
        async with connect_to(own) as client:
            tasks = RepairTasks(client.store, client.layout)
            await tasks.set_lost_bookie_delay_s(60)
            ledger_id = await write(client, VICTIM)
            async with healing(own) as healer:
                await healer.until(lambda r: r.is_fully_replicated)
                before, copied, seen = await everything(client), healer.copied_bytes, len(healer.reports)
                await asyncio.to_thread(own.kill_bookie, VICTIM)
                await healer.until(lambda r: r.missing_bookies == (VICTIM,))
                await asyncio.to_thread(own.start_bookie, VICTIM)
                await healer.until(lambda r: r.is_fully_replicated)
                assert healer.copied_bytes == copied
                assert all(report.found.tasks_marked == 0 for report in healer.reports[seen:])
            assert await everything(client) == before
            assert await faults(client, ledger_id) == []

    run(work)


def test_rule_29_a_wiped_bookie_is_filled_again_in_its_old_place(own: LocalCluster) -> None:
    async def work() -> None:
        async with connect_to(own) as client:
            await RepairTasks(client.store, client.layout).set_lost_bookie_delay_s(60)
            ids = [await write(client, VICTIM), await write(client, VICTIM, ensemble_size=4, write_quorum=2)]
            open_id = await write(client, VICTIM, close=False)
            before = [await metadata_of(client, ledger_id) for ledger_id in ids]
            await asyncio.to_thread(own.kill_bookie, VICTIM)
            await asyncio.to_thread(own.erase_bookie, VICTIM)
            await gone(client)
            await client.directory.authorise_replacement(VICTIM, by="test", now_ms=0)
            await asyncio.to_thread(own.start_bookie, VICTIM)
            await RepairTasks(client.store, client.layout).set_disabled(True)
            async with connect_to(own) as fresh:
                report = await AuditCycles(fresh, SETTINGS).cycle(full=False)
            assert set(report.found.by_reason["limbo"]) >= {*ids, open_id}
            assert (report.disabled, report.found.tasks_marked) == (True, 0)
            await RepairTasks(client.store, client.layout).set_disabled(False)
            process = command(own, "autorecovery", "--grace", "0.2", **FAST)
            assert process.stderr is not None
            assert "metrics at http://" in await asyncio.to_thread(process.stderr.readline)
            await until_replicated(client)
            process.send_signal(signal.SIGTERM)
            code, _, err = await asyncio.to_thread(done, process)
            assert code == 0, err
            assert [await metadata_of(client, ledger_id) for ledger_id in ids] == before
            assert (await metadata_of(client, open_id)).is_closed
            assert await faults(client, *ids, open_id) == []

    run(work)


FAST = {
    "DAYBOOK_AUTORECOVERY_AUDIT_INTERVAL_MS": "300",
    "DAYBOOK_AUTORECOVERY_FULL_AUDIT_INTERVAL_MS": "300",
    "DAYBOOK_AUTORECOVERY_RETRY_FIRST_MS": "200",
}


def test_rule_47_entries_missing_in_the_middle_are_found_and_filled(own: LocalCluster) -> None:
    async def work() -> None:
        async with connect_to(own) as client:
            tasks = RepairTasks(client.store, client.layout)
            await tasks.set_lost_bookie_delay_s(60)
            ledger = await client.create_ledger(ensemble_size=5, write_quorum=5, ack_quorum=3)
            await ledger.append_many([b"before"] * 100)
            # A bookie serves entries that its journal has yet to sync; a kill would lose those.
            await ledger.replicated()
            await asyncio.to_thread(own.kill_bookie, VICTIM)
            await ledger.append_many([b"meanwhile"] * 100)
            await asyncio.to_thread(own.start_bookie, VICTIM)
            while len((await metadata_of(client, ledger.id)).fragments) == 1:
                await ledger.append_many([b"after"])
            await ledger.append_many([b"after"] * 50)
            await ledger.replicated()  # what a slow bookie lacks is another gap
            metadata = await ledger.close()
            code, out, _ = await asyncio.to_thread(done, command(own, "audit", "--json"))
            assert code == 1
            assert json.loads(out)["by_reason"] == {"gap": [ledger.id]}
            task = await tasks.read(ledger.id)
            assert task is not None
            assert task.value.reasons == (f"gap {VICTIM}",)
            code, out, err = await asyncio.to_thread(done, command(own, "recover", "--drain", "--json"))
            assert code == 0, err
            report = json.loads(out)
            assert report["complete"]
            assert 100 <= report["copied_entries"] <= metadata.last_entry - 100, "not what was there before"
            await until_replicated(client)
            assert await faults(client, ledger.id) == []

    run(work)


def test_an_audit_ends_and_an_auditor_serves_until_it_is_told_to_stop(own: LocalCluster) -> None:
    async def work() -> None:
        code, _, err = await asyncio.to_thread(done, command(own, "audit", "--quick"))
        assert code in {0, 1}, err
        process = command(own, "auditor", **FAST)
        assert process.stderr is not None
        assert "metrics at http://" in await asyncio.to_thread(process.stderr.readline)
        process.send_signal(signal.SIGTERM)
        code, _, err = await asyncio.to_thread(done, process)
        assert code == 0, err

    run(work)


def test_rule_34_a_worker_that_is_stopped_or_paused_beyond_its_session_does_no_harm(
    own: LocalCluster,
) -> None:
    async def work() -> None:
        async with connect_to(own) as client:
            tasks = RepairTasks(client.store, client.layout)
            await tasks.set_lost_bookie_delay_s(0)
            ledger_id = await write(client, VICTIM, entries=2000)
            await asyncio.to_thread(own.kill_bookie, VICTIM)
            await gone(client)
            slow = {
                "DAYBOOK_AUTORECOVERY_BYTES_PER_SECOND": "100000",
                "DAYBOOK_AUTORECOVERY_STOP_GRACE_MS": "100",
            }
            stopped = command(own, "recover", str(ledger_id), "--json", **slow)
            await locked(client, ledger_id)
            stopped.send_signal(signal.SIGTERM)
            code, out, err = await asyncio.to_thread(done, stopped)
            assert code == 1, err
            assert json.loads(out)["stopped"]
            assert f"ledger {ledger_id}: stopped" in err
            assert await tasks.locked() == {}
            paused = command(own, "recover", str(ledger_id), "--json", **slow)
            await locked(client, ledger_id)
            paused.send_signal(signal.SIGSTOP)
            other = await RepairWorker(client, SETTINGS, name="other").repair([ledger_id])
            assert other.is_complete
            repaired = await client.ledgers.read(ledger_id)
            assert VICTIM not in repaired.value.bookies()
            paused.send_signal(signal.SIGCONT)
            code, out, err = await asyncio.to_thread(done, paused)
            assert code == 0, err
            assert json.loads(out)["complete"]
            assert await client.ledgers.read(ledger_id) == repaired
            assert await faults(client, ledger_id) == []
            await asyncio.to_thread(own.start_bookie, VICTIM)

    run(work)


def test_delay_and_switch_are_set_for_the_whole_cluster(own: LocalCluster) -> None:
    async def work() -> None:
        set_up = command(own, "audit", "--set-delay", "7.5", "--repair", "off")
        code, out, err = await asyncio.to_thread(done, set_up)
        assert (code, out.strip()) == (0, "repair is off; a bookie is lost after 7.5 s"), err
        async with connect_to(own) as client:
            tasks = RepairTasks(client.store, client.layout)
            assert await tasks.disabled()
            assert await tasks.lost_bookie_delay_s() == 7.5
            await tasks.set_disabled(False)

    run(work)


def test_what_is_not_repaired_is_listed_and_the_exit_code_says_so(own: LocalCluster) -> None:
    async def work() -> None:
        async with connect_to(own) as client:
            lonely = await write(client, VICTIM, ensemble_size=1, write_quorum=1, ack_quorum=1)
            await asyncio.to_thread(own.kill_bookie, VICTIM)
            await gone(client)
            code, out, err = await asyncio.to_thread(
                done, command(own, "recover", str(lonely), "999999", "--delay", "0", **FAST)
            )
            assert code == 1
            assert "0 of 1 ledgers are repaired" in out
            assert f"ledger {lonely}: failed" in err
            assert "no reachable bookie has entry 0" in err
            assert "ledger 999999 does not exist" in err
            await asyncio.to_thread(own.start_bookie, VICTIM)
            code, _, err = await asyncio.to_thread(done, command(own, "recover", str(lonely)))
            assert code == 0, err
            await client.delete_ledger(lonely)

    run(work)


def test_a_bookie_is_decommissioned_by_command(own: LocalCluster) -> None:
    """The last one: there is a bookie less afterwards."""

    async def work() -> None:
        async with connect_to(own) as client:
            found = [ledger_id async for ledger_id in client.ledgers.ids()]
            for ledger_id in found:
                if (await metadata_of(client, ledger_id)).quorum.ensemble_size == 5:
                    await client.delete_ledger(ledger_id)
            ids = [await write(client, VICTIM) for _ in range(3)]
            code, out, err = await asyncio.to_thread(done, command(own, "bookie", "decommission", VICTIM))
            assert code == 0, err
            assert "stop it for good" in out
            assert all(VICTIM not in metadata.bookies() for metadata in await everything(client))
            assert await faults(client, *ids) == []
            waiting = command(own, "bookie", "decommission", "--wait", VICTIM)
            await asyncio.to_thread(own.stop_bookies, VICTIM)
            code, out, err = await asyncio.to_thread(done, waiting)
            assert code == 0, err
            assert "out of the cluster" in out
            assert await client.directory.cookie(VICTIM) is None
            assert (own.directory / CLUSTER_FILE).exists()

    run(work)
