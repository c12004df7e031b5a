"""Ledgers that the list, or a cursor's node, does not name, and never will: they are deleted, and again after a pause if that fails.

A few are deleted at a time: a trim may drop thousands, and the other topics of a broker would wait for all of them.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from daybook.core.ids import LedgerId
from daybook.core.machine import RequestIds, RetryTimer
from daybook.core.topics.events import DeleteLedger

TOGETHER_MAX: Final = 32
"""How many deletions of one owner are under way at a time."""


class _Effects(Protocol):
    """A list of effects of any machine that deletes ledgers."""

    def append(self, item: DeleteLedger, /) -> None:
        """Take an effect."""


class Deletions:
    """The deletions of one owner. An owner that ends leaves what fails then behind, and what waits for it: a ledger that nothing names does no harm."""

    __slots__ = ("_again", "_asked", "_ids", "_retry", "_waiting")

    def __init__(self, ids: RequestIds, retry_ms: int) -> None:
        self._ids = ids
        self._asked: dict[int, LedgerId] = {}
        self._waiting: list[LedgerId] = []
        self._again: list[LedgerId] = []
        self._retry = RetryTimer(retry_ms)

    @property
    def is_pending(self) -> bool:
        """Whether a ledger is still to go."""
        return bool(self._asked or self._waiting or self._again)

    def begin(self, ledger_ids: Sequence[LedgerId], out: _Effects) -> None:
        """Delete these ledgers, in this order."""
        self._waiting += ledger_ids
        self._go_on(out)

    def _go_on(self, out: _Effects) -> None:
        count = TOGETHER_MAX - len(self._asked)
        for ledger_id in self._waiting[:count]:
            request_id = self._ids.next()
            self._asked[request_id] = ledger_id
            out.append(DeleteLedger(request_id, ledger_id))
        del self._waiting[:count]

    def done(self, request_id: int, out: _Effects) -> None:
        """A ledger is gone."""
        self._asked.pop(request_id, None)
        self._go_on(out)

    def failed(self, request_id: int, now_ms: int) -> bool:
        """Whether it was a deletion that failed; then it is repeated."""
        if request_id not in self._asked:
            return False
        self._again.append(self._asked.pop(request_id))
        self._retry.start(now_ms)
        return True

    def tick(self, now_ms: int, out: _Effects) -> None:
        """Repeat what failed when the pause is over."""
        if self._retry.fires(now_ms):
            again, self._again = self._again, []
            self.begin(again, out)
