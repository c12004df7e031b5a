"""Channels and the credentials they are opened with: what whoever gives those may do at any time, a rotation's middle included."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from daybook.client.transport import channels
from daybook.client.transport.channels import ChannelPool
from daybook.core.errors import Code
from daybook.core.ids import BookieId
from daybook.core.placement.policy import BookieInfo
from tests.unit.client.scripted_bookie import AppendScript, Requests, ScriptedBookie
from tests.unit.client.sink_kit import LedgerSink

BOOKIES = {"b0": BookieInfo("b0", "127.0.0.1:1", boot_id="1")}


class Provider:
    """Gives credentials, the same or others each time, or none because it fails."""

    def __init__(self) -> None:
        self.fails = False
        self.same: grpc.ChannelCredentials | None = None

    def __call__(self) -> grpc.ChannelCredentials:
        if self.fails:
            raise RuntimeError("the key does not fit the certificate")
        return self.same or grpc.ssl_channel_credentials()


class Sink(LedgerSink):
    """Waits for the bookie's failure."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: asyncio.Queue[BookieId] = asyncio.Queue()

    def frame_acked(self, bookie: BookieId, send_id: int, boot_id: str) -> None:
        raise AssertionError("nobody has the frame")

    def frame_failed(self, bookie: BookieId, send_id: int, code: Code) -> None:
        raise AssertionError("the frame was never sent")

    def lac_lost(self, bookie: BookieId) -> None:
        raise AssertionError("nothing was published")

    def bookie_failed(self, bookie: BookieId) -> None:
        self.failed.put_nowait(bookie)


def silent(asked: asyncio.Event) -> AppendScript:
    """A bookie that receives requests, the first of which sets `asked`, and answers none."""

    async def receive(_: int, requests: Requests) -> AsyncIterator[bytes]:
        async for _request in requests:
            asked.set()
        yield b""

    return receive


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
async def pool(provider: Provider) -> AsyncIterator[ChannelPool]:
    """Channels to b0, which is nowhere."""
    opened = ChannelPool("test", provider)
    opened.bookies_changed(BOOKIES)
    yield opened
    await opened.close()


async def test_new_credentials_at_every_look_do_not_open_a_channel_for_every_call(pool: ChannelPool) -> None:
    assert len({id(pool.calls("b0")) for _ in range(100)}) == 1


async def test_other_credentials_are_used_once_a_channel_is_not_new_any_more(
    pool: ChannelPool, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "RENEWAL_PAUSE_S", 0.0)
    provider.same = grpc.ssl_channel_credentials()
    first = pool.calls("b0")
    assert pool.calls("b0") is first
    provider.same = grpc.ssl_channel_credentials()
    assert pool.calls("b0") is not first


async def test_a_bookie_that_restarted_gets_a_new_channel_at_once(pool: ChannelPool) -> None:
    first = pool.calls("b0")
    pool.bookies_changed({"b0": BookieInfo("b0", "127.0.0.1:1", boot_id="2")})
    assert pool.calls("b0") is not first


async def test_without_credentials_open_channels_serve_on_and_no_new_one_is_opened(
    pool: ChannelPool, provider: Provider
) -> None:
    first = pool.calls("b0")
    assert first is not None
    provider.fails = True
    assert pool.is_secure
    assert pool.calls("b0") is first
    pool.bookies_changed({"b0": BookieInfo("b0", "127.0.0.1:1", boot_id="2")})
    assert pool.calls("b0") is None, "an answer is that the bookie cannot be reached"
    provider.fails = False
    assert pool.calls("b0") not in (None, first)


async def test_a_stream_that_gets_no_credentials_fails_like_one_whose_bookie_is_away(
    pool: ChannelPool, provider: Provider
) -> None:
    provider.fails = True
    sink = Sink()
    pool.send_frame("b0", sink, 1, b"frame")
    assert await sink.failed.get() == "b0"
    pool.send_frame("b0", sink, 2, b"frame")
    assert await sink.failed.get() == "b0", "and it is tried again with the next frame"


async def test_who_is_told_of_a_stream_that_the_close_ended_opens_no_other_one() -> None:
    class Stubborn(Sink):
        """Goes to another bookie, as a machine does that has a spare one."""

        def __init__(self, pool: ChannelPool) -> None:
            super().__init__()
            self.pool = pool
            self.refused: asyncio.Queue[tuple[BookieId, Code]] = asyncio.Queue()

        def bookie_failed(self, bookie: BookieId) -> None:
            for spare in ("b0", "b1"):
                self.pool.send_frame(spare, self, 2, b"frame")
            assert self.refused.empty(), "never from inside"
            super().bookie_failed(bookie)

        def frame_failed(self, bookie: BookieId, send_id: int, code: Code) -> None:
            self.refused.put_nowait((bookie, code))

    asked = asyncio.Event()
    async with ScriptedBookie(silent(asked)) as bookie, asyncio.timeout(40):
        pool = ChannelPool("test")
        pool.bookies_changed({name: BookieInfo(name, bookie.address) for name in ("b0", "b1")})
        sink = Stubborn(pool)
        pool.send_frame("b0", sink, 1, b"frame")
        await asked.wait()
        await pool.close()
        assert sink.failed.get_nowait() == "b0"
        assert [await sink.refused.get() for _ in range(2)] == [
            ("b0", Code.CONNECTION_LOST),
            ("b1", Code.CONNECTION_LOST),
        ]
        assert pool.calls("b0") is None
        assert [task for task in asyncio.all_tasks() if task.get_name().startswith("append-")] == []


async def test_rule_46_writers_seal_at_once_while_another_ledger_attaches() -> None:
    class Writer:
        def __init__(self, ledger_id: int) -> None:
            self.id = ledger_id
            self.flushed = False

        def ensemble(self) -> tuple[BookieId, ...]:
            return ("b0",)

        def flush(self) -> None:
            self.flushed = True

    asked = asyncio.Event()
    async with ScriptedBookie(silent(asked)) as bookie, asyncio.timeout(40):
        pool = ChannelPool("test")
        pool.bookies_changed({"b0": BookieInfo("b0", bookie.address)})
        pool.send_frame("b0", Sink(), 1, b"frame")
        await asked.wait()
        attaches, other = Writer(1), Writer(2)
        pool.unsealed.add(attaches)
        pool.unsealed.add(other)
        await asyncio.sleep(0)
        assert (attaches.flushed, other.flushed) == (False, True)
        await pool.close()
