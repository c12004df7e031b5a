"""How much a topic takes a second, smoothed over some seconds, for people and for statistics."""

from typing import Final

from daybook.runtime.clock import monotonic_ms

_SMOOTH_MS: Final = 10_000
"""After this time a change of the rate shows to nearly two thirds."""


class Rates:
    """The rates of one topic."""

    __slots__ = ("_bytes", "_messages", "_now_ms", "bytes_per_s", "messages_per_s")

    def __init__(self) -> None:
        """Nothing has come yet."""
        self._now_ms = monotonic_ms()
        self._messages = self._bytes = 0
        self.messages_per_s = self.bytes_per_s = 0.0

    def tick(self, messages: int, size_bytes: int) -> None:
        """So many came so far; call it about once a second."""
        now_ms = monotonic_ms()
        passed_ms = now_ms - self._now_ms
        if passed_ms <= 0:
            return
        weight = passed_ms / (passed_ms + _SMOOTH_MS)
        self.messages_per_s += weight * ((messages - self._messages) * 1000 / passed_ms - self.messages_per_s)
        self.bytes_per_s += weight * ((size_bytes - self._bytes) * 1000 / passed_ms - self.bytes_per_s)
        self._now_ms, self._messages, self._bytes = now_ms, messages, size_bytes
