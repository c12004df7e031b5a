"""The interval index: right for any sequence of adds, small for dense and regularly striped ledgers."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from daybook.core.errors import IntervalError
from daybook.core.format.intervals import Interval, IntervalSet, first_held, last_held
from daybook.core.ids import NO_ENTRY
from daybook.core.quorum import DENSE, Stripe, check_quorum, stripe_of

SMALL = st.integers(0, 120)
STRIPES = st.one_of(
    st.just(DENSE),
    st.sampled_from([Stripe(3, 0b011), Stripe(3, 0b101), Stripe(5, 0b00111), Stripe(5, 0b01110)]),
    st.integers(1, 64).flatmap(lambda p: st.builds(Stripe, st.just(p), st.integers(1, (1 << p) - 1))),
)
RANGES = st.tuples(SMALL, SMALL, STRIPES)


def ids_of(first: int, last: int, stripe: Stripe) -> set[int]:
    return {n for n in range(first, last + 1) if stripe.holds(n)}


def written(index: IntervalSet) -> set[int]:
    ids: set[int] = set()
    end = NO_ENTRY
    for interval in index:
        assert end < interval.first <= interval.last
        assert interval.stripe.holds(interval.first)
        assert interval.stripe.holds(interval.last)
        end = interval.last
        ids |= set(interval.entry_ids())
    return ids


@given(st.lists(RANGES, max_size=12), st.lists(st.sets(SMALL), max_size=3), RANGES)
@settings(max_examples=400, deadline=None)
def test_any_sequence_of_adds_equals_a_set(
    ranges: list[tuple[int, int, Stripe]], irregular: list[set[int]], asked: tuple[int, int, Stripe]
) -> None:
    index, model = IntervalSet(), set()
    for first, last, stripe in ranges:
        index.add(first, last, stripe)
        model |= ids_of(first, last, stripe)
    for ids in irregular:
        index.add_ids(sorted(ids))
        model |= ids
    assert written(index) == model
    assert index.count == len(model)
    assert index.last == max(model, default=NO_ENTRY)
    assert [n for n in range(130) if index.contains(n)] == sorted(model)
    first, last, stripe = asked
    wanted = ids_of(first, last, stripe)
    assert written(index.missing(first, last, stripe)) == wanted - model
    assert index.covers(first, last, stripe) == (wanted <= model)
    assert index.count_between(first, last) == len({n for n in model if first <= n <= last})
    assert index.next_from(first) == min((n for n in model if n >= first), default=NO_ENTRY)
    assert IntervalSet.from_bytes(index.to_bytes()) == index
    assert index == IntervalSet(Interval(n, n, DENSE) for n in sorted(model, reverse=True))


@given(STRIPES, st.integers(0, 10_000))
def test_the_nearest_held_entries(stripe: Stripe, entry: int) -> None:
    assert first_held(stripe, entry) == next(n for n in range(entry, entry + 65) if stripe.holds(n))
    assert last_held(stripe, entry) == next(n for n in range(entry, entry - 65, -1) if stripe.holds(n))


@pytest.mark.parametrize("position", range(5))
def test_a_striped_ledger_stays_one_interval_in_whatever_order_its_frames_come(position: int) -> None:
    stripe = stripe_of(check_quorum(5, 3, 2), position)
    ids = sorted(ids_of(0, 999, stripe))
    frames = [ids[at : at + 7] for at in range(0, len(ids), 7)]
    for order in (frames, frames[::-1], frames[::2] + frames[1::2]):
        index = IntervalSet()
        for frame in order:
            index.add(frame[0], frame[-1], stripe)
        assert list(index) == [Interval(ids[0], ids[-1], stripe)]


def test_single_entries_join_the_stripe_that_holds_them() -> None:
    stripe = Stripe(3, 0b011)
    index = IntervalSet([Interval(0, 30, stripe)])
    for entry in (31, 33, 34, 36):
        index.add(entry, entry)
    assert list(index) == [Interval(0, 36, stripe)]


def test_a_middle_entry_that_is_missing_is_named() -> None:
    index = IntervalSet([Interval(0, 40, DENSE), Interval(42, 99, DENSE)])
    assert list(index.missing(0, 99, DENSE)) == [Interval(41, 41, DENSE)]
    assert not index.missing(0, 99, Stripe(2, 0b01))


@given(st.lists(RANGES, min_size=1, max_size=6), st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_every_flipped_bit_of_a_written_index_is_detected(
    ranges: list[tuple[int, int, Stripe]], flip: int
) -> None:
    index = IntervalSet(Interval(*r) for r in ranges)
    data = bytearray(index.to_bytes())
    data[flip // 8 % len(data)] ^= 1 << flip % 8
    with pytest.raises(IntervalError):
        IntervalSet.from_bytes(bytes(data))
    with pytest.raises(IntervalError):
        IntervalSet.from_bytes(index.to_bytes()[: flip % len(data)])


def test_equal_sets_are_equal_however_they_are_written_down() -> None:
    dense, single = IntervalSet(), IntervalSet()
    dense.add(0, 9)
    for entry in (*range(0, 10, 2), *range(1, 10, 2)):
        single.add_ids([entry])
    assert dense == single
    single.add_ids([11])
    assert dense != single
    assert dense != {*range(10)}


def test_an_index_tells_what_it_holds_and_where_it_stops_telling() -> None:
    index = IntervalSet()
    index.add(0, 9)
    assert repr(index) == "IntervalSet(0…9)"
    index.add(12, 30, Stripe(3, 0b011))
    assert repr(index) == "IntervalSet(0…9, 12…30 of 3:0x3)"
    index.add_ids(range(1_000, 2_000, 100))
    assert repr(index).endswith(", …)")


def written_index(count: int, *rows: tuple[int, int, int, int]) -> bytes:
    """An index as it would stand on disk, with a right checksum."""
    magic = IntervalSet().to_bytes()[:4]
    data = magic + struct.pack("<I", count) + b"".join(struct.pack("<qqBQ", *row) for row in rows)
    return data + struct.pack("<I", crc32c(data))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"DBI1", "too few"),
        (written_index(2, (0, 9, 1, 1)), "of 2 intervals"),
        (written_index(1, (9, 0, 1, 1)), "not legal"),
        (written_index(1, (0, 9, 0, 1)), "not legal"),
        (written_index(1, (0, 9, 65, 1)), "not legal"),
        (written_index(1, (0, 9, 3, 8)), "not legal"),
        (written_index(1, (0, 1, 3, 0b101)), "not legal"),
        (written_index(2, (0, 9, 1, 1), (9, 12, 1, 1)), "not legal"),
    ],
)
def test_an_index_that_breaks_an_invariant_is_refused_though_its_checksum_is_right(
    data: bytes, why: str
) -> None:
    assert IntervalSet.from_bytes(written_index(1, (0, 9, 1, 1))).count == 10
    with pytest.raises(IntervalError, match=why):
        IntervalSet.from_bytes(data)


def test_a_copy_is_independent() -> None:
    index = IntervalSet()
    index.add(0, 4, DENSE)
    copied = index.copy()
    copied.add(5, 9, DENSE)
    assert (written(index), written(copied)) == (set(range(5)), set(range(10)))
