"""Reading: entries first … last of a ledger in order, each once, from whichever replicas give them soonest.

A reader is bounded by what is safe to show: by the end of a closed ledger, or by a LAC that its user has learned
(lac.py, tail.py). Past the LAC it reads only when asked to, and then an entry that a quorum reports absent ends the read. It
keeps several pieces (piece.py) in flight, limited in bytes. It prefers near replicas that are not suspected, and asks the next one
after an error, damage, "not found" and, after a while, silence. Before it gives up it reads the metadata again: a writer's
ensemble change or a repair may have moved the entries. The driver has verified the checksums; nothing is checked
twice, and whole answers are delivered as they came.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from daybook.core.effects import (
    MetadataKnown,
    ReaderEffect,
    ReadFailed,
    ReadFinished,
    ReadMetadata,
    SendRead,
)
from daybook.core.errors import (
    Code,
    CorruptEntryError,
    DaybookError,
    NoSuchEntryError,
    NoSuchLedgerError,
    NotEnoughReplicasError,
    UnauthorizedError,
)
from daybook.core.events import (
    BookieFailed,
    BookiesChanged,
    Consumed,
    MetadataRead,
    MetadataUnreadable,
    ReadAnswered,
    ReaderEvent,
    Tick,
)
from daybook.core.format.frame import FRAME_ENTRIES_MAX
from daybook.core.ids import NO_ENTRY, BookieId, EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.machine import RequestIds, RetryTimer
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import write_set
from daybook.core.reader.piece import Ask, Piece
from daybook.core.reader.suspects import Suspects

Rank: TypeAlias = Callable[[BookieId], int]
"""How far a bookie is: smaller is nearer."""


@dataclass(frozen=True, slots=True)
class ReadPolicy:
    """How much is asked for at once, and how long a replica may be silent."""

    piece_bytes: int = 4 * 1024 * 1024
    """A call costs as much as the transport of some hundred KiB, and more where both ends have a cold cache."""
    read_ahead_bytes: int = 8 * 1024 * 1024
    """Requested, buffered, or delivered and not yet `Consumed`."""
    entry_bytes_guess: int = 1024
    """Until the first answer shows how large entries are."""
    speculate_ms: int = 500
    metadata_retry_ms: int = 500
    metadata_reads_max: int = 5
    """How often unreadable metadata is asked for before a read that needs it fails."""


def nearness(zone: str, rack: str, bookies: Mapping[BookieId, BookieInfo]) -> Rank:
    """Prefer the own rack, then the own zone; unknown names are far."""

    def rank(bookie: BookieId) -> int:
        info = bookies.get(bookie)
        if info is None:
            return 3
        if not zone or info.zone != zone:
            return 1 if not zone and rack and info.rack == rack else 2
        return 0 if rack and info.rack == rack else 1

    return rank


@dataclass(slots=True)
class _Request:
    piece: Piece
    position: int
    round: int
    sent_ms: int


class LedgerReader:
    """Reads first … last; ends with `ReadFinished` or `ReadFailed`.

    `last_add_confirmed` bounds the read of a ledger that is not closed; `unconfirmed` lifts that bound. The user reports
    with `Consumed` what it is done with; until then no more than `read_ahead_bytes` are fetched.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        first: EntryId,
        last: EntryId,
        *,
        last_add_confirmed: EntryId = NO_ENTRY,
        unconfirmed: bool = False,
        rank: Rank | None = None,
        suspects: Suspects | None = None,
        policy: ReadPolicy | None = None,
        now_ms: int = 0,
    ) -> None:
        assert 0 <= first <= last + 1
        self.metadata = metadata
        self.last = last
        self.policy = policy or ReadPolicy()
        self.next_entry = first
        """The first entry that was not delivered yet."""
        self.is_done = False
        self._last_add_confirmed = last_add_confirmed
        self._unconfirmed = unconfirmed
        self._rank: Rank = rank or (lambda _: 0)
        self._suspects = suspects or Suspects()
        self._now_ms = now_ms
        self._out: list[ReaderEffect] = []
        self._ids = RequestIds()
        self._requests: dict[int, _Request] = {}
        self._pieces: deque[Piece] = deque()
        self._next_to_plan = first
        self._entry_bytes = self.policy.entry_bytes_guess
        self._buffered_bytes = 0
        self._unconsumed_bytes = 0
        self._metadata_request = 0
        self._metadata_reads = 0
        self._retry = RetryTimer(self.policy.metadata_retry_ms)
        self._failure: DaybookError | None = None

    def start(self) -> list[ReaderEffect]:
        """The first requests, or the refusal of what may not be read."""
        if self.last > self._bound():
            self._fail(
                NoSuchEntryError(
                    f"ledger {self.metadata.ledger_id} can be read up to entry {self._bound()}, not to {self.last}"
                )
            )
        else:
            self._plan()
        return self._take_out()

    def pass_time(self, now_ms: int) -> None:
        """Take note of the time before any other event: what is asked for then was not asked for at the last `Tick`.

        That judges no bookie: answers may have come that a busy process has not taken yet. `Tick` does, when nothing else comes.
        """
        self._now_ms = max(now_ms, self._now_ms)

    def step(self, event: ReaderEvent) -> list[ReaderEffect]:
        """Take an event; answers to requests that no longer matter are dropped (rule 18)."""
        if self.is_done:
            return []
        match event:
            case ReadAnswered():
                self._answered(event)
            case Consumed(size_bytes):
                self._unconsumed_bytes = max(0, self._unconsumed_bytes - size_bytes)
                self._plan()
            case Tick(now_ms):
                self._tick(now_ms)
            case BookieFailed(bookie, code):
                self._bookie_failed(bookie, code)
            case MetadataRead(request_id, metadata):
                if request_id == self._metadata_request:
                    self._metadata_read(metadata)
            case MetadataUnreadable(request_id):
                if request_id == self._metadata_request:
                    self._metadata_unreadable()
            case BookiesChanged():
                pass
            case _:
                assert_never(event)
        return self._take_out()

    def _take_out(self) -> list[ReaderEffect]:
        out, self._out = self._out, []
        return out

    def _bound(self) -> EntryId:
        """The last entry that may be shown."""
        if self.metadata.is_closed:
            return self.metadata.last_entry
        return self.last if self._unconfirmed else self._last_add_confirmed

    # Planning

    def _plan(self) -> None:
        """Put pieces in flight while there is room; finish when everything was delivered."""
        if self.next_entry > self.last:
            self.is_done = True
            self._out.append(ReadFinished())
            return
        if self._metadata_request or self._retry.is_running:
            return
        while self._next_to_plan <= self.last and self._has_room():
            piece = self._next_piece()
            self._pieces.append(piece)
            self._next_to_plan = piece.last + 1
            self._send(piece, piece.start_round())

    def _has_room(self) -> bool:
        missing = sum(piece.last - piece.cursor + 1 for piece in self._pieces)
        ahead_bytes = missing * self._entry_bytes + self._buffered_bytes + self._unconsumed_bytes
        return ahead_bytes < self.policy.read_ahead_bytes

    def _next_piece(self) -> Piece:
        first = self._next_to_plan
        index = self.metadata.fragment_index(first)
        count = min(FRAME_ENTRIES_MAX, max(1, self.policy.piece_bytes // max(1, self._entry_bytes)))
        last = min(self.last, first + count - 1)
        if index + 1 < len(self.metadata.fragments):
            last = min(last, self.metadata.fragments[index + 1].first_entry - 1)
        bookies = self.metadata.fragments[index].bookies
        return Piece(self.metadata.quorum, bookies, first, last, self._preference)

    def _preference(self, bookie: BookieId) -> tuple[int, ...]:
        """Bookies that failed or were slow come last, then the far ones (rule 63)."""
        return (self._suspects.failures(bookie, self._now_ms), self._rank(bookie))

    def _send(self, piece: Piece, asks: list[Ask]) -> None:
        for ask in asks:
            request_id = self._ids.next()
            self._requests[request_id] = _Request(piece, ask.position, piece.round, self._now_ms)
            self._out.append(
                SendRead(
                    piece.bookies[ask.position],
                    request_id,
                    ask.first,
                    piece.last,
                    2 * self.policy.piece_bytes,
                )
            )

    # Answers

    def _answered(self, event: ReadAnswered) -> None:
        request = self._requests.pop(event.request_id, None)
        if request is None or request.round != request.piece.round or request.piece.is_complete:
            return
        piece = request.piece
        self._suspects.answered(event.bookie, event.code, self._now_ms)
        before = len(piece.ready)
        self._send(piece, piece.answer(request.position, event))
        if len(piece.ready) > before:
            self._measure(piece)
        self._deliver()
        if self._pieces and self._pieces[0].is_exhausted:
            self._exhausted(self._pieces[0])
        self._plan()

    def _measure(self, piece: Piece) -> None:
        """Learn how large entries are, so that the next pieces have the size they should."""
        newest = piece.ready[-1]
        self._buffered_bytes += newest.size_bytes
        self._entry_bytes = (self._entry_bytes + newest.size_bytes // len(newest.entries)) // 2 or 1

    def _deliver(self) -> None:
        """Pass on what continues the read."""
        while self._pieces:
            piece = self._pieces[0]
            self._out += piece.ready
            self._buffered_bytes -= piece.ready_bytes
            self._unconsumed_bytes += piece.ready_bytes
            piece.ready.clear()
            piece.ready_bytes = 0
            self.next_entry = piece.cursor
            if not piece.is_complete:
                return
            self._pieces.popleft()

    def _tick(self, now_ms: int) -> None:
        self._now_ms = max(now_ms, self._now_ms)
        if self._retry.fires(self._now_ms):
            self._read_metadata()
        slow = [
            request
            for request in self._requests.values()
            if request.round == request.piece.round
            and self._now_ms >= request.sent_ms + self.policy.speculate_ms
        ]
        for request in slow:
            request.sent_ms = self._now_ms
            self._suspects.add(request.piece.bookies[request.position], self._now_ms)
        for piece in self._pieces:
            if any(request.piece is piece for request in slow):
                self._send(piece, piece.ask_others())

    def _bookie_failed(self, bookie: BookieId, code: Code) -> None:
        """Everything that `bookie` was asked and did not answer is unknown."""
        self._suspects.add(bookie, self._now_ms)
        lost = [i for i, r in self._requests.items() if r.piece.bookies[r.position] == bookie]
        for request_id in lost:
            assert not self.is_done, "an answer that brings nothing ends no read"
            self._answered(ReadAnswered(bookie, request_id, code))

    # When every replica has been tried

    def _exhausted(self, piece: Piece) -> None:
        """Read the metadata again before giving up on `piece`, the one that is next in line."""
        if self._metadata_request or self._retry.is_running:
            return
        self._failure = self._why(piece)
        self._metadata_reads = 0
        self._read_metadata()

    def _read_metadata(self) -> None:
        self._metadata_request = self._ids.next()
        self._out.append(ReadMetadata(self._metadata_request))

    def _metadata_unreadable(self) -> None:
        self._metadata_request = 0
        self._metadata_reads += 1
        if self._metadata_reads < self.policy.metadata_reads_max:
            self._retry.start(self._now_ms)
        else:
            assert self._failure is not None
            self._fail(self._failure)

    def _metadata_read(self, metadata: LedgerMetadata | None) -> None:
        self._metadata_request = 0
        if metadata is None:
            self._fail(NoSuchLedgerError(f"ledger {self.metadata.ledger_id} was deleted while it was read"))
        else:
            assert self._failure is not None
            self._start_again(metadata, self._failure)

    def _start_again(self, metadata: LedgerMetadata, failure: DaybookError) -> None:
        """Continue with the metadata that is stored now, if that can make a difference."""
        moved = metadata.fragment_of(self.next_entry) != self.metadata.fragment_of(self.next_entry)
        if metadata != self.metadata:
            self._out.append(MetadataKnown(metadata))
        self.metadata = metadata
        if self.next_entry > self._bound():
            self._fail(
                NoSuchEntryError(
                    f"ledger {metadata.ledger_id} was closed at entry {metadata.last_entry}: "
                    f"there is no entry {self.next_entry}"
                )
            )
        elif moved:
            self.last = min(self.last, self._bound())
            self._pieces.clear()
            self._requests.clear()
            self._buffered_bytes = 0
            self._next_to_plan = self.next_entry
            self._plan()
        else:
            self._fail(failure)

    def _why(self, piece: Piece) -> DaybookError:
        """What the replicas' answers about the entry at the piece's cursor amount to."""
        replicas = write_set(piece.quorum, piece.cursor)
        codes = [piece.reasons.get(position, Code.TIMEOUT) for position in replicas]
        answers = ", ".join(
            f"{piece.bookies[p]}: {code.name}" for p, code in zip(replicas, codes, strict=True)
        )
        what = f"entry {piece.cursor} of ledger {self.metadata.ledger_id} cannot be read ({answers})"
        absent = codes.count(Code.NO_SUCH_ENTRY)
        is_confirmed = self.metadata.is_closed or piece.cursor <= self._last_add_confirmed
        if Code.UNAUTHORIZED in codes:
            return UnauthorizedError(f"{what}: check the password")
        if not is_confirmed and absent >= piece.quorum.coverage:
            return NoSuchEntryError(f"{what}: it was not written, or not yet acknowledged")
        if Code.IO_ERROR in codes:
            return CorruptEntryError(
                f"{what}: restore a replica from a bookie that is unavailable now, or from a backup"
            )
        if absent == len(codes):
            return CorruptEntryError(f"{what}: every replica has lost it")
        return NotEnoughReplicasError(f"{what}: bring the bookies back, or try again later")

    def _fail(self, error: DaybookError) -> None:
        self.is_done = True
        self._out.append(ReadFailed(error))
