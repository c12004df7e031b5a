"""What bookies answer on an append stream, over gRPC and over the lane, and what a client makes of it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from daybook.client.transport import frame_sender
from daybook.core.errors import Code
from tests.unit.client.scripted_bookie import OVER_BOTH, AppendScript, Requests, attach_all, attached, through
from tests.unit.client.scripted_stream import frame, stream_to
from tests.unit.client.sink_kit import RecordingSink

pytestmark = OVER_BOTH

WAIT_S = 40.0


async def test_an_attachment_that_is_answered_with_an_unknown_code_is_a_failure_of_the_bookie() -> None:
    async def script(_: int, requests: Requests) -> AsyncIterator[bytes]:
        async for _request in requests:
            yield attached(1, 99)

    async with stream_to(script) as stream:
        sink = RecordingSink()
        stream.send(sink, 1, frame(0))
        stream.send(sink, 2, frame(1))
        assert await sink.events.get() == (1, Code.UNAVAILABLE)
        assert await sink.events.get() == (2, Code.UNAVAILABLE)


async def test_an_attachment_is_asked_for_again_while_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    async def script(number: int, requests: Requests) -> AsyncIterator[bytes]:
        async for answer in attach_all(requests):
            if answer is None:
                yield through(1)
            else:
                asked.append(number)
                yield attached(1, Code.TOO_MANY_REQUESTS) if len(asked) < 4 else answer

    async with stream_to(script) as stream:
        pauses: list[float] = []
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def noting(delay_s: float, callback: Any, *arguments: Any) -> asyncio.TimerHandle:
            if getattr(callback, "__self__", None) is stream:
                pauses.append(delay_s)
            return call_later(delay_s, callback, *arguments)

        monkeypatch.setattr(loop, "call_later", noting)
        sink = RecordingSink()
        stream.send(sink, 1, frame(0))
        assert await sink.events.get() == (1, "boot 1")
        assert asked == [1] * 4
        assert len(pauses) == 3
        assert pauses[2] > pauses[0] > 0, "each pause is longer"


@pytest.mark.pure
async def test_a_bookie_where_too_many_wait_for_long_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    async def script(number: int, requests: Requests) -> AsyncIterator[bytes]:
        async for _request in requests:
            asked.append(number)
            if len(asked) == 2:  # however long the first answer took, it was no reason to give up
                monkeypatch.setattr(frame_sender, "ATTACH_PATIENCE_S", 0.0)
            yield attached(1, Code.TOO_MANY_REQUESTS)

    async with stream_to(script) as stream:
        sink = RecordingSink()
        stream.send(sink, 1, frame(0))
        stream.send(sink, 2, frame(1))
        assert await sink.events.get() == (1, Code.TOO_MANY_REQUESTS)
        assert await sink.events.get() == (2, Code.TOO_MANY_REQUESTS)
        assert not stream.attaching
        assert asked == [1, 1]
        stream.send(sink, 3, frame(0))
        assert await sink.events.get() == (3, Code.TOO_MANY_REQUESTS), (
            "and it is asked again with the next frame"
        )


async def test_nobody_asks_again_for_a_ledger_that_nobody_writes_to_any_more() -> None:
    asked: asyncio.Queue[int] = asyncio.Queue()
    answer = asyncio.Event()

    async def script(number: int, requests: Requests) -> AsyncIterator[bytes]:
        async for _request in requests:
            asked.put_nowait(number)
            await answer.wait()
            yield attached(1, Code.TOO_MANY_REQUESTS)

    async with stream_to(script) as stream:
        sink = RecordingSink()
        stream.send(sink, 1, frame(0))
        await asked.get()
        stream.forget(sink)
        answer.set()
        async with asyncio.timeout(WAIT_S):
            while stream.attaching:  # noqa: ASYNC110 - the stream reports to nobody what it does with the answer
                await asyncio.sleep(0)
        assert asked.empty()
        assert sink.events.empty()


async def test_a_stream_that_ends_while_an_attachment_pauses_asks_on_the_next_one() -> None:
    streams: list[int] = []

    async def script(number: int, requests: Requests) -> AsyncIterator[bytes]:
        async for answer in attach_all(requests):
            streams.append(number)
            if number == 1:
                yield attached(1, Code.TOO_MANY_REQUESTS)
                return
            yield through(1) if answer is None else answer

    async with stream_to(script) as stream:
        sink = RecordingSink()
        stream.send(sink, 1, frame(0))
        assert await sink.events.get() == ("gone",)
        stream.send(sink, 2, frame(0))
        assert await sink.events.get() == (2, "boot 2")
        assert streams == [1, 2, 2]


async def test_rule_46_an_attachment_without_an_answer_fails_its_ledger_and_not_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_sender, "_STALL_CHECK_S", 0.02)
    monkeypatch.setattr(frame_sender, "STALL_TIMEOUT_S", WAIT_S)
    monkeypatch.setattr(frame_sender, "ATTACH_TIMEOUT_S", WAIT_S)
    async with stream_to(deaf_to_attachments_of(1)) as stream:
        waits, flows = RecordingSink(1), RecordingSink(2)
        stream.send(waits, 1, frame(0))
        stream.send(waits, 2, frame(1))
        stream.send(flows, 1, frame(0))
        assert await flows.events.get() == (1, "boot 1")
        assert stream.is_idle, "the ledger that attaches makes nobody wait"
        assert stream.attaching == {1}
        monkeypatch.setattr(frame_sender, "STALL_TIMEOUT_S", 0.1)
        monkeypatch.setattr(frame_sender, "ATTACH_TIMEOUT_S", 0.5)
        assert await waits.events.get() == (1, Code.TIMEOUT)
        assert await waits.events.get() == (2, Code.TIMEOUT)
        monkeypatch.setattr(frame_sender, "STALL_TIMEOUT_S", WAIT_S)
        stream.send(flows, 2, frame(1))
        assert await flows.events.get() == (2, "boot 1"), "it is the same stream"


def deaf_to_attachments_of(ledger_id: int) -> AppendScript:
    """Attaches every other ledger, and takes all frames."""

    async def script(_: int, requests: Requests) -> AsyncIterator[bytes]:
        messages = 0
        async for answer in attach_all(requests):
            if answer is None:
                messages += 1
                yield through(messages)
            elif answer != attached(ledger_id):
                yield answer

    return script


async def test_a_bookie_that_answers_attachments_and_no_message_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_sender, "_STALL_CHECK_S", 0.1)
    monkeypatch.setattr(frame_sender, "STALL_TIMEOUT_S", 0.3)
    monkeypatch.setattr(frame_sender, "ATTACH_PAUSE_MAX_S", 0.05)

    async def script(_: int, requests: Requests) -> AsyncIterator[bytes]:
        async for answer in attach_all(requests):
            if answer == attached(2):
                yield attached(2, Code.TOO_MANY_REQUESTS)
            elif answer is not None:
                yield answer

    async with stream_to(script) as stream:
        stuck, asks = RecordingSink(1), RecordingSink(2)
        stream.send(stuck, 1, frame(0))
        stream.send(asks, 1, frame(0))
        assert await stuck.events.get() == ("gone",)
        assert await asks.events.get() == ("gone",)


async def test_rule_18_a_stream_that_ends_is_told_once_and_the_next_one_attaches_anew() -> None:
    attachments: list[int] = []

    async def script(number: int, requests: Requests) -> AsyncIterator[bytes]:
        messages = 0
        async for answer in attach_all(requests):
            if answer is not None:
                attachments.append(number)
                yield answer
            elif number == 1:
                return
            else:
                messages += 1
                yield through(messages)

    async with stream_to(script) as stream:
        sink, other = RecordingSink(), RecordingSink(2)
        for send_id in (1, 2, 3):
            stream.send(sink, send_id, frame(send_id))
        assert await sink.events.get() == ("gone",)
        stream.send(sink, 4, frame(4))
        assert await sink.events.get() == (4, "boot 2"), (
            "the boot id is that of the stream that took the frame"
        )
        assert attachments == [1, 2]
        assert sink.events.empty()
        assert other.events.empty()


async def test_who_sent_on_a_stream_that_is_closed_before_it_began_is_told() -> None:
    async def script(_: int, requests: Requests) -> AsyncIterator[bytes]:
        async for answer in attach_all(requests):
            yield answer or through(1)

    async with stream_to(script) as stream:
        sink = RecordingSink()
        stream.send(sink, 1, frame(0))
        await stream.close()
        assert sink.events.get_nowait() == ("gone",)
        stream.send(sink, 2, frame(0))
        assert await sink.events.get() == (2, "boot 1")


async def test_rule_49_an_answer_about_what_was_never_sent_ends_the_stream() -> None:
    async def script(_: int, requests: Requests) -> AsyncIterator[bytes]:
        async for answer in attach_all(requests):
            yield through(2) if answer is None else answer

    async with stream_to(script) as stream:
        sink = RecordingSink()
        stream.send(sink, 1, frame(0))
        assert await sink.events.get() == ("gone",)


async def test_a_handle_that_stopped_is_told_nothing_and_takes_nothing_from_others() -> None:
    go_on = asyncio.Event()

    async def script(_: int, requests: Requests) -> AsyncIterator[bytes]:
        messages = 0
        async for answer in attach_all(requests):
            if answer is None:
                messages += 1
                await go_on.wait()
                yield through(messages)
            else:
                yield answer

    async with stream_to(script) as stream:
        first, second = RecordingSink(), RecordingSink()
        stream.send(first, 1, frame(0))
        stream.send(second, 1, frame(1))
        stream.forget(first)
        stream.send(second, 2, frame(2))
        go_on.set()
        assert await second.events.get() == (1, "boot 1")
        assert await second.events.get() == (2, "boot 1")
        assert first.events.empty()
