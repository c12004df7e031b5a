"""What tasks wait for in the state of a handle, which its machine changes step by step."""

import asyncio
from collections.abc import Callable


class Conditions:
    """The states that somebody waits for. Who gives up is forgotten at once, also where no step follows."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        """Nobody waits."""
        self.waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        """Those who wait; for a handle that does not want to call `check` after each step for nobody."""

    async def until(self, is_met: Callable[[], bool]) -> None:
        """Wait for a state: `is_met` is asked now and with each `check`."""
        if is_met():
            return
        met: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting[met] = is_met
        try:
            await met
        finally:
            del self.waiting[met]

    def check(self) -> None:
        """The state may have changed."""
        for met, is_met in self.waiting.items():
            if not met.done() and is_met():
                met.set_result(None)
