"""The readers of the Pulsar protocol: what a broker does with a connection's bytes, and what reads a stored entry."""

import struct
from typing import Final

from crc32c import crc32c

from daybook.wire.pulsar.batches import BatchMessage, encode_batch, is_batch, unpack_batch
from daybook.wire.pulsar.by_hand import parse_send
from daybook.wire.pulsar.entries import (
    check_entry,
    decode_broker_metadata,
    decode_metadata,
    encode_broker_metadata,
    encode_entry,
)
from daybook.wire.pulsar.errors import EntryError, PulsarFrameError, UnknownCommandError
from daybook.wire.pulsar.frames import decode_command, encode_frame, frame_buffer, split_frame
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    BrokerEntryMetadata,
    CommandConnect,
    CommandSend,
    MessageMetadata,
    SingleMessageMetadata,
)
from tests.process.fuzz.target import Target

_SIZES: Final = struct.Struct(">II")


def _read_entry(entry: bytes | memoryview) -> None:
    parts = check_entry(entry)
    decode_broker_metadata(parts)
    metadata = decode_metadata(parts)
    if is_batch(metadata):
        sizes = [len(payload) for _, payload in unpack_batch(metadata, parts.payload)]
        assert len(sizes) == metadata.num_messages_in_batch
        assert sum(sizes) <= len(parts.payload)


def _read_connection(data: bytes) -> None:
    buffer = frame_buffer()
    while data:
        room = buffer.room()
        size_bytes = min(len(room), len(data), 100)
        room[:size_bytes] = data[:size_bytes]
        data = data[size_bytes:]
        for frame in buffer.received(size_bytes):
            command, entry = split_frame(frame)
            read = parse_send(command)
            decoded = decode_command(command)
            assert read is None or read[1] == decoded.send.sequence_id
            if decoded.type == BaseCommand.SEND:
                _read_entry(entry)


def _seal_entry(entry: bytes) -> bytes:
    at = 0
    if entry[:2] == b"\x0e\x02" and len(entry) >= 6:
        at = 6 + struct.unpack_from(">I", entry, 2)[0]
    if entry[at : at + 2] != b"\x0e\x01" or len(entry) < at + 6:
        return entry
    return entry[: at + 2] + struct.pack(">I", crc32c(entry[at + 6 :])) + entry[at + 6 :]


def _seal_connection(data: bytes) -> bytes:
    sealed = bytearray()
    while len(data) >= _SIZES.size:
        total, size_bytes = _SIZES.unpack_from(data)
        entry, end = 8 + size_bytes, 4 + total
        sealed += data[:entry] + _seal_entry(data[entry:end])
        data = data[max(entry, end) :]
    return bytes(sealed) + data


_METADATA: Final = MessageMetadata(producer_name="p", sequence_id=300, publish_time=10**12, partition_key="k")
_BATCH: Final = encode_batch(
    _METADATA,
    [
        BatchMessage(SingleMessageMetadata(partition_key="k", payload_size=0), bytes(size))
        for size in range(4)
    ],
)
_CONNECTION: Final = b"".join(
    (
        encode_frame(BaseCommand(type=BaseCommand.CONNECT, connect=CommandConnect(client_version="x"))),
        encode_frame(
            BaseCommand(type=BaseCommand.SEND, send=CommandSend(producer_id=1, sequence_id=300)), _BATCH
        ),
    )
)

PULSAR_TARGETS: Final = (
    Target(
        "pulsar_connection",
        (_CONNECTION,),
        _read_connection,
        (PulsarFrameError, UnknownCommandError, EntryError),
        _seal_connection,
    ),
    Target(
        "pulsar_entry",
        (
            _BATCH,
            encode_broker_metadata(BrokerEntryMetadata(broker_timestamp=1, index=2)) + _BATCH,
            encode_entry(_METADATA, b"one message"),
        ),
        _read_entry,
        (EntryError,),
        _seal_entry,
    ),
)
