"""Blocks: cut, joined and untangled, with the writer's entries, order and checksums; damage is never laundered."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybook.core.errors import FrameError
from daybook.core.format.block import (
    Block,
    block_entry_ids,
    cut_payload_bytes,
    cut_rows,
    decode_block,
    is_regular,
    join,
    merge_small,
    regular_stripe,
    rows_between,
    rows_that_fit,
    sound_parts,
    untangle,
)
from daybook.core.format.checksums import entry_crcs
from daybook.core.format.entries import Entry, decode_entries
from daybook.core.format.frame import HEADER_BYTES, ROW_BYTES, check_body, encode_frame
from daybook.core.format.intervals import IntervalSet
from daybook.core.quorum import DENSE, Stripe

LEDGER = 7
STRIPE = Stripe(3, 0b011)


def payload(entry: int) -> bytes:
    return f"entry {entry} ".encode() * (entry % 4)


def block(ids: list[int], stripe: Stripe = DENSE, lac: int = -1) -> Block:
    data = [payload(n) for n in ids]
    return decode_block(
        encode_frame(
            LEDGER,
            ids[0],
            data,
            entry_crcs(LEDGER, ids, data),
            entry_ids=ids,
            stripe=stripe,
            last_add_confirmed=lac,
            length_at_lac=10 * (lac + 1),
        )
    )


def entries(found: Block) -> list[Entry]:
    check_body(found.data, found.header)
    good, bad = decode_entries(found.data, found.header)
    assert not bad
    assert [entry.entry_id for entry in good] == list(block_entry_ids(found))
    return list(good)


def expected(ids: list[int]) -> list[Entry]:
    return [Entry(n, payload(n)) for n in ids]


IDS = st.sets(st.integers(0, 60), min_size=1, max_size=30).map(sorted)


@given(IDS, st.integers(0, 60), st.integers(0, 60))
@settings(deadline=None)
def test_a_cut_holds_what_lies_between(ids: list[int], first: int, last: int) -> None:
    whole = block(ids)
    found = cut_rows(whole, *rows_between(whole, first, last))
    inside = [n for n in ids if first <= n <= last]
    assert (entries(found) if found else []) == expected(inside)


@given(st.lists(IDS, min_size=1, max_size=5), st.integers(200, 2000))
@settings(deadline=None)
def test_untangled_blocks_hold_the_union_and_do_not_overlap(many: list[list[int]], target: int) -> None:
    found = untangle([block(ids) for ids in many], target)
    assert [entry for piece in found for entry in entries(piece)] == expected(sorted(set().union(*many)))
    assert all(a.last < b.first for a, b in pairwise(found))


@pytest.mark.parametrize(
    ("stripe", "ids"), [(DENSE, list(range(50))), (STRIPE, [n for n in range(75) if n % 3 < 2])]
)
@pytest.mark.parametrize("size", [1, 2, 7])
def test_small_neighbours_become_one_block(stripe: Stripe, ids: list[int], size: int) -> None:
    parts = [block(ids[at : at + size], stripe, lac=at) for at in range(0, len(ids), size)]
    (merged,) = merge_small(parts, 10**6)
    assert entries(merged) == expected(ids)
    assert is_regular(merged)
    assert regular_stripe(merged) == stripe
    assert merged.header.last_add_confirmed == parts[-1].header.last_add_confirmed
    assert merged.header.length_at_lac == parts[-1].header.length_at_lac
    small = merge_small(parts, 400)
    assert [entry for piece in small for entry in entries(piece)] == expected(ids)
    assert len(small) > 1


def test_blocks_with_a_hole_between_them_stay_apart() -> None:
    assert len(merge_small([block([0, 1]), block([3, 4])], 10**6)) == 2
    assert len(merge_small([block([0, 1], STRIPE), block([2, 3])], 10**6)) == 2


def test_an_irregular_block_is_not_taken_for_its_stripe() -> None:
    assert not is_regular(block([0, 1, 4], STRIPE))
    assert is_regular(block([0, 1, 3, 4], STRIPE))
    index = IntervalSet()
    index.add_ids(block_entry_ids(block([0, 1, 4], STRIPE)))
    assert not index.contains(3)


def test_the_rows_that_fit_are_at_least_one() -> None:
    whole = block(list(range(20)))
    assert rows_that_fit(whole, 3, 20, 0) == 4
    assert rows_that_fit(whole, 0, 20, 10**6) == 20


def test_rule_44_merging_and_cutting_never_launder_damage() -> None:
    good, data = block([0, 1, 2, 3]), bytearray(block([4, 5, 6, 7]).data)
    for at in range(HEADER_BYTES, len(data)):
        data[at] ^= 0x10
        damaged = Block(4, 7, decode_block(bytes(data)).header, bytes(data))
        with pytest.raises(FrameError):
            join([good, damaged])
        with pytest.raises(FrameError):
            cut_rows(damaged, *rows_between(damaged, 5, 6))
        with pytest.raises(FrameError):
            untangle([good, damaged], 10**6)
        sound = [entry for part in sound_parts(damaged) for entry in entries(part)]
        assert sound == [entry for entry in expected([4, 5, 6, 7]) if entry in sound]
        assert len(sound) < 4 or at < HEADER_BYTES + 4 * ROW_BYTES, "a payload's damage is never overlooked"
        data[at] ^= 0x10


def test_a_value_that_is_no_single_block_is_refused() -> None:
    one = block([0, 1])
    assert one.size_bytes == len(one.data)
    with pytest.raises(
        FrameError, match=f"a block of {one.size_bytes} bytes in a value of {one.size_bytes + 1}"
    ):
        decode_block(bytes(one.data) + b"x")
    with pytest.raises(FrameError, match="without entries"):
        decode_block(encode_frame(LEDGER, 0, [], []))


def test_what_a_cut_would_leave_out_is_counted_in_bytes() -> None:
    whole = block(list(range(8)))
    sizes = [len(payload(n)) for n in range(8)]
    assert cut_payload_bytes(whole, 2, 5) == sum(sizes[:2]) + sum(sizes[5:])
    assert cut_payload_bytes(whole, 0, 8) == 0


def test_a_sound_block_is_its_own_sound_part_and_nothing_merges_to_nothing() -> None:
    whole = block([3, 4, 5])
    assert sound_parts(whole) == [whole]
    assert merge_small([], 1000) == []
