"""What a hostile client does to a bookie over real sockets, one function for each way; a healthy client is beside it.

Each attack returns how many messages or calls it sent, and itself checks that the answer is clear: a code of gRPC
that says whose fault it is, or one of ours. None may take the bookie's memory, threads or service with it.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, Final

import grpc

from daybook.core.errors import Code
from daybook.core.ids import MESSAGE_BYTES_MAX
from daybook.wire import bookie_pb2 as pb
from daybook.wire import service
from daybook.wire.channel import open_channel
from daybook.wire.messages import decode_from_bookie, decode_read, encode_client_control
from tests.process.fuzz.mutations import Edit
from tests.process.fuzz.target import Target
from tests.process.fuzz.targets import TARGETS
from tests.unit.bookie.server_kit import eventually, frame_of
from tests.unit.bookie.stream_kit import KEY, WAIT_S, Stream

ODD_IDS: Final = (-(2**63), -1, 0, 1, 2, 7, 2**31, 2**62, 2**63 - 1)
ODD_COUNTS: Final = (-(2**31), -1, 0, 1, 2**31 - 1)
BLAMES_THE_CLIENT: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,  # what gRPC itself says of bytes that are no message
        grpc.StatusCode.UNKNOWN,  # and of a request that cannot be deserialized
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
LEDGER: Final = 2
"""The attackers' own."""
HEALTHY: Final = (1, 3)
"""The ledgers of the healthy clients: one over gRPC, one over the lane."""


class RawStream:
    """An append stream that sends any bytes, and reads nothing unless it is asked to."""

    def __init__(self, channel: grpc.Channel) -> None:
        """Open it."""
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        append: Any = channel.stream_stream(f"/{service.SERVICE}/{service.APPEND}")
        self.call: Any = append(self._messages())

    def _messages(self) -> Iterator[bytes]:
        while (message := self._outgoing.get()) is not None:
            yield message

    def send(self, message: bytes) -> None:
        """Queue a message."""
        self._outgoing.put(message)

    def finish(self) -> grpc.StatusCode | None:
        """Half-close, read to the end; how it ended."""
        self._outgoing.put(None)
        return status_of(lambda: [decode_from_bookie(message) for message in self.call])

    def cancel(self) -> None:
        """Go away."""
        self.call.cancel()
        self._outgoing.put(None)


def status_of(call: Callable[[], Any]) -> grpc.StatusCode | None:
    """The status that `call` failed with, which must say whose fault it is; None if it succeeded."""
    try:
        call()
    except grpc.RpcError as error:
        failed: Any = error  # its code and details are in no type
    else:
        return None
    status: grpc.StatusCode = failed.code()
    assert status in BLAMES_THE_CLIENT, f"{status}: {failed.details()}"
    return status


def attach() -> bytes:
    """A request for the attackers' ledger."""
    return encode_client_control(pb.ClientControl(attach=pb.Attach(ledger_id=LEDGER, key=KEY)))


def random_edits(random: Random) -> list[Edit]:
    """Some damage."""
    return [
        Edit(
            random.randrange(256),
            random.randrange(256),
            random.randrange(2**32),
            random.randrange(-(2**31), 2**31),
        )
        for _ in range(random.randint(1, 6))
    ]


def damaged(target: Target, random: Random) -> bytes:
    """A message of `target`, damaged."""
    return target.damaged(random.randrange(4), random_edits(random), sealed=random.random() < 0.5)


def damaged_messages(address: str, random: Random, count: int) -> int:
    """Damaged frames and controls on streams that are attached, each stream until the bookie ends it."""
    sent = 0
    with open_channel(address) as channel:
        while sent < count:
            stream = RawStream(channel)
            stream.send(attach())
            for _ in range(random.randint(1, 20)):
                stream.send(damaged(TARGETS["from_client"], random))
                sent += 1
            stream.finish()
    return sent


def absurd_numbers(address: str, random: Random, count: int) -> int:
    """Every call with numbers that no client of ours would send."""
    with open_channel(address) as channel:
        for _ in range(count):
            _absurd_call(channel, random)
    return count


def _absurd_call(channel: grpc.Channel, random: Random) -> None:
    method = random.choice((*service.UNARY_METHODS, None))
    request: Any = (pb.ReadRequest if method is None else method.request)()
    _fill(request, random)
    if isinstance(request, pb.SetReadOnlyRequest):
        request.read_only = False
    if method is None:
        assert isinstance(request, pb.ReadRequest)
        read: Any = channel.unary_stream(
            f"/{service.SERVICE}/{service.READ}", request_serializer=pb.ReadRequest.SerializeToString
        )
        status_of(lambda: [decode_read(message) for message in read(request, timeout=WAIT_S)])
        return
    call = channel.unary_unary(
        f"/{service.SERVICE}/{method.name}",
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )

    def ask() -> None:
        answer = call(request, timeout=WAIT_S)
        if hasattr(answer, "code"):
            assert Code(answer.code) is not Code.TIMEOUT

    status_of(ask)


