"""Recovery: closes a ledger whose writer is gone, at an end that holds everything that was ever acknowledged.

The steps, each with the rule of docs/protocol.md that it keeps:

1. Mark the metadata IN_RECOVERY by compare-and-set, so that the writer can change nothing there (rule 11).
2. Fence the last fragment's bookies until no write set has an ack quorum left outside (fencing.py: rule 1, rule 3,
   rule 8), without waiting for the rest (rule 7).
3. Start from the highest LAC that metadata or a bookie that can vouch for it knows (rule 5, rule 29).
4. Read on from there with reads that fence (rule 2), until an entry is proven absent (rule 6), and write what was found
   back (write_back.py: rule 10, rule 12).
5. Close by compare-and-set, with recovery's own ensemble changes (rule 9).

Whatever proves nothing ends in RecoveryFailed: the ledger stays IN_RECOVERY and a later recovery begins anew. Recovery
may run many times and at the same time as others: one close wins, and every recovery returns that one (rule 11).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from daybook.core.effects import CasMetadata, Effect, ReadMetadata, Recovered, RecoveryFailed, SendRead
from daybook.core.errors import Code, DaybookError, NoSuchLedgerError, RecoveryFailedError, UnauthorizedError
from daybook.core.events import (
    BookieFailed,
    BookiesChanged,
    CasAnswered,
    CasOutcome,
    Event,
    FenceAnswered,
    FrameAcked,
    FrameFailed,
    MetadataRead,
    MetadataUnreadable,
    ReadAnswered,
    Tick,
)
from daybook.core.format.frame import FRAME_ENTRIES_MAX
from daybook.core.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState
from daybook.core.machine import RequestIds, RetryTimer
from daybook.core.placement.policy import BookieInfo, PlacementPolicy, RandomSource
from daybook.core.recovery.evidence import EvidenceWindow, Finding
from daybook.core.recovery.fencing import FenceRound
from daybook.core.recovery.write_back import Spares, WriteBack

READS_FENCE: Final = True
"""A recovery read fences too: the fence request itself may have been lost (rule 2)."""


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """How much recovery asks for at once, and how long it waits."""

    window_entries: int = FRAME_ENTRIES_MAX
    window_bytes: int = 4 * 1024 * 1024
    """What one read may bring; the next is sent while the last one's entries are written back."""
    write_back_bytes_max: int = 16 * 1024 * 1024
    """Reading pauses while more than this is not yet held by Qa bookies."""
    straggler_bytes_max: int = 64 * 1024 * 1024
    """A bookie that left more than this unanswered has failed."""
    speculate_ms: int = 300
    """A read without an answer is tried on the other replicas after this (rule 7)."""
    metadata_retry_ms: int = 500


class Phase(Enum):
    """Where a recovery is."""

    READING_METADATA = "reading the metadata"
    MARKING = "marking the ledger IN_RECOVERY"
    FENCING = "fencing"
    REPLAYING = "reading what may have been written, and writing it back"
    CLOSING = "closing"
    FAILING = "looking whether someone else has closed the ledger, before giving up"
    DONE = "done"


