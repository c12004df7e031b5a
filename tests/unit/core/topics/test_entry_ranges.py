"""Ranges of entries beside a plain set of numbers, in blocks so small that every border between two is met."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.topics import entry_ranges
from daybook.core.topics.entry_ranges import EntryRanges


@pytest.fixture(autouse=True)
def small_blocks() -> Iterator[None]:
    """Blocks of two ranges."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entry_ranges, "BLOCK_BORDERS_MAX", 4)
        yield


def as_ranges(entries: set[int]) -> list[tuple[int, int]]:
    """The ranges of a set."""
    firsts = sorted(entry for entry in entries if entry - 1 not in entries)
    lasts = sorted(entry for entry in entries if entry + 1 not in entries)
    return list(zip(firsts, lasts, strict=True))


def check(ranges: EntryRanges, model: set[int]) -> None:
    expected = as_ranges(model)
    assert list(ranges) == expected
    assert len(ranges) == len(expected)
    for entry in range(55):
        assert (entry in ranges) is (entry in model)
        assert ranges.touches(entry) is bool({entry - 1, entry, entry + 1} & model)
        assert ranges.end_from(entry) == next(n for n in range(entry, 70) if n not in model)
        assert ranges.next_from(entry) == next((n for n in range(entry, 70) if n in model), None)
    if model:
        assert ranges.first == min(model)


@given(st.lists(st.one_of(st.integers(0, 40), st.tuples(st.integers(0, 40))), max_size=60))
def test_whatever_is_added_and_dropped_the_ranges_are_those_of_the_set(
    steps: list[int | tuple[int]],
) -> None:
    ranges, model = EntryRanges(), set[int]()
    for step in steps:
        if isinstance(step, int):
            assert ranges.add(step) is (step not in model)
            model.add(step)
        else:
            passed = {entry for entry in model if entry <= step[0]}
            if not steps.index(step) % 3:
                assert ranges.drop_through(step[0]) == len(passed)
                model -= passed
    check(ranges, model)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=25))
def test_ranges_that_are_added_anywhere_are_those_of_the_set(steps: list[tuple[int, int]]) -> None:
    ranges, model = EntryRanges(), set[int]()
    for first, more in steps:
        entries = set(range(first, first + more))
        assert ranges.add_range(first, first + more - 1) == len(entries - model)
        model |= entries
        check(ranges, model)


@given(st.sets(st.integers(0, 40)), st.integers(-1, 41))
def test_ranges_that_are_appended_are_the_same(entries: set[int], drop: int) -> None:
    ranges = EntryRanges()
    for first, last in as_ranges(entries):
        middle = (first + last) // 2
        ranges.append(first, middle)
        if middle < last:
            ranges.append(middle + 1, last)
    check(ranges, entries)
    passed = {entry for entry in entries if entry <= drop}
    assert ranges.drop_through(drop) == len(passed)
    check(ranges, entries - passed)


def test_a_range_is_appended_behind_the_others_only() -> None:
    ranges = EntryRanges()
    ranges.append(3, 5)
    with pytest.raises(AssertionError, match="not behind"):
        ranges.append(5, 6)


@pytest.mark.parametrize("seed", range(30))
def test_entries_in_any_order_merge_over_the_borders_of_blocks(seed: int) -> None:
    rng = random.Random(seed)
    ranges, model = EntryRanges(), set[int]()
    for entry in rng.sample(range(41), 41):
        assert ranges.add(entry)
        model.add(entry)
        check(ranges, model)
    assert list(ranges) == [(0, 40)]
