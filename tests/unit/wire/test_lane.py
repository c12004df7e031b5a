"""The framing of the lane: whatever pieces the bytes come in, the messages are the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.stream import StreamError
from daybook.wire.lane import LENGTH, encode_lane, lane_buffer
from daybook.wire.message_buffer import MessageBuffer

LIMIT = 300_000
"""Above the buffer's size, so that a message may get a buffer of its own."""


def received(buffer: MessageBuffer, data: bytes, pieces: list[int]) -> list[bytes]:
    """The messages in `data`, of which a socket writes `pieces` bytes at a time."""
    messages: list[bytes] = []
    offset, turn = 0, 0
    while offset < len(data):
        room = buffer.room()
        size_bytes = min(len(room), pieces[turn % len(pieces)], len(data) - offset)
        room[:size_bytes] = data[offset : offset + size_bytes]
        messages += [bytes(message) for message in buffer.received(size_bytes)]
        offset += size_bytes
        turn += 1
    return messages


@given(
    sizes=st.lists(
        st.integers(1, 70) | st.integers(60_000, 70_000) | st.just(LIMIT), min_size=1, max_size=12
    ),
    pieces=st.lists(st.integers(1, 9) | st.integers(50_000, 200_000), min_size=1, max_size=6),
)
def test_messages_arrive_whole_in_order_and_are_not_written_to_again(
    sizes: list[int], pieces: list[int]
) -> None:
    if max(sizes) > 1000:
        pieces = [max(piece, 1000) for piece in pieces]
    sent = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    data = b"".join(map(encode_lane, sent))
    assert received(lane_buffer(LIMIT), data, pieces) == sent


@pytest.mark.parametrize("length", [0, LIMIT + 1, 2**32 - 1])
def test_a_length_that_no_message_has_is_refused_before_room_is_made_for_it(length: int) -> None:
    buffer = lane_buffer(LIMIT)
    with pytest.raises(StreamError, match=f"a message of {length} bytes"):
        received(buffer, LENGTH.pack(length), [LENGTH.size])
