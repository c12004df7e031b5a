"""About when an entry of a topic was published, from memory: how old a backlog is, without a read from bookies.

The list has the times of ledgers, by their owners' clocks. Between them, for what this owner wrote, it notes once a second how far the topic
is; old notes become fewer, so a long backlog has few of them, and an idle topic none. What lies between two known times is taken as evenly
spread. So the age of a backlog is an estimate; decisions about messages read the entries (daybook/client/by_time.py).
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from daybook.core.topics.ledger_list import LedgerList, ListedLedger, Position

NOTES_MAX: Final = 32
"""Notes of one topic."""


class ConfirmTimes:
    """What one owner noted about one topic."""

    __slots__ = ("_last", "_notes", "_seen_ms")

    def __init__(self, last_confirmed: Position, unix_ms: int) -> None:
        """The topic ends there now."""
        self._last = last_confirmed
        self._seen_ms = unix_ms
        self._notes: list[tuple[Position, int]] = []

    def note(self, last_confirmed: Position, unix_ms: int) -> None:
        """The topic ends there now; call it about once a second."""
        if last_confirmed != self._last:
            if self._last.ledger_id == last_confirmed.ledger_id:
                self._notes.append((self._last, self._seen_ms))
            self._notes.append((last_confirmed, unix_ms))
            self._last = last_confirmed
            if len(self._notes) > NOTES_MAX:
                del self._notes[1 : len(self._notes) // 2 : 2]
        self._seen_ms = unix_ms

    def published_at_ms(self, position: Position, ledger_list: LedgerList, unix_ms: int) -> int | None:
        """About when the entry was published, in ms since 1970; None for a ledger that the list does not name."""
        ledgers = ledger_list.ledgers
        index = bisect_left(ledgers, position.ledger_id, key=lambda ledger: ledger.ledger_id)
        if index == len(ledgers) or ledgers[index].ledger_id != position.ledger_id:
            return None
        entry_id, (entry_before, before_ms) = position.entry_id, (-1, ledgers[index].created_at_ms)
        for entry, time_ms in self._points(ledgers[index], unix_ms):
            if entry >= entry_id:
                share = (entry_id - entry_before) / max(entry - entry_before, 1)
                return before_ms + round(max(time_ms - before_ms, 0) * share)
            entry_before, before_ms = entry, time_ms
        return before_ms

    def _points(self, ledger: ListedLedger, unix_ms: int) -> Iterator[tuple[int, int]]:
        """Entries of a ledger with their times, in order; of entries with several times the first one counts."""
        if ledger.first_published_at_ms is not None:
            yield 0, ledger.first_published_at_ms
        for position, time_ms in self._notes:
            if position.ledger_id == ledger.ledger_id:
                yield position.entry_id, time_ms
        if not ledger.is_open:
            ended_ms = ledger.last_published_at_ms
            yield ledger.entries - 1, ledger.closed_at_ms or 0 if ended_ms is None else ended_ms
        elif self._last.ledger_id == ledger.ledger_id:
            yield self._last.entry_id + 1, unix_ms
