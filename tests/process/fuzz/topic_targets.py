"""The readers of topics: what a broker does with a connection's bytes, what reads a stored entry, a topic's list and a cursor."""

import struct
from typing import Final

from crc32c import crc32c

from daybook.core.errors import MetadataError
from daybook.core.format.frame import Buffer
from daybook.core.topics.cursor_record import AckedRange, CursorRecord
from daybook.core.topics.ledger_list import (
    LedgerList,
    ListedLedger,
    ListState,
    Position,
    check_list_change,
)
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
from tests.process.fuzz.mutations import mutate_document
from tests.process.fuzz.target import Target

_SIZES: Final = struct.Struct(">II")


def _read_entry(entry: Buffer) -> None:
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

_LIST: Final = LedgerList(
    ListState.OPEN,
    (
        ListedLedger(3, 1, entries=2, size_bytes=20, closed_at_ms=2, last_published_at_ms=2),
        ListedLedger(7, 2),
    ),
    Position(3, 1),
    owner_token="t",
)
_CURSOR: Final = CursorRecord(
    Position(3, 1), (AckedRange(7, 1, 2),), ((Position(7, 4), (5, -1)),), properties={"k": "v"}
)


def _read_list(data: bytes) -> None:
    found = LedgerList.from_json(data)
    again = LedgerList.from_json(found.to_json())
    assert (again.ledgers, again.last_confirmed) == (found.ledgers, found.last_confirmed)
    check_list_change(found, again)


def _read_cursor(data: bytes) -> None:
    found = CursorRecord.from_json(data)
    assert CursorRecord.from_json(found.to_json()).limited(1).mark_delete == found.mark_delete


TOPIC_TARGETS: Final = (
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
    Target("topic_list", (_LIST.to_json(),), _read_list, (MetadataError,), mutate=mutate_document),
    Target("cursor", (_CURSOR.to_json(),), _read_cursor, (MetadataError,), mutate=mutate_document),
)
