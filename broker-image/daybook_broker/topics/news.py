"""Wakes who waits for something to change. An `asyncio.Event` has a queue, which takes 0.76 KB of each of thousands of idle topics."""

import asyncio


class News:
    """Something may have changed: who waits looks again."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Return at the next `spread`. Nothing runs between the check of what may change and this call, so no news are missed."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next)  # noqa: TID251 - it never fails

    def spread(self) -> None:
        """Wake all who wait."""
        if self._next is not None:
            self._next.set_result(None)
            self._next = None
