"""Entries: their parts, their checksum, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.wire.pulsar import entries
from daybook.wire.pulsar.errors import EntryChecksumError, EntryError
from daybook.wire.pulsar.producer_entry import check_producer_entry
from daybook.wire.pulsar.pulsar_pb2 import BrokerEntryMetadata
from tests.unit.wire.pulsar.kit import metadata

ENTRY = entries.encode_entry(metadata(), b"payload")
BROKER = entries.encode_broker_metadata(BrokerEntryMetadata(broker_timestamp=7, index=9))


@given(payload=st.binary(max_size=200), key=st.text(max_size=20))
def test_an_entry_is_read_as_it_was_written(payload: bytes, key: str) -> None:
    record = metadata(partition_key=key)
    parts = entries.check_entry(entries.encode_entry(record, payload))
    assert entries.decode_metadata(parts) == record
    assert bytes(parts.payload) == payload
    assert not entries.decode_broker_metadata(parts).HasField("index")


def test_the_bytes_of_an_entry_are_those_of_the_protocol() -> None:
    """The checksum was computed bit by bit from the polynomial."""
    assert ENTRY.hex(" ", -4) == "0e016238 aa090000 00080a01 70100318 e8077061 796c6f61 64"


def test_a_brokers_metadata_stands_before_an_entry_and_is_taken_off() -> None:
    parts = entries.check_entry(BROKER + ENTRY)
    assert entries.decode_broker_metadata(parts) == BrokerEntryMetadata(broker_timestamp=7, index=9)
    assert entries.decode_metadata(parts) == metadata()
    assert entries.without_broker_metadata(BROKER + ENTRY) == ENTRY
    assert entries.without_broker_metadata(ENTRY) == ENTRY


def test_an_entry_without_a_checksum_is_taken() -> None:
    parts = entries.check_entry(ENTRY[6:])
    assert parts.checksum is None
    assert entries.decode_metadata(parts) == metadata()


@pytest.mark.parametrize("at", range(2, len(ENTRY)))
def test_a_changed_byte_is_noticed(at: int) -> None:
    damaged = bytearray(ENTRY)
    damaged[at] ^= 0x10
    with pytest.raises(EntryError):
        entries.check_entry(damaged)


def test_a_wrong_checksum_has_an_error_of_its_own() -> None:
    with pytest.raises(EntryChecksumError, match="send it again"):
        entries.check_entry(ENTRY[:-1] + b"!")


@pytest.mark.parametrize("entry", [ENTRY, BROKER + ENTRY, ENTRY[6:]], ids=["plain", "broker", "no checksum"])
def test_a_cut_entry_is_refused(entry: bytes) -> None:
    for size_bytes in range(len(entry) - len(b"payload")):
        with pytest.raises(EntryError):
            entries.check_entry(entry[:size_bytes])


def test_metadata_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(EntryError, match="cannot be read"):
        entries.decode_metadata(entries.split_entry(b"\0\0\0\1\xff"))
    with pytest.raises(EntryError, match="lacks"):
        entries.decode_metadata(entries.split_entry(b"\0\0\0\0"))
    with pytest.raises(EntryError, match="cannot be read"):
        entries.decode_broker_metadata(entries.split_entry(b"\x0e\x02\0\0\0\1\xff" + ENTRY))


def test_the_time_of_an_entry_is_none_where_its_metadata_cannot_be_read() -> None:
    assert entries.publish_time_ms(ENTRY) == metadata().publish_time
    for entry in (b"\0\0\0\1\xff", b"\0\0\0\0", b""):
        assert entries.publish_time_ms(entry) is None


def test_a_producers_entry_is_checked_whole_and_brings_no_brokers_metadata() -> None:
    check_producer_entry(ENTRY)
    check_producer_entry(memoryview(ENTRY))
    check_producer_entry(ENTRY[6:])
    for at in range(len(ENTRY)):
        changed = bytearray(ENTRY)
        changed[at] ^= 1
        with pytest.raises(EntryError):
            check_producer_entry(changed)
    for cut in (ENTRY[:5], ENTRY[:9], b""):
        with pytest.raises(EntryError):
            check_producer_entry(cut)
    with pytest.raises(EntryError, match="which a producer has to leave out"):
        check_producer_entry(BROKER + ENTRY)
