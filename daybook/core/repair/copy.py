"""Copies what one position of a fragment owes to one bookie, reading it from the other replicas.

A position holds only its stripe's entries, so the copy keeps the position's stripe and takes each entry from a
replica of that very entry (rule 32); for one position these are several bookies, each with a share. What a replica
lacks, cannot read or does not answer is asked of the next one; an entry that no one gives ends the copy, which then
names it. Reads are checked against their CRC before they get here, and frames carry the recovery flag, because the
ledger may be fenced (rule 10).

Memory and load are bounded: one read at a time, and the next only while the bytes on their way to the target and the
rate stay below the policy's limits.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from daybook.core.effects import SendFrame, SendRead
from daybook.core.errors import Code, CorruptEntryError, DaybookError, NotEnoughReplicasError
from daybook.core.events import FrameAcked, FrameFailed, ReadAnswered
from daybook.core.format.checksums import entry_crcs
from daybook.core.format.entries import Entry
from daybook.core.format.frame import FLAG_RECOVERY, FRAME_BYTES_TARGET, FRAME_ENTRIES_MAX, encode_frame
from daybook.core.format.intervals import IntervalSet, first_held
from daybook.core.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from daybook.core.machine import RequestIds
from daybook.core.quorum import DENSE, Stripe

WINDOW_ENTRIES: Final = 4096
"""Entries that are copied at a time: what is wanted of them is held in memory."""
READ_OVER_ENTRIES: Final = 64
"""Unwanted entries between two wanted ones that are read along rather than asked for around."""

_DAMAGED: Final = "damaged"
_ABSENT: Final = "not there"


@dataclass(frozen=True, slots=True)
class RepairPolicy:
    """The limits of a repair. `bytes_per_second` None: as fast as the bookies answer."""

    read_bytes_max: int = 1024 * 1024
    bytes_in_flight_max: int = 4 * 1024 * 1024
    bytes_per_second: int | None = None
    attempts_max: int = 5
    """How often a compare-and-set, and the copy it may need, is tried before the repair gives up for now."""
    metadata_retry_ms: int = 1000


@dataclass(frozen=True, slots=True)
class Owed:
    """What is copied: `wanted` entries of a position's `stripe`, to `target`.

    `last_add_confirmed` and `length_at_lac` are what the frames report to the target; everything copied lies below it.
    `sources_of` names the bookies that should hold an entry, the one to ask first at the front.
    """

    ledger_id: LedgerId
    target: BookieId
    stripe: Stripe
    wanted: IntervalSet
    last_add_confirmed: EntryId
    length_at_lac: int
    sources_of: Callable[[EntryId], Sequence[BookieId]]


class PositionCopy:
    """`pump` and the event methods return what to send; `is_done` and `error` say how it ended."""

    def __init__(self, owed: Owed, policy: RepairPolicy, ids: RequestIds) -> None:
        """Prepare; nothing is sent yet. `ids` are for requests and frames."""
        self.owed = owed
        self.error: DaybookError | None = None
        self.copied_entries = 0
        self.copied_bytes = 0
        self.boot_ids: set[str] = set()
        """The target's boot ids on its acks: more than one means that it restarted between them."""
        self.is_nowhere = False
        """Whether the copy ended because each bookie that could be asked for an entry answered, and none has it sound.

        A bookie that does not answer may have it: it proves nothing.
        """
        self._policy = policy
        self._ids = ids
        self._next = owed.wanted.next_from(0)
        self._window: list[EntryId] = []
        self._found: dict[EntryId, bytes] = {}
        self._tried: dict[EntryId, dict[BookieId, str]] = {}
        self._slow: set[BookieId] = set()
        self._read: SendRead | None = None
        self._in_flight: dict[int, tuple[int, int]] = {}
        self._not_before_ms = 0

    @property
    def is_done(self) -> bool:
        """Whether the target has acknowledged everything."""
        return not self._window and self._next == NO_ENTRY and not self._in_flight

    def pump(self, now_ms: int) -> list[SendRead]:
        """Go on as far as the limits allow."""
        if self.error is not None or self._read is not None or now_ms < self._not_before_ms:
            return []
        bytes_held = sum(size for _, size in self._in_flight.values()) + sum(map(len, self._found.values()))
        if bytes_held >= self._policy.bytes_in_flight_max and self._in_flight:
            return []
        self._fill_window()
        entry = next((e for e in self._window if e not in self._found), None)
        if entry is None:
            return []
        source = self._pick_source(entry)
        if source is None:
            self.error = self._unreachable(entry)
            return []
        self._read = SendRead(
            source, self._ids.next(), entry, self._read_until(), self._policy.read_bytes_max
        )
        return [self._read]

    def read_answered(self, event: ReadAnswered, now_ms: int) -> list[SendFrame]:
        """Take what was found; what was not is asked of another replica."""
        read = self._read
        if read is None or (event.bookie, event.request_id) != (read.bookie, read.request_id):
            return []
        if event.code is not Code.OK or event.through < read.first:
            self._read_failed(event.bookie, Code.IO_ERROR if event.code is Code.OK else event.code)
            return []
        self._read = None
        asked = [e for e in self._window if read.first <= e <= min(read.last, event.through)]
        found = {entry.entry_id: entry.data for entry in event.entries}
        damaged = frozenset(event.damaged)
        for entry_id in asked:
            if entry_id in self._found:
                continue
            if entry_id in found:
                self._found[entry_id] = found[entry_id]
            else:
                self._note(entry_id, read.bookie, _DAMAGED if entry_id in damaged else _ABSENT)
        if self._policy.bytes_per_second:
            read_bytes = sum(map(len, found.values()))
            start_ms = max(now_ms, self._not_before_ms)
            self._not_before_ms = start_ms + read_bytes * 1000 // self._policy.bytes_per_second
        return self._send_found()

    def bookie_failed(self, bookie: BookieId, code: Code) -> None:
        """`bookie` answers nothing that it was sent."""
        if bookie == self.owed.target:
            self._target_failed(code)
        else:
            self._read_failed(bookie, code)

    def _read_failed(self, bookie: BookieId, code: Code) -> None:
        """The read under way gets no answer, or one that proves nothing: ask others."""
        read = self._read
        if read is None or read.bookie != bookie:
            return
        self._read = None
        self._slow.add(bookie)
        for entry_id in self._window:
            if read.first <= entry_id <= read.last and entry_id not in self._found:
                self._note(entry_id, bookie, code.name)

    def frame_acked(self, event: FrameAcked) -> None:
        """The target has a frame durably."""
        entries, size_bytes = self._in_flight.pop(event.send_id, (0, 0))
        if entries:
            self.boot_ids.add(event.boot_id)
            self.copied_entries += entries
            self.copied_bytes += size_bytes

    def frame_failed(self, event: FrameFailed) -> None:
        """The target refuses: nothing can be copied to it now."""
        if event.send_id in self._in_flight:
            self._target_failed(event.code)

    def _target_failed(self, code: Code) -> None:
        """The target gives no answer any more, or a bad one."""
        msg = (
            f"ledger {self.owed.ledger_id}: {self.owed.target} does not take the copies ({code.name}); "
            "the repair is tried again, with another bookie if this one is gone"
        )
        self.error = NotEnoughReplicasError(msg)

    def _fill_window(self) -> None:
        while self._next != NO_ENTRY and len(self._window) < WINDOW_ENTRIES:
            self._window.append(self._next)
            self._next = self.owed.wanted.next_from(self._next + 1)

    def _note(self, entry: EntryId, bookie: BookieId, why: str) -> None:
        """`bookie` did not give `entry`; of no interest if it holds another share of the entries."""
        if bookie in self.owed.sources_of(entry):
            self._tried.setdefault(entry, {})[bookie] = why

    def _pick_source(self, entry: EntryId) -> BookieId | None:
        tried = self._tried.get(entry, {})
        left = [bookie for bookie in self.owed.sources_of(entry) if bookie not in tried]
        return min(left, key=lambda bookie: bookie in self._slow, default=None)

    def _read_until(self) -> EntryId:
        """Where the read ends: before a part that is found already or not wanted, or with the window."""
        holes = [e for e in self._window if e not in self._found]
        highest = max(self._found, default=NO_ENTRY)
        if holes[0] < highest:
            holes = [e for e in holes if e < highest]
        for hole, after in pairwise(holes):
            if after - hole > READ_OVER_ENTRIES:
                return hole
        return holes[-1]

    def _unreachable(self, entry: EntryId) -> DaybookError:
        tried = self._tried.get(entry, {})
        shown = ", ".join(f"{bookie}: {why}" for bookie, why in sorted(tried.items())) or "no replica is left"
        msg = (
            f"ledger {self.owed.ledger_id}: no reachable bookie has entry {entry} ({shown}); "
            "bring back a bookie that held it, with its disk"
        )
        self.is_nowhere = set(tried.values()) <= {_DAMAGED, _ABSENT}
        if tried and self.is_nowhere:
            return CorruptEntryError(msg)
        return NotEnoughReplicasError(msg)

    def _send_found(self) -> list[SendFrame]:
        """Send the front of the window, as far as it is found without a hole."""
        ready: list[Entry] = []
        for entry_id in self._window:
            if entry_id not in self._found:
                break
            ready.append(Entry(entry_id, self._found.pop(entry_id)))
            self._tried.pop(entry_id, None)
        del self._window[: len(ready)]
        effects: list[SendFrame] = []
        for run in self._runs(ready):
            send_id = self._ids.next()
            frame = self._frame(run)
            self._in_flight[send_id] = (len(run), len(frame))
            effects.append(SendFrame(self.owed.target, send_id, frame))
        return effects

    def _runs(self, entries: Sequence[Entry]) -> Iterator[list[Entry]]:
        """Cut into frames: neighbours of the stripe without a hole, and of a good size."""
        run: list[Entry] = []
        size_bytes = 0
        for entry in entries:
            follows = run and entry.entry_id == first_held(self.owed.stripe, run[-1].entry_id + 1)
            fits = size_bytes + len(entry.data) <= FRAME_BYTES_TARGET and len(run) < FRAME_ENTRIES_MAX
            if run and not (follows and fits):
                yield run
                run, size_bytes = [], 0
            run.append(entry)
            size_bytes += len(entry.data)
        if run:
            yield run

    def _frame(self, run: Sequence[Entry]) -> bytes:
        ids = [entry.entry_id for entry in run]
        payloads = [entry.data for entry in run]
        stripe = self.owed.stripe
        return encode_frame(
            self.owed.ledger_id,
            ids[0],
            payloads,
            entry_crcs(self.owed.ledger_id, ids, payloads),
            last_add_confirmed=self.owed.last_add_confirmed,
            length_at_lac=self.owed.length_at_lac,
            flags=FLAG_RECOVERY,  # the ledger may be fenced on the target (rule 10)
            stripe=stripe,
            entry_ids=None if stripe == DENSE else ids,
        )
