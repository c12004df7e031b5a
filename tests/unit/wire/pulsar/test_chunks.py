"""Which message an entry is a chunk of, found as protobuf finds it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.wire.pulsar import entries
from daybook.wire.pulsar.chunks import chunk_of
from daybook.wire.pulsar.pulsar_pb2 import BrokerEntryMetadata, KeyValue, MessageMetadata

UUID = "p-7"


def entry_of(chunk_id: int, chunks: int, *, uuid: str = UUID, producer: str = "p") -> bytes:
    record = MessageMetadata(producer_name=producer, sequence_id=7, publish_time=1)
    record.uuid, record.chunk_id, record.num_chunks_from_msg = uuid, chunk_id, chunks
    return bytes(entries.encode_entry(record, b"payload"))


@given(chunks=st.integers(2, 10_000), data=st.data())
def test_the_chunks_of_a_message_are_recognised_and_the_last_one_says_so(
    chunks: int, data: st.DataObject
) -> None:
    chunk_id = data.draw(st.integers(0, chunks - 1))
    entry = entry_of(chunk_id, chunks)
    found = chunk_of(entry)
    assert found is not None
    assert found.is_last == (chunk_id == chunks - 1)
    first = chunk_of(entry_of(0, chunks))
    assert first is not None
    assert found.message == first.message
    assert found == chunk_of(memoryview(entry)) == chunk_of(entry[6:]), "also without a checksum"
    assert found == chunk_of(entries.encode_broker_metadata(BrokerEntryMetadata(index=9)) + entry)
    for other in (entry_of(0, 2, uuid="p-8"), entry_of(0, 2, producer="q")):
        another = chunk_of(other)
        assert another is not None
        assert another.message != found.message


@pytest.mark.parametrize("value", ["", "a value with the bytes \u0428\x01", "\xe8\x01"])
def test_other_entries_are_no_chunks(value: str) -> None:
    record = MessageMetadata(producer_name="p", sequence_id=7, publish_time=1)
    record.properties.append(KeyValue(key="k", value=value))
    entry = bytes(entries.encode_entry(record, b"\xe8\x01payload"))
    assert chunk_of(entry) is None
    assert chunk_of(entry[:12]) is None
    assert chunk_of(b"") is None
    assert chunk_of(entry_of(0, 1)) is None, "a message in one piece"
