"""Entries as a compaction opens and rewrites them: keys, empty values, and batches that keep their size."""

import zlib
from typing import Any

import pytest

from daybook.core.format.frame import Buffer
from daybook.core.topics.compaction.keys import KeyedEntry, KeyedMessage
from daybook.core.topics.compaction.record import decode_compacted
from daybook.core.topics.ledger_list import Position
from daybook.wire.pulsar.batches import BatchMessage, encode_batch, unpack_batch
from daybook.wire.pulsar.compacting import OpenedEntry, compacted_entry, open_entry
from daybook.wire.pulsar.compression import uncompressed
from daybook.wire.pulsar.entries import (
    check_entry,
    decode_metadata,
    encode_broker_metadata,
    encode_entry,
    split_entry,
)
from daybook.wire.pulsar.frames import MESSAGE_BYTES_MAX
from daybook.wire.pulsar.pulsar_pb2 import (
    BrokerEntryMetadata,
    CompressionType,
    EncryptionKeys,
    SingleMessageMetadata,
)
from tests.unit.wire.pulsar.kit import metadata

AT = Position(5, 6)
KEYS = [EncryptionKeys(key="k", value=b"v")]


def opened(entry: Buffer, left: tuple[int, ...] = ()) -> OpenedEntry:
    return open_entry(AT, entry, uncompressed, left=left)


def message(key: str | None, payload: bytes, **fields: Any) -> BatchMessage:
    return BatchMessage(
        SingleMessageMetadata(partition_key=key, payload_size=len(payload), **fields), payload
    )


def damaged(entry: bytes) -> bytes:
    """The entry with a changed byte at its end, behind the checksum of what it was."""
    return entry[:-1] + bytes([entry[-1] ^ 1])


BATCH = [message("a", b"1"), message(None, b"2"), message("b", b""), message("a", b"3", null_value=True)]


@pytest.mark.parametrize(
    ("fields", "payload", "key", "is_empty"),
    [
        ({"partition_key": "k"}, b"v", "k", False),
        ({"partition_key": "k"}, b"", "k", True),
        ({"partition_key": "k", "null_value": True}, b"v", "k", True),
        ({"partition_key": ""}, b"v", "", False),
        ({}, b"", None, True),
        (
            {"partition_key": "k", "compression": CompressionType.LZ4, "uncompressed_size": 0},
            b"\0",
            "k",
            True,
        ),
        (
            {"partition_key": "k", "compression": CompressionType.LZ4, "uncompressed_size": 3},
            b"x",
            "k",
            False,
        ),
        ({"partition_key": "k", "encryption_keys": KEYS}, b"", "k", False),
    ],
)
def test_a_message_alone_has_the_key_of_its_metadata_and_is_empty_without_a_value(
    fields: dict[str, Any], payload: bytes, key: str | None, is_empty: bool
) -> None:
    entry = encode_entry(metadata(**fields), payload)
    found = opened(entry)
    assert found.keyed == KeyedEntry(AT, (KeyedMessage(key, is_empty),))
    assert found.without([True]) is entry


def test_a_chunk_is_never_empty_and_says_which_message_it_belongs_to() -> None:
    fields = {"partition_key": "k", "uuid": "u", "num_chunks_from_msg": 2}
    found = opened(encode_entry(metadata(**fields, chunk_id=0), b"")).keyed
    assert found.messages == (KeyedMessage("k", is_empty=False),)
    last = opened(encode_entry(metadata(**fields, chunk_id=1), b"x")).keyed
    assert found.chunk is not None
    assert last.chunk == found.chunk._replace(is_last=True)


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZLIB])
def test_a_batch_keeps_its_size_and_what_goes_is_marked(compression: CompressionType) -> None:
    entry = encode_batch(metadata(), BATCH)
    if compression:
        payload = bytes(split_entry(entry).payload)
        fields = {"num_messages_in_batch": 4, "uncompressed_size": len(payload)}
        entry = encode_entry(metadata(compression=compression, **fields), zlib.compress(payload))
    found = opened(entry)
    assert found.keyed.messages == (
        KeyedMessage("a", is_empty=False),
        KeyedMessage(None, is_empty=False),
        KeyedMessage("b", is_empty=True),
        KeyedMessage("a", is_empty=True),
    )
    parts = check_entry(found.without([False, True, False, True]))
    made = decode_metadata(parts)
    assert [(each.compacted_out, bytes(data)) for each, data in unpack_batch(made, parts.payload)] == [
        (True, b""),
        (False, b"2"),
        (True, b""),
        (False, b"3"),
    ]


def test_what_an_earlier_compaction_removed_counts_no_more() -> None:
    entry = opened(encode_batch(metadata(), BATCH)).without([False, True, True, True])
    assert opened(entry).keyed.messages[0] is None
    assert opened(encode_batch(metadata(), BATCH), left=(0b0011,)).keyed.messages[2:] == (None, None)


def test_what_a_broker_put_before_an_entry_stays() -> None:
    before = encode_broker_metadata(BrokerEntryMetadata(index=7))
    made = opened(before + encode_batch(metadata(), BATCH)).without([True, False, False, False])
    assert bytes(made).startswith(before)
    assert opened(made).keyed.messages[1:] == (None, None, None)


def test_a_batch_that_would_not_fit_without_compression_stays_as_it_is() -> None:
    half = message("a", bytes(MESSAGE_BYTES_MAX // 2))
    payload = b"".join(bytes(split_entry(encode_batch(metadata(), [half])).payload) for _ in range(3))
    fields = {"num_messages_in_batch": 3, "uncompressed_size": len(payload)}
    entry = encode_entry(metadata(compression=CompressionType.ZLIB, **fields), b"")
    found = open_entry(AT, entry, lambda *_: payload)
    assert found.without([False, True, True]) is entry


@pytest.mark.parametrize(
    "entry",
    [
        encode_entry(metadata(num_messages_in_batch=1, encryption_keys=KEYS), b"?"),
        encode_entry(metadata(num_messages_in_batch=2), b"no batch"),
        encode_entry(
            metadata(num_messages_in_batch=1, compression=CompressionType.ZLIB, uncompressed_size=9), b"x"
        ),
        b"no entry",
        damaged(encode_batch(metadata(), [message("a", b"1")])),
        damaged(encode_entry(metadata(partition_key="k"), b"v")),
        damaged(
            encode_entry(
                metadata(partition_key="k", uuid="u", num_chunks_from_msg=2, chunk_id=1), b"a last chunk"
            )
        ),
    ],
)
def test_what_nobody_can_look_into_cannot_be_judged(entry: bytes) -> None:
    found = opened(entry)
    assert found.keyed == KeyedEntry(AT, ())
    assert found.without(()) is entry


def test_rule_41_what_a_job_removed_from_a_batch_that_a_broker_cannot_open_stays_removed() -> None:
    fields = {"compression": CompressionType.ZLIB, "uncompressed_size": MESSAGE_BYTES_MAX + 1}
    entry = encode_entry(metadata(num_messages_in_batch=4, **fields), b"large")
    made = compacted_entry(opened(entry, left=(0b0011,)), ())
    assert made is not None
    found = decode_compacted(made)
    assert (found.position, found.left, bytes(found.data)) == (AT, (0b0011,), entry)
    whole = compacted_entry(opened(entry), ())
    assert whole is not None
    assert decode_compacted(whole).left == ()
