"""Which messages a compaction keeps, against a model, and one by one what the rules are."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.errors import CompactionError
from daybook.core.topics.compaction.keys import KEY_COST_BYTES, KeyedEntry, KeyedMessage, LastOfKeys
from daybook.core.topics.dispatch.chunks import Chunk
from daybook.core.topics.ledger_list import Position

keyed_messages = st.builds(KeyedMessage, st.none() | st.sampled_from("abc"), st.booleans())


@st.composite
def topics(draw: st.DrawFn) -> list[KeyedEntry]:
    """Entries of several ledgers, single ones and batches, some of them compacted before."""
    places = sorted(draw(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=10)))
    batches = st.lists(st.none() | keyed_messages, max_size=4)
    return [KeyedEntry(Position(*place), draw(batches)) for place in places]


def kept_of(
    entries: Sequence[KeyedEntry], *, keeps_keyless: bool = True
) -> list[tuple[Position, tuple[bool, ...]]]:
    """What both passes say of each entry."""
    keys = LastOfKeys(keeps_keyless=keeps_keyless)
    for entry in entries:
        keys.add(entry)
    return [(entry.position, keys.kept(entry)) for entry in entries]


def messages_of(entries: Sequence[KeyedEntry]) -> list[tuple[Position, int, KeyedMessage]]:
    return [
        (entry.position, index, message)
        for entry in entries
        for index, message in enumerate(entry.messages)
        if message is not None
    ]


@given(topics(), st.booleans())
def test_rule_41_what_stays_is_what_a_table_of_the_keys_would_have(
    entries: list[KeyedEntry], keeps_keyless: bool
) -> None:
    table: dict[str | bytes, tuple[Position, int]] = {}
    keyless = set()
    for position, index, message in messages_of(entries):
        if message.key is None:
            keyless.add((position, index))
        elif message.is_empty:
            table.pop(message.key, None)
        else:
            table[message.key] = (position, index)
    found = {
        (position, index)
        for position, kept in kept_of(entries, keeps_keyless=keeps_keyless)
        for index, stays in enumerate(kept)
        if stays
    }
    assert found == {*table.values()} | (keyless if keeps_keyless else set())


@given(topics(), st.integers(0, 10))
def test_a_compaction_of_a_compaction_and_what_came_since_is_one_of_the_whole(
    entries: list[KeyedEntry], split: int
) -> None:
    compacted = []
    for entry, (_, kept) in zip(entries[:split], kept_of(entries[:split]), strict=True):
        left = [message if stays else None for message, stays in zip(entry.messages, kept, strict=True)]
        compacted.append(KeyedEntry(entry.position, left))
    assert kept_of([*compacted, *entries[split:]]) == kept_of(entries)


def single(entry_id: int, key: str | None, chunk: Chunk | None = None) -> KeyedEntry:
    return KeyedEntry(Position(1, entry_id), (KeyedMessage(key, is_empty=False),), chunk)


def test_all_chunks_of_a_message_stay_or_go_with_the_place_of_the_last_one() -> None:
    def chunk(entry_id: int, message: bytes, *, is_last: bool) -> KeyedEntry:
        return single(entry_id, "k", Chunk(message, is_last))

    older = [chunk(0, b"x", is_last=False), chunk(2, b"x", is_last=True)]
    newer = [chunk(1, b"y", is_last=False), chunk(4, b"y", is_last=True)]
    incomplete = chunk(5, b"z", is_last=False)
    entries = [older[0], newer[0], older[1], single(3, "other"), newer[1], incomplete]
    assert [kept for _, kept in kept_of(entries)] == [(False,), (True,), (False,), (True,), (True,), ()]


def test_an_entry_that_cannot_be_judged_stays_whole_and_supersedes_nothing() -> None:
    entries = [single(0, "k"), KeyedEntry(Position(1, 1), ())]
    assert [kept for _, kept in kept_of(entries)] == [(True,), ()]


def test_the_memory_for_keys_is_bounded_and_a_deleted_key_takes_none() -> None:
    keys = LastOfKeys(bytes_max=2 * (KEY_COST_BYTES + 1))
    for entry_id in range(0, 20, 2):
        keys.add(single(entry_id, "a"))
        keys.add(KeyedEntry(Position(1, entry_id + 1), (KeyedMessage("a", is_empty=True),)))
    keys.add(single(30, "b"))
    keys.add(single(31, "c"))
    with pytest.raises(CompactionError, match="more than 2 keys take more than the 502 bytes"):
        keys.add(single(32, "d"))


def test_chunks_count_for_the_memory_once_for_each_message() -> None:
    keys = LastOfKeys(bytes_max=KEY_COST_BYTES + 16)
    for entry_id in range(3):  # a producer that has sent the message again
        keys.add(single(entry_id, None, Chunk(bytes(16), is_last=True)))
    with pytest.raises(CompactionError, match="raise the bound"):
        keys.add(single(4, None, Chunk(bytes([1] * 16), is_last=True)))
