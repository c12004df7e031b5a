"""Workers: what they mend, whose word they take, when they stop, and what they leave for later."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from daybook.autorecovery.cluster import LeaseLostError, while_held
from daybook.autorecovery.worker import RepairWorker
from daybook.core.ledger.metadata import LedgerState
from daybook.core.quorum import Quorum
from daybook.core.repair.order import TaskOrder
from daybook.core.repair.task import UNRECOVERABLE
from daybook.core.repair.work import Outcome
from daybook.metadata.store.store import Put
from daybook.runtime.clock import unix_ms
from tests.unit.autorecovery.kit import LAYOUT, SETTINGS, FakeCluster, until


def worker(cluster: FakeCluster, name: str = "w", **changes: Any) -> RepairWorker:
    return RepairWorker(cluster, SETTINGS.model_copy(update=changes), name=name)


async def mark(cluster: FakeCluster, ledger_id: int, *reasons: str) -> None:
    bookies = [reason.split()[1] for reason in reasons if " " in reason]
    await cluster.tasks.mark(ledger_id, reasons=reasons, bookies=bookies, now_ms=0)


async def test_a_lost_bookie_is_replaced_everywhere_and_its_tasks_are_done(cluster: FakeCluster) -> None:
    dense = await cluster.ledger("b1", "b2", "b3", entries=500)
    striped = await cluster.ledger("b4", "b1", "b2", "b3", entries=500, quorum=Quorum(4, 2, 2))
    await cluster.unregister("b1")
    for ledger_id in (dense, striped):
        await mark(cluster, ledger_id, "lost b1")
    report = await worker(cluster).drain()
    assert report.is_complete
    assert {result.outcome for result in report.results.values()} == {Outcome.REPAIRED}
    for ledger_id in (dense, striped):
        assert "b1" not in (await cluster.ledgers.read(ledger_id)).value.bookies()
        assert await cluster.is_whole(ledger_id)
    assert await cluster.task_ids() == []
    assert await cluster.tasks.locked() == {}


async def test_rule_33_a_bookie_that_came_back_is_left_alone(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3")
    await mark(cluster, ledger_id, "lost b1")
    report = await worker(cluster).drain()
    assert report.results[ledger_id].outcome is Outcome.SOUND
    assert cluster.copies() == 0
    assert await cluster.task_ids() == []


async def test_rule_33_a_bookie_that_is_merely_away_is_not_taken_for_the_lost_one(
    cluster: FakeCluster,
) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", without={"b2": {4}})
    await mark(cluster, ledger_id, "lost b1", "gap b2")
    await cluster.unregister("b1", "b2")
    await worker(cluster).drain()
    bookies = (await cluster.ledgers.read(ledger_id)).value.last_fragment.bookies
    assert "b1" not in bookies
    assert bookies[1] == "b2", "b2 restarts: its copies are still its own"


async def test_rule_33_nothing_is_taken_while_repair_is_switched_off(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", without={"b2": {4}})
    await mark(cluster, ledger_id, "gap b2")
    await cluster.tasks.set_disabled(True)
    report = await worker(cluster).drain()
    assert report.disabled
    assert not report.is_complete
    assert cluster.copies() == 0
    await cluster.tasks.set_disabled(False)
    assert (await worker(cluster).drain()).is_complete
    assert await cluster.is_whole(ledger_id)


async def test_rule_33_a_switch_thrown_during_a_repair_stops_it_after_the_fragment(
    cluster: FakeCluster,
) -> None:
    ids = [await cluster.ledger("b1", "b2", "b3", without={"b2": {4}}) for _ in range(8)]
    for ledger_id in ids:
        await mark(cluster, ledger_id, "gap b2")
    switching: list[asyncio.Task[None]] = []

    def throw(call: str) -> None:
        if call == "frame" and not switching:
            switching.append(asyncio.ensure_future(cluster.tasks.set_disabled(True)))

    cluster.fakes["b2"].before_answer = throw
    report = await worker(cluster, ledgers_at_a_time=1).drain()
    assert report.disabled
    assert 0 < cluster.copies() < len(ids)


async def test_a_gap_is_filled_in_place_and_a_damaged_entry_is_one(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", entries=50, without={"b2": {7, 20, 21}})
    cluster.fakes["b3"].storage.damaged[ledger_id] = {30}
    before = await cluster.ledgers.read(ledger_id)
    report = await worker(cluster).repair([ledger_id])
    assert report.is_complete
    assert await cluster.is_whole(ledger_id)
    assert await cluster.ledgers.read(ledger_id) == before, "the bookies stay, the metadata too"
    assert sorted(cluster.fakes["b2"].writes) == [(ledger_id, 7), (ledger_id, 20), (ledger_id, 21)]
    assert cluster.fakes["b3"].writes == [(ledger_id, 30)]


async def test_rule_29_limbo_ends_by_its_nonce_after_everything_is_copied_back(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", entries=20)
    cluster.fakes["b1"].entries.clear()
    cluster.fakes["b1"].machine.mark_limbo(ledger_id, "aa")
    before = await cluster.ledgers.read(ledger_id)
    report = await worker(cluster).repair_bookie("b1")
    assert report.is_complete
    assert cluster.fakes["b1"].limbo == {}
    assert await cluster.is_whole(ledger_id)
    assert await cluster.ledgers.read(ledger_id) == before


async def test_a_bookie_is_repaired_by_id_and_others_are_not_waited_for(cluster: FakeCluster) -> None:
    mine = await cluster.ledger("b1", "b2", "b3")
    other = await cluster.ledger("b2", "b3", "b4")
    await cluster.unregister("b1", "b2")
    report = await worker(cluster).repair_bookie("b1", lost_delay_s=0)
    assert report.is_complete
    assert list(report.results) == [mine]
    assert (await cluster.ledgers.read(mine)).value.last_fragment.bookies[1:] == ("b2", "b3")
    assert "b1" not in (await cluster.ledgers.read(mine)).value.bookies()
    assert (await cluster.ledgers.read(other)).value.last_fragment.bookies == ("b2", "b3", "b4")


async def test_rule_33_who_asks_by_id_waits_out_the_delay_and_a_return_ends_it(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3")
    await cluster.unregister("b1")
    repairing = asyncio.ensure_future(worker(cluster).repair([ledger_id], lost_delay_s=3600))
    await until(lambda: "entry_intervals" in cluster.fakes["b2"].asked)
    await cluster.register("b1")
    report = await repairing
    assert report.is_complete
    assert cluster.copies() == 0


async def test_rule_31_an_open_ledger_is_closed_after_its_grace_period_and_never_copied_open(
    cluster: FakeCluster,
) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False)
    await cluster.unregister("b1")
    await mark(cluster, ledger_id, "lost b1")
    await worker(cluster).drain()
    assert (await cluster.ledgers.read(ledger_id)).value.state is LedgerState.OPEN
    assert cluster.copies() == 0
    await mark(cluster, ledger_id, "lost b1", "recover")
    report = await worker(cluster).drain()
    assert report.is_complete
    metadata = (await cluster.ledgers.read(ledger_id)).value
    assert (metadata.state, metadata.last_entry) == (LedgerState.CLOSED, 9)
    assert await cluster.is_whole(ledger_id)
    assert "b1" not in metadata.bookies()


async def test_rule_31_who_asks_by_id_waits_out_the_grace_period(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False)
    await cluster.unregister("b1")
    patient = worker(cluster, open_grace_ms=3_600_000)
    repairing = asyncio.ensure_future(patient.repair([ledger_id], lost_delay_s=0))
    await until(lambda: "entry_intervals" in cluster.fakes["b2"].asked)
    patient.stop.set()
    report = await repairing
    assert report.results[ledger_id].outcome is Outcome.WAITING
    assert not report.is_complete
    assert (await cluster.ledgers.read(ledger_id)).value.state is LedgerState.OPEN
    assert (await worker(cluster).repair([ledger_id], lost_delay_s=0)).is_complete
    assert (await cluster.ledgers.read(ledger_id)).value.is_closed


@pytest.mark.parametrize("cluster", [3], indirect=True)
async def test_rule_31_without_a_replacement_an_open_ledger_is_left_to_its_writer(
    cluster: FakeCluster,
) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False)
    await cluster.unregister("b1")
    await mark(cluster, ledger_id, "lost b1", "recover")
    await worker(cluster).drain()
    assert (await cluster.ledgers.read(ledger_id)).value.state is LedgerState.OPEN
    assert all(not fake.fenced for fake in cluster.fakes.values())


async def test_rule_34_a_worker_that_lost_its_lock_commits_nothing(cluster: FakeCluster) -> None:
    """The session ends during the copy, and the worker's next steps come before anybody can tell it."""
    ledger_id = await cluster.ledger("b1", "b2", "b3", entries=10)
    await cluster.unregister("b1")
    await mark(cluster, ledger_id, "lost b1")
    before = await cluster.ledgers.read(ledger_id)
    with cluster.another(session_timeout_s=0.2) as paused:
        await paused.refresh()

        def expire(call: str) -> None:
            if call == "frame":
                cluster.server.expire(paused.store.session.session_id)

        for fake in cluster.fakes.values():
            fake.before_answer = expire
        result = await worker(paused, "paused")._pool._locked.repair(
            ledger_id, lambda task: TaskOrder(task) if task else None
        )
        assert result.outcome is Outcome.LOCK_LOST
        assert await cluster.ledgers.read(ledger_id) == before
        assert await cluster.task_ids() == [ledger_id], "the task is left to the next one"
        for fake in cluster.fakes.values():
            fake.before_answer = lambda _: None
        assert (await worker(cluster, "other").drain()).is_complete
        assert (await worker(paused, "paused").drain()).is_complete
        assert await cluster.is_whole(ledger_id)


