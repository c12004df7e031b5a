"""Frames are cut whole out of any pieces, and what is no frame or no command is refused before memory is taken for it."""

import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.wire.pulsar import frames
from daybook.wire.pulsar.errors import PulsarFrameError, UnknownCommandError
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandPing,
    CommandSubscribe,
    KeyValue,
)
from tests.paths import ROOT
from tests.unit.wire.pulsar.kit import send
from tests.unit.wire.test_lane import received

PING = BaseCommand(type=BaseCommand.PING, ping=CommandPing())


@given(
    entries=st.lists(st.binary(max_size=50) | st.integers(60_000, 70_000).map(bytes), min_size=1, max_size=6),
    pieces=st.lists(st.integers(1, 9) | st.integers(50_000, 200_000), min_size=1, max_size=6),
)
def test_frames_arrive_whole_and_in_order(entries: list[bytes], pieces: list[int]) -> None:
    if sum(map(len, entries)) > 1000:
        pieces = [max(piece, 1000) for piece in pieces]
    commands = [send(producer_id=1, sequence_id=number) for number in range(len(entries))]
    data = b"".join(map(frames.encode_frame, commands, entries))
    found = [frames.split_frame(frame) for frame in received(frames.frame_buffer(100_000), data, pieces)]
    assert [frames.decode_command(command) for command, _ in found] == commands
    assert [bytes(entry) for _, entry in found] == entries


@pytest.mark.parametrize("size_bytes", [0, frames.CONNECT_BYTES_MAX + 1, 2**32 - 1])
def test_a_frame_of_a_wrong_size_is_refused_before_it_arrives(size_bytes: int) -> None:
    buffer = frames.frame_buffer()
    with pytest.raises(
        PulsarFrameError, match=f"a frame of {size_bytes} bytes, and 1 to {2**16} are allowed"
    ):
        received(buffer, struct.pack(">I", size_bytes), [4])


def test_larger_frames_are_taken_once_the_client_is_connected() -> None:
    buffer = frames.frame_buffer()
    buffer.bytes_max = frames.FRAME_BYTES_MAX
    frame = frames.encode_frame(send(producer_id=1, sequence_id=1), bytes(frames.MESSAGE_BYTES_MAX))
    assert received(buffer, frame, [2**20]) == [frame[4:]]


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\0", b"\0\0\0\2\x08", b"\xff\xff\xff\xff\x08\x12"])
def test_a_frame_whose_command_does_not_fit_is_refused(frame: bytes) -> None:
    with pytest.raises(PulsarFrameError, match="command"):
        frames.split_frame(frame)


@pytest.mark.parametrize("command", [b"", b"\xff\xff", b"\x10\x02", b"\x08", b"\x08\xff\xff\xff\xff\xff"])
def test_bytes_that_are_no_command_are_refused(command: bytes) -> None:
    with pytest.raises(PulsarFrameError):
        frames.decode_command(command)


@pytest.mark.parametrize(
    "command",
    [
        BaseCommand(type=BaseCommand.CONNECT),
        BaseCommand(type=BaseCommand.CONNECT, connect=CommandConnect(protocol_version=19)),
        BaseCommand(type=BaseCommand.CONNECT, subscribe=CommandSubscribe()),
        BaseCommand(type=BaseCommand.SEND, connect=CommandConnect(client_version="x")),
    ],
)
def test_a_command_that_lacks_a_required_field_is_refused(command: BaseCommand) -> None:
    with pytest.raises(PulsarFrameError, match=r"a command (CONNECT|SEND) lacks a field"):
        frames.decode_command(command.SerializePartialToString())


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (
            BaseCommand(
                type=BaseCommand.CONNECT, connect=CommandConnect(client_version="~", protocol_version=1)
            ),
            "client_version",
        ),
        (
            BaseCommand(
                type=BaseCommand.SUBSCRIBE,
                subscribe=CommandSubscribe(
                    topic="t",
                    subscription="s",
                    subType=CommandSubscribe.Shared,
                    consumer_id=1,
                    request_id=1,
                    metadata=[KeyValue(key="k", value="v"), KeyValue(key="k", value="~")],
                ),
            ),
            "value",
        ),
    ],
)
def test_a_text_that_is_no_utf_8_is_refused(command: BaseCommand, field: str) -> None:
    assert frames.decode_command(command.SerializeToString()) == command
    with pytest.raises(PulsarFrameError, match=f"the text {field} of a command is no UTF-8"):
        frames.decode_command(command.SerializeToString().replace(b"~", b"\xff"))


@pytest.mark.parametrize(
    ("command", "number"), [(b"\x08\x63", 99), (b"\x08\x80\x01\x82\x08\x00", 128), (b"\x08\x33", 51)]
)
def test_a_command_of_a_later_version_is_named_by_its_number(command: bytes, number: int) -> None:
    with pytest.raises(UnknownCommandError, match=f"command {number} ") as caught:
        frames.decode_command(command)
    assert caught.value.number == number


def test_a_ping_needs_no_body() -> None:
    assert frames.decode_command(b"\x08\x12").type == BaseCommand.PING
    assert frames.decode_command(PING.SerializeToString()) == PING


def test_every_type_has_its_field_but_the_answers_of_transactions() -> None:
    missing = {value.number for value in BaseCommand.Type.DESCRIPTOR.values} - {
        field.number for field in BaseCommand.DESCRIPTOR.fields
    }
    assert missing == set(range(51, 62, 2))


def test_the_page_about_the_protocol_lists_every_command() -> None:
    rows = re.findall(r"^\| (\d+) ([A-Z_]+) \|", (ROOT / "docs/pulsar.md").read_text("utf-8"), re.MULTILINE)
    assert {name: int(number) for number, name in rows} == dict(BaseCommand.Type.items())
    assert len(rows) == len(BaseCommand.Type.items())
