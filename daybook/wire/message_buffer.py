"""A buffer into which a socket writes, and out of which messages are cut, each behind its length as four bytes.

The bookie's lane and the Pulsar protocol frame their messages so. A message that arrived with others is copied once; a large
one is received where it stays. Its length is checked before memory is allocated for it. Fresh memory costs about as much as to receive into it,
because the kernel clears each page when it is touched first; so whoever has looked at a large message may give it back. What was made of it may
be views of it: Python refuses to change the size of a `bytearray` for as long as there is one, and so says whether a message may be written to again.
"""

import struct
from collections import deque
from collections.abc import Callable
from typing import Final

from daybook.core.errors import DaybookError

PREFIX_BYTES: Final = 4
_BUFFER_BYTES: Final = 64 * 1024
_SPARE_BYTES_MAX: Final = 12 * 1024 * 1024
"""Two answers to a read of a piece of 4 MiB, with their tables: the entries of one are still looked at when the next one comes."""


class MessageBuffer:
    """Receives bytes and cuts messages out of them.

    A message that does not fit into the buffer gets one of its own, into which the socket writes directly. Messages are
    never written to again, but for those that were given back and of which there is no view.
    """

    __slots__ = ("_buffer", "_end", "_large", "_prefix", "_spares", "_too_long", "_view", "bytes_max")

    def __init__(
        self, bytes_max: int, prefix: struct.Struct, too_long: Callable[[int, int], DaybookError]
    ) -> None:
        """Refuse messages longer than `bytes_max`, which may be raised later.

        `prefix` is one number of four bytes; `too_long(length, bytes_max)` makes the error of a refusal.
        """
        self.bytes_max = bytes_max
        self._prefix = prefix
        self._too_long = too_long
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0
        """How many bytes wait in the buffer, or in the large message."""
        self._large: bytearray | None = None
        self._spares: deque[bytearray] = deque()
        """Messages that were given back, the oldest first."""

    def give_back(self, message: bytes | bytearray) -> None:
        """Nobody holds `message` any more: once no view of it is left, a large one of about its length may be received in its place."""
        if isinstance(message, bytearray) and len(message) <= _SPARE_BYTES_MAX:
            self._spares.append(message)
            while sum(map(len, self._spares)) > _SPARE_BYTES_MAX:
                self._spares.popleft()

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._large is not None:
            return memoryview(self._large)[self._end :]
        return self._view[self._end :]

    def received(self, size_bytes: int) -> list[bytes | bytearray]:
        """So many bytes were written to `room`: the messages that are complete now. Raises for one that is empty or too long."""
        self._end += size_bytes
        if self._large is not None:
            if self._end < len(self._large):
                return []
            messages: list[bytes | bytearray] = [self._large]
            self._large = None
            self._end = 0
            return messages
        return self._cut()

    def _cut(self) -> list[bytes | bytearray]:
        messages: list[bytes | bytearray] = []
        view, start, end, prefix = self._view, 0, self._end, self._prefix
        while end - start >= PREFIX_BYTES:
            (length,) = prefix.unpack_from(view, start)
            if not 0 < length <= self.bytes_max:
                raise self._too_long(length, self.bytes_max)
            body = start + PREFIX_BYTES
            if end - body < length:
                if PREFIX_BYTES + length > _BUFFER_BYTES:
                    self._large = self._memory(length)
                    self._large[: end - body] = view[body:end]
                    self._end = end - body
                    return messages
                break
            messages.append(bytes(view[body : body + length]))
            start = body + length
        self._end = end - start
        if start and self._end:
            self._buffer[: self._end] = bytes(view[start:end])
        return messages

    def _memory(self, length: int) -> bytearray:
        """Room for a message of its own; what is in it will be written over."""
        for _ in range(len(self._spares)):
            spare = self._spares.popleft()
            if len(spare) // 2 < length < 2 * len(spare) and _is_resized(spare, length):
                return spare
            self._spares.append(spare)
        return bytearray(length)


def _is_resized(message: bytearray, length: int) -> bool:
    """Whether the message has this length now; it keeps its own while there is a view of it."""
    try:
        message.pop()
    except BufferError:
        return False
    if length < len(message):
        del message[length:]
    else:
        message.extend(bytes(length - len(message)))
    return True
