"""Payloads of one size: two checksums of the whole say what the checksums of all entries say, and they behave as the list that they stand for."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.format.block import block_entry_ids, decode_block, sound_parts
from daybook.core.format.checksums import entry_crcs, id_crcs
from daybook.core.format.entries import Entry, EntryRun, decode_entries, joined, payload_sizes
from daybook.core.format.frame import (
    COLUMN_BYTES,
    HEADER_BYTES,
    ROW_BYTES,
    assemble_frame,
    check_body,
    decode_header,
    encode_frame,
)
from daybook.core.format.payload_run import (
    COUNT_MIN,
    SIZE_MAX,
    PayloadRun,
    are_sound,
    joined_payloads,
    sound_run,
)

LEDGER = 7
FIRST = 250
"""So that the ids of a frame go past a byte's end."""


def payloads_of_one_size(count: int, size: int) -> list[bytes]:
    return [bytes((number * 7 + n) % 251 for n in range(size)) for number in range(count)]


def frame_of(
    payloads: list[bytes], *, ledger_id: int = LEDGER, first: int = FIRST, crcs: list[int] | None = None
) -> bytearray:
    ids = range(first, first + len(payloads))
    return bytearray(encode_frame(LEDGER, FIRST, payloads, crcs or entry_crcs(ledger_id, ids, payloads)))


def run_of(data: bytearray, *, is_own: bool = False) -> PayloadRun | None:
    header = decode_header(data)
    ids = range(FIRST, FIRST + header.count)
    return sound_run(data, header, 0, HEADER_BYTES + ROW_BYTES * header.count, ids, is_own=is_own)


def bad_entries(data: bytearray) -> list[int]:
    """What the checksum of each entry says, one by one."""
    good, bad = decode_entries(data, decode_header(data))
    assert sorted([entry.entry_id for entry in good] + bad) == list(
        range(FIRST, FIRST + len(good) + len(bad))
    )
    return bad


SIZES = st.tuples(st.integers(COUNT_MIN, 600), st.integers(4, 70))


def damaged_frame(counted: tuple[int, int], draw: st.DataObject) -> tuple[bytearray, int]:
    """A frame with a drawn byte changed among its checksums and payloads, and the row that the byte is of."""
    count, size = counted
    data = frame_of(payloads_of_one_size(count, size))
    checksums = HEADER_BYTES + 2 * COLUMN_BYTES * count
    at = draw.draw(st.integers(checksums, len(data) - 1))
    data[at] ^= draw.draw(st.integers(1, 255))
    payloads = checksums + COLUMN_BYTES * count
    return data, (at - checksums) // COLUMN_BYTES if at < payloads else (at - payloads) // size


@given(SIZES)
def test_a_sound_frame_of_one_size_is_kept_as_it_is(counted: tuple[int, int]) -> None:
    payloads = payloads_of_one_size(*counted)
    data = frame_of(payloads)
    before = bytes(data)
    run = run_of(data)
    assert run is not None
    assert list(run) == payloads
    assert data == before
    good, bad = decode_entries(data, decode_header(data))
    assert isinstance(good.payloads, PayloadRun)
    assert good == [Entry(FIRST + n, payload) for n, payload in enumerate(payloads)]
    assert not bad


@given(SIZES)
def test_of_ones_own_buffer_nothing_is_copied_and_nothing_stays_changed(counted: tuple[int, int]) -> None:
    payloads = payloads_of_one_size(*counted)
    data = frame_of(payloads)
    before = bytes(data)
    run = run_of(data, is_own=True)
    assert run is not None
    (only,) = run.parts
    assert isinstance(only, memoryview)
    assert only.obj is data
    assert list(run) == payloads
    assert data == before


@given(SIZES, st.data(), st.booleans())
def test_rule_44_damage_of_any_byte_is_found_and_costs_one_entry(
    counted: tuple[int, int], draw: st.DataObject, is_own: bool
) -> None:
    data, row = damaged_frame(counted, draw)
    before = bytes(data)
    assert run_of(data, is_own=is_own) is None
    assert data == before
    assert bad_entries(data) == [FIRST + row]


