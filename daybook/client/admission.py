"""The one way by which entries get into a ledger's writer: in the order of the calls (rule 60), as far as there is room.

`append`, `append_many` and `submit` wait for room. `append_soon` cannot wait: it lets in all who do, because its entry comes
after theirs, and takes room beyond the bound, up to a hard one. Neither bound stops the entry that all others wait for (rule 55).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from daybook.client.pending import HARD_BOUND_FACTOR, PendingBytes
from daybook.core.errors import BacklogFullError, DaybookError
from daybook.core.format.frame import Buffer
from daybook.core.format.payloads import check_payloads
from daybook.core.ids import EntryId
from daybook.core.writer.writer import LedgerWriter

Waiter: TypeAlias = asyncio.Future[Any]
Enter: TypeAlias = Callable[[Sequence[Buffer], Sequence[EntryId] | None], Waiter]
"""Appends to the writer, which may refuse it with a DaybookError; the result is the future of (first id, last id)."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """An append that was called when there was no room; `admitted` gets the future of its ids."""

    entries: Sequence[Buffer]
    entry_ids: Sequence[EntryId] | None
    admitted: asyncio.Future[Waiter]


class Admission:
    """Lets appends into one writer. `pending_bytes_max` bounds the ledger, `client` all ledgers of the client."""

    def __init__(
        self,
        writer: LedgerWriter,
        enter: Enter,
        has_ended: Callable[[], bool],
        *,
        pending_bytes_max: int,
        client: PendingBytes,
    ) -> None:
        """`has_ended`: whether the writer takes nothing more, so that nobody needs to wait."""
        self._writer = writer
        self._enter = enter
        self._has_ended = has_ended
        self._client = client
        self.pending_bytes_max = pending_bytes_max
        self._counted_bytes = 0
        """What the client counts as pending of this ledger."""
        self._waiting: deque[_Waiting] = deque()
        self._calls: list[Callable[[], None]] = []
        self._is_admitting = False

    @property
    def has_room(self) -> bool:
        """Whether an append would be let in at once."""
        return not self._waiting and self._is_below_bounds

    @property
    def _is_below_bounds(self) -> bool:
        return self._writer.pending_bytes < self.pending_bytes_max and self._client.has_room

    async def submit(self, entries: Sequence[Buffer], entry_ids: Sequence[EntryId] | None) -> Waiter:
        """Hand `entries` to the writer once there is room."""
        if not entries:
            msg = "there is nothing to append: give at least one entry"
            raise ValueError(msg)
        if self.has_room:
            return self._enter(entries, entry_ids)
        check_payloads(entries)
        waiting = _Waiting(entries, entry_ids, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self.admit()
        try:
            return await waiting.admitted
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif not waiting.admitted.cancelled() and waiting.admitted.exception() is None:
                waiting.admitted.result().cancel()  # it was let in a moment ago, and nobody will ask for its ids
            raise

    def make_room(self, size_bytes: int, entry_ids: Sequence[EntryId] | None) -> None:
        """Let in all who wait, so that an append of `size_bytes` may enter now; BacklogFullError beyond the hard bounds.

        Nobody needs to be let in before the entry that all others wait for: nothing completes without it (rule 55).
        """
        if entry_ids is not None and self._writer.missing_entry in entry_ids:
            return
        pending_bytes = self._writer.pending_bytes + size_bytes
        others_bytes = self._client.size_bytes - self._counted_bytes
        if self._waiting:
            pending_bytes += sum(len(data) for waiting in self._waiting for data in waiting.entries)
        if pending_bytes > HARD_BOUND_FACTOR * self.pending_bytes_max:
            raise _backlog_full("the ledger", self.pending_bytes_max)
        if others_bytes + pending_bytes > HARD_BOUND_FACTOR * self._client.bound_bytes:
            raise _backlog_full("all ledgers of the client", self._client.bound_bytes)
        if self._waiting:
            self.admit(all_at_once=True)

    def call_when_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, from the event loop, as soon as there is room or the writer has ended."""
        self._calls.append(callback)
        self.admit()

    def stepped(self) -> None:
        """The writer took an event: what it has pending may have changed."""
        pending_bytes = self._writer.pending_bytes
        if pending_bytes != self._counted_bytes:
            self._client.changed(pending_bytes - self._counted_bytes)
            self._counted_bytes = pending_bytes
        if self._waiting or self._calls:
            self.admit()

    def end(self) -> None:
        """Nothing is pending any more: the handle ended, and what it had is given up."""
        self._client.forget(self)
        self._client.changed(-self._counted_bytes)
        self._counted_bytes = 0

    def admit(self, *, all_at_once: bool = False) -> None:
        """Hand those who wait to the writer, in the order of their calls (rule 60), as far as there is room.

        Nobody else's append can come between, because no task has to run for it. After the end of the handle all are passed on, so that each fails with its reason.
        """
        if self._is_admitting:  # an append's own step leads here, too
            return
        self._is_admitting = True
        while self._waiting:
            if all_at_once or self._has_ended() or self._is_below_bounds:
                waiting = self._waiting.popleft()
            elif (filler := self._fills_the_gap()) is not None:
                waiting = filler
                self._waiting.remove(waiting)
            else:
                break
            if waiting.admitted.done():  # cancelled, and its task has not run since
                continue
            try:
                waiting.admitted.set_result(self._enter(waiting.entries, waiting.entry_ids))
            except DaybookError as error:
                waiting.admitted.set_exception(error)
        self._is_admitting = False
        if self._calls and (self._has_ended() or self.has_room):
            self._call()
        if (self._waiting or self._calls) and not self._client.has_room:
            self._client.wait(self)

    def _call(self) -> None:
        calls, self._calls = self._calls, []
        for callback in calls:
            asyncio.get_running_loop().call_soon(callback)

    def _fills_the_gap(self) -> _Waiting | None:
        """Who brings the entry that all others wait for: for it there is always room, or there would never be any (rule 55)."""
        missing = self._writer.missing_entry
        if missing is None:
            return None
        fillers = (waiting for waiting in self._waiting if missing in (waiting.entry_ids or ()))
        return next(fillers, None)


def _backlog_full(whose: str, bound_bytes: int) -> BacklogFullError:
    return BacklogFullError(
        f"{whose} would have more than {HARD_BOUND_FACTOR} × {bound_bytes} bytes pending, and nothing was taken: "
        "append only while there is room (`has_room`, `call_when_room`)"
    )
