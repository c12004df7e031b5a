"""The frame: what Pulsar's clients and brokers exchange over a connection. Every number is big-endian.

    total size u32      of all that follows
    command size u32
    command             BaseCommand
    entry               only after SEND and MESSAGE (entries.py)

Sizes are checked before anything of that size is allocated.
"""

import struct
from functools import cache
from typing import Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from daybook.core.format.frame import Buffer
from daybook.wire.message_buffer import MessageBuffer
from daybook.wire.pulsar.errors import PulsarFrameError, UnknownCommandError
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand

MESSAGE_BYTES_MAX: Final = 5 * 1024 * 1024
"""The largest metadata and payload together, as Pulsar's brokers have it by default; a broker may allow less, and CommandConnected reports it."""
FRAME_PADDING_BYTES: Final = 10 * 1024
"""What a frame may have beside its message: Pulsar's own, room for the command."""
FRAME_BYTES_MAX: Final = MESSAGE_BYTES_MAX + FRAME_PADDING_BYTES
"""The largest frame without its first size."""
CONNECT_BYTES_MAX: Final = 64 * 1024
"""The largest frame before a client is connected: room for the credentials in CommandConnect."""

_SIZE: Final = struct.Struct(">I")
_SIZES: Final = struct.Struct(">II")
_TYPE_TAG: Final = 0x08
_FIELD_OF_TYPE: Final = {field.number: field.name for field in BaseCommand.DESCRIPTOR.fields}
"""The field that holds a command, by the number of the command's type: they are the same number."""


def frame_buffer(bytes_max: int = CONNECT_BYTES_MAX) -> MessageBuffer:
    """A buffer that cuts out frames without their first size. It raises PulsarFrameError for one longer than `bytes_max`.

    Raise its `bytes_max` to FRAME_BYTES_MAX once the client is connected.
    """
    return MessageBuffer(bytes_max, _SIZE, _wrong_size)


def _wrong_size(size_bytes: int, bytes_max: int) -> PulsarFrameError:
    return PulsarFrameError(
        f"a frame of {size_bytes} bytes, and 1 to {bytes_max} are allowed: send smaller messages, switch chunking on, "
        "or check that this is a client of Pulsar's binary protocol"
    )


def split_frame(frame: bytes | bytearray) -> tuple[bytes, Buffer]:
    """The command of a frame without its first size, and the entry behind it, which may be empty. Raises PulsarFrameError.

    The entry of a small frame (`bytes`) is a copy, which costs less than views do: garbage collections visit views for as long as they live.
    """
    if len(frame) < _SIZE.size:
        msg = f"a frame of {len(frame)} bytes has no room for the size of its command"
        raise PulsarFrameError(msg)
    end = _SIZE.unpack_from(frame)[0] + _SIZE.size
    if not _SIZE.size < end <= len(frame):
        msg = f"a command of {end - _SIZE.size} bytes in a frame of {len(frame)}: the client's bytes are no frames of Pulsar's protocol"
        raise PulsarFrameError(msg)
    if isinstance(frame, bytes):
        return frame[_SIZE.size : end], frame[end:]
    return bytes(frame[_SIZE.size : end]), memoryview(frame)[end:]


def decode_command(command: bytes) -> BaseCommand:
    """A command with all that the protocol requires of it. Raises PulsarFrameError, UnknownCommandError."""
    try:
        decoded = BaseCommand.FromString(command)
    except DecodeError as error:
        msg = f"a command of {len(command)} bytes that begins with {command[:8]!r} cannot be read ({error})"
        raise PulsarFrameError(msg) from error
    if not decoded.HasField("type"):
        raise _without_type(command)
    name = _FIELD_OF_TYPE.get(decoded.type)
    if name is None:
        raise UnknownCommandError(decoded.type)
    if not decoded.IsInitialized() or not getattr(decoded, name).IsInitialized():
        msg = f"a command {BaseCommand.Type.Name(decoded.type)} lacks a field that the protocol requires"
        raise PulsarFrameError(msg)
    _check_texts(getattr(decoded, name))
    return decoded


class _TextField(NamedTuple):
    """A field of a message that is text, or holds messages with text."""

    name: str
    is_text: bool
    is_repeated: bool


def _check_texts(message: Message) -> None:
    """Protobuf gives a text that is no UTF-8 as bytes, which nobody expects. Raises PulsarFrameError."""
    for field in _text_fields(message.DESCRIPTOR):
        if not field.is_repeated and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        for each in value if field.is_repeated else (value,):
            if not field.is_text:
                _check_texts(each)
            elif not isinstance(each, str):
                msg = f"the text {field.name} of a command is no UTF-8 ({each[:40]!r}): names and properties are UTF-8"
                raise PulsarFrameError(msg)


@cache
def _text_fields(descriptor: Descriptor) -> tuple[_TextField, ...]:
    """The others are not looked at: an acknowledgement may name thousands of messages."""
    return tuple(
        _TextField(field.name, field.type == FieldDescriptor.TYPE_STRING, field.is_repeated)
        for field in descriptor.fields
        if _has_text(field, frozenset())
    )


def _has_text(field: FieldDescriptor, within: frozenset[str]) -> bool:
    if field.type == FieldDescriptor.TYPE_STRING:
        return True
    inner = field.message_type
    if inner is None or inner.full_name in within:
        return False
    return any(_has_text(each, within | {inner.full_name}) for each in inner.fields)


def _without_type(command: bytes) -> PulsarFrameError | UnknownCommandError:
    """Every client writes the type first, and protobuf drops a value that it does not know."""
    number = 0
    if command[:1] == bytes([_TYPE_TAG]):
        for shift, byte in enumerate(command[1:5]):
            number |= (byte & 0x7F) << 7 * shift
            if byte < 0x80:
                return UnknownCommandError(number)
    return PulsarFrameError(f"a command of {len(command)} bytes that begins with {command[:8]!r} has no type")


def frame_head(command: bytes, entry_bytes: int) -> bytes:
    """All of a frame that comes before its entry of `entry_bytes`."""
    size_bytes = len(command)
    return _SIZES.pack(_SIZE.size + size_bytes + entry_bytes, size_bytes) + command


def encode_frame(command: BaseCommand, entry: Buffer = b"") -> bytes:
    """A whole frame. Raises EncodeError for a command without a required field, which is a mistake of the caller."""
    return frame_head(command.SerializeToString(), len(entry)) + entry
