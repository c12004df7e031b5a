"""The write cache: an accepted entry is found from the moment it is accepted until the store has it."""

import sys
from pathlib import Path

import pytest
from daybook_bookie.journal.format import lac_table_record
from daybook_bookie.store import generation
from daybook_bookie.store.write_cache import WriteCache
from hypothesis import given, settings
from hypothesis import strategies as st

from daybook.core.format.block import Block, block_entry_ids
from daybook.core.format.frame import decode_header
from daybook.core.format.lac_table import LacRow
from tests.unit.bookie.sim_disk import SimDisk
from tests.unit.bookie.store.kit import add, entries, frame, open_storage, read_all

IDS = st.sets(st.integers(0, 40), min_size=1, max_size=8).map(sorted)


def put(cache: WriteCache, ledger: int, ids: list[int]) -> None:
    data = frame(ledger, ids)
    cache.add_frame(data, decode_header(data))


@given(st.lists(st.one_of(st.tuples(st.integers(1, 2), IDS), st.just("swap"), st.just("drop")), max_size=25))
@settings(max_examples=200, deadline=None)
def test_the_next_entry_is_found_in_either_generation_whatever_overlaps(
    steps: list[tuple[int, list[int]] | str],
) -> None:
    cache = WriteCache()
    active: dict[int, set[int]] = {1: set(), 2: set()}
    flushing: dict[int, set[int]] = {1: set(), 2: set()}
    for step in steps:
        if step == "swap":
            if not cache.is_flushing:
                cache.swap()
                active, flushing = {1: set(), 2: set()}, active
        elif step == "drop":
            if cache.is_flushing:
                cache.drop_flushed()
                flushing = {1: set(), 2: set()}
        else:
            assert not isinstance(step, str)
            put(cache, *step)
            active[step[0]] |= set(step[1])
        for ledger in (1, 2):
            known = active[ledger] | flushing[ledger]
            for entry in range(42):
                found = cache.next_from(ledger, entry)
                assert (found[0] if found else None) == min((n for n in known if n >= entry), default=None)
                assert found is None or found[0] in block_entry_ids(found[1])


def test_sizes_count_what_is_held_and_end_with_the_flush() -> None:
    cache = WriteCache()
    put(cache, 1, [0, 1])
    held = cache.size_bytes
    assert held >= len(frame(1, [0, 1]))
    cache.swap()
    put(cache, 1, [3, 4])
    assert cache.size_bytes == 2 * held
    assert cache.active_bytes == held
    with pytest.raises(AssertionError, match="not stored yet"):
        cache.swap()
    cache.drop_flushed()
    assert cache.size_bytes == held


def test_a_row_of_a_table_of_lacs_counts_by_what_it_takes() -> None:
    cache = WriteCache()
    cache.publish([LacRow(1, 4, 40), LacRow(2, 0, 1)])
    held = cache.size_bytes
    assert held >= 2 * sys.getsizeof(cache.generations[0].ledgers[1])
    cache.apply(lac_table_record([LacRow(1, 5, 50), LacRow(2, 1, 2)]))
    cache.publish([LacRow(1, 3, 30)])
    assert cache.size_bytes == held, "nothing is left of a row but the LAC"
    (pending,) = cache.pending(1)
    assert (pending.last_add_confirmed, pending.length_at_lac) == (5, 50)
    cache.swap()
    cache.publish([LacRow(1, 6, 60)])
    assert cache.active_bytes == held / 2


def test_rule_43_an_entry_is_found_before_the_journal_has_it_during_the_flush_and_after(
    tmp_path: Path,
) -> None:
    storage = open_storage(tmp_path, SimDisk(), new=True)
    data = frame(7, [0, 1, 2])
    record = storage.accept(data, decode_header(data))
    assert read_all(storage, 7) == entries(range(3)), "the fsync has not even begun"
    storage.journal.append([record])
    storage.journal.sync()
    swapped = storage.begin_flush()
    add(storage, frame(7, [3]))
    assert read_all(storage, 7) == entries(range(4))
    storage.flush(swapped)
    assert read_all(storage, 7) == entries(range(4)), "both have it"
    storage.end_flush()
    assert read_all(storage, 7) == entries(range(4)), "only the store has it"
    storage.close()


@given(st.lists(IDS, max_size=20), st.integers(0, 41), st.integers(0, 10))
@settings(max_examples=200, deadline=None)
def test_the_blocks_that_overlap_a_range_are_all_counted(
    frames: list[list[int]], first: int, more: int
) -> None:
    cache = WriteCache()
    for ids in frames:
        put(cache, 1, ids)
    expected = sum(ids[0] <= first + more and ids[-1] >= first for ids in frames)
    assert sum(pending.overlapping(first, first + more) for pending in cache.pending(1)) == expected


@pytest.mark.parametrize("resent", [False, True])
def test_a_search_does_not_visit_every_block(monkeypatch: pytest.MonkeyPatch, resent: bool) -> None:
    """The lock that appends need is held meanwhile; one resent frame is enough to put blocks out of order."""
    cache = WriteCache()
    for n in range(0, 3000, 3):
        put(cache, 1, [n, n + 2])
    if resent:
        put(cache, 1, [30, 32])
    visited = 0
    keep = generation.next_in

    def count(block: Block, entry: int) -> int:
        nonlocal visited
        visited += 1
        return keep(block, entry)

    monkeypatch.setattr(generation, "next_in", count)
    for entry in range(3000):
        assert cache.next_from(1, entry) is not None
    assert visited < 5 * 3000
    (pending,) = cache.pending(1)
    begin, end = pending.begin_within(1500, 1500)
    assert end - begin <= 2
