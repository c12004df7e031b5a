"""The end of an attachment: a client says that it is done with a ledger, so that a bookie forgets it although the stream lives on."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from daybook.client.transport import frame_sender
from daybook.client.transport.channels import ChannelPool
from daybook.core.errors import Code
from daybook.core.ids import LedgerId
from daybook.core.placement.policy import BookieInfo
from daybook.wire import bookie_pb2 as pb
from daybook.wire.messages import decode_client_control, is_frames
from tests.unit.client.scripted_bookie import OVER_BOTH, Requests, ScriptedBookie, attached, through
from tests.unit.client.scripted_stream import frame, stream_to
from tests.unit.client.sink_kit import RecordingSink

KEY = (1, pb.PURPOSE_WRITE)


class Bookie:
    """Attaches everybody, once it may, and takes every frame; `seen` has what came, in order."""

    def __init__(self) -> None:
        self.seen: asyncio.Queue[tuple[str, LedgerId]] = asyncio.Queue()
        self.may_attach = asyncio.Event()
        self.may_attach.set()

    def everything(self) -> list[tuple[str, LedgerId]]:
        """What came so far."""
        return [self.seen.get_nowait() for _ in range(self.seen.qsize())]

    async def __call__(self, _: int, requests: Requests) -> AsyncIterator[bytes]:
        """The script."""
        messages = 0
        async for request in requests:
            if is_frames(request):
                messages += 1
                yield through(messages)
                continue
            control = decode_client_control(request)
            if control.HasField("attach"):
                self.seen.put_nowait(("attach", control.attach.ledger_id))
                await self.may_attach.wait()
                yield attached(control.attach.ledger_id)
            else:
                assert control.detach.purpose == pb.PURPOSE_WRITE
                self.seen.put_nowait(("detach", control.detach.ledger_id))


@OVER_BOTH
async def test_a_ledger_is_detached_and_attached_again_for_the_next_frame() -> None:
    bookie, sink = Bookie(), RecordingSink()
    async with stream_to(bookie) as stream:
        stream.send(sink, 1, frame(0))
        assert await sink.events.get() == (1, "boot 1")
        stream.detach(KEY)
        stream.detach(KEY)
        stream.send(sink, 2, frame(1))
        assert await sink.events.get() == (2, "boot 1")
    assert bookie.everything() == [
        ("attach", 1),
        ("detach", 1),
        ("attach", 1),
    ]


async def test_an_attachment_that_nobody_waits_for_any_more_ends_once_it_is_there() -> None:
    bookie, sink = Bookie(), RecordingSink()
    bookie.may_attach.clear()
    async with stream_to(bookie) as stream:
        stream.send(sink, 1, frame(0))
        assert await bookie.seen.get() == ("attach", 1)
        stream.forget(sink)
        stream.detach(KEY)
        bookie.may_attach.set()
        assert await bookie.seen.get() == ("detach", 1)


async def test_an_attachment_that_is_answered_after_it_was_given_up_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_sender, "ATTACH_TIMEOUT_S", 0.0)
    monkeypatch.setattr(frame_sender, "_STALL_CHECK_S", 0.01)
    bookie, sink = Bookie(), RecordingSink()
    bookie.may_attach.clear()
    async with stream_to(bookie) as stream:
        stream.send(sink, 1, frame(0))
        assert await sink.events.get() == (1, Code.TIMEOUT)
        stream.forget(sink)
        stream.detach(KEY)
        assert await bookie.seen.get() == ("attach", 1)
        bookie.may_attach.set()
        assert await bookie.seen.get() == ("detach", 1)


async def test_who_comes_while_an_attachment_is_given_up_keeps_it() -> None:
    bookie, first, second = Bookie(), RecordingSink(), RecordingSink()
    bookie.may_attach.clear()
    async with stream_to(bookie) as stream:
        stream.send(first, 1, frame(0))
        assert await bookie.seen.get() == ("attach", 1)
        stream.forget(first)
        stream.detach(KEY)
        stream.send(second, 1, frame(0))
        bookie.may_attach.set()
        assert await second.events.get() == (1, "boot 1")
        stream.send(second, 2, frame(1))
        assert await second.events.get() == (2, "boot 1")
    assert bookie.seen.empty()


async def test_a_bookie_of_an_earlier_release_is_told_nothing() -> None:
    bookie, sink = Bookie(), RecordingSink()
    async with stream_to(bookie, is_older=True) as stream:
        stream.send(sink, 1, frame(0))
        assert await sink.events.get() == (1, "boot 1")
        stream.detach(KEY)
        stream.send(sink, 2, frame(1))
        assert await sink.events.get() == (2, "boot 1")
    assert bookie.everything() == [("attach", 1), ("attach", 1)]


async def test_an_attachment_ends_with_the_last_of_those_that_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    script, first, second = Bookie(), RecordingSink(), RecordingSink()
    pool = ChannelPool("test")
    async with ScriptedBookie(script) as bookie:
        info = BookieInfo("b0", bookie.address, boot_id="boot 1")

        async def registered(_: str) -> BookieInfo:
            return info

        monkeypatch.setattr(pool, "read_registration", registered)
        pool.bookies_changed({"b0": info})
        pool.use(first)
        pool.use(second)
        pool.send_frame("b0", first, 1, frame(0))
        assert await first.events.get() == (1, "boot 1")
        pool.forget(first)
        pool.send_frame("b0", second, 1, frame(1))
        assert await second.events.get() == (1, "boot 1")
        assert script.seen.get_nowait() == ("attach", 1)
        assert script.seen.empty()
        pool.forget(second)
        assert await script.seen.get() == ("detach", 1)
        await pool.close()
