"""The driver: each request of a machine is answered by one event, or the machine is ended."""

import asyncio

from daybook.client.driver.driver import MachineDriver
from daybook.client.transport.channels import ChannelPool
from daybook.core.effects import Effect, SendFence, SendFrame
from daybook.core.errors import Code, DaybookError
from daybook.core.events import Event, FenceAnswered
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.memory import MemoryServer, MemoryStore
from tests.unit.client.scripted_bookie import ScriptedBookie


class Machine:
    """Notes its events; may raise at one."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.raises = False
        self.is_done = False

    def start(self) -> list[Effect]:
        return []

    def step(self, event: Event) -> list[Effect]:
        self.events.put_nowait(event)
        if self.raises:
            raise AssertionError("an invariant does not hold")
        return []


class Driven:
    """A machine, its driver and its channels."""

    def __init__(self, pool: ChannelPool | None = None) -> None:
        self.pool = pool or ChannelPool("test")
        self.machine = Machine()
        self.ended: list[DaybookError] = []
        self.has_ended = asyncio.Event()
        self.driver = MachineDriver(
            self.machine,
            1,
            "h",
            recovery=True,
            channels=self.pool,
            ledgers=LedgerManager(MemoryStore(MemoryServer()), Layout("test")),
            handle=lambda _: None,
            crashed=self._end,
        )

    def _end(self, error: DaybookError) -> None:
        self.ended.append(error)
        self.has_ended.set()


async def test_requests_to_a_bookie_without_an_address_are_answered_from_the_next_turn() -> None:
    driven = Driven()
    driven.driver.carry_out([SendFence("b9", 1), SendFrame("b9", 2, b"frame")])
    assert driven.machine.events.empty(), "never from inside"
    answers = [await driven.machine.events.get() for _ in range(2)]
    assert FenceAnswered("b9", 1, Code.CONNECTION_LOST) in answers
    assert driven.machine.events.empty()


async def test_a_machine_that_is_stopped_receives_nothing_more() -> None:
    driven = Driven()
    driven.driver.carry_out([SendFence("b9", 1), SendFrame("b9", 2, b"frame")])
    driven.driver.stop()
    for _ in range(5):
        await asyncio.sleep(0)
    assert driven.machine.events.empty()
    assert driven.ended == []


async def test_a_machine_that_fails_harms_no_other() -> None:
    pool = ChannelPool("test")
    broken, sound = Driven(pool), Driven(pool)
    broken.machine.raises = True
    for driven in (broken, sound):
        driven.driver.carry_out([SendFrame("b9", 1, b"frame")])
    await sound.machine.events.get()
    assert len(broken.ended) == 1
    assert "invariant" in str(broken.ended[0])
    assert sound.ended == []
    broken.driver.frame_acked("b9", 1, "boot")
    assert broken.machine.events.qsize() == 1


async def test_channels_that_are_closed_under_a_request_end_its_machine() -> None:
    """The call is cancelled then, and no answer would ever come."""
    async with ScriptedBookie(unary={"Fence": asyncio.Event()}) as bookie:
        driven = Driven()
        driven.pool.bookies_changed({"b0": BookieInfo("b0", bookie.address)})
        driven.driver.carry_out([SendFence("b0", 1)])
        await bookie.asked.wait()
        await driven.pool.close()
        await driven.has_ended.wait()
        assert driven.machine.events.empty()
        (error,) = driven.ended
        assert "closed" in str(error)
