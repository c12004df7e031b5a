"""Puts the messages of the answer to a read together, and checks what they hold."""

from operator import itemgetter, lt

from daybook.client.transport.link import Message
from daybook.core.effects import SendRead
from daybook.core.errors import Code, FrameError
from daybook.core.events import ReadAnswered
from daybook.core.format.frame import Entry, decode_entries, is_dense, split_message
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.wire.messages import ReadHeader, decode_read

_entry_id = itemgetter(0)


class ReadAnswer:
    """What a bookie has answered so far."""

    def __init__(self, bookie: BookieId, ledger_id: LedgerId, request: SendRead) -> None:
        """Nothing yet, to `request`."""
        self._bookie = bookie
        self._ledger_id = ledger_id
        self._request = request
        self._entries: list[Entry] = []
        self._damaged: list[EntryId] = []
        self._header = ReadHeader(Code.UNAVAILABLE)
        self._is_limbo = False

    def take(self, message: Message) -> None:
        """The next message. Raises FrameError, StreamError."""
        header, frames = decode_read(message)
        self._header = header
        self._is_limbo = self._is_limbo or header.limbo
        for first, last in header.damaged:
            self._damaged.extend(range(max(first, self._request.first), min(last, self._request.last) + 1))
        for frame, offset in split_message(frames):
            if frame.ledger_id != self._ledger_id:
                msg = f"bookie {self._bookie} answered with ledger {frame.ledger_id} instead of {self._ledger_id}"
                raise FrameError(msg)
            good, bad = decode_entries(frames, frame, offset)
            if not _rises(self._entries[-1:], good, dense=is_dense(frames, frame, offset)):
                msg = f"bookie {self._bookie} answered with entries out of order at {frame.first_entry}"
                raise FrameError(msg)
            self._entries.extend(good)
            self._damaged.extend(bad)

    def whole(self) -> ReadAnswered:
        """The event; entries outside what was asked for are left out."""
        request, entries, header = self._request, self._entries, self._header
        if entries and (entries[0].entry_id < request.first or entries[-1].entry_id > request.last):
            entries = [entry for entry in entries if request.first <= entry.entry_id <= request.last]
        return ReadAnswered(
            self._bookie,
            request.request_id,
            header.code,
            tuple(entries),
            tuple(self._damaged),
            header.through,
            self._is_limbo,
            header.last_add_confirmed,
            header.length_at_lac,
        )


def _rises(before: list[Entry], entries: list[Entry], *, dense: bool) -> bool:
    """Whether `entries`, of a frame that is `dense` or not, follow `before` in rising order."""
    if before and entries and entries[0].entry_id <= before[0].entry_id:
        return False
    if dense:
        return True
    entry_ids = list(map(_entry_id, entries))
    return all(map(lt, entry_ids, entry_ids[1:]))
