"""The number of messages of an entry, found by hand, is the one that protobuf finds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.wire.pulsar import entries
from daybook.wire.pulsar.message_count import count_messages
from daybook.wire.pulsar.pulsar_pb2 import BrokerEntryMetadata, CompressionType, KeyValue, MessageMetadata
from tests.unit.wire.pulsar.kit import metadata

UINT64 = st.integers(0, 2**64 - 1)

records = st.builds(
    MessageMetadata,
    producer_name=st.text(max_size=300),
    sequence_id=UINT64,
    publish_time=UINT64,
    properties=st.just([]) | st.just([KeyValue(key="k", value="\x58\x05")]),
    partition_key=st.none() | st.text(max_size=5),
    compression=st.none() | st.sampled_from([CompressionType.LZ4, CompressionType.SNAPPY]),
    uncompressed_size=st.none() | st.integers(0, 2**32 - 1),
    num_messages_in_batch=st.none() | st.integers(1, 2**31 - 1),
    event_time=st.none() | UINT64,
    highest_sequence_id=st.none() | UINT64,
)


@given(record=records)
def test_the_messages_of_an_entry_are_counted_as_protobuf_counts_them(record: MessageMetadata) -> None:
    entry = entries.encode_entry(record, b"\x58\x09payload")
    assert count_messages(entry) == record.num_messages_in_batch
    assert count_messages(memoryview(entry)) == record.num_messages_in_batch
    assert count_messages(entry[6:]) == record.num_messages_in_batch, "an entry without a checksum"
    broker = entries.encode_broker_metadata(BrokerEntryMetadata(index=9))
    assert count_messages(broker + entry) == record.num_messages_in_batch


@pytest.mark.parametrize("count", [0, -1])
def test_an_entry_has_at_least_one_message(count: int) -> None:
    assert count_messages(entries.encode_entry(metadata(num_messages_in_batch=count), b"")) == 1


@given(entry=st.binary(max_size=40))
def test_bytes_that_are_no_entry_count_as_one_message(entry: bytes) -> None:
    assert count_messages(b"\x0e\x01" + entry) >= 1
    assert count_messages(b"") == 1
