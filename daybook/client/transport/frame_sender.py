"""Sends frames to one bookie: one long-lived append stream carries those of every ledger of this client.

A message costs a bookie about the same whatever its size, so what gathers while one is under way leaves as one: no
delay is fixed anywhere, a lone entry leaves at once (docs/architecture.md, "The data path"). A ledger presents its key
once per stream; its frames wait for the answer, those of other ledgers do not. When the stream ends, everything
without an answer is unknown, and each ledger that had frames on it is notified once; the next frame opens a new one.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from daybook.client.driver.sink import AttachKey, FrameSink
from daybook.client.transport.attachments import (
    ATTACH_PATIENCE_S,
    ATTACH_PAUSE_MAX_S,
    ATTACH_PAUSE_S,
    ATTACH_TIMEOUT_S,
    Attaching,
    Queued,
    detach_control,
)
from daybook.client.transport.calls import known_code
from daybook.client.transport.link import AppendLink, Message, OpenLink
from daybook.client.transport.round_trips import RoundTrips, TimedMessages
from daybook.client.transport.stream_life import live
from daybook.core.errors import Code
from daybook.core.format.lac_table import decode_lac_row, encode_lac_table, lac_frame
from daybook.core.ids import BookieId, LedgerId
from daybook.core.lac_rows import LacRows
from daybook.core.stream import StreamAnswer, StreamError, StreamWindow
from daybook.runtime.logs import get_logger
from daybook.wire import bookie_pb2 as pb
from daybook.wire.messages import decode_from_bookie

log = get_logger(__name__)

MESSAGE_BYTES_TARGET: Final = 1024 * 1024
STALL_TIMEOUT_S: Final = 5.0
"""A bookie that answers none of the messages under way for so long has failed (BookKeeper: addEntryTimeoutSec)."""
_STALL_CHECK_S: Final = 0.5
LAC_PAUSE_S: Final = 0.5
"""The first pause before lost LACs are published again; the next ones are twice as long, and none is the same for all clients."""
LAC_PAUSE_MAX_S: Final = 30.0
_UNANSWERED: Final = 0
"""The send id of a frame whose outcome no machine waits for; theirs begin at 1."""


class FrameSender:
    """A client's side of the append stream to one bookie; reconnects when there is something to send."""

    def __init__(
        self,
        bookie: BookieId,
        open_link: OpenLink,
        is_registered: Callable[[str], Awaitable[bool]],
        room: Callable[[], None],
        report_error: Callable[[str], None],
        round_trips: RoundTrips,
    ) -> None:
        """`open_link` connects to where the bookie is now; `room` is called when more could be sent.

        `is_registered` says whether the process with this boot id is the bookie (rule 57). `report_error` gets the reason why the bookie is not reached, and "" once it is.
        """
        self.bookie = bookie
        self._open_link = open_link
        self._is_registered = is_registered
        self._room = room
        self._report_error = report_error
        self._timed = TimedMessages(round_trips)
        self._queue: deque[Queued] = deque()
        self._queued_bytes = 0
        self._controls: list[bytes] = []
        self._attaching: dict[AttachKey, Attaching] = {}
        self.attaching: set[LedgerId] = set()
        """The ledgers whose writer has frames that wait for its attachment. Nobody answers a row: one alone does not count."""
        self._attached: set[AttachKey] = set()
        self._window: StreamWindow[Queued] = StreamWindow()
        self._task: asyncio.Task[None] | None = None
        self._link: AppendLink | None = None
        """Once the bookie was found to be the right one."""
        self._rows: LacRows[FrameSink] = LacRows()
        self._takes_tables = self._takes_detach = False
        self._rows_retry: asyncio.TimerHandle | None = None
        self._rows_retries = 0
        self._is_pump_due = False
        self._ended: asyncio.Future[Exception]
        """Why the link of the stream that `_task` runs ended."""
        self._boot_id = ""
        self._answers = 0

    @property
    def is_idle(self) -> bool:
        """Whether a frame sent now would leave at once; sealing earlier only makes frames smaller.

        Ledgers that attach count for nothing: their frames alone wait (`attaching`).
        """
        return not (self._queue or self._window.messages_in_flight)

    @property
    def outstanding_bytes(self) -> int:
        """What was sent or queued and has no answer yet, but for frames of ledgers that still attach."""
        return self._queued_bytes + self._window.bytes_in_flight

    def send(self, sink: FrameSink, send_id: int, frame: bytes) -> None:
        """Queue `frame`; the sink receives its outcome."""
        queued = (sink, send_id, frame)
        if sink.attach_key in self._attached:
            self._enqueue(queued)
        else:
            self._attach(sink).frames.append(queued)
            if sink.purpose == pb.PURPOSE_WRITE:
                self.attaching.add(sink.ledger_id)
            self._open()

    def publish_lac(self, sink: FrameSink, row: bytes) -> None:
        """Send `row` with the next table of LACs. The sink is notified where it may have vanished (`FrameSink.lac_lost`)."""
        if sink.attach_key in self._attached:
            self._rows.publish(sink, row)
            self._send_soon()
        else:
            self._attach(sink).row = (sink, row)
            self._open()

    def _attach(self, sink: FrameSink) -> Attaching:
        """Ask for the attachment, unless that was done."""
        key = sink.attach_key
        attaching = self._attaching.get(key)
        if attaching is None:
            attaching = self._attaching[key] = Attaching(sink, asyncio.get_running_loop().time())
            self._controls.append(attaching.control)
            self._send_soon()
        attaching.is_unused = False
        return attaching

    def detach(self, key: AttachKey) -> None:
        """Nobody in this client uses the attachment any more."""
        if key in self._attached:
            self._attached.discard(key)
            if self._takes_detach:
                self._controls.append(detach_control(key))
                self._send_soon()
        elif key in self._attaching:
            self._attaching[key].is_unused = True

    def _open(self) -> None:
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._ended = loop.create_future()
            self._task = loop.create_task(live(self._open_link, self), name=f"append-{self.bookie}")
            self._task.add_done_callback(self._end)  # one cancelled before it began runs no `finally`

    def forget(self, sink: FrameSink) -> None:
        """Drop what `sink` has queued; a stream that still has its frames under way answers into the void."""
        self._queue = deque(queued for queued in self._queue if queued[0] is not sink)
        self._queued_bytes = sum(len(frame) for _, _, frame in self._queue)
        self._rows.forget(sink)
        for attaching in self._attaching.values():
            attaching.frames[:] = [queued for queued in attaching.frames if queued[0] is not sink]
            if attaching.row is not None and attaching.row[0] is sink:
                attaching.row = None

    def registered_as(self, boot_id: str) -> None:
        """The process with `boot_id` is the bookie: a stream to another one ends (rule 57)."""
        if self._task is not None and self._boot_id not in ("", boot_id):
            log.info("append stream to a process that is the bookie no more", bookie=self.bookie)
            self._task.cancel()

    async def close(self) -> None:
        """End the stream; the sinks of its frames are notified, as when it ends by itself. Sending opens another one."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _enqueue(self, queued: Queued) -> None:
        self._queue.append(queued)
        self._queued_bytes += len(queued[2])
        if not self._is_pump_due:
            self._send_soon()

    # StreamUser: what the life of a stream asks for.

    async def use(self, link: AppendLink) -> None:
        """See StreamUser."""
        await self._check(link.hello)
        self._link = link
        self._takes_tables = link.hello.takes_lac_tables
        self._takes_detach = link.hello.takes_detach
        self._rows_retries = 0
        self._resume_rows()
        self._pump()
        await self._watch_stall()

    def failed(self, code: str, why: str) -> None:
        """See StreamUser."""
        log.info("append stream lost", bookie=self.bookie, code=code, why=why)
        self._report_error(why)

    async def _check(self, hello: pb.ServerHello) -> None:
        """Raise StreamError unless the process that answered is the bookie (rule 57)."""
        if hello.bookie_id != self.bookie:
            msg = f"at the address of bookie {self.bookie} answers bookie {hello.bookie_id}"
            raise StreamError(msg)
        if not await self._is_registered(hello.boot_id):
            msg = (
                f"at the address of bookie {self.bookie} answers process {hello.boot_id}, which is not registered: "
                "it just started, or it was replaced"
            )
            raise StreamError(msg)
        self._boot_id = hello.boot_id
        self._report_error("")

    # LinkOwner: what the link reports.

    def received(self, message: Message) -> None:
        """See LinkOwner."""
        try:
            self._take(decode_from_bookie(message))
        except StreamError as error:
            self.lost(error)

    def lost(self, error: Exception) -> None:
        """See LinkOwner."""
        if not self._ended.done():
            self._ended.set_result(error)

    def _take(self, message: StreamAnswer | pb.ServerControl) -> None:
        if self._ended.done():
            return
        if isinstance(message, StreamAnswer):
            self._settle(message)
        elif message.HasField("attached"):
            self._settle_attach(message.attached)
        elif message.HasField("ended"):
            raise StreamError(message.ended.detail)

    # Sending: once in a turn of the loop, so that what came in it leaves as one message.

    def _send_soon(self) -> None:
        if self._link is not None and not self._is_pump_due:
            self._is_pump_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Send all that may leave now."""
        self._is_pump_due = False
        link = self._link
        if link is None:
            return
        if self._controls:
            link.send_each(self._controls)
            self._controls.clear()
        if self._rows.is_waiting:
            self._send_rows(link)
        while self._window.may_send(self._queued_bytes):
            link.send(self._take_message())

    def _send_rows(self, link: AppendLink) -> None:
        """Send tables of LACs, as far as the bookie keeps up: behind a message that it has not answered they wait for the next one."""
        window = self._window
        while self._rows.is_waiting and (
            not window.messages_in_flight or window.may_send(self._queued_bytes)
        ):
            rows = self._rows.take(window.next_message)
            if self._takes_tables:
                link.send([encode_lac_table([row for _, row in rows])])
                continue
            for sink, row in rows:  # a bookie of an earlier release takes frames alone
                frame = lac_frame(decode_lac_row(row))
                self._queue.append((sink, _UNANSWERED, frame))
                self._queued_bytes += len(frame)

    def _resume_rows(self) -> None:
        """Have those publish again whose LAC may have vanished, once there is a stream."""
        if self._rows_retry is not None:
            self._rows_retry.cancel()
            self._rows_retry = None
        if not self._rows.has_lost:
            return
        if self._link is None:
            self._open()
            return
        for sink in self._rows.take_lost():
            sink.lac_lost(self.bookie)

    def _resume_rows_later(self) -> None:
        if self._rows.has_lost and self._rows_retry is None:
            pause_s = min(LAC_PAUSE_S * 2**self._rows_retries, LAC_PAUSE_MAX_S) * random.uniform(0.5, 1)
            self._rows_retries += 1
            self._rows_retry = asyncio.get_running_loop().call_later(pause_s, self._resume_rows)

    def _take_message(self) -> list[bytes]:
        """The next message: as many queued frames as fit."""
        queue = self._queue
        if self._queued_bytes <= MESSAGE_BYTES_TARGET:
            items, size_bytes = list(queue), self._queued_bytes
            queue.clear()
        else:
            items = [queue.popleft()]
            size_bytes = len(items[0][2])
            while queue and size_bytes + len(queue[0][2]) <= MESSAGE_BYTES_TARGET:
                items.append(queue.popleft())
                size_bytes += len(items[-1][2])
        self._queued_bytes -= size_bytes
        self._timed.sent()
        self._window.send(items, size_bytes)
        return [frame for _, _, frame in items]

    async def _watch_stall(self) -> None:
        """Wait for the end of the link, and raise its reason.

        Raises TimeoutError when messages are under way and none is answered. An attachment fails by itself.
        """
        seen, quiet_s = self._answers, 0.0
        while quiet_s < STALL_TIMEOUT_S:
            await asyncio.wait([self._ended], timeout=_STALL_CHECK_S)
            if self._ended.done():
                raise self._ended.result()
            waiting = self._window.messages_in_flight
            quiet_s = quiet_s + _STALL_CHECK_S if waiting and self._answers == seen else 0.0
            seen = self._answers
            self._give_up_attachments()
        msg = f"bookie {self.bookie} answered none of the messages under way for {STALL_TIMEOUT_S} s"
        raise TimeoutError(msg)

    def _settle(self, answer: StreamAnswer) -> None:
        self._answers += 1
        bookie, boot_id = self.bookie, self._boot_id
        oldest = self._window.oldest_message
        decided = self._window.settle(answer)
        if self._rows.is_unsynced and any(
            code is Code.OK and not sink.is_deferred for (sink, _, _), code in decided
        ):
            self._rows.synced(oldest)
        for (sink, send_id, _), code in decided:
            if code is Code.OK:
                sink.frame_acked(bookie, send_id, boot_id)
            else:
                if code is Code.NOT_ATTACHED:
                    self._attached.discard(sink.attach_key)
                sink.frame_failed(bookie, send_id, code)
        self._timed.answered_but(self._window.messages_in_flight)
        self._send_soon()
        self._room()

    def _settle_attach(self, attached: pb.Attached) -> None:
        key = (attached.ledger_id, attached.purpose)
        if attached.code == Code.TOO_MANY_REQUESTS and self._ask_again_later(key):
            return
        if attached.code == Code.OK:
            is_new = key not in self._attached
            self._attached.add(key)
            attaching = self._take_attaching(key)
            if attaching is not None:
                for queued in attaching.frames:
                    self._enqueue(queued)
                if attaching.row is not None:
                    self._rows.publish(*attaching.row)
                    self._send_soon()
            if is_new and (attaching is None or attaching.is_unused):
                self.detach(key)  # nobody waits for it any more, or it came after all had given up
            return
        log.info("attach refused", bookie=self.bookie, ledger_id=attached.ledger_id, why=attached.detail)
        self._fail_attaching(key, known_code(attached.code))

    def _take_attaching(self, key: AttachKey) -> Attaching | None:
        """The ledger waits no more."""
        if key[1] == pb.PURPOSE_WRITE:
            self.attaching.discard(key[0])
        return self._attaching.pop(key, None)

    def _fail_attaching(self, key: AttachKey, code: Code) -> None:
        attaching = self._take_attaching(key)
        if attaching is None:
            return
        if attaching.row is not None:
            self._rows.attach_failed(attaching.row[0], code)
            self._resume_rows_later()
        for sink, send_id, _ in attaching.frames:
            sink.frame_failed(self.bookie, send_id, code)

    def _give_up_attachments(self) -> None:
        """Fail the frames of ledgers whose attachment has had no answer for too long; nobody else's."""
        now_s = asyncio.get_running_loop().time()
        late = [
            key for key, waiting in self._attaching.items() if now_s - waiting.asked_s >= ATTACH_TIMEOUT_S
        ]
        for key in late:
            log.info("attach not answered", bookie=self.bookie, ledger_id=key[0])
            self._fail_attaching(key, Code.TIMEOUT)

    def _ask_again_later(self, key: AttachKey) -> bool:
        """Ask for the attachment again after a pause; False if nothing waits for it, or it was tried for long enough."""
        loop, attaching = asyncio.get_running_loop(), self._attaching.get(key)
        if attaching is None or not (attaching.frames or attaching.row):
            return False
        if loop.time() - attaching.since_s >= ATTACH_PATIENCE_S:
            return False
        pause_s = min(ATTACH_PAUSE_S * 2**attaching.asked_again, ATTACH_PAUSE_MAX_S)
        attaching.asked_again += 1
        pause_s *= random.uniform(0.5, 1)
        loop.call_later(pause_s, self._ask_again, key, attaching)
        return True

    def _ask_again(self, key: AttachKey, attaching: Attaching) -> None:
        if self._attaching.get(key) is attaching:  # the stream may have ended, and another one begun
            attaching.asked_s = asyncio.get_running_loop().time()
            self._controls.append(attaching.control)
            self._send_soon()

    def _end(self, _: asyncio.Task[None]) -> None:
        """The stream is over: notify every sink with frames on it, once, and be ready for the next stream."""
        unknown = [sink for sink, _, _ in self._window.close()]
        unknown.extend(sink for sink, _, _ in self._queue)
        unknown.extend(sink for waiting in self._attaching.values() for sink, _, _ in waiting.frames)
        self._rows.stream_ended()
        for waiting in self._attaching.values():
            if waiting.row is not None:
                self._rows.attach_failed(waiting.row[0], Code.UNAVAILABLE)
        self._queue.clear()
        self._queued_bytes = 0
        self._controls.clear()
        self._attaching.clear()
        self.attaching.clear()
        self._attached.clear()
        self._window = StreamWindow()
        self._timed.forget()
        self._link = None
        self._task = None
        self._boot_id = ""
        for sink in dict.fromkeys(unknown):
            sink.bookie_failed(self.bookie)
        self._resume_rows_later()
        self._room()
