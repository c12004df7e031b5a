"""The parts that stand in for a machine and a network beneath what ships: time, processes, ZooKeeper's connections, gRPC."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import grpc
import pytest

from daybook.metadata.store.memory_tree import MemoryTree
from daybook.metadata.store.store import MetadataStore, Put, SessionExpiredError
from daybook.runtime.clock import monotonic_ms, monotonic_s, unix_ms
from daybook.wire import bookie_pb2 as pb
from daybook.wire.service import BookieStub
from tests.model.sim.cluster import Cluster
from tests.model.sim.shipped.channel import SimChannel
from tests.model.sim.shipped.loop import SCALE
from tests.model.sim.shipped.pretence import pretence
from tests.model.sim.shipped.process import ShippedProcess
from tests.model.sim.shipped.swarm import ShippedSwarm
from tests.model.sim.shipped.zookeeper import TreeStore
from tests.model.sim.test_models import QUIET
from tests.model.sim.world import MS

SWARM = replace(QUIET, shipped=ShippedSwarm(processes=1))


class Stage:
    """A calm cluster and processes on it, for as long as the test says."""

    def __init__(self, **swarm: Any) -> None:
        self.cluster = Cluster(1, swarm=replace(SWARM, **swarm))
        self.cluster.boot()
        assert isinstance(self.cluster.store, TreeStore)
        self.store = self.cluster.store
        self.world = self.cluster.world
        self.processes: list[ShippedProcess] = []

    def start(self, work: Callable[[ShippedProcess], Coroutine[Any, Any, None]]) -> ShippedProcess:
        process = ShippedProcess(self.cluster, f"p{len(self.processes)}")
        self.processes.append(process)
        process.start(lambda: work(process))
        return process

    def run(self, for_ms: int) -> None:
        with pretence(Random(1), tracing=False):
            self.world.run(self.world.now_us + for_ms * MS)

    def end(self) -> None:
        for process in self.processes:
            if process.alive:
                process.stop()
                process.loop.detach()


@pytest.fixture
def stage() -> Any:
    made = Stage()
    yield made
    made.end()


# Time, chance and processes


def test_a_process_has_the_time_of_its_world_by_every_clock(stage: Stage) -> None:
    seen: list[tuple[float, int, float]] = []

    async def work(_process: ShippedProcess) -> None:
        began_s, began_ms, wall_ms = monotonic_s(), monotonic_ms(), unix_ms()
        await asyncio.sleep(1.0)
        seen.append((monotonic_s() - began_s, monotonic_ms() - began_ms, unix_ms() - wall_ms))

    stage.start(work)
    stage.run(for_ms=1000 // SCALE - 1)
    assert not seen
    stage.run(for_ms=2)
    assert [tuple(round(value, 3) for value in each) for each in seen] == [(1.0, 1000, 1000)]
    assert monotonic_ms() != stage.world.now_us * SCALE // 1000, "outside a process time is real"


@pytest.mark.parametrize("beyond_s", [1e-9, 5.4e-9, 1e-8, 1e-6])
def test_a_timer_that_is_due_just_after_a_microsecond_wakes_a_process_that_nothing_else_wakes(
    stage: Stage, beyond_s: float
) -> None:
    seen: list[str] = []

    async def work(_process: ShippedProcess) -> None:
        await asyncio.sleep(1 + beyond_s)
        seen.append("awake")

    stage.start(work)
    stage.run(for_ms=100)
    assert seen == ["awake"]


def test_a_pause_holds_everything_up_and_a_crash_ends_it(stage: Stage) -> None:
    seen: list[str] = []

    async def work(_process: ShippedProcess) -> None:
        try:
            for number in range(100):
                seen.append(f"{number}")
                await asyncio.sleep(0.1)
        finally:
            seen.append("cut off")

    process = stage.start(work)
    stage.run(for_ms=12)
    assert seen == ["0", "1", "2"]
    process.pause(stage.world.now_us + 50 * MS)
    stage.run(for_ms=45)
    assert seen == ["0", "1", "2"]
    stage.run(for_ms=15)
    assert seen[:5] == ["0", "1", "2", "3", "4"]
    process.crash()
    stage.run(for_ms=50)
    assert seen.count("cut off") == 1
    assert seen[-1] == "cut off"


def test_an_error_that_nobody_waits_for_ends_the_run(stage: Stage) -> None:
    async def fail() -> None:
        raise RuntimeError("nobody waits for it")

    async def work(_process: ShippedProcess) -> None:
        _lost = asyncio.get_running_loop().create_task(fail())
        del _lost
        await asyncio.sleep(1)

    stage.start(work)
    with pytest.raises(RuntimeError, match="nobody waits for it"):
        stage.run(for_ms=10)


# ZooKeeper


async def _take(process: ShippedProcess, answers: list[Any], use: Callable[[MetadataStore], Any]) -> None:
    store = await process.open_store()
    answers.append(await use(store))


def test_a_session_that_is_not_heard_of_ends_and_its_nodes_with_it(stage: Stage) -> None:
    answers: list[Any] = []

    async def use(store: MetadataStore) -> tuple[int, int | None]:
        first = store.session
        await store.create("/daybook/sim/e", ephemeral=True)
        stage.store.expire(stage.processes[0].session_now())
        await store.session_may_have_ended(first.session_id)
        doubtful_us = stage.world.now_us
        with pytest.raises(SessionExpiredError):
            await store.create("/daybook/sim/f", ephemeral=True, session_id=first.session_id)
        assert stage.world.now_us > doubtful_us, "who asks is answered only later"
        return store.session.session_id, await store.exists("/daybook/sim/e")

    stage.start(lambda process: _take(process, answers, use))
    stage.run(for_ms=1500)
    ((session_id, node),) = answers
    assert session_id == 2 + len(stage.cluster.bookies)
    assert node is None


def test_who_has_not_synced_may_read_what_is_old_and_who_has_does_not() -> None:
    stage = Stage(shipped=ShippedSwarm(processes=1, lag=1.0))
    found: list[tuple[int, int]] = []

    async def work(process: ShippedProcess) -> None:
        store = await process.open_store()
        await store.create("/daybook/sim/n")
        for number in range(40):
            put = Put("/daybook/sim/n", str(number).encode(), None)
            stage.store.commit(partial(_apply, put))
            old = int((await store.get("/daybook/sim/n")).value or b"-1")
            await store.sync("/daybook/sim/n")
            found.append((old, int((await store.get("/daybook/sim/n")).value)))

    stage.start(work)
    stage.run(for_ms=4000)
    stage.end()
    assert [new for _, new in found] == list(range(40))
    assert any(old < new for old, new in found)


def _apply(put: Put, tree: MemoryTree) -> None:
    tree.apply([put], 0)


def test_a_watch_fires_before_its_change_is_read(stage: Stage) -> None:
    seen: list[bytes] = []

    async def work(process: ShippedProcess) -> None:
        store = await process.open_store()
        async for node in store.watch_node("/daybook/sim/idgen"):
            assert node is not None
            seen.append(node.value)
            if len(seen) == 1:
                await store.put("/daybook/sim/idgen", b'{"next":7}', None)
            if len(seen) == 2:
                return

    stage.start(work)
    stage.run(for_ms=200)
    assert seen == [b'{"next":0}', b'{"next":7}']


# gRPC


def test_calls_come_back_in_the_form_of_the_wire_and_fail_as_those_of_grpc(stage: Stage) -> None:
    answers: list[Any] = []

    async def work(process: ShippedProcess) -> None:
        channel = SimChannel(process, "b0")
        stub = BookieStub(channel, "b0")
        answers.append((await stub.get_info(pb.GetInfoRequest(), timeout=1)).bookie_id)
        stage.cluster.bookies["b0"].pause(stage.world.now_us + 10_000 * MS)
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.get_info(pb.GetInfoRequest(), timeout=1)
            answers.append(caught.value.code())
        waiting = asyncio.ensure_future(stub.get_info(pb.GetInfoRequest(), timeout=1))
        await asyncio.sleep(0.1)
        await channel.close()
        await asyncio.wait([waiting])
        answers.append(waiting.cancelled())

    stage.start(work)
    stage.run(for_ms=500)
    assert answers == ["b0", grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.DEADLINE_EXCEEDED, True]
