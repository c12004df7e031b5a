"""The frame: what goes in comes out, and damage anywhere is noticed before anything is believed (rule 44)."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.errors import FrameError
from daybook.core.format import frame
from daybook.core.format.checksums import entry_crc, entry_crcs, ledger_seed
from daybook.core.format.entries import Entry, decode_entries
from daybook.core.format.frame import (
    check_body,
    damaged_frames,
    decode_header,
    encode_entry,
    encode_frame,
    frame_entry_ids,
    is_dense,
    last_entry,
    split_message,
)
from daybook.core.ids import ENTRY_BYTES_MAX, MAX_ID
from daybook.core.quorum import DENSE, Quorum, Stripe, stripe_of

PAYLOADS = st.lists(st.binary(max_size=40), min_size=1, max_size=12)


def make(payloads: list[bytes], *, ledger_id: int = 7, first: int = 100, lac: int = 99) -> bytes:
    ids = range(first, first + len(payloads))
    return encode_frame(
        ledger_id,
        first,
        payloads,
        entry_crcs(ledger_id, ids, payloads),
        last_add_confirmed=lac,
        length_at_lac=5,
    )


@given(PAYLOADS, st.integers(0, 2**62), st.integers(0, 2**62))
def test_a_frame_comes_back_as_it_was(payloads: list[bytes], ledger_id: int, first: int) -> None:
    data = make(payloads, ledger_id=ledger_id, first=first)
    header = decode_header(data)
    check_body(data, header)
    entries, bad = decode_entries(data, header)
    assert not bad
    assert [entry.data for entry in entries] == payloads
    assert [entry.entry_id for entry in entries] == list(range(first, first + len(payloads)))
    assert (header.ledger_id, header.last_add_confirmed, header.length_at_lac) == (ledger_id, 99, 5)
    assert header.size_bytes == len(data)
    assert is_dense(data, header)


@given(st.binary(max_size=40), st.integers(0, 2**62), st.integers(0, 2**62))
def test_the_short_way_to_a_frame_of_one_entry_gives_the_same_bytes(
    data: bytes, ledger_id: int, entry: int
) -> None:
    for payload in (data, bytearray(data), memoryview(data)):
        frame = encode_entry(
            ledger_id, entry, payload, ledger_seed(ledger_id), last_add_confirmed=99, length_at_lac=5, flags=0
        )
        assert frame == make([data], ledger_id=ledger_id, first=entry)


@given(st.integers(1, 12), st.data())
def test_a_striped_frame_keeps_its_ids(ensemble_size: int, data: st.DataObject) -> None:
    write_quorum = data.draw(st.integers(1, ensemble_size))
    position = data.draw(st.integers(0, ensemble_size - 1))
    stripe = stripe_of(Quorum(ensemble_size, write_quorum, 1), position)
    ids = [n for n in range(20, 60) if stripe.holds(n)]
    payloads = [str(n).encode() for n in ids]
    encoded = encode_frame(3, ids[0], payloads, entry_crcs(3, ids, payloads), stripe=stripe, entry_ids=ids)
    header = decode_header(encoded)
    check_body(encoded, header)
    assert list(frame_entry_ids(encoded, header)) == ids
    assert last_entry(encoded, header) == ids[-1]
    assert header.stripe == stripe
    entries, bad = decode_entries(encoded, header)
    assert not bad
    assert [entry.data for entry in entries] == payloads


def test_a_message_is_frames_back_to_back() -> None:
    frames = [make([b"a", b"bc"]), make([], lac=4), make([b"", b"d"], first=102)]
    message = b"".join(frames)
    split = split_message(message)
    assert [offset for _, offset in split] == [0, len(frames[0]), len(frames[0]) + len(frames[1])]
    for header, offset in split:
        check_body(message, header, offset)
    assert [header.count for header, _ in split] == [2, 0, 2]


def test_rule_44_a_damaged_frame_of_a_message_spares_the_others() -> None:
    parts = [make([b"one"]), make([b"two", b"three"], first=200), make([b"four"], first=300)]
    message = bytearray(b"".join(parts))
    frames = split_message(message)
    assert damaged_frames(message, frames) == {}
    message[len(parts[0]) + len(parts[1]) - 1] ^= 1
    damaged = damaged_frames(message, frames)
    assert list(damaged) == [1]
    assert str(damaged[1]) == "the frame of ledger 7 at entry 200 fails its checksum"


def test_every_flipped_bit_of_a_frame_is_noticed() -> None:
    good = make([b"alpha", b"", b"gamma"])
    for bit in range(len(good) * 8):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FrameError):
            check_body(damaged, decode_header(damaged))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_with_a_clear_error(data: bytes) -> None:
    with pytest.raises(FrameError):
        decode_header(data)


def forged(**fields: int) -> bytes:
    """A frame header with valid checksum and the given fields out of bounds."""
    values = {
        "version": 1,
        "flags": 0,
        "period": 1,
        "ledger": 7,
        "first": 0,
        "count": 0,
        "payload": 0,
        "lac": -1,
        "length": 0,
        "mask": 1,
    } | fields
    head = struct.pack("<4sBBBxqqIIqqQI", frame.MAGIC, *values.values(), 0)
    return head + struct.pack("<I", crc32c(head))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"version": 2}, "version 2"),
        ({"flags": 128}, "flags 0x80"),
        ({"period": 0}, "stripe period 0"),
        ({"period": 65}, "stripe period 65"),
        ({"mask": 0}, "mask 0x0"),
        ({"period": 2, "mask": 4}, "mask 0x4"),
        ({"ledger": -1}, "ledger -1"),
        ({"first": -1}, "first entry -1"),
        ({"first": 2**63 - 1}, "leave room"),
        ({"lac": -2}, "LAC -2"),
        ({"length": -1}, "length -1"),
        ({"count": 2**32 - 1}, "at most"),
        ({"payload": 2**32 - 1}, "at most"),
        ({"count": 1, "payload": 10}, "only 64 are here"),
    ],
)
def test_bounds_are_checked_before_the_body_is_touched(fields: dict[str, int], what: str) -> None:
    with pytest.raises(FrameError, match=what):
        decode_header(forged(**fields))


@pytest.mark.parametrize("lengths", [[3], [ENTRY_BYTES_MAX + 1, 3]])
def test_lengths_that_do_not_add_up_are_refused(lengths: list[int]) -> None:
    count = len(lengths)
    header = frame.FrameHeader(0, DENSE, 7, 0, count, 4, -1, 0, 0)
    columns = struct.pack(f"<{count}I", *range(count)), struct.pack(f"<{count}I", *lengths), bytes(4 * count)
    data = frame.assemble_frame(header, [*columns, b"four"])
    with pytest.raises(FrameError, match="add up"):
        check_body(data, decode_header(data))


def test_an_entry_larger_than_allowed_is_refused_though_the_frame_is_not() -> None:
    size_bytes = ENTRY_BYTES_MAX + 1
    header = frame.FrameHeader(0, DENSE, 7, 0, 1, size_bytes, -1, 0, 0)
    data = frame.assemble_frame(
        header, [struct.pack("<I", 0), struct.pack("<I", size_bytes), bytes(4), bytes(size_bytes)]
    )
    with pytest.raises(FrameError, match="an entry of 8388609 bytes"):
        check_body(data, decode_header(data))


@pytest.mark.parametrize("deltas", [(1,), (1, 2), (0, 0), (0, 2, 1)])
def test_entries_that_do_not_rise_are_refused(deltas: tuple[int, ...]) -> None:
    count = len(deltas)
    header = frame.FrameHeader(0, Stripe(5, 0b111), 7, 0, count, 0, -1, 0, 0)
    data = frame.assemble_frame(header, [struct.pack(f"<{count}I", *deltas), bytes(8 * count)])
    with pytest.raises(FrameError, match="do not rise"):
        check_body(data, decode_header(data))


def test_rule_44_a_crc_covers_ledger_entry_and_payload() -> None:
    crc = entry_crc(7, 3, b"payload")
    assert crc != entry_crc(8, 3, b"payload")
    assert crc != entry_crc(7, 4, b"payload")
    assert crc != entry_crc(7, 3, b"payloae")
    assert entry_crcs(7, [3, 4], [b"payload", b""]) == [crc, entry_crc(7, 4, b"")]


@given(st.integers(0, MAX_ID), st.integers(0, MAX_ID - 600), st.integers(0, 600))
def test_the_checksums_of_a_run_are_those_of_its_entries(ledger_id: int, first: int, count: int) -> None:
    ids = range(first, first + count)
    payloads = [b"%d" % number for number in ids]
    wanted = [entry_crc(ledger_id, *each) for each in zip(ids, payloads, strict=True)]
    assert entry_crcs(ledger_id, ids, payloads) == wanted


def test_rule_44_swapped_entries_are_found_by_the_reader() -> None:
    payloads = [b"one", b"two"]
    crcs = entry_crcs(7, range(2), payloads)
    swapped = encode_frame(7, 0, payloads[::-1], crcs[::-1])
    header = decode_header(swapped)
    check_body(swapped, header)
    good, bad = decode_entries(swapped, header)
    assert not good
    assert bad == [0, 1]


def far_frame(delta: int) -> bytes:
    """Two entries `delta` apart, the first as late as a header may say."""
    first = MAX_ID - frame.FRAME_ENTRIES_MAX * 64
    header = frame.FrameHeader(0, Stripe(2, 3), 7, first, 2, 0, -1, 0, 0)
    return frame.assemble_frame(header, [struct.pack("<2I", 0, delta), bytes(8), bytes(8)])


def test_an_entry_id_beyond_64_bits_is_refused_by_bookies_and_readers() -> None:
    room = frame.FRAME_ENTRIES_MAX * 64
    fits = far_frame(room)
    check_body(fits, decode_header(fits))
    assert frame_entry_ids(fits, decode_header(fits))[-1] == MAX_ID
    beyond = far_frame(room + 1)
    with pytest.raises(FrameError, match="out of range"):
        check_body(beyond, decode_header(beyond))
    with pytest.raises(FrameError, match="out of range"):
        frame_entry_ids(beyond, decode_header(beyond))


def test_a_message_of_too_many_frames_is_refused() -> None:
    fits = make([]) * frame.MESSAGE_FRAMES_MAX
    assert len(split_message(fits)) == frame.MESSAGE_FRAMES_MAX
    with pytest.raises(FrameError, match="send them in several messages"):
        split_message(fits + make([]))


def test_a_header_that_is_cut_off_is_refused() -> None:
    with pytest.raises(FrameError, match="only 10 are left"):
        decode_header(make([b"a"])[:10])


@pytest.mark.parametrize("damaged_length", [0, 4, 2**32 - 1])
def test_rule_44_a_damaged_length_spares_the_entries_before_it(damaged_length: int) -> None:
    """The lengths do not add up any more: what follows is cut out in the wrong place, and fails its checksum."""
    payloads = [b"a", b"bb", b"ccc"]
    damaged = bytearray(encode_frame(5, 7, payloads, entry_crcs(5, range(7, 10), payloads)))
    struct.pack_into("<I", damaged, frame.HEADER_BYTES + 4 * len(payloads) + 4, damaged_length)
    good, bad = decode_entries(damaged, decode_header(damaged))
    assert good == [Entry(7, b"a")]
    assert bad == [8, 9]
