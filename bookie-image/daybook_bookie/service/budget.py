"""A bound on bytes that are held somewhere, shared by all who bring some: the bookie's back-pressure.

Whoever has no room waits, so that a stream's next message is not even read, and gRPC's flow control slows the client.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ByteBudget:
    """Bytes that may be taken and given back. One piece larger than the whole budget passes alone."""

    def __init__(self, limit_bytes: int, waiting_bytes_max: int) -> None:
        """Nothing is taken. `waiting_bytes_max` bounds what is there already, and waits to be taken."""
        self._limit_bytes = limit_bytes
        self._waiting_bytes_max = waiting_bytes_max
        self.waiting_bytes = 0
        self._room = threading.Condition()
        self._closed = False
        self.taken_bytes = 0

    @contextmanager
    def received(self, size_bytes: int) -> Iterator[bool]:
        """Count a piece from its arrival until it is dealt with, taken or not; False if there are too many of them.

        One that is alone is never too much.
        """
        with self._room:
            fits = not self.waiting_bytes or self.waiting_bytes + size_bytes <= self._waiting_bytes_max
            self.waiting_bytes += size_bytes if fits else 0
        try:
            yield fits
        finally:
            with self._room:
                self.waiting_bytes -= size_bytes if fits else 0

    def take(self, size_bytes: int) -> bool:
        """Wait until there is room, then take it; False if the budget was closed."""
        with self._room:
            while not self._fits(size_bytes) and not self._closed:
                self._room.wait()
            if not self._closed:
                self.taken_bytes += size_bytes
            return not self._closed

    def give_back(self, size_bytes: int) -> None:
        """Make room."""
        with self._room:
            self.taken_bytes -= size_bytes
            assert self.taken_bytes >= 0, "given back twice"
            self._room.notify_all()

    def close(self) -> None:
        """Wake all who wait: there will be no room."""
        with self._room:
            self._closed = True
            self._room.notify_all()

    def _fits(self, size_bytes: int) -> bool:
        return not self.taken_bytes or self.taken_bytes + size_bytes <= self._limit_bytes
