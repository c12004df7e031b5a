"""Taking a bookie out: read-only first, drained by workers, forgotten only when it is gone."""

import asyncio

import pytest

from daybook.autorecovery import decommission as decommissioning
from daybook.autorecovery.cycles import AuditCycles
from daybook.autorecovery.decommission import Decommission, DrainProgress, NotDrainedError
from daybook.autorecovery.worker import RepairWorker
from daybook.metadata.hold import CollectionHeldError, begin_hold, end_hold, read_hold
from tests.unit.autorecovery.kit import LAYOUT, SETTINGS, FakeCluster, until


async def drain(cluster: FakeCluster, decommission: Decommission) -> bool:
    worker = RepairWorker(cluster, SETTINGS, name="w")
    helping = asyncio.ensure_future(worker.serve())
    try:
        return await decommission.drain(asyncio.Event())
    finally:
        worker.stop.set()
        await helping


def as_told(cluster: FakeCluster) -> None:
    """Let b1 register as read-only, or writable, once it is told to be."""
    moving: list[asyncio.Task[None]] = []

    async def move(before: bool) -> None:
        await until(lambda: cluster.fakes["b1"].writable is not before)
        await cluster.unregister("b1")
        await cluster.register("b1")

    cluster.fakes["b1"].before_answer = lambda call: (
        moving.append(asyncio.ensure_future(move(cluster.fakes["b1"].writable)))
        if call == "set_read_only"
        else None
    )


async def test_a_bookie_is_drained_with_its_empty_fragments_and_forgotten_once_it_is_gone(
    cluster: FakeCluster,
) -> None:
    full = await cluster.ledger("b1", "b2", "b3", entries=30)
    empty = await cluster.ledger("b3", "b1", "b2", entries=0)
    other = await cluster.ledger("b2", "b3", "b4")
    as_told(cluster)
    told: list[DrainProgress] = []
    decommission = Decommission(cluster, "b1", told.append)
    assert await drain(cluster, decommission)
    assert cluster.fakes["b1"].asked.count("set_read_only") == 1
    for ledger_id in (full, empty, other):
        assert "b1" not in (await cluster.ledgers.read(ledger_id)).value.bookies()
        assert await cluster.is_whole(ledger_id)
    assert told[0] == DrainProgress(2, 2)
    assert told[-1] == DrainProgress(2, 0)
    assert await cluster.task_ids() == []
    with pytest.raises(NotDrainedError, match="still runs"):
        await decommission.forget()
    await cluster.unregister("b1")
    await decommission.forget()
    assert await cluster.directory.cookie("b1") is None
    await decommission.forget()