def _fill(request: Any, random: Random) -> None:
    """Odd values for all fields, and for those of the messages within."""
    for field in request.DESCRIPTOR.fields:
        if field.type == field.TYPE_MESSAGE:
            for _ in range(random.choice((0, 1, 10, 300))):
                _fill(getattr(request, field.name).add(), random)
            continue
        if field.type == field.TYPE_STRING:
            value: Any = random.choice(("", KEY, "k" * 300, "\0", "é" * 200))
        elif field.type == field.TYPE_BOOL:
            value = random.random() < 0.5
        else:
            value = random.choice(ODD_COUNTS if field.type == field.TYPE_INT32 else ODD_IDS)
        setattr(request, field.name, value)
    if hasattr(request, "timeout_ms"):
        request.timeout_ms = random.choice((-1, 0, 1, 50))
    if getattr(request, "ledger_id", 0) in HEALTHY:
        request.ledger_id = LEDGER  # those are left alone: to fence them is anyone's right


def _drain(call: Any, request: bytes) -> None:
    for _ in call(request, timeout=WAIT_S):
        pass


def damaged_protobuf(address: str, random: Random, count: int) -> int:
    """Bytes that are no message to every call, and a call that does not exist."""
    names = [method.name for method in service.UNARY_METHODS]
    with open_channel(address) as channel:
        for _ in range(count):
            request = random.randbytes(random.choice((0, 1, 10, 1000)))
            name = random.choice((*names, "NoSuchCall"))
            if name in {service.SET_READ_ONLY.name, service.FENCE.name, service.RECOVER.name}:
                request = b"\xff" + request  # never by chance a good one that stops the healthy client
            call: Any = channel.unary_unary(f"/{service.SERVICE}/{name}")
            status_of(partial(call, request, timeout=WAIT_S))
            read: Any = channel.unary_stream(f"/{service.SERVICE}/{service.READ}")
            status_of(partial(_drain, read, request))
    return 2 * count


def oversized_messages(address: str, random: Random, count: int) -> int:
    """Messages over the limit, and the largest that are allowed, of nothing but tiny frames."""
    tiny = frame_of(LEDGER, 0, [])
    limits = (("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1))
    with grpc.insecure_channel(address, options=limits) as channel:
        for number in range(count):
            stream = RawStream(channel)
            if number % 2:
                stream.send(bytes(MESSAGE_BYTES_MAX + 2**20))
            else:
                stream.send(attach())
                stream.send(tiny * (MESSAGE_BYTES_MAX // len(tiny)))
            stream.finish()
    return count


def half_open_streams(address: str, random: Random, count: int) -> int:
    """Streams that say nothing, or begin and never end; more of them than the bookie allows, then all go away."""
    with open_channel(address) as channel:
        streams = [RawStream(channel) for _ in range(count)]
        for stream in streams[::2]:
            stream.send(encode_client_control(pb.ClientControl(hello=pb.ClientHello(client="x" * 100_000))))
        for stream in streams:
            status_of(partial(next, iter(stream.call)))  # its hello, or why it gets none
        assert eventually(lambda: any(not stream.call.is_active() for stream in streams))
        ended = sum(not stream.call.is_active() for stream in streams)
        for stream in streams:
            stream.cancel()
    assert ended < count, "the limit is between, and the older ones are evicted"
    return count


def deaf_streams(address: str, random: Random, count: int) -> int:
    """Questions without end on a stream whose answers nobody reads, until the bookie has had enough."""
    with open_channel(address) as channel:
        stream = RawStream(channel)
        ended = threading.Event()
        stream.call.add_callback(ended.set)
        sent = 0
        while sent < count and not ended.is_set():
            stream.send(
                encode_client_control(pb.ClientControl(attach=pb.Attach(ledger_id=LEDGER, key="wrong")))
            )
            stream.send(b"DBF1 no frame")
            sent += 2
        ended.wait(0.2)
        stream.cancel()
    return sent


def slow_readers(address: str, random: Random, count: int) -> int:
    """Reads whose answers are not taken, and polls that wait: then they go away."""
    with open_channel(address) as channel:
        read: Any = channel.unary_stream(
            f"/{service.SERVICE}/{service.READ}", request_serializer=pb.ReadRequest.SerializeToString
        )
        calls = [
            read(pb.ReadRequest(ledger_id=LEDGER, last_entry=2**63 - 1, bytes_max=2**63 - 1, key=KEY))
            for _ in range(count)
        ]
        for call in calls:
            call.cancel()
    return count


ATTACKS: Final[dict[str, tuple[Callable[[str, Random, int], int], int]]] = {
    "damaged messages": (damaged_messages, 200),
    "absurd numbers": (absurd_numbers, 150),
    "damaged protobuf": (damaged_protobuf, 60),
    "oversized messages": (oversized_messages, 4),
    "half-open streams": (half_open_streams, 40),
    "deaf streams": (deaf_streams, 4000),
    "slow readers": (slow_readers, 60),
}
"""The attack, and how much of it is a round."""


class HealthyClient:
    """Appends to and reads a ledger of its own all the time; `step` raises unless everything it got was right."""

    def __init__(self, ledger_id: int, stream: Stream, read: Callable[[int, int], bytes]) -> None:
        """`read(ledger, entry)` gives an entry's bytes. Attach."""
        self._ledger_id = ledger_id
        self._stream = stream
        self._read = read
        self.appended = 0
        assert stream.attach(ledger_id) is Code.OK

    def step(self) -> None:
        """Append an entry and read it back, and one from before; raises if the bookie does not serve."""
        entry = self.appended
        assert self._stream.add(frame_of(self._ledger_id, entry, [b"healthy %d" % entry])) == {}
        self.appended += 1
        for wanted in {entry, entry // 2}:
            assert self._read(self._ledger_id, wanted) == b"healthy %d" % wanted
