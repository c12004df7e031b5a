"""Batches in a compaction as columns: the same rows and the same bytes as message by message."""

import random
from collections.abc import Iterator

import pytest
from daybook_spark.compact import columns
from daybook_spark.compact.columns import batch_left, key_batches
from daybook_spark.compact.entries import StoredEntry
from daybook_spark.compact.places import Row, keyless_row, place_of, rows_of

from daybook.core.topics.compaction.keys import LastOfKeys
from daybook.core.topics.ledger_list import Position
from daybook.wire.pulsar.batches import BatchMessage, encode_batch
from daybook.wire.pulsar.compacting import REMOVED, compacted_entry
from daybook.wire.pulsar.entries import encode_broker_metadata, encode_entry
from daybook.wire.pulsar.pulsar_pb2 import BrokerEntryMetadata, SingleMessageMetadata
from tests.unit.spark.test_messages import no_utf8
from tests.unit.wire.pulsar.kit import metadata
from tests.unit.wire.pulsar.test_compacting import damaged

PART = 3


def message(rng: random.Random, *, is_keyed: bool) -> BatchMessage:
    """A message with a key of a few, some of them deletions, some with more fields."""
    single = SingleMessageMetadata(payload_size=0)
    if rng.random() < 0.7:
        single.partition_key = f"k{rng.randrange(9)}"
    if not single.partition_key and is_keyed:
        single = no_utf8(single, partition_key=b"\xff" + rng.randbytes(1))
    if rng.random() < 0.2:
        single.null_value = True
    if rng.random() < 0.2:
        single.event_time = rng.randrange(1, 1 << 40)
        single.properties.add(key="a", value="b")
    if not is_keyed and rng.random() < 0.05:
        single.compacted_out = True
    return BatchMessage(single, rng.randbytes(rng.choice([0, 5, 200])))


def topic(rng: random.Random, *, is_keyed: bool) -> list[StoredEntry]:
    """Batches large and small, with and without a broker's metadata, single messages, and entries that nobody can read."""
    found = []
    for number in range(rng.randrange(1, 30)):
        position = Position(7, number)
        if rng.random() < 0.2:
            single = metadata(partition_key=f"k{rng.randrange(9)}") if is_keyed else metadata()
            found.append(
                StoredEntry(position, number + 1, encode_entry(single, rng.randbytes(rng.choice([0, 9]))))
            )
            continue
        batch = [message(rng, is_keyed=is_keyed) for _ in range(rng.choice([1, 2, 40]))]
        data = encode_batch(metadata(), batch)
        if rng.random() < 0.3:
            data = encode_broker_metadata(BrokerEntryMetadata(index=number)) + data
        if not is_keyed and rng.random() < 0.1:
            data = encode_entry(metadata(num_messages_in_batch=3), b"no batch")
        if not is_keyed and rng.random() < 0.1:
            data = damaged(data)
        left = (1,) if not is_keyed and rng.random() < 0.1 else ()
        found.append(StoredEntry(position, number + 1, data, left))
    return found


def rows(entries: list[StoredEntry]) -> Iterator[Row]:
    """What the columns give to Spark, as rows."""
    for batch in key_batches(PART, entries):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


@pytest.mark.parametrize("is_keyed", [True, False])
@pytest.mark.parametrize("window_rows", [1, 50, 100_000])
@pytest.mark.parametrize("seed", range(8))
def test_rule_41_columns_have_the_last_message_of_each_key_and_count_all(
    monkeypatch: pytest.MonkeyPatch, is_keyed: bool, window_rows: int, seed: int
) -> None:
    monkeypatch.setattr(columns, "WINDOW_ROWS", window_rows)
    entries = topic(random.Random(seed), is_keyed=is_keyed)
    opened = [entry.opened().keyed for entry in entries]
    one_by_one = [row for number, keyed in enumerate(opened, 1) for row in rows_of(PART, number, keyed)]
    found = list(rows(entries))
    with_keys = [row for row in found if row[0] is not None]
    in_order = sorted(with_keys, key=lambda row: row[1])
    assert {row[0]: row[1] for row in in_order} == {row[0]: row[1] for row in one_by_one}
    assert {row[:2] for row in with_keys} <= {row[:2] for row in one_by_one}
    assert sum(row[2] for row in found) == len(one_by_one)
    assert all(row[3] is None for row in with_keys)
    not_keyed = [
        keyed
        for keyed in opened
        if not keyed.messages or any(each is not None and each.key is None for each in keyed.messages)
    ]
    assert any(row[0] is None for row in found) is bool(not_keyed)


@pytest.mark.parametrize("seed", range(8))
def test_rule_41_what_stays_of_a_batch_has_the_bytes_that_it_has_message_by_message(seed: int) -> None:
    rng = random.Random(seed)
    copied = 0
    for entry in topic(rng, is_keyed=True):
        opened = entry.opened()
        count = len(opened.keyed.messages)
        for indexes in ({0}, {count - 1}, set(range(count)), {n for n in range(count) if n % 3 == 0}):
            found = batch_left(entry, indexes)
            if found is not None:
                copied += 1
                assert found == compacted_entry(opened, [index in indexes for index in range(count)])
        assert batch_left(entry, {count}) is None, "the places are not those of this entry"
    assert copied


@pytest.mark.parametrize("count", [1, 40])
def test_rule_41_keys_that_are_no_utf8_are_compacted_as_the_broker_does_it(count: int) -> None:
    """Batches of 40 messages are read as columns."""
    keys = [b"\xff", b"\xfe", b"k", b"\xff\xff"]
    entries = [
        StoredEntry(
            Position(7, number),
            number + 1,
            encode_batch(
                metadata(),
                [
                    BatchMessage(
                        no_utf8(SingleMessageMetadata(payload_size=1), partition_key=keys[(number + n) % 4]),
                        b"v",
                    )
                    for n in range(count)
                ],
            ),
        )
        for number in range(6)
    ]
    broker = LastOfKeys()
    for entry in entries:
        broker.add(entry.opened().keyed)
    last = {row[0]: row[1] for row in sorted(rows(entries), key=lambda row: row[1])}
    assert set(last) == set(keys)
    assert set(last.values()) == {
        place_of(PART, entry.number, index)
        for entry in entries
        for index, stays in enumerate(broker.kept(entry.opened().keyed))
        if stays
    }


def test_a_part_of_which_nothing_has_a_key_gives_one_row_that_says_so() -> None:
    entry = StoredEntry(
        Position(7, 0),
        1,
        encode_batch(metadata(), [BatchMessage(SingleMessageMetadata(payload_size=0), b"v")]),
    )
    assert list(rows([entry])) == [keyless_row(PART)]
    assert not list(rows([]))
    assert REMOVED.endswith(SingleMessageMetadata(payload_size=0, compacted_out=True).SerializeToString())
