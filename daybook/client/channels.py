"""Every bookie this client talks to: where each is now, its append stream and its calls."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

import grpc
import grpc.aio

from daybook.client.append_stream import AppendStream
from daybook.client.calls import BookieCalls
from daybook.client.sink import FrameSink
from daybook.core.errors import Code
from daybook.core.ids import BookieId
from daybook.core.placement import BookieInfo
from daybook.wire.channel import open_aio_channel


class Flushable(Protocol):
    """A writer with appended entries that are not sealed into frames yet."""

    def ensemble(self) -> tuple[BookieId, ...]:
        """The bookies that its next frame goes to."""

    def flush(self) -> None:
        """Seal what gathered and send it."""


class ChannelPool:
    """Channels to bookies by id, opened when first needed.

    `credentials` is asked each time a channel is opened, so that renewed certificates are used without a restart.
    """

    def __init__(
        self, client_name: str, credentials: Callable[[], grpc.ChannelCredentials | None] = lambda: None
    ) -> None:
        """Know no bookie yet."""
        self._client_name = client_name
        self._credentials = credentials
        self._bookies: Mapping[BookieId, BookieInfo] = {}
        self._streams: dict[BookieId, AppendStream] = {}
        self._calls: dict[BookieId, tuple[str, grpc.aio.Channel, BookieCalls]] = {}
        self._unsealed: dict[Flushable, None] = {}
        self._flush_is_due = False
        self._closing: set[asyncio.Task[None]] = set()

    def bookies_changed(self, bookies: Mapping[BookieId, BookieInfo]) -> None:
        """Where the registered bookies are now. One that vanished keeps its channels: it may serve on (rule 46)."""
        self._bookies = {**self._bookies, **bookies}

    def send_frame(self, bookie: BookieId, sink: FrameSink, send_id: int, frame: bytes) -> None:
        """Send `frame`; the sink is told its fate, never from inside this call."""
        if bookie not in self._bookies:
            asyncio.get_running_loop().call_soon(sink.frame_failed, bookie, send_id, Code.CONNECTION_LOST)
            return
        stream = self._streams.get(bookie)
        if stream is None:
            stream = self._streams[bookie] = AppendStream(
                bookie, lambda: self._open(bookie), self._client_name, self.flush_soon
            )
        stream.send(sink, send_id, frame)

    def has_unsealed(self, writer: Flushable) -> None:
        """`writer` has entries to seal: it is flushed as soon as a bookie of its ensemble is idle."""
        self._unsealed[writer] = None
        self.flush_soon()

    def flush_soon(self) -> None:
        """Look for writers to flush, once in the loop's next turn however often this is called."""
        if self._unsealed and not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def calls(self, bookie: BookieId) -> BookieCalls | None:
        """The calls of `bookie`; None if it was never registered."""
        info = self._bookies.get(bookie)
        if info is None:
            return None
        known = self._calls.get(bookie)
        if known is not None and known[0] == info.address:
            return known[2]
        if known is not None:
            self._close_soon(known[1])
        channel = self._open(bookie)
        calls = BookieCalls(bookie, channel)
        self._calls[bookie] = (info.address, channel, calls)
        return calls

    def forget(self, sink: FrameSink) -> None:
        """Drop what `sink` has queued anywhere."""
        for stream in self._streams.values():
            stream.forget(sink)

    async def close(self) -> None:
        """Close every channel."""
        for stream in list(self._streams.values()):
            await stream.close()
        for _, channel, _ in self._calls.values():
            await channel.close()
        if self._closing:
            await asyncio.wait(self._closing)

    def _open(self, bookie: BookieId) -> grpc.aio.Channel:
        return open_aio_channel(self._bookies[bookie].address, self._credentials())

    def _close_soon(self, channel: grpc.aio.Channel) -> None:
        async def close() -> None:
            await channel.close()

        task = asyncio.get_running_loop().create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _flush(self) -> None:
        self._flush_is_due = False
        for writer in list(self._unsealed):
            if any(self._is_idle(bookie) for bookie in writer.ensemble()):
                del self._unsealed[writer]
                writer.flush()

    def _is_idle(self, bookie: BookieId) -> bool:
        stream = self._streams.get(bookie)
        return stream is None or stream.is_idle
