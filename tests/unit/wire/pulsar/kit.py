"""Samples and strategies that the tests of the Pulsar protocol share."""

import struct
from typing import Any

from crc32c import crc32c
from hypothesis import strategies as st

from daybook.wire.pulsar.entries import encode_entry
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandSend, MessageMetadata

UINT64 = st.integers(0, 200) | st.integers(0, 2**64 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)

_SIZED = b"\0\0\0\3\xff\xff\xff"
UNREADABLE = struct.pack(">HI", 0x0E01, crc32c(_SIZED)) + _SIZED
"""What a broker stores although its metadata cannot be read: its checksum is right."""

send_bodies = st.builds(
    CommandSend,
    producer_id=UINT64,
    sequence_id=UINT64,
    num_messages=st.none() | st.integers(0, 1000) | INT32,
    highest_sequence_id=st.none() | UINT64,
    is_chunk=st.none() | st.booleans(),
    txnid_least_bits=st.none() | UINT64,
)


def send(**fields: Any) -> BaseCommand:
    """A SEND."""
    return BaseCommand(type=BaseCommand.SEND, send=CommandSend(**fields))


def metadata(**fields: Any) -> MessageMetadata:
    """The metadata of a producer's message."""
    return MessageMetadata(**{"producer_name": "p", "sequence_id": 3, "publish_time": 1_000, **fields})


def published(unix_ms: int) -> bytes:
    """An entry of that time."""
    return encode_entry(metadata(publish_time=unix_ms), b"")
