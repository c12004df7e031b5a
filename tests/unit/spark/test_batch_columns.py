"""Batches as columns, against the same batches unpacked message by message, also where no client of Pulsar would write them so."""

import struct
from typing import Any

import pytest
from daybook_spark.rows import topic_rows
from daybook_spark.rows.messages import StoredMessage
from daybook_spark.rows.spans import UnusualError
from hypothesis import given
from hypothesis import strategies as st

from daybook.wire.pulsar.entries import encode_entry
from daybook.wire.pulsar.pulsar_pb2 import CompressionType, KeyValue, MessageMetadata, SingleMessageMetadata
from tests.unit.spark.test_messages import Sent, encode, rows_of

EVENT_MS_MAX = 253_402_300_799_999

numbers = st.integers(0, 300) | st.integers(0, 2**64 - 1)
texts = st.text("aéz", max_size=3) | st.just("k" * 200)
fields = st.one_of(
    st.builds(lambda a, b: {"properties": [KeyValue(key=a, value=b)]}, texts, texts),
    st.builds(lambda text: {"partition_key": text}, texts),
    st.builds(lambda number: {"event_time": number}, st.integers(0, EVENT_MS_MAX + 1)),
    st.builds(lambda data: {"ordering_key": data}, st.binary(max_size=200)),
    st.builds(lambda number: {"sequence_id": number}, numbers),
    st.builds(lambda flag: {"null_value": flag}, st.booleans()),
    st.builds(lambda flag: {"null_partition_key": flag}, st.booleans()),
    st.just({"compacted_out": False}),
)
extra = st.just(b"") | st.sampled_from(
    [b"\x58\x01", b"\x62\x01x", b"\x10\x01", b"\x18\x05", b"\x12\x7fx", b"\x2a\x00"]
)
"""Fields that nobody knows, of a wrong type, twice, and too long."""
payloads = st.binary(max_size=5) | st.just(b"x" * 20_000)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """A message of a batch: mostly as producers write it, else with its fields in any order, and with others."""
    payload = draw(payloads)
    parts = draw(st.lists(fields, max_size=4))
    if draw(st.booleans()):
        whole = SingleMessageMetadata(payload_size=len(payload))
        for part in parts:
            whole.MergeFrom(SingleMessageMetadata(**part))
        metadata = whole.SerializeToString()
    else:
        pieces = [SingleMessageMetadata(**part).SerializePartialToString() for part in parts]
        pieces.insert(
            draw(st.integers(0, len(pieces))),
            SingleMessageMetadata(payload_size=len(payload)).SerializeToString(),
        )
        metadata = b"".join([*pieces, draw(extra)])
    return struct.pack(">I", len(metadata)) + metadata + payload


@given(st.lists(st.lists(records(), min_size=1, max_size=4), min_size=1, max_size=4))
def test_columns_are_what_single_messages_are(batches: list[list[bytes]]) -> None:
    entries = []
    for batch in batches:
        whole = MessageMetadata(
            producer_name="p", sequence_id=10, publish_time=5, num_messages_in_batch=len(batch)
        )
        entries.append(encode_entry(whole, b"".join(batch)))

    def one_by_one(_: StoredMessage) -> Any:
        raise UnusualError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_rows, "chain_of", one_by_one)
        expected = rows_of(entries, is_permissive=True)
    assert rows_of(entries, is_permissive=True) == expected


def test_a_batch_as_producers_write_it_is_not_unpacked_message_by_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any) -> None:
        raise AssertionError("the messages were unpacked one by one")

    monkeypatch.setattr(StoredMessage, "runs", fails)
    sent = [Sent(b"v" * 300, "key", b"o", {"a": "b", "c": "d"}, 7), Sent(None, None, None, {}, 0)] * 20
    assert [row["key"] for row in rows_of([encode(sent, CompressionType.LZ4)])] == ["key", None] * 20
