"""What ends a call that its client does not end: one thread for all of them.

A worker that sends to a client which takes nothing waits in gRPC, and gRPC's server knows no deadline of its own: only
cancelling the call frees the worker.
"""

import heapq
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final

from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger

_LOG: Final = get_logger(__name__)
_STALE: Final = 64
"""So many deadlines that were met are not worth a look."""


class Deadlines:
    """Runs actions that were not called off in time."""

    def __init__(self) -> None:
        """Nothing is due."""
        self._changed = threading.Condition()
        self._heap: list[tuple[int, int]] = []
        self._actions: dict[int, Callable[[], object]] = {}
        self._numbers = count(1)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
        self._thread.start()

    @contextmanager
    def within(self, limit_ms: int, action: Callable[[], object]) -> Iterator[None]:
        """Run `action` in another thread if the block has not ended after `limit_ms`."""
        number = self.after(limit_ms, action)
        try:
            yield
        finally:
            with self._changed:
                self._actions.pop(number, None)
                if len(self._heap) > 2 * len(self._actions) + _STALE:
                    self._heap = [each for each in self._heap if each[1] in self._actions]
                    heapq.heapify(self._heap)

    def after(self, limit_ms: int, action: Callable[[], object]) -> int:
        """Run `action` in another thread after `limit_ms`; its number."""
        with self._changed:
            number = next(self._numbers)
            self._actions[number] = action
            heapq.heappush(self._heap, (monotonic_ms() + limit_ms, number))
            if self._heap[0][1] == number:
                self._changed.notify()
        return number

    def close(self) -> None:
        """Run nothing more."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closing and not self._is_due():
                    self._changed.wait(self._wait_s())
                if self._closing:
                    return
                _, number = heapq.heappop(self._heap)
                action = self._actions.pop(number, None)
            if action is None:
                continue
            try:
                action()
            except Exception:  # noqa: BLE001 - one call must not keep the others from their deadline
                _LOG.exception("a call that took too long could not be ended")

    def _is_due(self) -> bool:
        return bool(self._heap) and self._heap[0][0] <= monotonic_ms()

    def _wait_s(self) -> float | None:
        return max(0.0, (self._heap[0][0] - monotonic_ms()) / 1000) if self._heap else None
