"""The raw messages round-trip, and anything else is refused with a reason."""

import subprocess
import sys
from pathlib import Path

import pytest

from daybook.core.errors import Code
from daybook.core.format.checksums import entry_crcs
from daybook.core.format.frame import encode_frame
from daybook.core.stream import FrameFailure, StreamAnswer, StreamError
from daybook.wire import bookie_pb2 as pb
from daybook.wire import messages
from daybook.wire.messages import ReadHeader
from tests.paths import ROOT

FAILURES = (FrameFailure(7, 0, Code.FENCED), FrameFailure(2**40, 3, Code.BAD_FRAME))
READ = ReadHeader(Code.OK, 41, 17, 12_345, limbo=True, damaged=((3, 5), (9, 9)))


@pytest.mark.parametrize("answer", [StreamAnswer(0), StreamAnswer(2**63, FAILURES)])
def test_answers_round_trip(answer: StreamAnswer) -> None:
    assert messages.decode_from_bookie(messages.encode_answer(answer)) == answer


def test_control_messages_round_trip() -> None:
    hello = pb.ServerControl(hello=pb.ServerHello(bookie_id="b", boot_id="x"))
    assert messages.decode_from_bookie(messages.encode_server_control(hello)) == hello
    attach = pb.ClientControl(attach=pb.Attach(ledger_id=3, key="k", purpose=pb.PURPOSE_RECOVERY))
    assert messages.decode_client_control(messages.encode_client_control(attach)) == attach


def test_frames_and_control_messages_are_distinguished() -> None:
    assert messages.is_frames(encode_frame(1, 0, [b"x"], entry_crcs(1, [0], [b"x"])))
    assert not messages.is_frames(messages.encode_client_control(pb.ClientControl()))
    assert not messages.is_frames(b"")


def test_read_answers_round_trip_with_their_frames() -> None:
    header, frames = messages.decode_read(messages.encode_read(READ, [b"one", memoryview(b"two")]))
    assert header == READ
    assert bytes(frames) == b"onetwo"


@pytest.mark.parametrize("cut", [0, 3, 4, 15, 17, -1])
def test_a_cut_answer_is_refused(cut: int) -> None:
    with pytest.raises(StreamError):
        messages.decode_from_bookie(messages.encode_answer(StreamAnswer(9, FAILURES))[:cut])


@pytest.mark.parametrize("cut", [0, 4, 39, 41])
def test_a_cut_read_answer_is_refused(cut: int) -> None:
    with pytest.raises(StreamError):
        messages.decode_read(messages.encode_read(READ, [])[:cut])


@pytest.mark.parametrize("message", [b"", b"GET / HTTP/1.1", b"DBC1\xff\xff\xff"])
def test_an_unknown_message_is_refused(message: bytes) -> None:
    with pytest.raises(StreamError):
        messages.decode_from_bookie(message)
    with pytest.raises(StreamError):
        messages.decode_client_control(message)
    with pytest.raises(StreamError):
        messages.decode_read(message)


def test_a_code_of_another_release_is_refused() -> None:
    good = messages.encode_answer(StreamAnswer(1, (FrameFailure(1, 0, Code.FENCED),)))
    with pytest.raises(StreamError, match="another release"):
        messages.decode_from_bookie(good[:-4] + (999).to_bytes(4, "little"))


@pytest.mark.parametrize("name", ["bookie", "pulsar/pulsar"])
def test_generated_code_is_that_of_the_proto_file(name: str, tmp_path: Path) -> None:
    subprocess.run(
        [
            sys.executable,
            *("-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"),
            f"daybook/wire/{name}.proto",
        ],
        cwd=ROOT,
        check=True,
    )
    for file in (f"daybook/wire/{name}_pb2.py", f"daybook/wire/{name}_pb2.pyi"):
        made = (tmp_path / file).read_text(encoding="utf-8")
        kept = (ROOT / file).read_text(encoding="utf-8")
        assert made == kept, "run `make proto`"
