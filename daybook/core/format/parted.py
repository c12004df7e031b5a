"""Frames of one message whose payloads all come last: headers and tables behind each other, then the payloads behind each other.

Payloads of one size are then one run of bytes in the message itself, whatever frames they were stored in, and a reader that passes them on
in a column copies nothing (ADR 17). Nothing else differs: each frame's checksums are those that it has as a whole, and a frame is put
together again where that is needed.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from daybook.core.errors import FrameError
from daybook.core.format.block import Block
from daybook.core.format.entries import EntryRun, joined
from daybook.core.format.frame import (
    HEADER_BYTES,
    MESSAGE_FRAMES_MAX,
    ROW_BYTES,
    Buffer,
    FrameHeader,
    decode_header,
)
from daybook.core.format.payload_run import PayloadRun

FRAME_BYTES_MIN: Final = 16 * 1024
"""Of smaller frames, to take each apart costs more than a copy of them all."""


class PartedFrame(NamedTuple):
    """Where a frame is in its message."""

    header: FrameHeader
    offset: int
    """Of its header, which its table follows."""
    payloads_at: int


def part(blocks: Iterable[Block]) -> list[Buffer]:
    """The blocks as parts of a message: headers with their tables, then payloads. Copies nothing."""
    heads: list[Buffer] = []
    payloads: list[Buffer] = []
    for block in blocks:
        view = memoryview(block.data)
        end = _head_bytes(block.header)
        heads.append(view[:end])
        payloads.append(view[end:])
    return [*heads, *payloads]


def split_parted(message: Buffer) -> list[PartedFrame]:
    """The frames of a message in this form. Raises FrameError, also for more than MESSAGE_FRAMES_MAX; bodies are not checked."""
    found: list[tuple[FrameHeader, int, int]] = []
    heads_bytes = payload_bytes = 0
    while heads_bytes + payload_bytes < len(message):
        if len(found) == MESSAGE_FRAMES_MAX:
            msg = f"a message of more than {MESSAGE_FRAMES_MAX} frames: send them in several messages"
            raise FrameError(msg)
        header = decode_header(message, heads_bytes)
        found.append((header, heads_bytes, payload_bytes))
        heads_bytes += _head_bytes(header)
        payload_bytes += header.payload_bytes
    if heads_bytes + payload_bytes > len(message):
        msg = f"frames of {heads_bytes + payload_bytes} bytes in a message of {len(message)}"
        raise FrameError(msg)
    return [PartedFrame(header, offset, heads_bytes + before) for header, offset, before in found]


def joined_in_place(message: Buffer, frames: list[PartedFrame], found: list[EntryRun]) -> EntryRun:
    """The sound entries `found` in the frames of such a message: its payloads themselves if they have one size and none is missing."""
    run = joined(found)
    payloads = run.payloads
    if isinstance(payloads, PayloadRun):
        whole = memoryview(message)[frames[0].payloads_at :]
        if len(payloads) * payloads.entry_bytes == len(whole):
            return EntryRun(run.entry_ids, PayloadRun(payloads.entry_bytes, [whole]))
    return run


def _head_bytes(header: FrameHeader) -> int:
    """The size of a frame's header and table."""
    return HEADER_BYTES + ROW_BYTES * header.count
