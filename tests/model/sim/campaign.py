"""A range of seeds over several processes, as long as it takes: noted piece by piece, and stopped by a signal.

A run of hours must not lose what it has shown when it is cut short. So seeds are taken in their order, every piece of
them leaves a record (`tests.process.chaos.records`), and a signal ends the run after the seeds that are under way. Records add
up: none counts a seed twice, and `seed` and `seeds` say which ones they stand for.
"""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Final

from tests.model.sim.run import Summary, run_chunk
from tests.process.chaos.records import commit, write_record

KIND: Final = "simulator"
PIECE_SEEDS: Final = 10_000
_CHUNK: Final = 50
_AHEAD: Final = 2
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Campaign:
    """Runs the seeds first … last; `total` is what they came to."""

    def __init__(
        self,
        first: int,
        last: int,
        *,
        jobs: int = os.cpu_count() or 1,
        piece_seeds: int = PIECE_SEEDS,
        on_part: Callable[[Summary], None] = lambda _part: None,
    ) -> None:
        """`on_part` gets each part as it comes in, in the order of the seeds."""
        self.total = Summary()
        self.is_stopped = False
        self._chunks = _chunks(first, last)
        self._jobs = jobs
        self._on_part = on_part
        self._piece_seeds = piece_seeds
        self._piece = Summary()
        self._piece_first = first
        self._piece_began = time.monotonic()
        self._commit = commit()

    def run(self) -> None:
        """Run to the last seed, or until `stop`."""
        waiting: deque[Future[Summary]] = deque()
        with ProcessPoolExecutor(self._jobs, initializer=_leave_signals_to_the_parent) as pool:
            while True:
                while not self.is_stopped and len(waiting) < _AHEAD * self._jobs:
                    chunk = next(self._chunks, None)
                    if chunk is None:
                        break
                    waiting.append(pool.submit(run_chunk, chunk))
                if self.is_stopped:
                    waiting = deque(part for part in waiting if not part.cancel())
                if not waiting:
                    break
                self._take(waiting.popleft().result())
        if self._piece.seeds:
            self._note()

    def stop(self) -> None:
        """Begin nothing more; what is under way is finished and counted."""
        self.is_stopped = True

    @contextmanager
    def stopping_on_signals(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM stops the run; a second one has its usual effect."""

        def stop(_number: int, _frame: FrameType | None) -> None:
            self.stop()
            for number, handler in usual.items():
                signal.signal(number, handler)

        usual = {number: signal.signal(number, stop) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in usual.items():
                signal.signal(number, handler)

    def _take(self, part: Summary) -> None:
        self.total.add(part)
        self._piece.add(part)
        self._on_part(part)
        if self._piece.seeds >= self._piece_seeds:
            self._note()

    def _note(self) -> None:
        piece, began = self._piece, self._piece_began
        write_record(
            KIND,
            self._piece_first,
            piece.counts(),
            len(piece.failures),
            time.monotonic() - began,
            made_at=self._commit,
        )
        self._piece_first += piece.seeds
        self._piece, self._piece_began = Summary(), time.monotonic()


def _chunks(first: int, last: int) -> Iterator[range]:
    for start in range(first, last + 1, _CHUNK):
        yield range(start, min(start + _CHUNK, last + 1))


def _leave_signals_to_the_parent() -> None:
    """A terminal signals every process of the group; a worker that died of it would take its seeds along."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
