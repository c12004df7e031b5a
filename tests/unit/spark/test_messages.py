"""Messages as rows, against a model: what a producer put in is what comes out, each message exactly once, at every cut of entries."""

import zlib
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from daybook_spark.rows import topic_rows
from daybook_spark.rows.columns import arrow_schema, columns_of
from daybook_spark.rows.topic_rows import Place, TimeRange, message_rows
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructField, StructType

from daybook.core.format.entries import Entry
from daybook.wire.pulsar.batches import BatchMessage, encode_batch
from daybook.wire.pulsar.entries import decode_metadata, encode_entry, split_entry
from daybook.wire.pulsar.errors import EntryError
from daybook.wire.pulsar.pulsar_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata

T = TypeVar("T", MessageMetadata, SingleMessageMetadata)
PLACE = Place("persistent://public/default/t", 3, 7)
ALL = arrow_schema(
    StructType([StructField(*each) for each in columns_of(has_ledgers=False, is_permissive=True).items()])
)
CODECS = {CompressionType.LZ4: "lz4_raw", CompressionType.ZSTD: "zstd", CompressionType.SNAPPY: "snappy"}


@dataclass(frozen=True)
class Sent:
    """A message as its producer knows it."""

    value: bytes | None
    key: str | None
    ordering_key: bytes | None
    properties: dict[str, str]
    event_ms: int


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
messages = st.builds(
    Sent,
    st.none() | st.binary(max_size=40),
    st.none() | texts,
    st.none() | st.binary(max_size=8),
    st.dictionaries(texts, texts, max_size=2),
    st.integers(0, 10**12),
)
batches = st.tuples(
    st.lists(messages, min_size=1, max_size=5), st.booleans(), st.sampled_from(CompressionType.values())
)


def compressed(kind: CompressionType, payload: bytes) -> bytes:
    """As a producer's client does it."""
    if kind == CompressionType.NONE:
        return payload
    if kind == CompressionType.ZLIB:
        return zlib.compress(payload)
    return bytes(pa.Codec(CODECS[kind]).compress(payload))


def _fill(metadata: Any, message: Sent) -> None:
    if message.key is not None:
        metadata.partition_key = message.key
    if message.ordering_key is not None:
        metadata.ordering_key = message.ordering_key
    for name, value in message.properties.items():
        metadata.properties.add(key=name, value=value)
    metadata.event_time = message.event_ms
    metadata.null_value = message.value is None


def encode(sent: list[Sent], kind: CompressionType, *, publish_ms: int = 5_000) -> bytes:
    """An entry with these messages, as a batch."""
    metadata = MessageMetadata(producer_name="p", sequence_id=10, publish_time=publish_ms)
    parts = []
    for message in sent:
        single = SingleMessageMetadata(payload_size=0)
        _fill(single, message)
        parts.append(BatchMessage(single, message.value or b""))
    plain = encode_batch(metadata, parts)
    split = split_entry(plain)
    made = decode_metadata(split)
    made.compression = kind
    return encode_entry(made, compressed(kind, bytes(split.payload)))


def encode_single(message: Sent, kind: CompressionType) -> bytes:
    """An entry that is one message."""
    metadata = MessageMetadata(producer_name="p", sequence_id=10, publish_time=5_000, compression=kind)
    _fill(metadata, message)
    metadata.uncompressed_size = len(message.value or b"")
    return encode_entry(metadata, compressed(kind, message.value or b""))


def rows_of(data: list[bytes], schema: pa.Schema = ALL, **options: Any) -> list[dict[str, Any]]:
    """The rows of entries 0, 1, …"""
    run = tuple(Entry(number, entry) for number, entry in enumerate(data))
    found = message_rows(PLACE, [run], schema, **options)
    return [row for batch in found for row in batch.to_pylist()]


@given(st.lists(batches, max_size=6), st.integers(1, 4))
def test_each_message_is_one_row_at_every_size_of_batches(sent: list[Any], rows_max: int) -> None:
    data, expected = [], []
    for number, (group, is_batch, kind) in enumerate(sent):
        used = group if is_batch else group[:1]
        data.append(encode(used, kind) if is_batch else encode_single(used[0], kind))
        expected += [(number, index if is_batch else None, each) for index, each in enumerate(used)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_rows, "ROWS_MAX", rows_max)
        rows = rows_of(data)
    assert [(row["entry_id"], row["batch_index"]) for row in rows] == [each[:2] for each in expected]
    for row, (_, index, message) in zip(rows, expected, strict=True):
        assert row["value"] == message.value
        assert (row["key"], row["ordering_key"]) == (message.key, message.ordering_key)
        assert dict(row["properties"]) == message.properties
        assert row["sequence_id"] == 10 + (index or 0)
        event = row["event_time"]
        assert (0 if event is None else round(event.timestamp() * 1000)) == message.event_ms
        assert (row["topic"], row["partition"], row["ledger_id"], row["error"]) == (*PLACE, None)


