"""Payloads of producers without their compression."""

import sys
import zlib
from typing import Final

import pyarrow as pa
import pytest

from daybook.wire.pulsar.compression import load_codecs, needs_loading, uncompressed
from daybook.wire.pulsar.errors import CodecMissingError, EntryError
from daybook.wire.pulsar.frames import MESSAGE_BYTES_MAX
from daybook.wire.pulsar.pulsar_pb2 import CompressionType
from tests.unit.wire.pulsar.kit import metadata

ZLIB, LZ4, ZSTD, SNAPPY = (
    CompressionType.ZLIB,
    CompressionType.LZ4,
    CompressionType.ZSTD,
    CompressionType.SNAPPY,
)
ARROW: Final = {LZ4: "lz4_raw", ZSTD: "zstd", SNAPPY: "snappy"}
CODECS: Final = (ZLIB, *ARROW)


def compressed(kind: CompressionType, payload: bytes) -> bytes:
    """As a producer compresses it."""
    if kind == ZLIB:
        return zlib.compress(payload)
    return bytes(pa.Codec(ARROW[kind]).compress(payload, asbytes=True))


@pytest.mark.parametrize("kind", CODECS, ids=CompressionType.Name)
@pytest.mark.parametrize("payload", [b"abc", b"x" * 100_000, b""], ids=len)
def test_every_codec_of_producers_is_undone(kind: CompressionType, payload: bytes) -> None:
    fields = metadata(compression=kind, uncompressed_size=len(payload))
    for data in (compressed(kind, payload), memoryview(compressed(kind, payload))):
        assert uncompressed(fields, data) == payload
    assert uncompressed(metadata(), payload) == payload


@pytest.mark.parametrize("kind", CODECS, ids=CompressionType.Name)
@pytest.mark.parametrize("size_bytes", [2, 4, 2**20])
def test_a_size_that_is_not_true_is_refused(kind: CompressionType, size_bytes: int) -> None:
    with pytest.raises(EntryError, match=r"bytes that its metadata says|is not what \w+ makes"):
        uncompressed(metadata(compression=kind, uncompressed_size=size_bytes), compressed(kind, b"abc"))


@pytest.mark.parametrize("kind", CODECS, ids=CompressionType.Name)
def test_a_payload_that_is_damaged_or_too_large_is_refused(kind: CompressionType) -> None:
    with pytest.raises(EntryError, match=f"is not what {CompressionType.Name(kind)} makes"):
        uncompressed(metadata(compression=kind, uncompressed_size=100), b"\xff\xff\xff")
    large = metadata(compression=kind, uncompressed_size=MESSAGE_BYTES_MAX + 1)
    with pytest.raises(EntryError, match=f"at most {MESSAGE_BYTES_MAX} are allowed"):
        uncompressed(large, b"")
    with pytest.raises(EntryError, match="at most 2 are allowed"):
        uncompressed(metadata(compression=kind, uncompressed_size=3), compressed(kind, b"abc"), 2)


def test_without_pyarrow_zlib_is_undone_and_the_error_for_others_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load_codecs()
    assert not needs_loading(metadata(compression=LZ4)), "it is imported already"
    payloads = {kind: compressed(kind, b"abc") for kind in CODECS}
    monkeypatch.delitem(sys.modules, "pyarrow")
    assert [needs_loading(metadata(compression=kind)) for kind in CODECS] == [False, True, True, True]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert bytes(uncompressed(metadata(compression=ZLIB, uncompressed_size=3), payloads[ZLIB])) == b"abc"
    for kind in ARROW:
        with pytest.raises(
            CodecMissingError, match=r"install the extra `offload` .*uv sync --inexact --extra offload"
        ):
            uncompressed(metadata(compression=kind, uncompressed_size=3), payloads[kind])
