"""Long polls for a ledger's LAC, answered by one thread for all that wait.

Who waits for what is the core's (`daybook.core.bookie.polls`). Here are the lock, the clock and the thread: it answers the
polls whose ledger has news or whose deadline has come. News that is durable comes from the journal's thread and is the
answer; for the other polls the LAC is looked up, and then the thread waits for the journal once for all of them.
"""

import threading
from collections.abc import Callable
from typing import Final

from daybook.core.bookie.ledger import LacAnswer
from daybook.core.bookie.polls import LacPolls, Poll
from daybook.core.ids import LedgerId
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger

_LOG: Final = get_logger(__name__)


class LongPolls:
    """The polls that wait on a bookie. `has_waiters` takes no lock, and costs next to nothing where nobody waits."""

    def __init__(self, limit: int, on_count: Callable[[int], None], make_durable: Callable[[], bool]) -> None:
        """At most `limit` at once; `on_count` is called with how many wait.

        `make_durable` waits until everything accepted before the call is durable; False if that did not happen.
        """
        self._on_count = on_count
        self._make_durable = make_durable
        self._changed = threading.Condition()
        self._polls = LacPolls(limit)
        self.has_waiters: Callable[[LedgerId], bool] = self._polls.has_waiters
        """Whether `wake` would do anything for a ledger."""
        self._ready: list[tuple[Poll, LacAnswer | None]] = []
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="long-polls", daemon=True)
        self._thread.start()

    def park(self, poll: Poll) -> bool:
        """Let `poll` wait; False if there is news already, or too many wait: then answer it now."""
        with self._changed:
            if self._closing or not self._polls.park(poll):
                return False
            self._on_count(self._polls.count)
            if self._polls.next_deadline_ms == poll.deadline_ms:
                self._changed.notify()
        if not poll.is_news(poll.look()):  # looked at after parking, so that no wake-up falls between
            return True
        return not self._remove(poll)

    def forget(self, poll: Poll) -> None:
        """Its call ended, answered or not: a caller that left must not keep a place until the deadline."""
        self._remove(poll)

    def _remove(self, poll: Poll) -> bool:
        """End the poll's wait; whether it did wait."""
        with self._changed:
            was_waiting = self._polls.remove(poll)
            self._on_count(self._polls.count)
        return was_waiting

    def wake(self, ledger_id: LedgerId, news: LacAnswer, *, is_durable: bool) -> None:
        """The bookie knows this of the ledger; unless `is_durable`, it is looked up again before anybody is answered."""
        with self._changed:
            for poll in self._polls.take_news(ledger_id, news):
                self._ready.append((poll, news if is_durable else None))
            self._on_count(self._polls.count)
            if self._ready:
                self._changed.notify()

    def close(self) -> None:
        """Answer all polls that wait, then stop."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closing and not self._ready and not self._is_due():
                    self._changed.wait(self._wait_s())
                due = self._polls.take_due(None if self._closing else monotonic_ms())
                self._on_count(self._polls.count)
                ready, self._ready = self._ready + [(poll, None) for poll in due], []
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
        deadline_ms = self._polls.next_deadline_ms
        return deadline_ms is not None and deadline_ms <= monotonic_ms()

    def _wait_s(self) -> float | None:
        deadline_ms = self._polls.next_deadline_ms
        return None if deadline_ms is None else max(0.0, (deadline_ms - monotonic_ms()) / 1000)


def _look(poll: Poll) -> LacAnswer | None:
    """What the bookie knows now; None if that fails."""
    try:
        return poll.look()
    except Exception:  # noqa: BLE001 - one ledger must not keep the others from their answer
        _LOG.exception("a ledger's LAC could not be looked up", ledger_id=poll.ledger_id)
        return None
