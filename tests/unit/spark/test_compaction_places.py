"""Which messages a compaction job keeps: the same as the broker's own compaction, of which the core has the rules and the model."""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from daybook_spark.compact.kept import KeptPlaces
from daybook_spark.compact.places import (
    ENTRIES_MAX,
    ROWS,
    figures_of,
    keyless_row,
    last_of_keys,
    part_of,
    place_of,
    places_that_stay,
    row_batch,
    rows_of,
    within_part,
)
from daybook_spark.compact.plan import Part, Run, parts_of
from daybook_spark.plan.entry_range import EntryRange
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.errors import CompactionError
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.quorum import Quorum
from daybook.core.topics.compaction.keys import KeyedEntry, KeyedMessage, LastOfKeys
from daybook.core.topics.dispatch.chunks import Chunk
from daybook.core.topics.ledger_list import Position
from tests.unit.core.topics.compaction.test_keys import kept_of, topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPICS = 60


def place(entry: int, index: int) -> int:
    """Within a part."""
    return within_part(place_of(0, entry, index))


def places_of(entries: Sequence[KeyedEntry], *, keeps_keyless: bool) -> list[int]:
    """The places of messages with keys, and of chunks, that stay, by the rules of the core."""
    keys = LastOfKeys(keeps_keyless=keeps_keyless)
    for entry in entries:
        keys.add(entry)
    return [
        place(number, index)
        for number, entry in enumerate(entries, 1)
        for index, (message, stays) in enumerate(
            zip(entry.messages, keys.kept(entry) or [True] * len(entry.messages), strict=True)
        )
        if stays and message is not None and (entry.chunk is not None or message.key is not None)
    ]


def whole(entries: Iterable[KeyedEntry], kept: Iterable[tuple[bool, ...]]) -> list[tuple[bool, ...]]:
    """For an entry that stays whole, which the core says without judging its messages, that they all do."""
    return [each or (True,) * len(entry.messages) for entry, each in zip(entries, kept, strict=True)]


@given(topics(), st.booleans())
def test_rule_41_the_places_that_stay_tell_of_each_entry_what_the_core_tells(
    entries: list[KeyedEntry], keeps_keyless: bool
) -> None:
    places = KeptPlaces(iter(places_of(entries, keeps_keyless=keeps_keyless)), keeps_keyless=keeps_keyless)
    kept = [places.kept(number, entry) for number, entry in enumerate(entries, 1)]
    places.finish()
    assert kept == [each for _, each in kept_of(entries, keeps_keyless=keeps_keyless)]


ENTRY = KeyedEntry(Position(3, 1), [KeyedMessage("k", is_empty=False), KeyedMessage(None, is_empty=False)])


@pytest.mark.parametrize("where", [(1, 0), (2, 1), (2, 2)])
def test_a_place_that_the_second_pass_does_not_find_ends_the_job(where: tuple[int, int]) -> None:
    places = KeptPlaces(iter(sorted([place(*where), place(2, 0)])), keeps_keyless=True)
    with pytest.raises(CompactionError, match="does not find what the first one found"):
        places.kept(2, ENTRY)


def test_a_place_behind_the_last_entry_ends_the_job() -> None:
    places = KeptPlaces(iter([place(2, 0), place(2, 0), place(3, 0)]), keeps_keyless=False)
    assert places.kept(2, ENTRY) == (True, False)
    assert places.count == 1, "a place that comes twice counts once"
    with pytest.raises(CompactionError, match="entry 3 of a part"):
        places.finish()


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2000), st.integers(1, ENTRIES_MAX), st.integers(0, 2**25 - 1), st.booleans()
        ),
        min_size=2,
        max_size=2,
    )
)
def test_rule_41_places_compare_as_the_topic_has_them_whether_messages_are_deletions_or_not(
    wheres: list[tuple[int, int, int, bool]],
) -> None:
    places = [place_of(*where, is_empty=is_empty) for *where, is_empty in wheres]
    first, second = ((part, entry, index) for part, entry, index, _ in wheres)
    if first != second:
        assert (places[0] < places[1]) is (first < second)
    for found, (part, entry, index, is_empty) in zip(places, wheres, strict=True):
        assert place_of(part, 0, 0) < found < place_of(part + 1, 0, 0) <= 2**63 - 1
        assert (part_of(found), within_part(found), found & 1) == (part, place(entry, index), is_empty)


