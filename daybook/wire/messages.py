"""The raw messages of the Append stream and of Read, which would be slower as protobuf.

Append, client to bookie: frames back to back, nothing else (a frame begins with its own magic), or a table of LACs, which is
not numbered and not answered, or a control message.
Append, bookie to client: answers (rule 49, see daybook/core/stream.py) or control messages. Read, bookie to client: a
header, the ranges that exist but are unreadable, then frames back to back. Each kind begins with its own four letters;
a message that begins otherwise is refused with a `StreamError`.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from daybook.core.errors import Code
from daybook.core.format.frame import MAGIC as FRAME_MAGIC
from daybook.core.format.frame import Buffer
from daybook.core.format.lac_table import LAC_TABLE_MAGIC
from daybook.core.ids import EntryId
from daybook.core.stream import FrameFailure, StreamAnswer, StreamError
from daybook.wire.bookie_pb2 import ClientControl, ServerControl

CONTROL_MAGIC: Final = b"DBC1"
ANSWER_MAGIC: Final = b"DBA1"
READ_MAGIC: Final = b"DBR1"

_ANSWER: Final = struct.Struct("<4sQI")
_FAILURE: Final = struct.Struct("<QII")
_READ: Final = struct.Struct("<4sIIIqqq")
_RANGE: Final = struct.Struct("<qq")
_FLAG_LIMBO: Final = 1
_FLAG_PAYLOADS_LAST: Final = 2

READ_MESSAGE_BYTES_TARGET: Final = 1024 * 1024
"""The approximate size of the messages of a read answer over gRPC; a single larger frame is not cut.

A message costs both ends the same whatever its size, and a bookie holds one for each client that is slow to take it.
"""


def is_frames(message: bytes | bytearray) -> bool:
    """Whether a client's message contains frames; otherwise it is a control message."""
    return message.startswith(FRAME_MAGIC)


def is_control(message: bytes | bytearray) -> bool:
    """Whether a message is a control message."""
    return message.startswith(CONTROL_MAGIC)


def is_lac_table(message: bytes | bytearray) -> bool:
    """Whether a client's message is a table of LACs."""
    return message.startswith(LAC_TABLE_MAGIC)


def encode_client_control(control: ClientControl) -> bytes:
    """A control message to a bookie."""
    return CONTROL_MAGIC + bytes(control.SerializeToString())


def decode_client_control(message: bytes | bytearray) -> ClientControl:
    """A control message from a client. Raises StreamError."""
    if not message.startswith(CONTROL_MAGIC):
        raise StreamError(_unknown(message, "neither frames nor a control message"))
    try:
        return ClientControl.FromString(bytes(message[len(CONTROL_MAGIC) :]))
    except DecodeError as error:
        raise StreamError(_unknown(message, "no readable control message")) from error


def encode_server_control(control: ServerControl) -> bytes:
    """A control message to a client."""
    return CONTROL_MAGIC + bytes(control.SerializeToString())


def encode_answer(answer: StreamAnswer) -> bytes:
    """An answer to a client."""
    head = _ANSWER.pack(ANSWER_MAGIC, answer.through, len(answer.failures))
    if not answer.failures:
        return head
    return b"".join([head, *(_FAILURE.pack(*failure) for failure in answer.failures)])


def decode_from_bookie(message: bytes | bytearray) -> StreamAnswer | ServerControl:
    """A message of a bookie on an Append stream. Raises StreamError."""
    if message.startswith(CONTROL_MAGIC):
        try:
            return ServerControl.FromString(bytes(message[len(CONTROL_MAGIC) :]))
        except DecodeError as error:
            raise StreamError(_unknown(message, "no readable control message")) from error
    if not message.startswith(ANSWER_MAGIC) or len(message) < _ANSWER.size:
        raise StreamError(_unknown(message, "neither an answer nor a control message"))
    _, through, count = _ANSWER.unpack_from(message)
    if len(message) != _ANSWER.size + count * _FAILURE.size:
        raise StreamError(_unknown(message, f"an answer of the wrong size for {count} failures"))
    try:
        failures = tuple(
            FrameFailure(number, frame, Code(code))
            for number, frame, code in _FAILURE.iter_unpack(memoryview(message)[_ANSWER.size :])
        )
    except ValueError as error:
        raise StreamError(_unknown(message, f"an answer with a code of another release ({error})")) from error
    return StreamAnswer(through, failures)


class ReadHeader(NamedTuple):
    """The header before the frames of a read answer; `daybook.core.events.ReadAnswered` says what it proves.

    With code OK the answer, together with those before it in the same call, covers the entries up to `through`.
    `damaged` are ranges (first, last) of entries that exist but are unreadable. `payloads_last`: see `daybook.core.format.parted`.
    """

    code: Code
    through: EntryId = -1
    last_add_confirmed: EntryId = -1
    length_at_lac: int = 0
    limbo: bool = False
    damaged: tuple[tuple[EntryId, EntryId], ...] = ()
    payloads_last: bool = False


def encode_read(header: ReadHeader, frames: Sequence[Buffer]) -> bytes:
    """A message of a read answer."""
    return b"".join(read_parts(header, frames))


def read_parts(header: ReadHeader, frames: Sequence[Buffer]) -> list[Buffer]:
    """The same message in parts: whoever can send them as they are copies no frame. `frames` have the form that the header names."""
    head = _READ.pack(
        READ_MAGIC,
        header.code,
        (_FLAG_LIMBO if header.limbo else 0) | (_FLAG_PAYLOADS_LAST if header.payloads_last else 0),
        len(header.damaged),
        header.through,
        header.last_add_confirmed,
        header.length_at_lac,
    )
    return [b"".join([head, *(_RANGE.pack(*damaged) for damaged in header.damaged)]), *frames]


def decode_read(message: bytes | bytearray) -> tuple[ReadHeader, memoryview]:
    """The header of a read answer and its frames, which the reader must check. Raises StreamError."""
    if not message.startswith(READ_MAGIC) or len(message) < _READ.size:
        raise StreamError(_unknown(message, "not a read answer"))
    _, code, flags, count, through, lac, length = _READ.unpack_from(message)
    end = _READ.size + count * _RANGE.size
    if len(message) < end:
        raise StreamError(_unknown(message, f"a read answer too short for {count} damaged ranges"))
    damaged = tuple(_RANGE.iter_unpack(memoryview(message)[_READ.size : end]))
    try:
        header = ReadHeader(
            Code(code),
            through,
            lac,
            length,
            bool(flags & _FLAG_LIMBO),
            damaged,
            bool(flags & _FLAG_PAYLOADS_LAST),
        )
    except ValueError as error:
        raise StreamError(
            _unknown(message, f"a read answer with a code of another release ({error})")
        ) from error
    return header, memoryview(message)[end:]


def _unknown(message: bytes | bytearray, what: str) -> str:
    return f"{what}: {len(message)} bytes that begin with {bytes(message[:8])!r}; do both ends run compatible releases?"
