"""Batches come apart into their messages, and are made anew of some of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.wire.pulsar import entries
from daybook.wire.pulsar.batches import BatchMessage, encode_batch, is_batch, unpack_batch
from daybook.wire.pulsar.errors import BatchError
from daybook.wire.pulsar.frames import MESSAGE_BYTES_MAX
from daybook.wire.pulsar.pulsar_pb2 import CompressionType, SingleMessageMetadata
from tests.unit.wire.pulsar.kit import metadata

messages = st.lists(
    st.builds(
        lambda key, sequence_id, payload: BatchMessage(
            SingleMessageMetadata(partition_key=key, sequence_id=sequence_id, payload_size=len(payload)),
            payload,
        ),
        st.none() | st.text(max_size=5),
        st.none() | st.integers(0, 2**64 - 1),
        st.binary(max_size=20),
    ),
    min_size=1,
    max_size=12,
)


def unpacked(entry: bytes) -> list[BatchMessage]:
    parts = entries.check_entry(entry)
    return list(unpack_batch(entries.decode_metadata(parts), parts.payload))


@given(batch=messages)
def test_a_batch_comes_apart_into_its_messages(batch: list[BatchMessage]) -> None:
    assert [
        (single, bytes(payload)) for single, payload in unpacked(encode_batch(metadata(), batch))
    ] == batch


@given(batch=messages, data=st.data())
def test_a_batch_is_made_anew_of_some_messages_of_another(
    batch: list[BatchMessage], data: st.DataObject
) -> None:
    kept = data.draw(st.lists(st.sampled_from(range(len(batch))), min_size=1, unique=True).map(sorted))
    first = encode_batch(metadata(partition_key="k", schema_version=b"2"), batch)
    parts = entries.check_entry(first)
    before = entries.decode_metadata(parts)
    made = encode_batch(before, [unpacked(first)[index] for index in kept])
    assert [(single, bytes(payload)) for single, payload in unpacked(made)] == [
        batch[index] for index in kept
    ]
    after = entries.decode_metadata(entries.check_entry(made))
    assert after.num_messages_in_batch == len(kept)
    assert after.uncompressed_size == len(entries.split_entry(made).payload)
    after.num_messages_in_batch, after.uncompressed_size = len(batch), before.uncompressed_size
    assert after == before, "the rest is kept"


def test_a_batch_of_a_compressed_one_is_not_compressed() -> None:
    record = metadata(compression=CompressionType.LZ4)
    made = encode_batch(record, [BatchMessage(SingleMessageMetadata(payload_size=0), b"")])
    assert entries.decode_metadata(entries.split_entry(made)).compression == CompressionType.NONE
    assert record.compression == CompressionType.LZ4, "the caller's own is as it was"


def test_a_batch_of_one_is_a_batch_and_a_message_is_none() -> None:
    assert not is_batch(metadata())
    assert is_batch(metadata(num_messages_in_batch=1))


ONE = b"\0\0\0\x02\x18\x01x"
"""A message of one byte."""


@pytest.mark.parametrize(
    ("count", "payload", "match"),
    [
        (0, ONE, "a batch of 0 messages"),
        (-1, ONE, "a batch of -1 messages"),
        (2, ONE, "a batch of 2 messages in 7 bytes"),
        (2**31 - 1, ONE, "decompress"),
        (1, b"", "in 0 bytes"),
        (1, ONE + b"y", "1 bytes are left after the 1 messages"),
        (1, b"\0\0\0\x02\x18\x02x", "has 2 bytes, and 1 are left"),
        (1, b"\0\0\0\x0b\x18" + b"\xff" * 9 + b"\x01", "has -1 bytes"),
        (1, b"\0\0\0\x04\x18\x01", "within the metadata of message 0"),
        (2, b"\0\0\0\x02\x18\x06123456\0\0", "within the metadata of message 1"),
        (1, b"\0\0\0\x02\xff\xff", "cannot be read"),
        (1, b"\0\0\0\x02\x20\x01", "does not say how many bytes"),
    ],
)
def test_a_payload_that_is_not_the_batch_is_refused(count: int, payload: bytes, match: str) -> None:
    with pytest.raises(BatchError, match=match):
        list(unpack_batch(metadata(num_messages_in_batch=count), payload))


def test_a_batch_that_no_producer_could_send_is_not_made() -> None:
    single = SingleMessageMetadata(payload_size=0)
    with pytest.raises(BatchError, match="without messages"):
        encode_batch(metadata(), [])
    with pytest.raises(BatchError, match=r"the first 2 messages .* split it"):
        encode_batch(metadata(), [BatchMessage(single, bytes(MESSAGE_BYTES_MAX // 2))] * 1000)
