"""The append stream of one client: from a message's bytes to the answer that it is durable.

A reader thread takes messages as they arrive; answers go out as they are ready (`Outgoing`). In between, all
work is for each message or frame, never for each entry: check the checksums, then under the one lock have the core's
machine decide every frame and put it into the write cache (rule 43), and queue it for the journal. What is refused is
answered at once, a deferred frame when it is accepted, everything else when its group is durable.
"""

import threading
from collections.abc import Callable, Iterator
from itertools import count
from queue import SimpleQueue
from time import perf_counter
from typing import Final, Protocol

from daybook.core.bookie.ledger import LacAnswer, Purpose
from daybook.core.errors import Code, FrameError
from daybook.core.format.frame import FrameHeader, damaged_frames, split_message
from daybook.core.format.lac_table import decode_lac_table
from daybook.core.ids import LedgerId
from daybook.core.stream import StreamAnswers, StreamError
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger
from daybook.wire import bookie_pb2 as pb
from daybook.wire.messages import (
    decode_client_control,
    encode_answer,
    encode_server_control,
    is_frames,
    is_lac_table,
)
from daybook_bookie.journal.format import Record
from daybook_bookie.journal.thread import JournalThread
from daybook_bookie.ledgers import LedgerTable
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.service.budget import ByteBudget
from daybook_bookie.service.long_poll import LongPolls

_LOG: Final = get_logger(__name__)
ANSWERS_WAITING_MAX: Final = 65_536
"""Answers that a client has not taken: a client that sends and never reads would fill the memory with them."""
ANSWERS_WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""The same in bytes: one answer names each frame that is refused, of up to 16,384 frames of a message."""
_CLIENT_NAME_MAX: Final = 256
_TOO_MUCH: Final = (
    "more messages wait in the bookie than it has memory for: send again later, or raise received_bytes_max"
)


class Outgoing(Protocol):
    """Where the messages of a stream to its client go. No method waits for the client; any thread may call them."""

    @property
    def waiting(self) -> int:
        """How many messages the client has not taken."""

    @property
    def waiting_bytes(self) -> int:
        """How many bytes these messages have."""

    def put(self, *messages: bytes) -> None:
        """Send `messages` after those before them; they are dropped once the client is gone."""

    def close(self) -> None:
        """Nothing more is sent, and nothing more is received."""


class MessageQueue:
    """The outgoing messages of a stream over gRPC, whose handler takes them from here. Its stream puts with its lock held."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._put_bytes = self._taken_bytes = 0  # each is changed by one thread at a time

    @property
    def waiting(self) -> int:
        """See Outgoing."""
        return self._queue.qsize()

    @property
    def waiting_bytes(self) -> int:
        """See Outgoing."""
        return self._put_bytes - self._taken_bytes

    def put(self, *messages: bytes) -> None:
        """See Outgoing."""
        for message in messages:
            self._put_bytes += len(message)
            self._queue.put(message)

    def close(self) -> None:
        """See Outgoing."""
        self._queue.put(None)

    def __iter__(self) -> Iterator[bytes]:
        """The messages, until the stream is closed."""
        while (message := self._queue.get()) is not None:
            self._taken_bytes += len(message)
            yield message


class AppendContext:
    """What all streams of a bookie share."""

    def __init__(
        self,
        table: LedgerTable,
        journal: JournalThread,
        budget: ByteBudget,
        long_polls: LongPolls,
        metrics: BookieMetrics,
        attach: Callable[["AppendStream", pb.Attach], None],
    ) -> None:
        """`attach` queues an attachment; its answer comes through `AppendStream.send_control`."""
        self.table = table
        self.journal = journal
        self.budget = budget
        self.long_polls = long_polls
        self.metrics = metrics
        self.attach = attach
        self.stream_numbers = count(1)

    def wake(self, news: list[tuple[LedgerId, LacAnswer]]) -> None:
        """The journal has `news`: answer the long polls that wait for it."""
        is_durable = not self.table.machine.refusals.owes  # a LAC may have come with a refused frame
        for ledger_id, lac in news:
            self.long_polls.wake(ledger_id, lac, is_durable=is_durable)


class LacTableItem:
    """The LACs of a table that are news here, on their way through the journal; see TableDecided for its lists."""

    __slots__ = ("_shared", "news", "records", "size_bytes")

    def __init__(self, shared: AppendContext, size_bytes: int) -> None:
        """`size_bytes` were taken from the budget for it."""
        self._shared = shared
        self.size_bytes = size_bytes
        self.records: list[Record] = []
        self.news: list[tuple[LedgerId, LacAnswer]] = []

    @property
    def can_wait(self) -> bool:
        """Unless a long poll waits for one of the ledgers, it needs no sync of its own: see JournalItem."""
        return not self.news

    def settle(self, code: Code) -> None:
        """See JournalItem."""
        if code is Code.OK:
            self._shared.wake(self.news)
        self._shared.budget.give_back(self.size_bytes)


