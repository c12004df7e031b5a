"""A broker that answers at once and stores nothing: `python -m bench.broker.null_broker PORT`.

It is what a client can reach at most on this machine, so it shares no code with Daybook's broker, and speaks no more of the
protocol than the bench needs. What a consumer has subscribed to before is passed on as it came. A reader from the beginning gets the
largest batch of the topic again and again, as many messages as were sent.
"""

import asyncio
import struct
import sys
from collections import defaultdict, deque
from itertools import count
from typing import Final

Value = int | bytes

_SIZES: Final = struct.Struct(">II")
CONNECT, SUBSCRIBE, PRODUCER, SEND, ACK, FLOW, UNSUBSCRIBE = 2, 4, 5, 6, 10, 11, 12
CLOSE_PRODUCER, CLOSE_CONSUMER, PING, PARTITIONS, LOOKUP = 15, 16, 18, 21, 23
CONNECTED, RECEIPT, MESSAGE, SUCCESS, PRODUCER_SUCCESS = 3, 7, 9, 13, 17
PONG, PARTITIONS_ANSWER, LOOKUP_ANSWER, ACK_ANSWER = 19, 22, 24, 38
REQUEST_ID_OF: Final = {SUBSCRIBE: 5, UNSUBSCRIBE: 2, CLOSE_PRODUCER: 2, CLOSE_CONSUMER: 2}


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def pack(fields: dict[int, Value]) -> bytes:
    """Fields by their numbers, as protobuf writes them."""
    parts = []
    for number, value in fields.items():
        if isinstance(value, int):
            parts.append(varint(number << 3) + varint(value))
        else:
            parts.append(varint(number << 3 | 2) + varint(len(value)) + value)
    return b"".join(parts)


def unpack(data: bytes) -> dict[int, Value]:
    """The inverse of `pack`; of a repeated field the last one."""
    fields: dict[int, Value] = {}
    at = 0
    while at < len(data):
        tag, at = _varint_at(data, at)
        value, at = _varint_at(data, at)
        if tag & 7 == 2:
            fields[tag >> 3] = data[at : at + value]
            at += value
        else:
            fields[tag >> 3] = value
    return fields


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def frame(kind: int, fields: dict[int, Value], entry_bytes: int = 0) -> bytes:
    """A command, to be followed by an entry of `entry_bytes`."""
    command = pack({1: kind, kind: pack(fields)})
    return _SIZES.pack(4 + len(command) + entry_bytes, len(command)) + command


class Topic:
    """How much was sent, and who receives it."""

    def __init__(self) -> None:
        self.entries = 0
        self.messages = 0
        self.largest: tuple[int, bytes] = (0, b"")
        self.consumers: list[Consumer] = []

    def sent(self, messages: int, entry: bytes) -> int:
        """Take an entry, pass it on, and return its number."""
        self.entries += 1
        self.messages += messages
        if messages > self.largest[0]:
            self.largest = messages, entry
        for consumer in self.consumers:
            consumer.waiting.append((messages, entry))
            consumer.deliver()
        return self.entries - 1


