"""Payloads whose compression the standard library undoes."""

import zlib

import pytest

from daybook.wire.pulsar.compression import uncompressed
from daybook.wire.pulsar.errors import EntryError
from daybook.wire.pulsar.frames import MESSAGE_BYTES_MAX
from daybook.wire.pulsar.pulsar_pb2 import CompressionType
from tests.unit.wire.pulsar.kit import metadata

ZLIB = CompressionType.ZLIB


def test_zlib_and_no_compression_are_undone_and_others_are_not() -> None:
    assert uncompressed(metadata(), b"abc") == b"abc"
    assert uncompressed(metadata(compression=ZLIB, uncompressed_size=3), zlib.compress(b"abc")) == b"abc"
    assert uncompressed(metadata(compression=CompressionType.LZ4, uncompressed_size=3), b"?") is None


@pytest.mark.parametrize(
    ("size_bytes", "payload", "match"),
    [
        (0, b"", "0 bytes once it is decompressed: 1 to"),
        (MESSAGE_BYTES_MAX + 1, b"", "are allowed"),
        (3, b"abc", "is not what ZLIB makes"),
        (4, zlib.compress(b"abc"), "has 3 bytes once it is decompressed, and its metadata says 4"),
    ],
)
def test_a_payload_that_is_not_what_its_metadata_says_is_refused(
    size_bytes: int, payload: bytes, match: str
) -> None:
    with pytest.raises(EntryError, match=match):
        uncompressed(metadata(compression=ZLIB, uncompressed_size=size_bytes), payload)