class MessageItem:
    """The accepted frames of one message on their way through the journal; see MessageDecided for its lists."""

    __slots__ = ("_started", "_stream", "early", "frames", "message", "news", "records", "size_bytes")
    can_wait = False

    def __init__(self, stream: "AppendStream", message: int, size_bytes: int, started: float) -> None:
        """Message number `message` of `stream`; `size_bytes` were taken from the budget for it."""
        self._stream = stream
        self._started = started
        self.message = message
        self.size_bytes = size_bytes
        self.records: list[Record] = []
        self.frames: list[int] = []
        self.early: list[int] = []
        self.news: list[tuple[LedgerId, LacAnswer]] = []

    def settle(self, code: Code) -> "AppendStream":
        """See JournalItem."""
        stream = self._stream
        if self.news and code is Code.OK:
            stream.shared.wake(self.news)
        stream.decide(self.message, self.frames, code)
        stream.shared.budget.give_back(self.size_bytes)
        stream.shared.metrics.add_seconds.observe(perf_counter() - self._started)
        return stream


class AppendStream:
    """One open stream."""

    def __init__(self, shared: AppendContext, outgoing: Outgoing) -> None:
        """A stream on which nothing has arrived."""
        self.shared = shared
        self.stream_id = next(shared.stream_numbers)
        self.client = ""
        self._answers = StreamAnswers()
        self._lock = threading.Lock()
        self._outgoing = outgoing
        self._closed = False
        self.received_ms = monotonic_ms()
        """When the last message came."""
        self.attaching = 0
        """Attachments that were asked for and not answered; changed under the table's lock."""
        self.evicted = ""
        """Why the bookie ended the stream for want of room, if it did."""
        self.on_evicted: Callable[[], object] = lambda: None

    # The life of a stream

    def run(self, incoming: Iterator[bytes | bytearray]) -> str | None:
        """Take messages until there are no more; why the bookie ends the stream then, if that is not its client's wish.

        Raises nothing: the thread that receives has no caller that could handle it.
        """
        try:
            for message in incoming:
                with self.shared.budget.received(len(message)) as fits:
                    if not fits:
                        self.evict(_TOO_MUCH)
                    else:
                        self._take(message)
                if self._closed:
                    break
        except StreamError as error:
            reason = str(error)
        except Exception:  # noqa: BLE001 - see above
            _LOG.exception("a stream failed", client=self.client)
            reason = "the bookie failed to process a message; its log says why"
        else:
            return None
        _LOG.warning("a client broke the rules of the stream", client=self.client, reason=reason)
        return reason

    def close(self) -> None:
        """End the stream: nothing more is answered (rule 49), its attachments are gone."""
        with self._lock:
            already, self._closed = self._closed, True
        if not already:
            self.shared.table.detach(self.stream_id)
        self._outgoing.close()

    def evict(self, why: str) -> None:
        """End the stream for want of room; `why` says which."""
        self.evicted = why
        self.on_evicted()
        self.close()

    # Answers

    def decide(self, message: int, frames: list[int], code: Code) -> None:
        """The frames with these indexes of `message` are durable, or refused with `code`."""
        with self._lock:
            self._answers.decide(message, frames, code)

    def send_answers(self) -> None:
        """Send what is decided, if the stream still lives."""
        with self._lock:
            answer = self._answers.take_answer()
            if answer is not None and not self._closed:
                self._outgoing.put(encode_answer(answer))

    def send_control(self, *controls: pb.ServerControl) -> None:
        """Send control messages, if the stream still lives."""
        messages = [encode_server_control(control) for control in controls]
        with self._lock:
            if not self._closed:
                self._outgoing.put(*messages)

    @property
    def is_closed(self) -> bool:
        """Whether the stream ended."""
        return self._closed

    # Messages

    def _take(self, message: bytes | bytearray) -> None:
        self.received_ms = monotonic_ms()
        waiting, waiting_bytes = self._outgoing.waiting, self._outgoing.waiting_bytes
        if waiting > ANSWERS_WAITING_MAX or waiting_bytes > ANSWERS_WAITING_BYTES_MAX:
            text = f"{waiting} answers of {waiting_bytes} bytes wait for a client that does not read them: read, or ask less"
            raise StreamError(text)
        if is_frames(message):
            self._take_frames(message)
        elif is_lac_table(message):
            self._take_lac_table(message)
        else:
            self._take_control(message)

    def _take_control(self, message: bytes | bytearray) -> None:
        control = decode_client_control(message)
        kind = control.WhichOneof("message")
        if kind == "hello":
            self.client = control.hello.client[:_CLIENT_NAME_MAX]
        elif kind == "attach":
            self.shared.attach(self, control.attach)
        elif kind == "detach":
            detach = control.detach
            self.shared.table.end_attachment(self.stream_id, detach.ledger_id, purpose_of(detach.purpose))
        else:
            text = "a control message of another release: upgrade the bookies before the clients"
            raise StreamError(text)

    def _take_frames(self, message: bytes | bytearray) -> None:
        started = perf_counter()
        shared = self.shared
        shared.metrics.add_messages.inc()
        try:
            frames = split_message(message)
        except FrameError as error:
            self._refuse_message(error)
            return
        if not shared.budget.take(len(message)):
            self.close()
            return
        try:
            damaged = damaged_frames(message, frames)
            for index, why in damaged.items():
                _LOG.warning("a damaged frame", ledger_id=frames[index][0].ledger_id, reason=str(why))
            refused = dict.fromkeys(damaged, Code.BAD_FRAME)
            with self._lock:
                number = self._answers.receive(len(frames))
            item = MessageItem(self, number, len(message), started)
            shared.table.wait_for_room(len(message))
        except BaseException:
            shared.budget.give_back(len(message))  # nobody else knows of it yet
            raise
        self._accept(item, message, frames, refused)
        self._count(message, frames, refused)

    def _take_lac_table(self, message: bytes | bytearray) -> None:
        """Cache the LACs of idle ledgers, and queue what is news (rule 48); nothing is answered.

        Whatever fails on the way, what was cached is journalled.
        """
        shared, table = self.shared, self.shared.table
        try:
            rows, damaged = decode_lac_table(message)
        except FrameError as error:
            raise StreamError(str(error)) from error
        if damaged:
            _LOG.warning("damaged rows in a table of LACs", client=self.client, rows=damaged)
            shared.metrics.add_rejected.labels(Code.BAD_FRAME.name).inc(damaged)
        if not shared.budget.take(len(message)):
            self.close()
            return
        item = LacTableItem(shared, len(message))
        try:
            table.wait_for_room(len(message))
            with table.lock:
                try:
                    table.machine.publish(self.stream_id, rows, item)
                    table.flush_if_due()
                finally:
                    if item.records:
                        shared.journal.put(item)
        finally:
            if not item.records:
                item.settle(Code.OK)
        shared.metrics.lac_rows.inc(len(rows))

    def _refuse_message(self, error: FrameError) -> None:
        _LOG.warning("a message that is no run of frames", client=self.client, reason=str(error))
        with self._lock:
            self._answers.refuse(Code.BAD_FRAME)
        self.shared.metrics.add_rejected.labels(Code.BAD_FRAME.name).inc()
        self.send_answers()

    def _accept(
        self,
        item: MessageItem,
        message: bytes | bytearray,
        frames: list[tuple[FrameHeader, int]],
        refused: dict[int, Code],
    ) -> None:
        """Have every frame decided and cached, and queue what was accepted, under one lock; answer what is decided.

        Whatever fails on the way, what was cached is journalled, and the item gives its bytes back when it is settled.
        """
        table = self.shared.table
        with table.lock:
            try:
                table.machine.append(self.stream_id, message, frames, refused, item)
                table.flush_if_due()
            finally:
                self.shared.journal.put(item)
        if item.early or refused:
            self.decide(item.message, item.early, Code.OK)
            for index, code in refused.items():
                self.decide(item.message, [index], code)
            self.send_answers()

    def _count(
        self, message: bytes | bytearray, frames: list[tuple[FrameHeader, int]], refused: dict[int, Code]
    ) -> None:
        metrics = self.shared.metrics
        size_bytes = len(message)
        if refused:
            for index, code in refused.items():
                metrics.add_rejected.labels(code.name).inc()
                size_bytes -= frames[index][0].size_bytes
            frames = [frame for index, frame in enumerate(frames) if index not in refused]
        metrics.add_frames.inc(len(frames))
        metrics.add_entries.inc(sum([header.count for header, _ in frames]))
        metrics.add_bytes.inc(size_bytes)


def purpose_of(purpose: int) -> Purpose:
    """The purpose that a control message names."""
    return Purpose.RECOVERY if purpose == pb.PURPOSE_RECOVERY else Purpose.WRITE