async def test_rule_34_work_ends_at_the_instant_the_session_may_have_ended(cluster: FakeCluster) -> None:
    """The store is away, nothing is asked of it: still the worker stops."""
    ledger_id = await cluster.ledger("b1", "b2", "b3")
    with cluster.another(session_timeout_s=0.2) as other:
        await other.refresh()
        stuck = asyncio.Event()
        lease = await other.tasks.lock(ledger_id, "w")
        assert lease is not None
        ended: list[str] = []

        async def forever() -> None:
            try:
                await stuck.wait()
            finally:
                ended.append("cancelled")

        other.server.suspend()
        async with asyncio.timeout(40):
            with pytest.raises(LeaseLostError):
                await while_held(lease, forever())
        other.server.resume()
        assert ended == ["cancelled"]
        assert lease.alive_until == 0, "once in doubt, over for good"


async def test_rule_35_an_unrecoverable_ledger_blocks_no_other_and_waits_longer_each_time(
    cluster: FakeCluster,
) -> None:
    lost = await cluster.ledger("b1", quorum=Quorum(1, 1, 1))
    others = [await cluster.ledger("b1", "b2", "b3") for _ in range(6)]
    await cluster.unregister("b1")
    for ledger_id in (lost, *others):
        await mark(cluster, ledger_id, "lost b1")
    patient: dict[str, Any] = {"retry_first_ms": 60_000, "retry_max_ms": 600_000}
    async with asyncio.timeout(40):
        report = await worker(cluster, **patient).drain()
    assert [result.ledger_id for result in report.not_done] == [lost]
    assert report.results[lost].unrecoverable
    assert await cluster.task_ids() == [lost]
    first = await cluster.tasks.read(lost)
    assert first is not None
    assert first.value.why_not.startswith(UNRECOVERABLE)
    assert 50_000 < first.value.not_before_ms - unix_ms() <= 60_000
    await worker(cluster, **patient).drain()
    second = await cluster.tasks.read(lost)
    assert second is not None
    assert 110_000 < second.value.not_before_ms - unix_ms() <= 120_000
    serving = worker(cluster, **patient)
    served = asyncio.ensure_future(serving.serve())
    another = await cluster.ledger("b2", "b3", "b4", without={"b3": {1}})
    await mark(cluster, another, "gap b3")
    await until(lambda: bool(cluster.fakes["b3"].writes))
    await until(lambda: LAYOUT.task(another) not in cluster.server._nodes)
    serving.stop.set()
    await served
    assert (await cluster.tasks.read(lost)) == second, "it is not its turn yet"
    assert await cluster.is_whole(another)


