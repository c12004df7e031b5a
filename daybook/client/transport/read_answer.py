"""Puts the messages of the answer to a read together, and checks what they hold."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import lt

from daybook.client.transport.link import Message
from daybook.core.effects import SendRead
from daybook.core.errors import Code, FrameError
from daybook.core.events import ReadAnswered
from daybook.core.format.entries import EntryRun, decode_entries, joined
from daybook.core.format.frame import FrameHeader, split_message
from daybook.core.format.parted import joined_in_place, split_parted
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.wire.messages import ReadHeader, decode_read


class ReadAnswer:
    """What a bookie has answered so far."""

    def __init__(self, bookie: BookieId, ledger_id: LedgerId, request: SendRead) -> None:
        """Nothing yet, to `request`."""
        self._bookie = bookie
        self._ledger_id = ledger_id
        self._request = request
        self._runs: list[EntryRun] = []
        self._damaged: list[EntryId] = []
        self._header = ReadHeader(Code.UNAVAILABLE)
        self._is_limbo = False

    def take(self, message: Message) -> None:
        """The next message. Entries may be views of it, if it can be written to: nobody changes it then while there is one.

        Raises FrameError, StreamError.
        """
        header, frames = decode_read(message)
        self._header = header
        self._is_limbo = self._is_limbo or header.limbo
        for first, last in header.damaged:
            self._damaged.extend(range(max(first, self._request.first), min(last, self._request.last) + 1))
        is_own = isinstance(message, bytearray)
        if not header.payloads_last:
            for frame, offset in split_message(frames):
                self._add(frames, frame, offset, is_own=is_own)
            return
        parted, before = split_parted(frames), len(self._runs)
        for frame, offset, payloads_at in parted:
            self._add(frames, frame, offset, payloads_at=payloads_at, is_own=is_own)
        if found := self._runs[before:]:
            self._runs[before:] = [joined_in_place(frames, parted, found)]

    def _add(
        self,
        frames: memoryview,
        frame: FrameHeader,
        offset: int,
        *,
        payloads_at: int | None = None,
        is_own: bool,
    ) -> None:
        if frame.ledger_id != self._ledger_id:
            msg = f"bookie {self._bookie} answered with ledger {frame.ledger_id} instead of {self._ledger_id}"
            raise FrameError(msg)
        good, bad = decode_entries(frames, frame, offset, payloads_at=payloads_at, is_own=is_own)
        self._damaged.extend(bad)
        if not good:
            return
        if not self._rises(good.entry_ids):
            msg = f"bookie {self._bookie} answered with entries out of order at {frame.first_entry}"
            raise FrameError(msg)
        self._runs.append(good)

    def whole(self) -> ReadAnswered:
        """The event; entries outside what was asked for are left out."""
        request, header = self._request, self._header
        entries = joined(self._runs)
        ids = entries.entry_ids
        if ids and (ids[0] < request.first or ids[-1] > request.last):
            entries = entries[bisect_left(ids, request.first) : bisect_right(ids, request.last)]
        return ReadAnswered(
            self._bookie,
            request.request_id,
            header.code,
            entries,
            tuple(self._damaged),
            header.through,
            self._is_limbo,
            header.last_add_confirmed,
            header.length_at_lac,
        )

    def _rises(self, entry_ids: Sequence[EntryId]) -> bool:
        """Whether entries of these ids, at least one, may follow those that came before."""
        if self._runs and entry_ids[0] <= self._runs[-1].entry_ids[-1]:
            return False
        return isinstance(entry_ids, range) or all(map(lt, entry_ids, entry_ids[1:]))