@pytest.mark.parametrize("count", [COUNT_MIN, COUNT_MIN + 1, 300])
def test_rule_44_payloads_that_changed_places_are_found(count: int) -> None:
    payloads = payloads_of_one_size(count, 20)
    crcs = entry_crcs(LEDGER, range(FIRST, FIRST + count), payloads)
    assert run_of(frame_of([*payloads[1:], payloads[0]], crcs=crcs)) is None
    swapped = [payloads[1], payloads[0], *payloads[2:]]
    assert run_of(frame_of(swapped, crcs=crcs)) is None
    assert bad_entries(frame_of(swapped, crcs=crcs)) == [FIRST, FIRST + 1]


@pytest.mark.parametrize("count", [COUNT_MIN, COUNT_MIN + 1, 300])
@pytest.mark.parametrize(
    ("ledger_id", "first"),
    [(LEDGER + 1, FIRST), (2**40, FIRST), (LEDGER, FIRST + 1), (LEDGER, FIRST + 256), (LEDGER, 2**33)],
)
def test_rule_44_entries_of_other_ids_are_found(count: int, ledger_id: int, first: int) -> None:
    """All of them are wrong by a like amount, so that errors could cancel each other out."""
    data = frame_of(payloads_of_one_size(count, 16), ledger_id=ledger_id, first=first)
    assert run_of(data) is None
    assert bad_entries(data) == list(range(FIRST, FIRST + count))


def test_rule_44_damage_that_cancels_out_is_found_by_the_checksum_of_the_body() -> None:
    """A checksum and the first bytes of the next payload, changed by the same bit: `are_sound` alone cannot see it."""
    size = 100
    data = frame_of(payloads_of_one_size(COUNT_MIN, size))
    checksums = HEADER_BYTES + 2 * COLUMN_BYTES * COUNT_MIN
    payloads = checksums + COLUMN_BYTES * COUNT_MIN
    data[checksums + COLUMN_BYTES * 3] ^= 0x10
    data[payloads + size * 4] ^= 0x10
    ids = range(FIRST, FIRST + COUNT_MIN)
    assert are_sound(data[payloads:], size, LEDGER, ids, bytes(data[checksums:payloads]))
    assert run_of(data) is None
    assert bad_entries(data) == [FIRST + 3, FIRST + 4]
    kept = [entry_id for part in sound_parts(decode_block(data)) for entry_id in block_entry_ids(part)]
    assert kept == [entry_id for entry_id in ids if entry_id not in (FIRST + 3, FIRST + 4)]


def seal_again(data: bytearray) -> None:
    """Give the body the checksum that it has now, as if the damage had come before a bookie computed it."""
    header = decode_header(data)
    header.body_crc = 0
    data[:] = assemble_frame(header, [bytes(data[HEADER_BYTES:])])


@given(SIZES, st.data())
def test_rule_44_damage_from_before_the_checksum_of_the_body_is_found(
    counted: tuple[int, int], draw: st.DataObject
) -> None:
    data, row = damaged_frame(counted, draw)
    seal_again(data)
    check_body(data, decode_header(data))
    assert run_of(data) is None
    assert bad_entries(data) == [FIRST + row]


@pytest.mark.parametrize("count", [COUNT_MIN, 300])
def test_rule_44_the_same_damage_of_all_entries_is_found(count: int) -> None:
    payloads = payloads_of_one_size(count, 16)
    crcs = entry_crcs(LEDGER, range(FIRST, FIRST + count), payloads)
    data = frame_of([bytes([payload[0] ^ 1]) + payload[1:] for payload in payloads], crcs=crcs)
    assert run_of(data) is None
    assert len(bad_entries(data)) == count


@pytest.mark.parametrize(
    "payloads",
    [
        payloads_of_one_size(COUNT_MIN - 1, 20),
        payloads_of_one_size(COUNT_MIN, 3),
        [b""] * COUNT_MIN,
        [*payloads_of_one_size(COUNT_MIN, 20), bytes(21)],
        [*payloads_of_one_size(COUNT_MIN, 20), bytes(19), bytes(21)],
        [bytes(SIZE_MAX + 1)] * COUNT_MIN,
    ],
    ids=["few", "short", "empty", "longer", "the same on average", "large"],
)
def test_other_frames_are_looked_at_entry_by_entry(payloads: list[bytes]) -> None:
    data = frame_of(payloads)
    assert run_of(data) is None
    good, bad = decode_entries(data, decode_header(data))
    assert not bad
    assert good == [Entry(FIRST + n, payload) for n, payload in enumerate(payloads)]


