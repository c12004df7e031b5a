"""Reads lines of a file, a terminal or a pipe as they arrive: lines of a slow pipe do not wait until a buffer is full.

Reading does not block the event loop, and leaves no reading thread behind when the command is interrupted.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Final

from daybook.core.errors import EntryTooLargeError
from daybook.core.ids import ENTRY_BYTES_MAX

_CHUNK_BYTES: Final = 256 * 1024


async def batches_of_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """The lines without their ends; those that arrived together come together.

    Raises EntryTooLargeError for a line that is larger than an entry may be, after it has yielded the lines before.
    """
    rest = b""
    number = 0
    while chunk := await _next_chunk(descriptor):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            number += len(lines)
            yield lines
        if len(rest) > ENTRY_BYTES_MAX:
            msg = f"line {number + 1} is longer than an entry may be ({ENTRY_BYTES_MAX:,} bytes): split it"
            raise EntryTooLargeError(msg)
    if rest:
        yield [rest]


async def _next_chunk(descriptor: int) -> bytes:
    """The bytes that can be read now, once there are some; empty at the end."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(descriptor, _set_once, ready)
    except PermissionError:  # a regular file, which is always readable
        return os.read(descriptor, _CHUNK_BYTES)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _CHUNK_BYTES)


def _set_once(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
