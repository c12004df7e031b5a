"""A clock for the clients of the benches, which stands still until somebody waits for it or a stall moves it."""

import asyncio


class Clock:
    """In place of a client's module `time`, and of its wait for an instant."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        """Seconds."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move on."""
        self.now += seconds

    sleep = advance

    async def until(self, instant: float) -> None:
        """Let callbacks run, then move on to `instant` if it is not past."""
        await asyncio.sleep(0)
        self.now = max(self.now, instant)
