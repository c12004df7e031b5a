"""What a hostile client of Pulsar's protocol sends: the frames of a good session, and what can be done to them.

Bytes at random are refused as no frame. So most of the damage is done to fields, and to what an entry says of itself, and the sizes and
checksums around it are right again: this reaches the handlers.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from daybook.wire.pulsar.entries import encode_entry
from daybook.wire.pulsar.frames import encode_frame, frame_head
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, MessageMetadata
from tests.process.fuzz.mutations import INTERESTING, Edit, mutate

PRODUCER_ID: Final = 1
CONSUMER_ID: Final = 1
REPEATED_MAX: Final = 5_000
DEPTH_MAX: Final = 3
TEXTS: Final = (
    "",
    "/",
    "a/b",
    "..",
    "persistent://a/b/c",
    "\0",
    "é" * 2000,
    "x" * 100_000,
    "%2F",
    "public/default",
)

Frame: TypeAlias = tuple[BaseCommand, bytes]
"""A command and its entry."""


def command(kind: str, field: str, **fields: Any) -> BaseCommand:
    """A command of `kind` whose body is in `field`."""
    found = BaseCommand(type=kind)
    body = getattr(found, field)
    body.SetInParent()
    for name, value in fields.items():
        if isinstance(value, (list, Message)):
            (getattr(body, name).extend if isinstance(value, list) else getattr(body, name).CopyFrom)(value)
        else:
            setattr(body, name, value)
    return found


def opening(topic: str) -> list[BaseCommand]:
    """What opens a session; each has one answer."""
    return [
        command("LOOKUP", "lookupTopic", topic=topic, request_id=1, authoritative=True),
        command("PARTITIONED_METADATA", "partitionMetadata", topic=topic, request_id=2),
        command("PRODUCER", "producer", topic=topic, producer_id=PRODUCER_ID, request_id=3),
        command(
            "SUBSCRIBE",
            "subscribe",
            topic=topic,
            subscription="s",
            subType=1,
            consumer_id=CONSUMER_ID,
            request_id=4,
            consumer_name="hostile",
        ),
    ]


def session(topic: str, random: Random) -> list[Frame]:
    """What a good client sends once its producer and its consumer are open, with closes and new opens among it."""
    consumer, producer = {"consumer_id": CONSUMER_ID}, {"producer_id": PRODUCER_ID}
    message_id = {"ledgerId": random.randrange(40), "entryId": random.randrange(20)}

    def ack(kind: int, **fields: Any) -> BaseCommand:
        found = command("ACK", "ack", **consumer, ack_type=kind, **fields)
        found.ack.message_id.add(**message_id, ack_set=[1, 2], batch_size=100)
        return found

    redeliver = command("REDELIVER_UNACKNOWLEDGED_MESSAGES", "redeliverUnacknowledgedMessages", **consumer)
    redeliver.redeliverUnacknowledgedMessages.message_ids.add(**message_id)
    seek = command("SEEK", "seek", **consumer, request_id=15)
    seek.seek.message_id.ledgerId, seek.seek.message_id.entryId = message_id.values()
    plain: list[BaseCommand] = [
        *opening(topic),
        command("FLOW", "flow", **consumer, messagePermits=100),
        ack(0, request_id=11),
        ack(1, request_id=12),
        ack(0),
        redeliver,
        seek,
        command("SEEK", "seek", **consumer, request_id=16, message_publish_time=1),
        command("CONSUMER_STATS", "consumerStats", **consumer, request_id=13),
        command("GET_LAST_MESSAGE_ID", "getLastMessageId", **consumer, request_id=14),
        command("UNSUBSCRIBE", "unsubscribe", **consumer, request_id=17),
        command("CLOSE_CONSUMER", "close_consumer", **consumer, request_id=18),
        command("CLOSE_PRODUCER", "close_producer", **producer, request_id=19),
        command("GET_TOPICS_OF_NAMESPACE", "getTopicsOfNamespace", namespace="public/default", request_id=20),
        command("GET_SCHEMA", "getSchema", topic=topic, request_id=21),
        command("GET_OR_CREATE_SCHEMA", "getOrCreateSchema", topic=topic, request_id=22),
        command("TC_CLIENT_CONNECT_REQUEST", "tcClientConnectRequest", tc_id=1, request_id=23),
        command("PING", "ping"),
        command("PONG", "pong"),
    ]
    frames = [(each, b"") for each in plain if each.IsInitialized()]
    for number in range(8):
        send = command("SEND", "send", **producer, sequence_id=number, num_messages=1 + number % 3)
        frames.insert(len(opening(topic)), (send, encode_entry(metadata(number), b"payload")))
    return frames


def metadata(number: int) -> MessageMetadata:
    """Of a message, or of a batch."""
    found = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
    if number % 3:
        found.num_messages_in_batch = 1 + number % 3
    return found


def make_odd(message: Message, random: Random, depth: int = 0) -> None:
    """Give a field of the message, or of one within it, a value that nobody would choose."""
    if not message.DESCRIPTOR.fields:
        return
    field: Any = random.choice(list(message.DESCRIPTOR.fields))
    values = getattr(message, field.name)
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        if field.is_repeated:
            if "Entry" in field.message_type.name:
                return
            for _ in range(random.choice((1, 2, REPEATED_MAX))):
                _fill(values.add(), random)
        elif depth < DEPTH_MAX:
            values.SetInParent()
            make_odd(values, random, depth + 1)
        return
    if field.is_repeated:
        values.extend(_odd(field, random) for _ in range(random.choice((1, 2, REPEATED_MAX))))
    else:
        setattr(message, field.name, _odd(field, random))


def _fill(message: Message, random: Random) -> None:
    """What a repeated part must have, with odd values."""
    fields: list[Any] = list(message.DESCRIPTOR.fields)
    for field in fields:
        if field.is_required and field.type != FieldDescriptor.TYPE_MESSAGE:
            setattr(message, field.name, _odd(field, random, short=True))


_RANGES: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def _odd(field: Any, random: Random, *, short: bool = False) -> Any:
    if field.cpp_type in _RANGES:
        lowest, highest = _RANGES[field.cpp_type]
        return random.choice([each for each in (*INTERESTING, highest, lowest) if lowest <= each <= highest])
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return random.choice(field.enum_type.values).number
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return random.random() < 0.5
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        text = random.choice(TEXTS)[: 8 if short else None]
        return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
    return random.choice((0.0, -1.0, float("inf"), float("nan")))


# What is done to a session

Attack: TypeAlias = Callable[[Sequence[Frame], Random], list[bytes]]
"""The frames of a session, encoded, with something wrong."""


def _encoded(frames: Sequence[Frame]) -> list[bytes]:
    return [encode_frame(each, entry) for each, entry in frames]


def odd_fields(frames: Sequence[Frame], random: Random) -> list[bytes]:
    """Commands with a field, or some, that make no sense."""
    found = []
    for each, entry in frames:
        changed = BaseCommand()
        changed.CopyFrom(each)
        body = next(value for field, value in changed.ListFields() if field.number == changed.type)
        for _ in range(random.randrange(3)):
            make_odd(body, random)
        found.append(frame_head(changed.SerializePartialToString(), len(entry)) + entry)
    return found


def odd_entries(frames: Sequence[Frame], random: Random) -> list[bytes]:
    """Entries whose metadata make no sense, with a checksum that is right, and a consumer that asks for them."""
    found = []
    for number, (each, entry) in enumerate(frames):
        if each.type == BaseCommand.SEND:
            odd = metadata(number)
            odd.num_messages_in_batch = random.choice((-(2**31), -1, 0, 1, 2**31 - 1))
            for _ in range(1 + random.randrange(3)):
                make_odd(odd, random)
            if odd.IsInitialized():
                entry = encode_entry(odd, b"payload")
        found.append(encode_frame(each, entry))
    return found


def flipped(frames: Sequence[Frame], random: Random) -> list[bytes]:
    """Bits and bytes changed anywhere in some frames, sizes and checksums too."""
    found = _encoded(frames)
    for _ in range(1 + random.randrange(3)):
        where = random.randrange(len(found))
        found[where] = mutate(found[where], [random_edit(random) for _ in range(1 + random.randrange(3))])
    return found


def flipped_commands(frames: Sequence[Frame], random: Random) -> list[bytes]:
    """Bytes changed within commands alone, so that the frame around them is right."""
    found = []
    for each, entry in frames:
        data = each.SerializeToString()
        if random.random() < 0.3:
            data = mutate(data, [random_edit(random)]) or b"\x08"
        found.append(frame_head(data, len(entry)) + entry)
    return found


def truncated(frames: Sequence[Frame], random: Random) -> list[bytes]:
    """The session breaks off within a frame, or a frame lacks its end while others follow."""
    found = _encoded(frames)
    where = random.randrange(len(found))
    found[where] = found[where][: random.randrange(len(found[where]))]
    return found if random.random() < 0.5 else found[: where + 1]


def repeated(frames: Sequence[Frame], random: Random) -> list[bytes]:
    """A frame many times."""
    found = _encoded(frames)
    where = random.randrange(len(found))
    return found[:where] + found[where : where + 1] * random.choice((2, 50, 1500)) + found[where:]


def reordered(frames: Sequence[Frame], random: Random) -> list[bytes]:
    """All frames, in another order."""
    found = _encoded(frames)
    random.shuffle(found)
    return found


def oversized(frames: Sequence[Frame], random: Random) -> list[bytes]:
    """A frame that announces more than is allowed, or more than it has, and zeros that seem to follow."""
    found = _encoded(frames)
    where = random.randrange(len(found))
    sizes = (0, 3, 4, 2**20, 5 * 2**20, 2**23, 2**31 - 1, 2**31, 2**32 - 1)
    head = random.choice(sizes).to_bytes(4, "big") + random.choice(sizes).to_bytes(4, "big")
    found.insert(where, head + bytes(random.choice((0, 100, 2**20))))
    return found


def unknown(frames: Sequence[Frame], random: Random) -> list[bytes]:
    """Commands that nobody knows, that brokers send, and that have another command's body."""
    found = _encoded(frames)
    for _ in range(5):
        kind = random.choice((*BaseCommand.Type.values(), 0, 1, 100, 127))
        body = random.choice(frames)[0]
        data = bytes((0x08, kind)) + body.SerializeToString()[2:]
        found.insert(random.randrange(len(found)), frame_head(data, 0))
    return found


def random_edit(random: Random) -> Edit:
    """A change of bytes."""
    return Edit(
        random.randrange(256), random.randrange(256), random.randrange(2**32), random.choice((0, 1, -1, 255))
    )


ATTACKS: Final[dict[str, Attack]] = {
    "odd fields": odd_fields,
    "odd entries": odd_entries,
    "flipped": flipped,
    "flipped commands": flipped_commands,
    "truncated": truncated,
    "repeated": repeated,
    "reordered": reordered,
    "oversized": oversized,
    "unknown": unknown,
}