@pytest.mark.parametrize(("size", "surplus"), [(100, 1), (100, 4), (101, 1), (101, 40), (101, 64)])
@pytest.mark.parametrize("is_own", [False, True])
def test_payloads_that_the_lengths_do_not_account_for_are_looked_at_entry_by_entry(
    size: int, surplus: int, is_own: bool
) -> None:
    """No writer makes such a frame, and its checksums are right."""
    payloads = payloads_of_one_size(64, size)
    data = frame_of(payloads)
    header = decode_header(data)
    header.payload_bytes += surplus
    data = bytearray(assemble_frame(header, [bytes(data[HEADER_BYTES:]), bytes(surplus)]))
    assert run_of(data, is_own=is_own) is None
    good, bad = decode_entries(data, decode_header(data), is_own=is_own)
    assert good == [Entry(FIRST + n, payload) for n, payload in enumerate(payloads)]
    assert not bad


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 600))
def test_the_checksums_of_ids_are_what_an_empty_entry_has(ledger_id: int, first: int, count: int) -> None:
    ids = range(first, first + count)
    assert array("I", id_crcs(ledger_id, ids)).tolist() == entry_crcs(ledger_id, list(ids), [b""] * count)


PARTS = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@given(PARTS, st.data())
def test_a_run_in_parts_behaves_as_a_list(counts: list[int], draw: st.DataObject) -> None:
    payloads = payloads_of_one_size(sum(counts), 5)
    parts = [
        bytearray(b"".join(payloads[sum(counts[:n]) : sum(counts[: n + 1])])) for n in range(len(counts))
    ]
    run = PayloadRun(5, parts)
    assert len(run) == len(payloads)
    assert list(run) == payloads
    assert bytes(run.joined()) == b"".join(payloads)
    index = draw.draw(st.integers(-len(payloads), len(payloads) - 1))
    assert run[index] == payloads[index]
    cut = draw.draw(st.slices(len(payloads)))
    assert list(run[cut]) == payloads[cut]
    with pytest.raises(IndexError):
        run[len(payloads)]


def test_runs_of_one_size_are_joined_without_a_look_at_a_payload() -> None:
    one, two = PayloadRun(2, [b"aabb"]), PayloadRun(2, [b"cc", b"dd"])
    found = joined_payloads([one, two])
    assert isinstance(found, PayloadRun)
    assert found.parts == [b"aabb", b"cc", b"dd"]
    assert joined_payloads([one, PayloadRun(3, [b"eee"])]) == [b"aa", b"bb", b"eee"]
    assert joined_payloads([one, [b"x"], two]) == [b"aa", b"bb", b"x", b"cc", b"dd"]
    assert joined_payloads([[b"xx"], [b"yy"]]) == [b"xx", b"yy"]


def test_single_payloads_of_the_same_size_join_a_run() -> None:
    """As a range has them that begins or ends within a frame."""
    found = joined_payloads([[b"xx", b"yy"], PayloadRun(2, [b"aabb"]), [b"zz"]])
    assert isinstance(found, PayloadRun)
    assert list(found) == [b"xx", b"yy", b"aa", b"bb", b"zz"]


def test_no_payloads_are_no_run() -> None:
    assert joined_payloads([]) == []


def test_entries_of_such_runs_are_entries() -> None:
    run = joined(
        [EntryRun(range(3, 5), PayloadRun(2, [b"aabb"])), EntryRun(range(5, 6), PayloadRun(2, [b"cc"]))]
    )
    assert run == (Entry(3, b"aa"), Entry(4, b"bb"), Entry(5, b"cc"))
    assert run[1:] == (Entry(4, b"bb"), Entry(5, b"cc"))
    assert (run[0], run[-1]) == (Entry(3, b"aa"), Entry(5, b"cc"))
    assert payload_sizes(run) == [2, 2, 2]