class LedgerRecovery:
    """Recovers one ledger: `start()` once, then `step(event)`; ends with `Recovered` or `RecoveryFailed`.

    The driver carries out the effects with the ledger's key, and answers every request, with a failure where no
    answer comes in time.
    """

    def __init__(
        self,
        ledger_id: LedgerId,
        *,
        placement: PlacementPolicy,
        rng: RandomSource,
        bookies: Mapping[BookieId, BookieInfo],
        policy: RecoveryPolicy | None = None,
        now_ms: int = 0,
    ) -> None:
        self.ledger_id = ledger_id
        self.policy = policy or RecoveryPolicy()
        self.phase = Phase.READING_METADATA
        self.started_with: LedgerMetadata | None = None
        """The metadata whose last ensemble is fenced and read (rule 9)."""
        self.version = -1
        self.start_lac: EntryId = NO_ENTRY
        self._spares = Spares(placement, rng, bookies)
        self._now_ms = now_ms
        self._out: list[Effect] = []
        self._ids = RequestIds()
        self._metadata_request = 0
        self._retry = RetryTimer(self.policy.metadata_retry_ms)
        self._closing: LedgerMetadata | None = None
        self._failure: DaybookError | None = None
        self._fences: FenceRound | None = None
        """While it is fencing; a round that is decided is dropped, with the answers it still waits for."""
        self._fenced = 0
        self._refusals: dict[BookieId, Code] = {}
        self._reads: dict[int, tuple[int, EntryId]] = {}
        self._window: EvidenceWindow | None = None
        self._window_asked_ms = now_ms
        self._end: EntryId | None = None
        self._write_back: WriteBack | None = None

    # The driver's side

    def start(self) -> list[Effect]:
        """The first effects."""
        self._read_metadata()
        return self._take_out()

    def step(self, event: Event) -> list[Effect]:
        """Take an event; answers to requests that no longer matter are dropped (rule 18)."""
        if not self.is_done:
            self._dispatch(event)
        return self._take_out()

    @property
    def is_done(self) -> bool:
        """Whether the last effect was `Recovered` or `RecoveryFailed`."""
        return self.phase is Phase.DONE

    def _take_out(self) -> list[Effect]:
        out, self._out = self._out, []
        return out

    def _dispatch(self, event: Event) -> None:
        match event:
            case MetadataRead() | MetadataUnreadable() | CasAnswered():
                self._metadata_answered(event)
            case FenceAnswered():
                self._fence_answered(event)
            case ReadAnswered():
                self._read_answered(event)
            case FrameAcked() | FrameFailed():
                self._frame_answered(event)
            case BookieFailed(bookie, code):
                self._bookie_failed(bookie, code)
            case BookiesChanged(bookies):
                self._spares.bookies = bookies
            case Tick(now_ms):
                self._tick(now_ms)
            case _:
                msg = (
                    f"a recovery has no use for {type(event).__name__}: a driver sent it to the wrong machine"
                )
                raise AssertionError(msg)

    # Metadata

    def _read_metadata(self) -> None:
        self._metadata_request = self._ids.next()
        self._retry.stop()
        self._out.append(ReadMetadata(self._metadata_request))

    def _cas(self, metadata: LedgerMetadata) -> None:
        self._metadata_request = self._ids.next()
        self._out.append(CasMetadata(self._metadata_request, metadata, self.version))

    def _metadata_answered(self, event: MetadataRead | MetadataUnreadable | CasAnswered) -> None:
        if event.request_id != self._metadata_request:
            return
        self._metadata_request = 0
        match event:
            case MetadataUnreadable():
                self._metadata_unreadable()
            case MetadataRead(_, metadata, version):
                self._metadata_read(metadata, version)
            case CasAnswered(_, CasOutcome.DONE, version):
                self._cas_done(version)
            case _:
                self._read_metadata()  # the compare-and-set lost, or nobody knows

    def _metadata_unreadable(self) -> None:
        if self.phase is Phase.FAILING:
            self._finish_failing()
        else:
            self._retry.start(self._now_ms)

    def _cas_done(self, version: int) -> None:
        self.version = version
        if self.phase is Phase.MARKING:
            assert self.started_with is not None
            self._fence()
        else:
            assert self.phase is Phase.CLOSING
            assert self._closing is not None
            self._recovered(self._closing)

    def _metadata_read(self, metadata: LedgerMetadata | None, version: int) -> None:
        """Decide what follows, from the start or after a compare-and-set that did not go through."""
        if metadata is None:
            self._failure = NoSuchLedgerError(
                f"ledger {self.ledger_id} is not in the metadata: it was deleted, or never created"
            )
            self._finish_failing()
        elif metadata.is_closed:
            self._recovered(metadata)
        elif self.phase is Phase.FAILING:
            self._finish_failing()
        elif self.phase is Phase.CLOSING:
            self._close_again(metadata, version)
        else:
            self._mark(metadata, version)

    def _mark(self, metadata: LedgerMetadata, version: int) -> None:
        self.version = version
        self.started_with = metadata.in_recovery()
        if metadata.state is LedgerState.IN_RECOVERY:
            self._fence()
        else:
            self.phase = Phase.MARKING
            self._cas(self.started_with)

    def _recovered(self, metadata: LedgerMetadata) -> None:
        """The ledger is closed, by us or by someone else: that close is the one that counts (rule 11)."""
        self.phase = Phase.DONE
        self._out.append(Recovered(metadata))

    # Fencing

    def _ensemble(self) -> tuple[BookieId, ...]:
        """The bookies that are fenced and read, fixed at the start (rule 9)."""
        assert self.started_with is not None
        return self.started_with.last_fragment.bookies

    def _fence(self) -> None:
        assert self.started_with is not None
        self.phase = Phase.FENCING
        self._fences = FenceRound(self.started_with)
        self._out += self._fences.ask(self._ids)

    def _fence_answered(self, event: FenceAnswered) -> None:
        if self._fences is None or not self._fences.answer(event):
            return
        if event.code is not Code.OK:
            self._refusals[event.bookie] = event.code
        self._judge_fence(self._fences)

    def _judge_fence(self, fences: FenceRound) -> None:
        if fences.is_complete():
            self._replay(fences)
        elif fences.is_hopeless():
            assert self.started_with is not None
            self._fail(
                f"too few bookies could be fenced: {self.started_with.quorum.coverage} of every write set of "
                f"{', '.join(self._ensemble())} are needed ({self._told(self._refusals)})"
            )

    # Replaying

    def _replay(self, fences: FenceRound) -> None:
        assert self.started_with is not None
        self.phase = Phase.REPLAYING
        self._fences = None
        self._fenced = fences.fenced
        self.start_lac, length = fences.starting_point()
        self._write_back = WriteBack(
            self.ledger_id,
            self.started_with.quorum,
            self.started_with.last_fragment,
            self.start_lac,
            length,
            self._spares,
            self._ids,
            self.policy.straggler_bytes_max,
        )
        self._open_window(self.start_lac + 1)

    def _open_window(self, first: EntryId) -> None:
        assert self.started_with is not None
        self._window = EvidenceWindow(self.started_with.quorum, first, first + self.policy.window_entries - 1)
        self._reads.clear()
        self._ask(self._window, self._window.to_ask_first(self._fenced))

    def _ask(self, window: EvidenceWindow, positions: list[int]) -> None:
        self._window_asked_ms = self._now_ms
        for position in positions:
            window.asked |= 1 << position
            request = self._ids.next()
            self._reads[request] = (position, window.cursor)
            self._out.append(
                SendRead(
                    self._ensemble()[position],
                    request,
                    window.cursor,
                    window.last,
                    self.policy.window_bytes,
                    fence=READS_FENCE,
                )
            )

    def _read_answered(self, event: ReadAnswered) -> None:
        asked = self._reads.pop(event.request_id, None)
        if asked is None or self._window is None:
            return
        position, first = asked
        self._window.answer(position, first, event)
        if event.code is not Code.OK:
            self._refusals[event.bookie] = event.code
        self._judge_window()

    def _judge_window(self) -> None:
        """Take what the answers decide; open the next window, or end."""
        window, write_back = self._window, self._write_back
        assert window is not None
        assert write_back is not None
        found = window.take_found()
        if found:
            self._out += write_back.add(found)
        match window.finding():
            case Finding.END:
                self._end = window.cursor - 1
                self._window = None
            case Finding.MORE:
                self._window = None
            case Finding.ASK:
                self._ask(window, window.to_ask_next())
            case Finding.UNKNOWN:
                self._fail(
                    f"whether entry {window.cursor} was acknowledged cannot be decided now "
                    f"({window.unknown_because()}; ensemble {', '.join(self._ensemble())})"
                )
                return
            case _:
                assert window.finding() is Finding.WAIT
        self._go_on(window.cursor)

    def _go_on(self, next_entry: EntryId) -> None:
        """After progress of either half: fail, read on, or close."""
        write_back = self._write_back
        assert write_back is not None
        if not write_back.is_idle and write_back.is_stuck:
            assert self.started_with is not None
            self._fail(
                f"fewer than {self.started_with.quorum.ack_quorum} bookies take entries back, and there is no "
                f"spare ({self._told(write_back.failures)})"
            )
        elif self._end is not None:
            if write_back.is_idle:
                assert write_back.recovered_to == self._end
                self._close()
        elif self._window is None and write_back.pending_bytes <= self.policy.write_back_bytes_max:
            self._open_window(next_entry)

    def _frame_answered(self, event: FrameAcked | FrameFailed) -> None:
        write_back = self._write_back
        if write_back is None or self.phase is not Phase.REPLAYING:
            return
        if isinstance(event, FrameAcked):
            write_back.acked(event.send_id)
        else:
            self._out += write_back.failed(event.send_id, event.code)
        self._go_on(write_back.added_to + 1)

    # Time and failures

    def _tick(self, now_ms: int) -> None:
        self._now_ms = max(now_ms, self._now_ms)
        if self._retry.fires(self._now_ms):
            self._read_metadata()
        window = self._window
        if window is not None and self._now_ms >= self._window_asked_ms + self.policy.speculate_ms:
            self._ask(window, window.to_ask_next())

    def _bookie_failed(self, bookie: BookieId, code: Code) -> None:
        """Everything that `bookie` was asked and did not answer is unknown."""
        for request in self._fences.owed_by(bookie) if self._fences is not None else ():
            self._fence_answered(FenceAnswered(bookie, request, code))
        reads = [r for r, (position, _) in self._reads.items() if self._ensemble()[position] == bookie]
        for request in reads:
            self._read_answered(ReadAnswered(bookie, request, code))
        write_back = self._write_back
        if self.phase is Phase.REPLAYING and write_back is not None and write_back.owes(bookie):
            self._out += write_back.bookie_failed(bookie, code)
            self._go_on(write_back.added_to + 1)

    def _fail(self, why: str) -> None:
        """Give up, unless someone else has closed the ledger meanwhile, or deleted it."""
        message = (
            f"recovery of ledger {self.ledger_id} cannot go on: {why}; it stays IN_RECOVERY, try again later"
        )
        codes = set(self._refusals.values())
        if Code.UNAUTHORIZED in codes:
            self._failure = UnauthorizedError(f"{message}; check the password")
        else:
            self._failure = RecoveryFailedError(message)
        self.phase = Phase.FAILING
        self._window = None
        self._reads.clear()
        self._fences = None
        self._read_metadata()

    def _finish_failing(self) -> None:
        assert self._failure is not None
        self.phase = Phase.DONE
        self._out.append(RecoveryFailed(self._failure))

    @staticmethod
    def _told(codes: Mapping[BookieId, Code]) -> str:
        return ", ".join(f"{bookie}: {code.name}" for bookie, code in sorted(codes.items())) or "no answers"

    # Closing

    def _close(self) -> None:
        assert self.started_with is not None
        self.phase = Phase.CLOSING
        self._reads.clear()
        self._closing = self._closed_from(self.started_with)
        self._cas(self._closing)

    def _closed_from(self, metadata: LedgerMetadata) -> LedgerMetadata:
        """`metadata` with recovery's own ensemble changes, closed (rule 9)."""
        write_back = self._write_back
        assert write_back is not None
        for fragment in write_back.changes:
            metadata = metadata.with_ensemble(fragment.first_entry, fragment.length_before, fragment.bookies)
        return metadata.closed(write_back.recovered_to, write_back.length)

    def _close_again(self, metadata: LedgerMetadata, version: int) -> None:
        """The close did not go through: a repair of an older fragment may be kept (rule 19), nothing else explains it."""
        assert self.started_with is not None
        if metadata.last_fragment != self.started_with.last_fragment:
            self._fail("the fragment that was recovered has changed in the metadata")
            return
        self.version = version
        self._closing = self._closed_from(metadata)
        self._cas(self._closing)
