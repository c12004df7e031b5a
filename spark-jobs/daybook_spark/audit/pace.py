"""How fast one task reads from one bookie, so that an audit leaves the bookies' disks to those who write."""

import asyncio
from collections.abc import Callable

from daybook.core.ids import BookieId


class Pace:
    """Holds a task back that has read more than `bytes_per_second` from a bookie, on average since its first read."""

    def __init__(self, bytes_per_second: float, now_s: Callable[[], float]) -> None:
        """`bytes_per_second` of 0 is no limit."""
        self._bytes_per_second = bytes_per_second
        self._now_s = now_s
        self._due_s: dict[BookieId, float] = {}

    def pause_s(self, bookie: BookieId, size_bytes: int) -> float:
        """How long to wait before `bookie` is asked again, which just gave `size_bytes`."""
        if not self._bytes_per_second:
            return 0.0
        now_s = self._now_s()
        self._due_s[bookie] = max(now_s, self._due_s.get(bookie, now_s)) + size_bytes / self._bytes_per_second
        return self._due_s[bookie] - now_s

    async def read(self, bookie: BookieId, size_bytes: int) -> None:
        """Wait for as long as `pause_s` says."""
        pause_s = self.pause_s(bookie, size_bytes)
        if pause_s > 0:
            await asyncio.sleep(pause_s)
