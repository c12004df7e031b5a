"""LACs of idle ledgers on an append stream: one table for all of them, sent again where it may have vanished (rule 48)."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from daybook.client.driver.flush_queue import FlushQueue
from daybook.client.transport import frame_sender
from daybook.client.transport.frame_sender import FrameSender
from daybook.core.errors import Code
from daybook.core.format.frame import decode_header, split_message
from daybook.core.format.lac_table import LacRow, decode_lac_table, encode_lac_row
from daybook.wire.messages import decode_client_control, is_frames, is_lac_table
from tests.unit.client.scripted_bookie import OVER_BOTH, Requests, attached, through
from tests.unit.client.scripted_stream import frame, stream_to
from tests.unit.client.sink_kit import RecordingSink

pytestmark = OVER_BOTH


WAIT_S = 40.0


class Bookie:
    """Attaches everyone, records tables and messages of frames, and answers the latter while `answers` is set."""

    def __init__(self, code: Code = Code.OK) -> None:
        self.code = code
        self.came: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self.answers = asyncio.Event()
        self.answers.set()
        self.ends = asyncio.Event()
        """Set to end the stream that is open."""

    async def __call__(self, _: int, requests: Requests) -> AsyncIterator[bytes]:
        frames = 0
        ends = asyncio.ensure_future(self.ends.wait())
        while True:
            request = asyncio.ensure_future(anext(requests, None))
            await asyncio.wait([request, ends], return_when=asyncio.FIRST_COMPLETED)
            if ends.done():
                request.cancel()
                self.ends.clear()
                return
            message = request.result()
            if message is None:
                ends.cancel()
                return
            if is_frames(message):
                frames += 1
                await self.came.put(("frames", message))
                await self.answers.wait()
                yield through(frames)
            elif is_lac_table(message):
                await self.came.put(("table", message))
            else:
                ledger_id = decode_client_control(message).attach.ledger_id
                await self.came.put(("attach", b""))
                yield attached(ledger_id, self.code)

    async def rows(self) -> list[LacRow]:
        """Those of the table that comes next."""
        while True:
            kind, message = await self.came.get()
            if kind == "table":
                rows, damaged = decode_lac_table(message)
                assert not damaged
                return rows


@pytest.fixture(autouse=True)
def no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_sender, "LAC_PAUSE_S", 0.02)


def row(ledger_id: int, lac: int) -> bytes:
    return encode_lac_row(LacRow(ledger_id, lac, 10 * lac))


async def test_ledgers_whose_lac_is_due_share_a_table_and_each_sends_its_newest() -> None:
    bookie = Bookie()
    async with stream_to(bookie) as stream:
        sinks = [RecordingSink(ledger_id) for ledger_id in (1, 2, 3)]
        for sink in sinks:
            stream.send(sink, 1, frame(0))
        for sink in sinks:
            assert await sink.events.get() == (1, "boot 1")
        for sink in sinks:
            stream.publish_lac(sink, row(sink.ledger_id, 0))
        stream.publish_lac(sinks[0], row(1, 4))
        assert await bookie.rows() == [LacRow(1, 4, 40), LacRow(2, 0, 0), LacRow(3, 0, 0)]
        assert all(sink.events.empty() for sink in sinks), "nobody answers"


async def test_a_row_waits_for_the_attachment_alone() -> None:
    bookie = Bookie()
    async with stream_to(bookie) as stream:
        stream.publish_lac(RecordingSink(1), row(1, 3))
        assert await bookie.rows() == [LacRow(1, 3, 30)]


class Writer:
    """A writer of `sink` with an entry to seal, which its flush sends as frame 1."""

    def __init__(self, stream: FrameSender, sink: RecordingSink) -> None:
        self.id = sink.ledger_id
        self._stream = stream
        self._sink = sink

    def ensemble(self) -> tuple[str, ...]:
        return (self._stream.bookie,)

    def flush(self) -> None:
        self._stream.send(self._sink, 1, frame(0))


@pytest.mark.parametrize(("code", "outcome"), [(Code.OK, "boot 1"), (Code.NOT_OPEN, Code.NOT_OPEN)])
async def test_an_entry_that_is_appended_while_a_row_waits_for_the_attachment_leaves_with_it(
    code: Code, outcome: object
) -> None:
    async with stream_to(Bookie(code)) as stream:
        queue = FlushQueue(lambda _: stream.is_idle, lambda _: stream.attaching)
        sink = RecordingSink(1)
        stream.publish_lac(sink, row(1, 3))
        queue.add(Writer(stream, sink))
        async with asyncio.timeout(WAIT_S):
            assert await sink.events.get() == (1, outcome)


async def test_rows_wait_behind_a_message_that_the_bookie_has_not_answered() -> None:
    bookie = Bookie()
    async with stream_to(bookie) as stream:
        sink = RecordingSink(1)
        stream.send(sink, 1, frame(0))
        await sink.events.get()
        bookie.answers.clear()
        stream.send(sink, 2, frame(1))
        await asyncio.sleep(0)
        for lac in range(3):
            stream.publish_lac(sink, row(1, lac))
            await asyncio.sleep(0)
        bookie.answers.set()
        assert await bookie.rows() == [LacRow(1, 2, 20)], "one for all"


async def test_rule_48_a_row_that_may_have_vanished_is_published_again_on_the_next_stream() -> None:
    bookie = Bookie()
    async with stream_to(bookie) as stream:
        sink = RecordingSink(1)
        stream.publish_lac(sink, row(1, 3))
        await bookie.rows()
        for lac in (4, 5):
            bookie.ends.set()
            assert await sink.events.get() == ("lac lost",), (
                "there is a stream again, though nobody sent anything"
            )
            stream.publish_lac(sink, row(1, lac))
            assert await bookie.rows() == [LacRow(1, lac, 10 * lac)]


@pytest.mark.parametrize("is_deferred", [False, True])
async def test_rule_48_only_a_frame_that_was_synced_proves_the_rows_before_it(is_deferred: bool) -> None:
    bookie = Bookie()
    async with stream_to(bookie) as stream:
        idle, busy = RecordingSink(1), RecordingSink(2, is_deferred=is_deferred)
        stream.publish_lac(idle, row(1, 3))
        await bookie.rows()
        stream.send(busy, 1, frame(0))
        assert await busy.events.get() == (1, "boot 1")
        stream.publish_lac(busy, row(2, 0))
        await bookie.rows()
        bookie.ends.set()
        assert await busy.events.get() == ("lac lost",)
        assert idle.events.empty() is not is_deferred


async def test_a_ledger_that_is_let_in_by_nobody_publishes_to_the_bookie_no_more() -> None:
    bookie = Bookie(Code.NOT_OPEN)
    async with stream_to(bookie) as stream:
        refused, other = RecordingSink(1), RecordingSink(2)
        stream.publish_lac(refused, row(1, 3))
        stream.send(other, 1, frame(0))
        assert await other.events.get() == (1, Code.NOT_OPEN)
        assert not stream._rows.has_lost
        assert refused.events.empty()


async def test_a_row_whose_attachment_found_no_answer_is_published_again() -> None:
    bookie = Bookie(Code.UNAVAILABLE)
    async with stream_to(bookie) as stream:
        sink = RecordingSink(1)
        stream.publish_lac(sink, row(1, 3))
        assert await sink.events.get() == ("lac lost",)
        bookie.code = Code.OK
        stream.publish_lac(sink, row(1, 4))
        assert await bookie.rows() == [LacRow(1, 4, 40)]


async def test_a_writer_that_is_gone_is_not_notified() -> None:
    bookie = Bookie()
    async with stream_to(bookie) as stream:
        gone, here = RecordingSink(1), RecordingSink(2)
        for sink in (gone, here):
            stream.publish_lac(sink, row(sink.ledger_id, 3))
        rows = await bookie.rows()
        while len(rows) < 2:
            rows += await bookie.rows()
        stream.forget(gone)
        bookie.ends.set()
        assert await here.events.get() == ("lac lost",)
        assert gone.events.empty()


async def test_a_bookie_of_an_earlier_release_gets_a_frame_whose_answer_nobody_waits_for() -> None:
    bookie = Bookie()
    async with stream_to(bookie, is_older=True) as stream:
        sink = RecordingSink(1)
        stream.publish_lac(sink, row(1, 3))
        while (came := await bookie.came.get())[0] != "frames":
            assert came[0] == "attach"
        ((header, _),) = split_message(came[1])
        assert header == decode_header(came[1])
        assert (header.ledger_id, header.count, header.last_add_confirmed) == (1, 0, 3)
        assert await sink.events.get() == (0, "boot 1"), "no machine has sent anything by this id"