async def test_rule_35_a_fragment_that_cannot_be_repaired_keeps_no_other_from_it(
    cluster: FakeCluster,
) -> None:
    """Of the first fragment entry 3 is nowhere; of the second b4 lacks entry 7."""
    ledger_id = await cluster.ledger(
        "b1",
        "b2",
        "b3",
        then=((5, ("b1", "b2", "b4")),),
        without={"b1": {3}, "b2": {3}, "b3": {3}, "b4": {7}},
    )
    report = await worker(cluster, attempts_max=1).repair([ledger_id])
    assert report.results[ledger_id].unrecoverable
    assert "entry 3" in report.results[ledger_id].why
    assert cluster.fakes["b4"].writes == [(ledger_id, 7)]


async def test_rule_56_two_workers_share_the_tasks_and_copy_nothing_twice(cluster: FakeCluster) -> None:
    ids = [await cluster.ledger("b1", "b2", "b3", entries=5) for _ in range(12)]
    await cluster.unregister("b1")
    for ledger_id in ids:
        await mark(cluster, ledger_id, "lost b1")
    with cluster.another() as other:
        await other.refresh()
        reports = await asyncio.gather(worker(cluster, "one").drain(), worker(other, "two").drain())
    assert all(report.is_complete for report in reports)
    assert cluster.copies() == 12 * 5
    for ledger_id in ids:
        assert await cluster.is_whole(ledger_id)
    assert await cluster.task_ids() == []


