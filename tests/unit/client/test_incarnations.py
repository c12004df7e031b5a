"""Which process of a bookie a client believes: the one that is registered, and none that was before it (rule 57)."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from daybook.client.driver.driver import MachineDriver
from daybook.client.transport.channels import ChannelPool
from daybook.core.effects import CasMetadata, Effect, ReadMetadata, SendFence, SendFrame, SendRead
from daybook.core.errors import Code, MetadataUnavailableError
from daybook.core.events import (
    BookieFailed,
    CasAnswered,
    CasOutcome,
    Event,
    FenceAnswered,
    FrameAcked,
    FrameFailed,
    MetadataRead,
    ReadAnswered,
)
from daybook.core.format.frame import MAGIC
from daybook.core.ids import BookieId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import Quorum
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.memory import MemoryServer, MemoryStore
from tests.unit.client.scripted_bookie import AppendScript, Requests, ScriptedBookie, attach_all, through
from tests.unit.client.sink_kit import LedgerSink

FRAME = MAGIC + b"and what the script does not look at"
METADATA = LedgerMetadata(0, Quorum(2, 2, 2), (Fragment(0, 0, ("b0", "b1")),), writer_token="w")


def acknowledging() -> AppendScript:
    """A bookie that takes everything."""

    async def answer(_: int, requests: Requests) -> AsyncIterator[bytes]:
        count = 0
        async for attached in attach_all(requests):
            count += attached is None
            yield attached or through(count)

    return answer


class Sink(LedgerSink):
    """Notes what becomes of its frames."""

    def __init__(self) -> None:
        super().__init__(0)
        self.fates: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def frame_acked(self, bookie: BookieId, send_id: int, boot_id: str) -> None:
        self.fates.put_nowait(("acked", boot_id))

    def frame_failed(self, bookie: BookieId, send_id: int, code: Code) -> None:
        self.fates.put_nowait(("failed", code.name))

    def lac_lost(self, bookie: BookieId) -> None:
        raise AssertionError("nothing was published")

    def bookie_failed(self, bookie: BookieId) -> None:
        self.fates.put_nowait(("lost", bookie))


class Registrations:
    """What the metadata store says of b0 and b1, and how often it was asked."""

    def __init__(self, address: str) -> None:
        self.boot_ids: dict[BookieId, str] = {}
        self.address = address
        self.asked: list[BookieId] = []
        self.is_away = False

    async def __call__(self, bookie: BookieId) -> BookieInfo | None:
        self.asked.append(bookie)
        if self.is_away:
            msg = "away"
            raise MetadataUnavailableError(msg)
        boot_id = self.boot_ids.get(bookie)
        return None if boot_id is None else BookieInfo(bookie, self.address, boot_id=boot_id)


@pytest.fixture
async def pool() -> AsyncIterator[ChannelPool]:
    """It knows b0 as process "old", at the address of a process whose streams are numbered."""
    async with ScriptedBookie(acknowledging()) as bookie:
        opened = ChannelPool("test")
        opened.bookies_changed({"b0": BookieInfo("b0", bookie.address, boot_id="old")})
        opened.read_registration = Registrations(bookie.address)
        yield opened
        await opened.close()


@pytest.fixture
def registrations(pool: ChannelPool) -> Registrations:
    """What the pool reads of the metadata store."""
    assert isinstance(pool.read_registration, Registrations)
    return pool.read_registration


async def test_rule_57_a_stream_to_a_process_that_is_not_registered_carries_nothing(
    pool: ChannelPool, registrations: Registrations
) -> None:
    sink = Sink()
    for boot_id in ("old", "a third"):
        registrations.boot_ids["b0"] = boot_id
        pool.send_frame("b0", sink, 1, FRAME)
        assert await sink.fates.get() == ("lost", "b0")
    registrations.is_away = True
    pool.send_frame("b0", sink, 2, FRAME)
    assert await sink.fates.get() == ("lost", "b0"), "nobody knows who it is"


async def test_rule_57_a_process_that_registered_since_the_list_was_read_is_asked_for(
    pool: ChannelPool, registrations: Registrations
) -> None:
    sink = Sink()
    registrations.boot_ids["b0"] = "boot 1"
    pool.send_frame("b0", sink, 1, FRAME)
    assert await sink.fates.get() == ("acked", "boot 1")
    pool.send_frame("b0", sink, 2, FRAME)
    assert await sink.fates.get() == ("acked", "boot 1")
    assert registrations.asked == ["b0"], "once, for the stream"


async def test_rule_57_a_stream_ends_when_another_process_registers(
    pool: ChannelPool, registrations: Registrations
) -> None:
    sink = Sink()
    registrations.boot_ids["b0"] = "boot 1"
    pool.send_frame("b0", sink, 1, FRAME)
    assert await sink.fates.get() == ("acked", "boot 1")
    known = await registrations("b0")
    assert known is not None
    pool.bookies_changed({"b0": replace(known, free_bytes=1)})
    pool.send_frame("b0", sink, 2, FRAME)
    assert await sink.fates.get() == ("acked", "boot 1"), "the same process says something new"
    pool.bookies_changed({"b0": replace(known, boot_id="boot 2")})
    pool.send_frame("b0", sink, 3, FRAME)
    assert await sink.fates.get() == ("lost", "b0")
    pool.send_frame("b0", sink, 4, FRAME)
    assert await sink.fates.get() == ("acked", "boot 2")


class Driven:
    """A machine that says nothing, and its driver, on ledger 0."""

    def __init__(self, pool: ChannelPool) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.manager = LedgerManager(MemoryStore(MemoryServer()), Layout("test"))
        self.pool = pool
        self.driver: MachineDriver[Effect]
        self.is_done = False

    def start(self) -> list[Effect]:
        return []

    def step(self, event: Event) -> list[Effect]:
        self.events.put_nowait(event)
        return []

    async def begin(self) -> None:
        """Create the ledger."""
        store = self.manager._store
        await store.create(Layout("test").ledgers, parents=True)
        await store.create(Layout("test").idgen, b'{"next":0}')
        current = await self.manager.create_ledger(lambda _: METADATA)
        self.driver = MachineDriver(
            self,
            0,
            "h",
            recovery=False,
            channels=self.pool,
            ledgers=self.manager,
            handle=lambda _: None,
            current=current,
            crashed=lambda error: pytest.fail(str(error)),
        )

    async def ask(self, *effects: Effect) -> Event:
        """Carry out `effects`; the event that comes of them."""
        self.driver.carry_out(list(effects))
        return await self.events.get()


async def test_rule_57_only_a_registered_process_testifies(
    pool: ChannelPool, registrations: Registrations
) -> None:
    """An old one does not know what its replacement acknowledged, and would deny it."""
    driven = Driven(pool)
    await driven.begin()
    assert await driven.ask(SendFence("b0", 1)) == FenceAnswered("b0", 1, Code.CONNECTION_LOST)
    read = await driven.ask(SendRead("b0", 2, 0, 9, 100, fence=True))
    assert isinstance(read, ReadAnswered)
    assert (read.code, registrations.asked) == (Code.CONNECTION_LOST, ["b0", "b0"])
    registrations.boot_ids["b0"] = "new"
    pool_knows = [pool.calls("b0")]
    await driven.ask(SendFence("b0", 3))
    await driven.ask(SendFence("b0", 4))
    assert registrations.asked == ["b0"] * 3, "once for a machine"
    assert pool.calls("b0") is not pool_knows[0]
    await driven.ask(SendRead("b0", 5, 0, 9, 100))
    assert registrations.asked == ["b0"] * 3, "an ordinary read proves nothing to anyone"


async def test_rule_57_nothing_is_sent_to_a_bookie_named_anew_before_it_was_found_registered(
    pool: ChannelPool, registrations: Registrations
) -> None:
    pool.bookies_changed({"b2": BookieInfo("b2", registrations.address, boot_id="boot 1")})
    driven = Driven(pool)
    await driven.begin()
    registrations.boot_ids = {"b0": "boot 1"}
    assert await driven.ask(SendFrame("b0", 1, FRAME)) == FrameAcked("b0", 1, "boot 1")
    assert registrations.asked == ["b0"], "its first frame is judged by the bookie (rule 20)"
    changed = METADATA.with_ensemble(0, 0, ("b0", "b2"))
    assert await driven.ask(CasMetadata(2, changed, 0)) == CasAnswered(2, CasOutcome.DONE, 1)
    assert registrations.asked[1:] == ["b2"]
    assert await driven.ask(SendFrame("b2", 3, FRAME)) == FrameFailed("b2", 3, Code.CONNECTION_LOST)
    registrations.boot_ids["b2"] = "boot 1"
    assert await driven.ask(SendFrame("b2", 4, FRAME)) == FrameFailed("b2", 4, Code.CONNECTION_LOST)
    for _ in range(20):  # the driver has asked again meanwhile
        await asyncio.sleep(0)
    assert await driven.ask(SendFrame("b2", 5, FRAME)) == BookieFailed("b2"), "another b2 answers there"


async def test_rule_57_so_it_is_with_a_change_whose_outcome_was_unknown_at_first(
    pool: ChannelPool, registrations: Registrations
) -> None:
    driven = Driven(pool)
    await driven.begin()
    found = await driven.manager.read(0)
    await driven.manager.cas(found, METADATA.with_ensemble(0, 0, ("b0", "b2")))
    assert isinstance(await driven.ask(ReadMetadata(1)), MetadataRead)
    assert registrations.asked == ["b2"]
    assert await driven.ask(SendFrame("b2", 2, FRAME)) == FrameFailed("b2", 2, Code.CONNECTION_LOST)
