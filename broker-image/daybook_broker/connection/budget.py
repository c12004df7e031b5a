"""How many bytes of entries without a receipt the connections of a broker have together, and which of them wait for less."""

import asyncio
from collections.abc import Callable


class PendingBudget:
    """One for a broker. Connections report what changed, once a turn, and are not read from while the bound is reached."""

    def __init__(self, bytes_max: int) -> None:
        """Nothing is pending."""
        self.bytes_max = bytes_max
        self.size_bytes = 0
        self._waiting: dict[object, Callable[[], None]] = {}

    @property
    def has_room(self) -> bool:
        """Whether connections may be read from."""
        return self.size_bytes < self.bytes_max

    def changed(self, by_bytes: int) -> None:
        """A connection has so much more pending, or less."""
        self.size_bytes += by_bytes
        if self._waiting and self.has_room:
            waiting, self._waiting = self._waiting, {}
            for go_on in waiting.values():
                asyncio.get_running_loop().call_soon(go_on)

    def wait(self, who: object, go_on: Callable[[], None]) -> None:
        """Call `go_on` once there is room; `forget` it if `who` ends before."""
        self._waiting[who] = go_on

    def forget(self, who: object) -> None:
        """`who` waits no more."""
        self._waiting.pop(who, None)
