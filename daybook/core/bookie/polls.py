"""Long polls for a ledger's LAC: who waits for what, without a thread for each, a lock or a clock.

A tailing reader asks to be answered when the LAC moves, or at its deadline; thousands may wait at once. What a poll is
answered with is durable first: news comes from frames that the journal has synced; an answer at the deadline is looked up,
and then waits for the journal.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

from daybook.core.bookie.ledger import LacAnswer
from daybook.core.ids import EntryId, LedgerId

_STALE_DEADLINES: Final = 64
"""So many deadlines of polls that no longer wait are kept before the heap is rebuilt."""


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
    """Called once; None if the bookie can vouch for nothing."""

    def is_news(self, lac: LacAnswer) -> bool:
        """Whether `lac` is what the caller waits for."""
        return lac.last_add_confirmed > self.known_lac or (lac.fenced and not self.known_fenced)


class LacPolls:
    """The polls that wait."""

    def __init__(self, limit: int) -> None:
        """At most `limit` wait at once."""
        self._limit = limit
        self._waiting: defaultdict[LedgerId, dict[Poll, None]] = defaultdict(dict)
        self.has_waiters: Callable[[LedgerId], bool] = self._waiting.__contains__
        """Whether any poll waits for a ledger: asked for each frame, so it is one call into C."""
        self._deadlines: list[tuple[int, int, Poll]] = []
        """A heap, with a number between deadline and poll, since polls have no order."""
        self._numbers = count(1)
        self.count = 0
        """How many polls wait."""

    def park(self, poll: Poll) -> bool:
        """Let `poll` wait; False if too many wait already."""
        if self.count >= self._limit:
            return False
        self._waiting[poll.ledger_id][poll] = None
        heapq.heappush(self._deadlines, (poll.deadline_ms, next(self._numbers), poll))
        self.count += 1
        return True

    @property
    def next_deadline_ms(self) -> int | None:
        """When `take_due` may have something next; None if no poll waits."""
        return self._deadlines[0][0] if self._deadlines else None

    def take_news(self, ledger_id: LedgerId, lac: LacAnswer) -> list[Poll]:
        """The polls for which `lac` is news; they wait no longer."""
        found = [poll for poll in self._waiting.get(ledger_id, ()) if poll.is_news(lac)]
        for poll in found:
            self.remove(poll)
        return found

    def take_due(self, now_ms: int | None) -> list[Poll]:
        """The polls whose deadline has come, or all of them if `now_ms` is None; they wait no longer."""
        due: list[Poll] = []
        while self._deadlines and (now_ms is None or self._deadlines[0][0] <= now_ms):
            _, _, poll = heapq.heappop(self._deadlines)
            if self.remove(poll):
                due.append(poll)
        return due

    def remove(self, poll: Poll) -> bool:
        """End the poll's wait; whether it did wait."""
        if not self._is_waiting(poll):
            return False
        polls = self._waiting[poll.ledger_id]
        del polls[poll]
        if not polls:
            del self._waiting[poll.ledger_id]
        self.count -= 1
        if len(self._deadlines) > 2 * self.count + _STALE_DEADLINES:
            self._deadlines = [each for each in self._deadlines if self._is_waiting(each[-1])]
            heapq.heapify(self._deadlines)
        return True

    def _is_waiting(self, poll: Poll) -> bool:
        return poll in self._waiting.get(poll.ledger_id, ())
