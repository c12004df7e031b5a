"""The framing of the lane: whatever pieces the bytes come in, the messages are the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.stream import StreamError
from daybook.wire.lane import LENGTH, encode_lane, lane_buffer
from daybook.wire.message_buffer import _SPARE_BYTES_MAX, MessageBuffer

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


def receive_large(buffer: MessageBuffer, sent: bytes) -> bytes | bytearray:
    """`sent` as the message that it becomes, which does not fit into the buffer."""
    room, data = buffer.room(), encode_lane(sent)
    room[:] = data[: len(room)]
    assert buffer.received(len(room)) == []
    buffer.room()[:] = data[len(room) :]
    (message,) = buffer.received(len(data) - len(room))
    return message


@given(sizes=st.lists(st.integers(66_000, LIMIT), min_size=1, max_size=8))
def test_a_message_that_was_given_back_makes_room_for_another_one(sizes: list[int]) -> None:
    buffer = lane_buffer(LIMIT)
    for number, size in enumerate(sizes):
        sent = bytes([number % 256]) * size
        message = receive_large(buffer, sent)
        assert message == sent
        buffer.give_back(message)


def test_messages_of_about_the_same_length_are_received_in_one_place() -> None:
    buffer = lane_buffer(LIMIT)
    first = receive_large(buffer, bytes(LIMIT))
    buffer.give_back(first)
    small = receive_large(buffer, bytes(70_000))
    assert small is not first, "it would leave too little room for the next large one"
    for size in (LIMIT - 7, LIMIT):
        assert receive_large(buffer, b"x" * size) is first
        buffer.give_back(first)
    assert small == bytes(70_000)


def test_a_message_of_which_somebody_has_a_view_is_not_written_to() -> None:
    buffer = lane_buffer(LIMIT)
    first = receive_large(buffer, b"1" * LIMIT)
    buffer.give_back(first)
    view = memoryview(first)[7:]
    for size in (LIMIT, LIMIT - 7):
        other = receive_large(buffer, b"2" * size)
        assert other is not first
        assert view == b"1" * (LIMIT - 7)
        buffer.give_back(other)
    view.release()
    taken = [receive_large(buffer, b"3" * LIMIT) for _ in range(3)]
    assert any(each is first for each in taken)


def test_answers_of_pieces_are_received_in_turn_where_those_before_them_were() -> None:
    """While somebody holds the last one."""
    size_bytes = 4_392_040
    buffer = lane_buffer(size_bytes)
    held: memoryview | None = None
    seen: list[bytes | bytearray] = []
    for _ in range(6):
        message = receive_large(buffer, bytes(size_bytes))
        held = memoryview(message)
        buffer.give_back(message)
        seen += [] if any(message is each for each in seen) else [message]
    assert held is not None
    assert len(seen) == 2


def test_what_was_given_back_is_kept_up_to_a_bound() -> None:
    buffer = lane_buffer(2 * _SPARE_BYTES_MAX)
    messages = [receive_large(buffer, bytes(_SPARE_BYTES_MAX // 4)) for _ in range(6)]
    for message in messages:
        buffer.give_back(message)
    buffer.give_back(receive_large(buffer, bytes(_SPARE_BYTES_MAX + 1)))
    taken = [receive_large(buffer, bytes(_SPARE_BYTES_MAX // 4)) for _ in range(6)]
    assert [any(each is message for each in taken) for message in messages] == [False] * 2 + [True] * 4


@pytest.mark.parametrize("length", [0, LIMIT + 1, 2**32 - 1])
def test_a_length_that_no_message_has_is_refused_before_room_is_made_for_it(length: int) -> None:
    buffer = lane_buffer(LIMIT)
    with pytest.raises(StreamError, match=f"a message of {length} bytes"):
        received(buffer, LENGTH.pack(length), [LENGTH.size])