async def test_rule_56_what_is_marked_after_the_last_examination_is_not_done_with_the_task(
    cluster: FakeCluster,
) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", without={"b1": {1}})
    await mark(cluster, ledger_id, "gap b1")
    task = await cluster.tasks.read(ledger_id)
    assert task is not None
    more = replace(task.value, reasons=("gap b1", "gap b3"), bookies=("b1", "b3"))
    looks: list[str] = []

    def find_more() -> None:
        del cluster.fakes["b3"].entries[ledger_id][8]
        cluster.server.apply([Put(LAYOUT.task(ledger_id), more.to_json(), None)], 0)

    def look(call: str) -> None:
        looks.append(call)
        if looks == ["entry_intervals"] * 2:
            asyncio.get_running_loop().call_soon(find_more)

    cluster.fakes["b3"].before_answer = look
    report = await worker(cluster).drain()
    assert report.is_complete
    assert cluster.fakes["b3"].writes == [(ledger_id, 8)]
    assert await cluster.is_whole(ledger_id)
    assert await cluster.task_ids() == []


async def test_a_worker_that_is_told_to_stop_ends_the_fragment_and_says_what_is_left(
    cluster: FakeCluster,
) -> None:
    ids = [await cluster.ledger("b1", "b2", "b3", without={"b2": {4}}) for _ in range(5)]
    stopping = worker(cluster, ledgers_at_a_time=1)

    def stop(call: str) -> None:
        if call == "frame":
            stopping.stop.set()

    cluster.fakes["b2"].before_answer = stop
    report = await stopping.repair(ids)
    assert report.stopped
    assert not report.is_complete
    assert cluster.copies() == 1
    assert len(report.not_done) >= 4
    assert await cluster.tasks.locked() == {}
    cluster.fakes["b2"].before_answer = lambda _: None
    assert (await worker(cluster).repair(ids)).is_complete


async def test_a_worker_whose_session_outlives_an_outage_does_not_wait_for_its_own_lock(
    cluster: FakeCluster,
) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", without={"b2": {4}})
    await mark(cluster, ledger_id, "gap b2")
    with cluster.another(session_timeout_s=0.1, operation_timeout_s=0.1) as other:
        await other.refresh()
        outages: list[asyncio.TimerHandle] = []

        def fail(call: str) -> None:
            if call == "entry_intervals" and not outages:
                cluster.server.suspend()
                outages.append(asyncio.get_running_loop().call_later(0.5, cluster.server.resume))

        cluster.fakes["b2"].before_answer = fail
        serving = worker(other)
        served = asyncio.ensure_future(serving.serve())
        await until(lambda: LAYOUT.task(ledger_id) not in cluster.server._nodes)
        serving.stop.set()
        await served
        assert await cluster.is_whole(ledger_id)
        assert await cluster.tasks.locked() == {}


async def test_a_ledger_that_was_deleted_or_never_was_is_no_failure(cluster: FakeCluster) -> None:
    await mark(cluster, 99, "gap b1")
    report = await worker(cluster).drain()
    assert report.results[99].outcome is Outcome.DELETED
    assert report.is_complete
    assert await cluster.task_ids() == []


async def test_a_worker_waits_for_the_lock_of_another_and_goes_on_when_that_one_dies(
    cluster: FakeCluster,
) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", without={"b2": {4}})
    await mark(cluster, ledger_id, "gap b2")
    with cluster.another() as other:
        assert await other.tasks.lock(ledger_id, "dead") is not None
        draining = asyncio.ensure_future(worker(cluster).drain())
        for _ in range(300):
            await asyncio.sleep(0)
        assert not draining.done()
        cluster.server.expire(other.store.session.session_id)
        assert (await draining).is_complete
        assert await cluster.is_whole(ledger_id)
