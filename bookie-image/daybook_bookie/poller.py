"""A thread that does one thing at intervals until its owner ends it: the collector, the scrubber, the epoch, the space.

It survives every error of what it does, since nothing else would do it again.
"""

import threading
from collections.abc import Callable
from typing import Final

from daybook.runtime.logs import get_logger

_LOG: Final = get_logger(__name__)


class Poller:
    """Calls `poll` once in each interval."""

    def __init__(
        self,
        name: str,
        interval_s: float,
        poll: Callable[[], object],
        *,
        failed: str,
        first: Callable[[], object] = lambda: None,
    ) -> None:
        """`name` is the thread's, `failed` the log event of an error; `first` is called once, before the first interval."""
        self._interval_s = interval_s
        self._poll = poll
        self._failed = failed
        self._first = first
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> bool:
        """End the thread, and wait for the call under way; whether the thread ran."""
        self._closing.set()
        was_running = self._thread.is_alive()
        if was_running:
            self._thread.join()
        return was_running

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called: a long call ends early."""
        return self._closing.is_set()

    def pause(self, seconds: float) -> None:
        """Wait within a call, at most until `close`."""
        self._closing.wait(seconds)

    def _run(self) -> None:
        self._call(self._first)
        while not self._closing.wait(self._interval_s):
            self._call(self._poll)

    def _call(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception:  # noqa: BLE001 - the next poll tries again
            _LOG.exception(self._failed)