async def test_a_bookie_that_comes_back_while_the_ledgers_are_listed_is_drained_of_what_names_it_since(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was away, so nobody could tell it to be read-only; a writer names it between the listing and its end."""
    as_told(cluster)
    await cluster.unregister("b1")
    decommission = Decommission(cluster, "b1")
    list_ledgers = decommission.naming
    named: list[int] = []

    async def naming() -> list[int]:
        found = await list_ledgers()
        if not named:
            await cluster.register("b1")
            named.append(await cluster.ledger("b1", "b2", "b3"))
        return found

    monkeypatch.setattr(decommission, "naming", naming)
    assert await drain(cluster, decommission)
    assert "b1" not in (await cluster.ledgers.read(named[0])).value.bookies()
    assert await cluster.is_whole(named[0])
    assert not cluster.fakes["b1"].writable


async def test_a_process_that_takes_the_bookies_name_over_is_told_as_well(cluster: FakeCluster) -> None:
    """The one that was told is gone before it has registered as read-only."""
    told = asyncio.Event()

    async def take_over() -> None:
        await cluster.unregister("b1")
        cluster.fakes["b1"].writable = True
        await cluster.register("b1", boot_id="second")
        as_told(cluster)
        told.set()

    moving: list[asyncio.Task[None]] = []
    cluster.fakes["b1"].before_answer = lambda call: (
        moving.append(asyncio.ensure_future(take_over())) if call == "set_read_only" and not moving else None
    )
    assert await drain(cluster, Decommission(cluster, "b1"))
    assert told.is_set()
    assert cluster.fakes["b1"].asked.count("set_read_only") == 2
    assert not (await cluster.directory.bookies())["b1"].writable


async def test_an_auditor_beside_it_keeps_the_tasks(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3")
    as_told(cluster)
    stop = asyncio.Event()
    draining = asyncio.ensure_future(Decommission(cluster, "b1").drain(stop))
    task = None
    while task is None:
        await asyncio.sleep(0)
        task = await cluster.tasks.read(ledger_id)
    report = await AuditCycles(cluster, SETTINGS).cycle(full=True)
    assert report.found.tasks_removed == 0
    assert report.is_fully_replicated, "a bookie that leaves still has everything"
    assert await cluster.task_ids() == [ledger_id]
    stop.set()
    assert not await draining


async def test_a_decommission_can_be_called_off(cluster: FakeCluster) -> None:
    ids = [await cluster.ledger("b1", "b2", "b3", without={"b2": {1}}) for _ in range(2)]
    as_told(cluster)
    stop = asyncio.Event()
    decommission = Decommission(cluster, "b1", lambda _: None)
    await cluster.tasks.mark(ids[0], reasons=["gap b2"], bookies=["b2"], now_ms=0)
    draining = asyncio.ensure_future(decommission.drain(stop))
    await until(lambda: all(LAYOUT.task(i) in cluster.server._nodes for i in ids))
    stop.set()
    await draining
    await decommission.cancel()
    assert (await cluster.directory.bookies())["b1"].writable
    assert await cluster.task_ids() == ids[:1]
    task = await cluster.tasks.read(ids[0])
    assert task is not None
    assert task.value.reasons == ("gap b2",)


async def test_a_decommission_is_not_called_off_while_the_bookie_cannot_be_told(cluster: FakeCluster) -> None:
    """It keeps that it is read-only, and would come back so."""
    ledger_id = await cluster.ledger("b1", "b2", "b3")
    await cluster.tasks.mark(ledger_id, reasons=["leaving b1"], bookies=["b1"], now_ms=0)
    cluster.fakes["b1"].writable = False
    await cluster.unregister("b1")
    decommission = Decommission(cluster, "b1")
    with pytest.raises(NotDrainedError, match="start it, then run this again"):
        await decommission.cancel()
    assert await cluster.task_ids() == [], "nothing is drained from it any more"
    as_told(cluster)
    await cluster.register("b1")
    await decommission.cancel()
    assert (await cluster.directory.bookies())["b1"].writable


async def test_a_bookie_that_goes_before_it_is_told_to_take_ledgers_is_not_taken_for_told(
    cluster: FakeCluster,
) -> None:
    cluster.fakes["b1"].writable = False
    await cluster.unregister("b1")
    decommission = Decommission(cluster, "b1")
    with pytest.raises(NotDrainedError, match="would come back read-only"):
        await decommission.set_read_only(read_only=False)
    await decommission.set_read_only(read_only=True)
    await decommission.forget()
    await decommission.cancel()  # nobody is left who would come back


async def test_a_bookie_with_ledgers_is_not_forgotten(cluster: FakeCluster) -> None:
    await cluster.ledger("b1", "b2", "b3")
    await cluster.unregister("b1")
    with pytest.raises(NotDrainedError, match="1 ledgers name"):
        await Decommission(cluster, "b1").forget()
    assert await cluster.directory.cookie("b1") is not None


async def test_rule_68_after_a_restore_no_bookie_is_forgotten_before_a_person_confirms(
    cluster: FakeCluster,
) -> None:
    """It may have entries of ledgers that the metadata does not name it for."""
    await cluster.unregister("b1")
    await begin_hold(cluster.store, cluster.layout, now_ms=2, exported_at_ms=1)
    with pytest.raises(CollectionHeldError, match="daybook metadata confirm"):
        await Decommission(cluster, "b1").forget()
    assert await cluster.directory.cookie("b1") is not None
    hold = await read_hold(cluster.store, cluster.layout)
    assert hold is not None
    await end_hold(cluster.store, cluster.layout, hold)
    await Decommission(cluster, "b1").forget()
    assert await cluster.directory.cookie("b1") is None


async def test_a_bookie_that_is_dead_is_drained_from_the_other_replicas(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3")
    await cluster.unregister("b1")
    cluster.fakes["b1"].down = True
    decommission = Decommission(cluster, "b1")
    assert await drain(cluster, decommission)
    await decommission.forget()
    assert await cluster.is_whole(ledger_id)


@pytest.mark.parametrize("cluster", [3], indirect=True)
async def test_without_a_bookie_to_go_to_it_says_so(cluster: FakeCluster) -> None:
    await cluster.ledger("b1", "b2", "b3")
    as_told(cluster)
    with pytest.raises(NotDrainedError, match="start more bookies"):
        await drain(cluster, Decommission(cluster, "b1"))


async def test_a_drain_that_begins_again_tries_once_more_what_was_set_aside(cluster: FakeCluster) -> None:
    """The message of the one before said: run this again when the reason is gone."""
    ledger_id = await cluster.ledger("b1", "b2", "b3")
    as_told(cluster)
    task = await cluster.tasks.mark(ledger_id, reasons=["leaving b1"], bookies=["b1"], now_ms=0)
    await cluster.tasks.set_aside(task, until_ms=2**50, why="no bookie is free")
    assert await drain(cluster, Decommission(cluster, "b1"))
    assert await cluster.is_whole(ledger_id)


async def test_a_drain_is_given_up_only_when_what_it_tries_has_failed(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decommissioning, "LIST_MS", 40)
    monkeypatch.setattr(decommissioning, "CHECK_MS", 20)
    ledger_id = await cluster.ledger("b1", "b2", "b3")
    as_told(cluster)
    task = await cluster.tasks.mark(ledger_id, reasons=["leaving b1"], bookies=["b1"], now_ms=0)
    await cluster.tasks.set_aside(task, until_ms=2**50, why="before: no bookie was free")
    told: list[DrainProgress] = []
    draining = asyncio.ensure_future(Decommission(cluster, "b1", told.append).drain(asyncio.Event()))
    await until(lambda: len(told) >= 3 or draining.done())
    assert not draining.done(), "no worker has tried it since"
    due = await cluster.tasks.read(ledger_id)
    assert due is not None
    await cluster.tasks.set_aside(due, until_ms=2**50, why="again: no bookie is free")
    with pytest.raises(NotDrainedError, match="again: no bookie is free"):
        await draining
