"""Long polls for a ledger's LAC, without a thread for each that waits.

A tailing reader asks to be told when the LAC moves; thousands may wait at once. Their calls are parked here with a
deadline, and one thread answers those whose ledger has news or whose time is up. What it tells was made durable first:
durable news comes from the journal thread, and for the others it waits for the journal once for all.
"""

import heapq
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

from daybook.core.bookie.ledger import LacAnswer
from daybook.core.ids import EntryId, LedgerId
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger

_LOG: Final = get_logger(__name__)
_STALE_DEADLINES: Final = 64
"""So many deadlines of polls that wait no more are not worth a look."""


@dataclass(frozen=True, slots=True, eq=False)
class Poll:
    """A call that waits for a LAC above `known_lac`, or for a fence unless `known_fenced`."""

    ledger_id: LedgerId
    known_lac: EntryId
    known_fenced: bool
    deadline_ms: int
    look: Callable[[], LacAnswer]
    """What the bookie knows now, durable or not."""
    answer: Callable[[LacAnswer | None], None]
    """Called once, in the answering thread; None if nothing can be vouched for."""

    def is_news(self, lac: LacAnswer) -> bool:
        """Whether `lac` is what the caller waits for."""
        return lac.last_add_confirmed > self.known_lac or (lac.fenced and not self.known_fenced)


class LongPolls:
    """Those who wait. `has_waiters` costs next to nothing where nobody does."""

    def __init__(self, limit: int, on_count: Callable[[int], None], make_durable: Callable[[], bool]) -> None:
        """At most `limit` at once; `on_count` is told how many wait.

        `make_durable` waits until everything accepted before the call is durable; False if that did not happen.
        """
        self._limit = limit
        self._on_count = on_count
        self._make_durable = make_durable
        self._changed = threading.Condition()
        self._waiting: defaultdict[LedgerId, set[Poll]] = defaultdict(set)
        self._deadlines: list[tuple[int, int, Poll]] = []
        """A heap, with a number between deadline and poll, since polls have no order."""
        self._ready: list[tuple[Poll, LacAnswer | None]] = []
        self._numbers = count(1)
        self._total = 0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="long-polls", daemon=True)
        self._thread.start()

    def park(self, poll: Poll) -> bool:
        """Let `poll` wait; False if there is news already, or too many wait: then answer it now."""
        with self._changed:
            if self._closing or self._total >= self._limit:
                return False
            number = next(self._numbers)
            self._waiting[poll.ledger_id].add(poll)
            heapq.heappush(self._deadlines, (poll.deadline_ms, number, poll))
            self._total += 1
            self._on_count(self._total)
            if self._deadlines[0][1] == number:
                self._changed.notify()
        if not poll.is_news(poll.look()):  # looked at after parking, so that no wake-up falls between
            return True
        with self._changed:
            return not self._remove(poll)

    def forget(self, poll: Poll) -> None:
        """Its call ended, answered or not: a caller who went away must not keep a place until the deadline."""
        with self._changed:
            self._remove(poll)

    def has_waiters(self, ledger_id: LedgerId) -> bool:
        """Whether `wake` would do anything."""
        return ledger_id in self._waiting

    def wake(self, ledger_id: LedgerId, news: LacAnswer, *, is_durable: bool) -> None:
        """This is known of the ledger; unless `is_durable`, it is looked at again before anybody is told."""
        with self._changed:
            for poll in [poll for poll in self._waiting.get(ledger_id, ()) if poll.is_news(news)]:
                self._remove(poll)
                self._ready.append((poll, news if is_durable else None))
            if self._ready:
                self._changed.notify()

    def close(self) -> None:
        """Answer all who wait, then stop."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _remove(self, poll: Poll) -> bool:
        """Let it wait no more; whether it did."""
        if not self._is_waiting(poll):
            return False
        polls = self._waiting[poll.ledger_id]
        polls.remove(poll)
        if not polls:
            del self._waiting[poll.ledger_id]
        self._total -= 1
        self._on_count(self._total)
        if len(self._deadlines) > 2 * self._total + _STALE_DEADLINES:
            self._deadlines = [each for each in self._deadlines if self._is_waiting(each[-1])]
            heapq.heapify(self._deadlines)
        return True

    def _is_waiting(self, poll: Poll) -> bool:
        return poll in self._waiting.get(poll.ledger_id, ())

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closing and not self._ready and not self._is_due():
                    self._changed.wait(self._wait_s())
                self._expire()
                ready, self._ready = self._ready, []
                closing = self._closing
            self._answer(ready)
            if closing and not ready:
                return

    def _answer(self, ready: list[tuple[Poll, LacAnswer | None]]) -> None:
        looked = [(poll, _look(poll) if news is None else news) for poll, news in ready]
        durable = all(news is not None for _, news in ready) or self._make_durable()
        for (poll, lac), (_, news) in zip(looked, ready, strict=True):
            try:
                poll.answer(lac if durable or news is not None else None)
            except Exception:  # noqa: BLE001 - one caller must not keep the others from their answer
                _LOG.exception("a long poll could not be answered", ledger_id=poll.ledger_id)

    def _is_due(self) -> bool:
        return bool(self._deadlines) and self._deadlines[0][0] <= monotonic_ms()

    def _wait_s(self) -> float | None:
        if not self._deadlines:
            return None
        return max(0.0, (self._deadlines[0][0] - monotonic_ms()) / 1000)

    def _expire(self) -> None:
        """Move those whose time is up, or all when closing, to the ready ones."""
        while self._deadlines and (self._closing or self._is_due()):
            _, _, poll = heapq.heappop(self._deadlines)
            if self._remove(poll):
                self._ready.append((poll, None))


def _look(poll: Poll) -> LacAnswer | None:
    """What is known now, None if that cannot be told."""
    try:
        return poll.look()
    except Exception:  # noqa: BLE001 - one ledger must not keep the others from their answer
        _LOG.exception("a ledger's LAC could not be looked at", ledger_id=poll.ledger_id)
        return None
