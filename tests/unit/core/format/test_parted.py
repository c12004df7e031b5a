"""A message whose payloads all come last says what its frames say, and its payloads of one size are one run within it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.errors import FrameError
from daybook.core.format import parted
from daybook.core.format.block import Block, decode_block
from daybook.core.format.checksums import entry_crcs
from daybook.core.format.entries import Entry, EntryRun, decode_entries
from daybook.core.format.frame import HEADER_BYTES, ROW_BYTES, encode_frame
from daybook.core.format.parted import part, split_parted
from daybook.core.format.payload_run import COUNT_MIN, PayloadRun

LEDGER = 7
SIZE = 20


def block_of(first: int, payloads: Sequence[bytes]) -> Block:
    ids = range(first, first + len(payloads))
    return decode_block(encode_frame(LEDGER, first, payloads, entry_crcs(LEDGER, ids, payloads)))


def blocks_of(*frames: Sequence[bytes]) -> list[Block]:
    """Blocks of the payloads of each frame, whose entries follow each other."""
    firsts = [sum(map(len, frames[:n])) for n in range(len(frames))]
    return [block_of(first, payloads) for first, payloads in zip(firsts, frames, strict=True)]


def of_one_size(count: int, first: int = 0) -> list[bytes]:
    return [(b"payload %d " % (first + n) * 3)[:SIZE] for n in range(count)]


def message_of(blocks: Sequence[Block]) -> bytearray:
    return bytearray().join(part(blocks))


def found_in(message: bytearray, *, is_own: bool = True) -> tuple[list[EntryRun], list[int]]:
    """The sound entries of each frame, and the damaged ones of all."""
    runs: list[EntryRun] = []
    damaged: list[int] = []
    for header, offset, payloads_at in split_parted(message):
        good, bad = decode_entries(message, header, offset, payloads_at=payloads_at, is_own=is_own)
        runs.append(good)
        damaged += bad
    return runs, damaged


def expected_of(blocks: Sequence[Block]) -> list[Entry]:
    return [entry for block in blocks for entry in decode_entries(block.data, block.header)[0]]


FRAMES = st.lists(
    st.lists(st.binary(max_size=30), max_size=40)
    | st.integers(1, 2 * COUNT_MIN).map(lambda count: [bytes(SIZE)] * count),
    max_size=5,
).map(lambda frames: [frame for frame in frames if frame])


@given(FRAMES, st.booleans())
def test_the_entries_are_those_of_the_frames(frames: list[list[bytes]], is_own: bool) -> None:
    blocks = blocks_of(*frames)
    message = message_of(blocks)
    before = bytes(message)
    runs, damaged = found_in(message, is_own=is_own)
    assert [entry for run in runs for entry in run] == expected_of(blocks)
    assert not damaged
    assert message == before


@given(FRAMES.filter(bool), st.data())
def test_rule_44_damage_costs_the_entry_that_it_hit(frames: list[list[bytes]], draw: st.DataObject) -> None:
    blocks = blocks_of(*frames)
    message = message_of(blocks)
    payloads_at = sum(HEADER_BYTES + ROW_BYTES * block.header.count for block in blocks)
    if payloads_at == len(message):
        return
    at = draw.draw(st.integers(payloads_at, len(message) - 1))
    message[at] ^= draw.draw(st.integers(1, 255))
    hit, end = -1, payloads_at
    for payload in [payload for frame in frames for payload in frame]:
        hit, end = hit + 1, end + len(payload)
        if at < end:
            break
    runs, damaged = found_in(message)
    assert damaged == [hit]
    assert [entry.entry_id for run in runs for entry in run] == [
        entry.entry_id for entry in expected_of(blocks) if entry.entry_id != hit
    ]


@pytest.mark.parametrize("counts", [(COUNT_MIN,), (100, 70), (3, 100, 100, 5)])
def test_payloads_of_one_size_are_one_run_of_the_message_itself(counts: tuple[int, ...]) -> None:
    """Also where frames at the ends have few entries, which are looked at one by one."""
    blocks = blocks_of(*[of_one_size(count, first) for first, count in enumerate(counts)])
    message = message_of(blocks)
    runs, _ = found_in(message)
    run = parted.joined_in_place(message, split_parted(message), runs)
    assert run == expected_of(blocks)
    assert isinstance(run.payloads, PayloadRun)
    (only,) = run.payloads.parts
    assert isinstance(only, memoryview)
    assert only.obj is message


def test_payloads_of_several_sizes_are_joined_as_those_of_any_frames() -> None:
    blocks = blocks_of(of_one_size(100), [bytes(SIZE + 1)] * 50)
    message = message_of(blocks)
    runs, _ = found_in(message)
    assert parted.joined_in_place(message, split_parted(message), runs) == expected_of(blocks)


def test_rule_44_a_damaged_payload_is_not_passed_on_with_the_others() -> None:
    """Its place is still in the message."""
    blocks = blocks_of(of_one_size(100), of_one_size(50))
    message = message_of(blocks)
    message[-1] ^= 1
    runs, damaged = found_in(message)
    assert damaged == [149]
    assert parted.joined_in_place(message, split_parted(message), runs) == expected_of(blocks)[:149]


def test_what_is_no_such_message_is_refused() -> None:
    message = message_of(blocks_of(of_one_size(100), of_one_size(40)))
    for wrong in (message[:-1], message + b"x", message[1:], message[: HEADER_BYTES + 3]):
        with pytest.raises(FrameError):
            split_parted(wrong)
    assert split_parted(b"") == []


def test_a_message_has_a_bound_of_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parted, "MESSAGE_FRAMES_MAX", 2)
    with pytest.raises(FrameError, match="more than 2 frames"):
        split_parted(message_of(blocks_of([b"a"], [b"b"], [b"c"])))