@given(batches, st.data())
def test_a_changed_bit_is_never_a_row(sent: Any, data: st.DataObject) -> None:
    entry = bytearray(encode(sent[0], sent[2]))
    bit = data.draw(st.integers(48, 8 * len(entry) - 1))  # behind the checksum
    entry[bit // 8] ^= 1 << bit % 8
    with pytest.raises(EntryError, match=r"entry 7:0 of .*mode=permissive"):
        rows_of([bytes(entry)])


def test_what_is_no_message_becomes_a_row_that_says_why() -> None:
    good = encode_single(Sent(b"v", "k", None, {}, 0), CompressionType.NONE)
    rows = rows_of([b"no message", good], is_permissive=True)
    assert [(row["entry_id"], row["value"], row["error"] is None) for row in rows] == [
        (0, b"no message", False),
        (1, b"v", True),
    ]
    with pytest.raises(EntryError):
        rows_of([b"no message", good])


def no_utf8(made: T, **names: bytes) -> T:
    """A message's metadata with text that is none, as producers in other languages may send it."""
    data = made.SerializePartialToString()
    for name, value in names.items():
        tag = made.DESCRIPTOR.fields_by_name[name].number << 3 | 2
        data += bytes([tag] if tag < 128 else [tag & 127 | 128, tag >> 7]) + bytes([len(value)]) + value
    return type(made).FromString(data)


BAD = b"\xff\xfe"
BAD_TEXTS = {
    "its key": {"partition_key": BAD},
    "the name of a property": {"properties": b"\x0a\x02" + BAD + b"\x12\x01v"},
    "a property": {"properties": b"\x0a\x01n\x12\x02" + BAD},
}


@pytest.mark.parametrize("what", BAD_TEXTS)
@pytest.mark.parametrize("count", [0, 1, 40])
def test_an_entry_with_text_that_is_no_utf8_is_a_row_that_says_which(what: str, count: int) -> None:
    """0: it is no batch; 40: batches are read as columns."""
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    single = no_utf8(SingleMessageMetadata(payload_size=1), **BAD_TEXTS[what])
    bad = (
        encode_batch(metadata, [BatchMessage(single, b"v")] * count)
        if count
        else encode_entry(no_utf8(metadata, **BAD_TEXTS[what]), b"v")
    )
    good = encode([Sent(b"good", "k", None, {}, 0)] * 40, CompressionType.NONE)
    rows = rows_of([good, bad, good], is_permissive=True)
    assert [row["value"] for row in rows] == [*[b"good"] * 40, bad, *[b"good"] * 40]
    assert [row["error"] for row in rows if row["error"]] == [f"{what} is no UTF-8: {BAD!r}"]
    with pytest.raises(EntryError, match=rf"entry 7:1 of .*{what} is no UTF-8.*mode=permissive"):
        rows_of([good, bad, good])


@pytest.mark.parametrize("is_batch", [False, True])
def test_an_entry_of_a_producer_whose_name_is_no_utf8_is_a_row_that_says_so(is_batch: bool) -> None:
    metadata = no_utf8(MessageMetadata(sequence_id=1, publish_time=1), producer_name=BAD)
    single = BatchMessage(SingleMessageMetadata(payload_size=1), b"v")
    bad = encode_batch(metadata, [single] * 40) if is_batch else encode_entry(metadata, b"v")
    good = encode([Sent(b"good", "k", None, {}, 0)] * 40, CompressionType.NONE)
    rows = rows_of([good, bad, good], is_permissive=True)
    assert [row["value"] for row in rows] == [*[b"good"] * 40, bad, *[b"good"] * 40]
    assert [row["entry_id"] for row in rows if row["error"]] == [1]
    with pytest.raises(EntryError, match=r"entry 7:1 of .*the name of its producer is no UTF-8"):
        rows_of([good, bad, good])


def test_a_chunk_whose_uuid_is_no_utf8_is_a_row_that_says_so() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_chunks_from_msg=2)
    (row,) = rows_of([encode_entry(no_utf8(metadata, uuid=BAD), b"v")], is_permissive=True)
    assert row["error"] == f"the uuid of its chunks is no UTF-8: {BAD!r}"


def test_an_encrypted_batch_is_one_row_and_says_so() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=5)
    metadata.encryption_keys.add(key="k", value=b"v")
    (row,) = rows_of([encode_entry(metadata, b"secret")])
    assert (row["encrypted"], row["value"], row["batch_index"]) == (True, b"secret", None)


def test_a_payload_that_nobody_wants_is_neither_decompressed_nor_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any) -> None:
        raise AssertionError("the payload was touched")

    data = [encode([Sent(b"v", "k", None, {}, 0)] * 3, CompressionType.ZSTD)]
    schema = pa.schema([ALL.field(name) for name in ("ledger_id", "entry_id", "batch_index", "publish_time")])
    monkeypatch.setattr("daybook_spark.rows.messages.uncompressed", fails)
    rows = rows_of(data, schema)
    assert [row["batch_index"] for row in rows] == [0, 1, 2]


def test_times_leave_whole_entries_out() -> None:
    sent = [Sent(b"v", None, None, {}, 0)]
    data = [encode(sent, CompressionType.NONE, publish_ms=publish) for publish in (10, 20, 30)]
    assert [row["entry_id"] for row in rows_of(data, times=TimeRange(20, 30))] == [1]


@pytest.mark.parametrize(
    "kind", [CompressionType.LZ4, CompressionType.ZLIB, CompressionType.ZSTD, CompressionType.SNAPPY]
)
def test_a_size_that_is_not_true_is_an_error(kind: CompressionType) -> None:
    for size_bytes in (3, 5, 2**31):
        metadata = MessageMetadata(
            producer_name="p", sequence_id=1, publish_time=1, compression=kind, uncompressed_size=size_bytes
        )
        with pytest.raises(EntryError):
            rows_of([encode_entry(metadata, compressed(kind, b"1234"))])
