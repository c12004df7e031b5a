"""The LACs that a client publishes to one bookie in tables, for all its idle writers: what waits, what was sent, what is lost.

Nobody answers a table (rule 48). So a row is kept in mind until it is certainly durable: a bookie syncs what comes on a
stream in its order, so a synced frame behind the row proves it. When the stream ends before that, the row may have vanished with it,
or with the process that had not synced it. Then the writer is notified, and publishes the LAC that it has by then,
on the next stream, which may lead to another process of the bookie. Streams and the simulator run the same code.
"""

from collections.abc import Hashable
from itertools import islice, takewhile
from typing import Final, Generic, TypeVar

from daybook.core.errors import Code
from daybook.core.format.lac_table import LAC_ROWS_MAX

Token = TypeVar("Token", bound=Hashable)

_TRANSIENT: Final = frozenset({Code.TIMEOUT, Code.UNAVAILABLE, Code.TOO_MANY_REQUESTS})


class LacRows(Generic[Token]):
    """A *token* is the caller's name for a ledger's writer. At most one row of each is kept."""

    __slots__ = ("_lost", "_sent", "_waiting")

    def __init__(self) -> None:
        """Nothing is published."""
        self._waiting: dict[Token, bytes] = {}
        self._sent: dict[Token, int] = {}
        """The number of the message that the row was sent before; rising."""
        self._lost: dict[Token, None] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether `take` gives anything."""
        return bool(self._waiting)

    @property
    def is_unsynced(self) -> bool:
        """Whether there is anything to prove."""
        return bool(self._sent)

    @property
    def has_lost(self) -> bool:
        """Whether `take_lost` gives anything."""
        return bool(self._lost)

    def publish(self, token: Token, row: bytes) -> None:
        """Send `row` with the next table, instead of an older one; the ledger is attached to the stream."""
        self._waiting[token] = row

    def take(self, before: int) -> list[tuple[Token, bytes]]:
        """The rows of the next table. They are sent now, before message number `before` of the stream."""
        rows = list(islice(self._waiting.items(), LAC_ROWS_MAX))
        for token, _ in rows:
            del self._waiting[token]
            self._sent.pop(token, None)
            self._sent[token] = before
        return rows

    def synced(self, message: int) -> None:
        """The bookie synced a frame of this message or a later one: rows before the message are durable."""
        sent = self._sent
        proved = list(takewhile(lambda token: sent[token] <= message, sent))
        for (
            token
        ) in proved:  # found all at once: each search from the beginning would pass what was deleted before
            del sent[token]

    def attach_failed(self, token: Token, code: Code) -> None:
        """The row could not be sent. Unless the bookie has judged the ledger, it is lost, and published again."""
        if code in _TRANSIENT:
            self._lost[token] = None

    def stream_ended(self) -> None:
        """What was sent may have vanished, and what waits needs another stream."""
        self._lost.update(dict.fromkeys([*self._sent, *self._waiting]))
        self._sent.clear()
        self._waiting.clear()

    def take_lost(self) -> list[Token]:
        """Whose row may have vanished; each has to publish again what it has by now."""
        lost, self._lost = list(self._lost), {}
        return lost

    def forget(self, token: Token) -> None:
        """The writer is gone."""
        for rows in (self._waiting, self._sent, self._lost):
            rows.pop(token, None)