def random_topic(rng: random.Random, topic: int) -> list[KeyedEntry]:
    """Entries of two ledgers of its own: single messages, batches, chunks of messages that overlap, and some that never end."""
    entries = []
    for number in range(rng.randrange(12)):
        position = Position(2 * topic + number // 6, number % 6)
        keys = [None, *(f"{topic}/{key}" for key in "abc")]
        if rng.random() < 0.4:
            which = rng.randrange(3)
            chunk = Chunk(f"{topic}/{which}".encode(), is_last=rng.random() < 0.4)
            message = KeyedMessage(
                keys[which], is_empty=rng.random() < 0.1
            )  # all chunks of a message have its key
            entries.append(KeyedEntry(position, (message,), chunk))
            continue
        batch = [
            None if rng.random() < 0.1 else KeyedMessage(rng.choice(keys), is_empty=rng.random() < 0.2)
            for _ in range(rng.randrange(4))
        ]
        entries.append(KeyedEntry(position, batch))
    return entries


@pytest.mark.integration
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("keeps_keyless", [True, False])
def test_rule_41_spark_finds_the_places_that_the_core_finds(
    spark: "SparkSession", keeps_keyless: bool
) -> None:
    rng = random.Random(41)
    every = {topic: random_topic(rng, topic) for topic in range(TOPICS)}
    rows = [
        row
        for topic, entries in every.items()
        for number, entry in enumerate(entries, 1)
        for row in rows_of(topic, number, entry)
    ]

    def given_rows(_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield row_batch([*rows, keyless_row(7), keyless_row(9), keyless_row(9)])

    lasts = last_of_keys(spark.range(0, 1, 1, 1).mapInArrow(given_rows, ROWS))
    assert figures_of(lasts) == (sum(row[2] for row in rows), True, frozenset({7, 9}))
    stay = places_that_stay(lasts, keeps_keyless=keeps_keyless, has_chunks=True)
    found: defaultdict[int, set[int]] = defaultdict(set)
    for (each,) in stay.collect():
        found[part_of(each)].add(within_part(each))
    for topic, entries in every.items():
        assert found[topic] == set(places_of(entries, keeps_keyless=keeps_keyless)), (
            f"topic {topic}: {entries}"
        )
        places = KeptPlaces(iter(sorted(found[topic])), keeps_keyless=keeps_keyless)
        expected = whole(entries, (kept for _, kept in kept_of(entries, keeps_keyless=keeps_keyless)))
        assert [places.kept(number, entry) for number, entry in enumerate(entries, 1)] == expected
        places.finish()


def run(ledger_id: int, entries: int, size_bytes: int) -> Run:
    metadata = LedgerMetadata(ledger_id, Quorum(1, 1, 1), (Fragment(0, 0, ("b",)),)).closed(
        entries - 1, size_bytes
    )
    return Run(EntryRange(ledger_id, 0, entries - 1, metadata.to_json(), ()), is_compacted=False)


def test_ledgers_that_follow_each_other_are_one_part_as_far_as_they_fit() -> None:
    runs = [run(1, 4, 40), run(2, 4, 40), run(5, 1, 500), run(7, 2, 20), run(8, 2, 90)]
    parts = list(parts_of(runs, 100))
    assert [part.number for part in parts] == [0, 1, 2, 3]
    assert [[each.entries.ledger_id for each in part.runs] for part in parts] == [[1, 2], [5], [7], [8]]
    assert list(parts_of([], 100)) == []
    assert list(parts_of(runs[:2], 80)) == [Part(0, tuple(runs[:2]))]


def test_a_part_of_more_entries_than_places_tell_apart_is_refused() -> None:
    assert len(list(parts_of([run(1, ENTRIES_MAX, 40)], 2**30))) == 1
    with pytest.raises(CompactionError, match="ask for smaller parts"):
        list(parts_of([run(1, ENTRIES_MAX, 40), run(2, 1, 1)], 2**30))