class Consumer:
    """Receives what comes after it, or, as a reader from the beginning, copies of the largest batch."""

    def __init__(self, transport: asyncio.Transport, number: int, topic: Topic, *, is_reader: bool) -> None:
        self.topic = topic
        self.permits = 0
        self.waiting: deque[tuple[int, bytes]] = deque()
        self._transport = transport
        self._number = number
        self._is_reader = is_reader
        self._given = 0
        self._ids = count()
        if not is_reader:
            topic.consumers.append(self)

    def deliver(self) -> None:
        """Send what the client has permits for."""
        parts: list[bytes] = []
        while self.permits > 0:
            if self.waiting:
                messages, entry = self.waiting.popleft()
            elif self._is_reader and self._given < self.topic.messages:
                messages, entry = self.topic.largest
            else:
                break
            self.permits -= messages
            self._given += messages
            position = pack({1: 1, 2: next(self._ids)})
            parts += [frame(MESSAGE, {1: self._number, 2: position}, len(entry)), entry]
        if parts:
            self._transport.writelines(parts)


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, topics: dict[bytes, Topic], url: bytes) -> None:
        self._topics = topics
        self._url = url
        self._data = bytearray()
        self._producers: dict[int, Topic] = {}
        self._consumers: dict[int, Consumer] = {}
        self._out: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """It has left."""
        for number in list(self._consumers):
            self._drop(number)

    def data_received(self, data: bytes) -> None:
        """Answer all commands that are complete."""
        self._data += data
        at = 0
        with memoryview(self._data) as view:
            while len(view) - at >= _SIZES.size:
                total, size = _SIZES.unpack_from(view, at)
                end = at + 4 + total
                if end > len(view):
                    break
                begin = at + _SIZES.size
                self._take(bytes(view[begin : begin + size]), view[begin + size : end])
                at = end
        del self._data[:at]
        if self._out:
            self._transport.writelines(self._out)
            self._out = []

    def _take(self, command: bytes, entry: memoryview) -> None:
        outer = unpack(command)
        kind = _number(outer, 1)
        fields = unpack(_bytes(outer, kind))
        match kind:
            case 6:  # SEND
                self._send(fields, bytes(entry))
            case 11:  # FLOW
                consumer = self._consumers[_number(fields, 1)]
                consumer.permits += _number(fields, 2)
                consumer.deliver()
            case 10 if 8 in fields:  # ACK that is to be answered
                self._answer(ACK_ANSWER, {1: fields[1], 6: fields[8]})
            case 2:  # CONNECT
                self._answer(CONNECTED, {1: b"null", 2: 19, 3: 5 << 20})
            case 18:  # PING
                self._answer(PONG, {})
            case 21:  # PARTITIONED_METADATA
                self._answer(PARTITIONS_ANSWER, {1: 0, 2: fields[2], 3: 0})
            case 23:  # LOOKUP
                self._answer(LOOKUP_ANSWER, {1: self._url, 3: 1, 4: fields[2], 5: 1})
            case 5:  # PRODUCER
                self._producers[_number(fields, 2)] = self._topics[_bytes(fields, 1)]
                name = b"null-%d" % _number(fields, 2)
                self._answer(PRODUCER_SUCCESS, {1: fields[3], 2: name, 6: 1})
            case _ if kind in REQUEST_ID_OF:
                self._open_or_close(kind, fields)
                self._answer(SUCCESS, {1: fields[REQUEST_ID_OF[kind]]})

    def _send(self, fields: dict[int, Value], entry: bytes) -> None:
        number = _number(fields, 1)
        messages = max(_number(fields, 3), 1)
        position = pack({1: 1, 2: self._producers[number].sent(messages, entry)})
        receipt: dict[int, Value] = {1: number, 2: _number(fields, 2), 3: position}
        if 6 in fields:
            receipt[4] = fields[6]
        self._answer(RECEIPT, receipt)

    def _open_or_close(self, kind: int, fields: dict[int, Value]) -> None:
        if kind == SUBSCRIBE:
            number = _number(fields, 4)
            is_reader = fields.get(8) == 0  # not durable
            topic = self._topics[_bytes(fields, 1)]
            self._consumers[number] = Consumer(self._transport, number, topic, is_reader=is_reader)
        elif kind == CLOSE_CONSUMER:
            self._drop(_number(fields, 1))
        elif kind == CLOSE_PRODUCER:
            self._producers.pop(_number(fields, 1), None)

    def _drop(self, number: int) -> None:
        consumer = self._consumers.pop(number, None)
        if consumer is not None and consumer in consumer.topic.consumers:
            consumer.topic.consumers.remove(consumer)

    def _answer(self, kind: int, fields: dict[int, Value]) -> None:
        self._out.append(frame(kind, fields))


def _number(fields: dict[int, Value], number: int) -> int:
    value = fields.get(number, 0)
    assert isinstance(value, int)
    return value


def _bytes(fields: dict[int, Value], number: int) -> bytes:
    value = fields.get(number, b"")
    assert isinstance(value, bytes)
    return value


async def serve(port: int) -> None:
    """Serve until the process is ended."""
    topics: dict[bytes, Topic] = defaultdict(Topic)
    url = b"pulsar://127.0.0.1:%d" % port
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(topics, url), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
