"""The appends of one topic on their way into one ledger: handed over in order as there is room, acknowledged once a turn.

A topic appends thousands of entries a second, and each turn of the event loop acknowledges many of them. So an entry costs a call and
no task or future, and what one turn acknowledges is one event of the topic's machine.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from daybook.client.ledger import Ledger
from daybook.core.errors import DaybookError
from daybook.core.format.frame import Buffer
from daybook.core.format.payloads import payload_bytes
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId
from daybook.core.topics.events import HandleFailed
from daybook_broker.topics.turn import TurnEnd

RUN_BYTES_MAX: Final = 1024 * 1024
"""Entries that are acknowledged together, unless a single one is larger: far below what a ledger takes beyond its bound."""


class LedgerAppends:
    """What goes into the ledger behind `handle`. `appended` says up to which entry all is acknowledged; it and `report` are called in
    a later turn of the loop, never from inside a call.
    """

    __slots__ = (
        "_acked",
        "_appended",
        "_failed",
        "_is_due",
        "_is_stuck",
        "_report",
        "_turn_end",
        "_waiting",
        "handle",
    )

    def __init__(
        self,
        handle: Ledger,
        appended: Callable[[LedgerId, EntryId], None],
        report: Callable[[HandleFailed], None],
        turn_end: TurnEnd,
    ) -> None:
        self.handle = handle
        self._appended = appended
        self._report = report
        self._turn_end = turn_end
        self._waiting: deque[Sequence[Buffer]] = deque()
        self._acked: EntryId = NO_ENTRY
        self._is_due = False
        self._is_stuck = False
        self._failed = False

    @property
    def is_waiting(self) -> bool:
        """Whether something waits for room."""
        return bool(self._waiting)

    def append(self, payloads: Sequence[Buffer]) -> None:
        """Append these entries behind all others, now or as soon as there is room."""
        if payload_bytes(payloads) <= RUN_BYTES_MAX:
            self._waiting.append(payloads)
        else:
            self._waiting.extend(_runs(payloads))
        if not self._is_stuck:
            self._send()

    def drop(self) -> None:
        """The ledger gets nothing more: who asked knows what to send again, and where (rule 50)."""
        self._failed = True
        self._waiting.clear()

    def _send(self) -> None:
        handle, done = self.handle, self._done
        while self._waiting and not self._failed:
            if handle.error is None and not handle.has_room:
                self._is_stuck = True
                handle.call_when_room(self._go_on)
                return
            try:
                handle.append_run_soon(self._waiting.popleft(), done)
            except DaybookError as error:
                self._fail(error)

    def _go_on(self) -> None:
        self._is_stuck = False
        self._send()

    def _done(self, entry_id: EntryId, error: DaybookError | None) -> None:
        """The entries up to `entry_id` are acknowledged, or the handle has ended."""
        if error is not None:
            self._fail(error)
            return
        self._acked = entry_id
        if not self._is_due:
            self._is_due = True
            self._turn_end.call(self._acknowledge)

    def _acknowledge(self) -> None:
        self._is_due = False
        self._appended(self.handle.id, self._acked)

    def _fail(self, error: DaybookError) -> None:
        if not self._failed:
            self.drop()
            self._turn_end.call(partial(self._report, HandleFailed(self.handle.id, error)))


def _runs(payloads: Sequence[Buffer]) -> list[Sequence[Buffer]]:
    """The entries in pieces of about RUN_BYTES_MAX, in order."""
    runs: list[Sequence[Buffer]] = []
    first = size_bytes = 0
    for index, payload in enumerate(payloads):
        if size_bytes + len(payload) > RUN_BYTES_MAX and index > first:
            runs.append(payloads[first:index])
            first, size_bytes = index, 0
        size_bytes += len(payload)
    runs.append(payloads[first:])
    return runs
