"""Repair tasks, their locks and the switches around them."""

import asyncio

import pytest

from daybook.core.errors import MetadataError
from daybook.core.repair.task import RepairTask
from daybook.metadata.store.memory import Fault, FaultKind
from daybook.metadata.store.store import Create, Versioned
from daybook.metadata.tasks import (
    LOST_BOOKIE_DELAY_MAX_S,
    LOST_BOOKIE_DELAY_S,
    LostBookieDelayError,
    RepairTasks,
)
from daybook.runtime.clock import CHECK_INTERVAL_S, monotonic_s
from tests.unit.metadata.harness import LAYOUT, Opener, following, formatted, memory_opener, soon, stores
from tests.unit.runtime.suspension import Suspension


def test_a_task_is_read_back_and_anything_else_is_refused() -> None:
    task = RepairTask(7, ("gap", "lost bookie"), ("b1",), 1, 2, 3, "no spare")
    assert RepairTask.from_json(7, task.to_json()) == task
    for data in (b"", b"[]", b"{}", task.to_json().replace(b'"formatVersion": 1', b'"formatVersion": 9')):
        with pytest.raises(MetadataError, match="task of ledger 7"):
            RepairTask.from_json(7, data)


async def test_tasks_are_marked_merged_listed_and_done(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        tasks = RepairTasks(store, await formatted(store))
        first = await tasks.mark(7, reasons=["lost bookie"], bookies=["b1"], now_ms=100)
        assert first == (RepairTask(7, ("lost bookie",), ("b1",), 100), 0)
        assert await tasks.mark(7, reasons=["lost bookie"], bookies=["b1"], now_ms=200) == first
        merged = await tasks.mark(7, reasons=["gap"], bookies=["b2"], now_ms=300)
        assert merged == (RepairTask(7, ("gap", "lost bookie"), ("b1", "b2"), 100), 1)
        await tasks.mark(12_345_678, reasons=["limbo"], bookies=["b3"], now_ms=400)
        assert [page async for page in tasks.pages()] == [(7,), (12_345_678,)]
        assert [(task.value.ledger_id, task.version) async for task in tasks.read_all()] == [
            (7, 1),
            (12_345_678, 0),
        ]
        assert not await tasks.done(7, first.version), "something was added since"
        assert await tasks.done(7, merged.version)
        assert await tasks.done(7, merged.version), "gone is done"
        assert await tasks.read(7) is None
        assert [ledger_id async for ledger_id in tasks.ids()] == [12_345_678]


async def test_rule_35_a_ledger_set_aside_keeps_its_task_until_a_new_reason() -> None:
    _, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        tasks = RepairTasks(store, await formatted(store))
        task = await tasks.mark(1, reasons=["gap"], bookies=["b1"], now_ms=100)
        await tasks.set_aside(task, until_ms=5000, why="no replica answers")
        aside = await tasks.read(1)
        assert aside is not None
        assert aside.value == RepairTask(1, ("gap",), ("b1",), 100, 1, 5000, "no replica answers")
        assert await tasks.mark(1, reasons=["gap"], bookies=["b1"], now_ms=200) == aside
        changed = await tasks.mark(1, reasons=["gap"], bookies=["b2"], now_ms=200)
        assert (changed.value.not_before_ms, changed.value.attempts) == (0, 1)
        await tasks.set_aside(aside, until_ms=9000, why="old news")
        assert await tasks.read(1) == changed


async def test_marking_and_finishing_at_once_never_loses_what_was_added() -> None:
    _, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        layout = await formatted(one)
        auditor, worker = RepairTasks(one, layout), RepairTasks(two, layout)
        for turn in range(20):
            task = await auditor.mark(1, reasons=["a"], bookies=["b1"], now_ms=turn)
            marking = asyncio.create_task(auditor.mark(1, reasons=["b"], bookies=["b2"], now_ms=turn))
            done = await worker.done(1, task.version)
            await marking
            left = await worker.read(1)
            assert left is not None
            assert set(left.value.reasons) == ({"b"} if done else {"a", "b"})
            assert await worker.done(1, left.version)


async def test_a_ledger_is_locked_by_one_worker_and_free_when_its_session_ends() -> None:
    server, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        layout = await formatted(one)
        first, second = RepairTasks(one, layout), RepairTasks(two, layout)
        lease = await first.lock(7, "one")
        assert lease is not None
        assert await second.locked() == {7: "one"}
        assert await second.lock(7, "two") is None
        server.expire(one.session.session_id)
        assert not lease.is_certain
        taken = await second.lock(7, "two")
        assert taken is not None
        await lease.release()
        assert await first.locked() == {7: "two"}
        async with taken:
            assert taken.is_certain
        assert await first.locked() == {}


async def test_rule_34_a_lease_is_over_as_soon_as_its_session_may_be() -> None:
    server, opener = memory_opener(session_timeout_s=0.1)
    async with stores(opener, 1) as (store,):
        lease = await RepairTasks(store, await formatted(store)).lock(7, "worker")
        assert lease is not None
        losing = asyncio.create_task(lease.lost())
        await asyncio.sleep(0.15)
        assert not losing.done(), "the server answers, the session is certain"
        server.suspend()
        ends = lease.alive_until
        await soon(losing, 5.0)
        now = monotonic_s()
        assert ends - 0.01 <= now <= ends + 3.0
        server.resume()
        assert store.session.connected
        assert not lease.is_certain, "once in doubt, over for good"


async def test_workers_are_notified_of_new_tasks(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        layout = await formatted(one)
        auditor, worker = RepairTasks(one, layout), RepairTasks(two, layout)
        news = worker.watch_signal()
        await soon(anext(news))
        for ledger_id in (1, 2):
            hearing = asyncio.ensure_future(anext(news))
            await auditor.mark(ledger_id, reasons=["gap"], bookies=[], now_ms=0)
            await soon(hearing)


async def test_rule_33_repair_is_switched_off_and_on_for_all(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        layout = await formatted(one)
        admin, worker = RepairTasks(one, layout), RepairTasks(two, layout)
        assert not await admin.disabled()
        seen: list[bool] = []
        watching = asyncio.create_task(following(worker.watch_disabled(), seen, lambda: seen[-1]))
        await admin.set_disabled(True)
        await admin.set_disabled(True)
        await soon(watching)
        await two.sync()
        assert await worker.disabled()
        await admin.set_disabled(False)
        await admin.set_disabled(False)
        assert not await admin.disabled()
        assert await worker.lost_bookie_delay_s() == 60
        await admin.set_lost_bookie_delay_s(90.5)
        await two.sync()
        assert await worker.lost_bookie_delay_s() == 90.5
        for wrong in (-1.0, float("nan"), float("inf"), LOST_BOOKIE_DELAY_MAX_S + 1):
            with pytest.raises(
                LostBookieDelayError, match=r"cannot count as lost after .*: use 0 to 2592000 s"
            ):
                await admin.set_lost_bookie_delay_s(wrong)
        await admin.set_lost_bookie_delay_s(LOST_BOOKIE_DELAY_MAX_S)


@pytest.mark.parametrize("stored", [b"inf", b"nan", b"-1.0", b"1e300", b"soon", b"\xff"])
async def test_a_stored_delay_that_nobody_can_wait_for_is_the_default(stored: bytes) -> None:
    _, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        layout = await formatted(store)
        await store.create(layout.lost_bookie_delay, stored, parents=True)
        assert await RepairTasks(store, layout).lost_bookie_delay_s() == LOST_BOOKIE_DELAY_S


async def test_rule_42_a_task_that_was_made_after_a_lost_reply_is_not_done() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        layout = await formatted(store)
        tasks = RepairTasks(store, layout)
        task = await tasks.mark(7, reasons=["gap"], bookies=["b1"], now_ms=1)
        again = RepairTask(7, ("gap",), ("b1",), 2)
        made = Create(layout.task(7), again.to_json())
        server.inject(
            Fault(FaultKind.DROP_REPLY, "delete", layout.tasks, then=lambda: server.apply([made], 0))
        )
        assert not await tasks.done(7, task.version), "examine the ledger again"
        assert await tasks.read(7) == Versioned(again, 0)
        server.inject(Fault(FaultKind.DROP_REPLY, "delete", layout.tasks))
        assert await tasks.done(7, 0)
        assert await tasks.read(7) is None


async def test_a_task_whose_creation_lost_its_reply_is_marked_once() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        tasks = RepairTasks(store, await formatted(store))
        server.inject(Fault(FaultKind.DROP_REPLY, "create", LAYOUT.tasks, times=3))
        assert isinstance(await tasks.mark(7, reasons=["gap"], bookies=[], now_ms=1), Versioned)
        assert [page async for page in tasks.pages()] == [(7,)]


async def test_rule_46_a_lease_is_over_when_the_machine_was_suspended_past_its_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python's own monotonic clock and asyncio's timers exclude the suspension; ZooKeeper's clock does not."""
    server, opener = memory_opener(session_timeout_s=10)
    async with stores(opener, 1) as (store,):
        lease = await RepairTasks(store, await formatted(store)).lock(7, "worker")
        assert lease is not None
        suspension = Suspension(monkeypatch)
        server.suspend()
        losing = asyncio.create_task(lease.lost())
        await asyncio.sleep(0)
        assert lease.is_certain
        suspension.lasts(11)
        assert not lease.is_certain
        await soon(losing, CHECK_INTERVAL_S + 5)
