"""The write cache: where an accepted frame is found until the store has it.

A frame enters the cache under the lock that checks the fence, before it goes to the journal, so that no read and no fence
can overtake it (rule 43). There are two generations: one takes frames while the other is flushed; the cache drops the
second one only after the store's commit.

The caller holds the lock in all methods; a generation that is being flushed does not change any more, so it may be read
without the lock. A few microseconds for each frame: no method here visits entries.
"""

from collections.abc import Iterable
from typing import Final

from daybook.core.format.block import Block, as_block
from daybook.core.format.frame import Buffer, FrameHeader, decode_header, last_entry
from daybook.core.format.intervals import IntervalSet
from daybook.core.format.lac_table import LacRow
from daybook.core.ids import EntryId, LedgerId
from daybook_bookie.journal.format import (
    Record,
    RecordKind,
    record_intro,
    record_lacs,
    record_ledger,
    record_nonce,
)
from daybook_bookie.store.generation import Generation, PendingLedger

_FRAME_OVERHEAD_BYTES: Final = 600
"""What the objects around a frame take."""
_LEDGER_BYTES: Final = 600
"""What a ledger without frames takes."""


class WriteCache:
    """Two generations, the older one perhaps being flushed."""

    def __init__(self) -> None:
        self._active = Generation()
        self._flushing: Generation | None = None

    @property
    def active_bytes(self) -> int:
        """The size of the generation that takes frames."""
        return self._active.size_bytes

    @property
    def size_bytes(self) -> int:
        """The size of both."""
        return self._active.size_bytes + (self._flushing.size_bytes if self._flushing else 0)

    @property
    def generations(self) -> list[Generation]:
        """The generations that are not stored yet, older first."""
        return [generation for generation in (self._flushing, self._active) if generation is not None]

    @property
    def has_changes(self) -> bool:
        """Whether a swap would give anything to flush."""
        return bool(self._active.ledgers)

    @property
    def is_flushing(self) -> bool:
        """Whether a swapped generation is not yet stored."""
        return self._flushing is not None

    def add_frame(self, data: Buffer, header: FrameHeader) -> None:
        """Add a frame whose body was checked; `data` is the frame alone and must not change any more."""
        active = self._active
        pending = active.ledger(header.ledger_id)
        pending.raise_lac(header.last_add_confirmed, header.length_at_lac)
        first, count = header.first_entry, header.count
        if count:
            last = first if count == 1 else last_entry(data, header)
            pending.add(as_block((first, last, header, data)))
            active.size_bytes += len(data)
        active.size_bytes += _FRAME_OVERHEAD_BYTES

    def publish(self, rows: Iterable[LacRow]) -> None:
        """Raise the LACs of ledgers. A row itself is not kept: it takes room where it makes a ledger known to the generation."""
        active = self._active
        known = len(active.ledgers)
        for ledger_id, lac, length in rows:
            active.ledger(ledger_id).raise_lac(lac, length)
        active.size_bytes += _LEDGER_BYTES * (len(active.ledgers) - known)

    def apply(self, record: Record) -> None:
        """Add a record: a decision that is about to be journalled, or anything that a replay returns."""
        if record.kind is RecordKind.FRAME:
            self.add_frame(record.body, decode_header(record.body))
            return
        if record.kind is RecordKind.LAC_TABLE:
            self.publish(record_lacs(record))
            return
        ledger_id = record_ledger(record)
        pending = self._active.ledger(ledger_id)
        self._active.size_bytes += _FRAME_OVERHEAD_BYTES
        if record.kind is RecordKind.FENCE:
            pending.fenced = True
        elif record.kind is RecordKind.FENCE_DROPPED:
            pending.fenced, pending.fence_dropped, pending.intro = False, True, None
        elif record.kind is RecordKind.LEDGER_INTRO:
            pending.intro = record_intro(record)
        elif record.kind is RecordKind.LIMBO:
            pending.limbo, pending.marked = record_nonce(record), True
            self._active.limbo_decided.add(ledger_id)
        elif record.kind is RecordKind.LIMBO_CLEAR:
            nonce = record_nonce(record)
            self._active.limbo_decided.add(ledger_id)
            if not pending.marked:
                pending.cleared.add(nonce)
            elif pending.limbo == nonce:
                pending.limbo = None
        else:
            assert record.kind is RecordKind.DELETION
            pending.deleted = True
            pending.blocks.clear()
            self._active.deleted.add(ledger_id)

    def remove(self, ledger_id: LedgerId, entries: IntervalSet) -> None:
        """Remove replicas that metadata no longer places here from the store, with the next flush (rule 47).

        Frames that are accepted after this call stay, whatever they hold. Not journalled: after a crash the next
        collection finds the same replicas.
        """
        pending = self._active.ledger(ledger_id)
        self._active.size_bytes += _FRAME_OVERHEAD_BYTES
        if pending.removed is None:
            pending.removed = IntervalSet()
        for interval in entries:
            pending.removed.add(*interval)

    def pending(self, ledger_id: LedgerId) -> list[PendingLedger]:
        """What the generations have of a ledger, older first."""
        generations = (self._flushing, self._active)
        return [g.ledgers[ledger_id] for g in generations if g is not None and ledger_id in g.ledgers]

    def next_from(self, ledger_id: LedgerId, entry: EntryId) -> tuple[EntryId, Block] | None:
        """The smallest cached entry ≥ `entry` and a block that holds it."""
        found = [hit for pending in self.pending(ledger_id) if (hit := pending.next_from(entry)) is not None]
        return min(found, key=lambda hit: hit[0], default=None)

    def swap(self) -> Generation:
        """Begin a new generation and return the one to flush; it stays readable until `drop_flushed`."""
        assert self._flushing is None, "the generation before is not stored yet"
        self._flushing, self._active = self._active, Generation()
        return self._flushing

    def drop_flushed(self) -> None:
        """The store has committed the flushed generation."""
        assert self._flushing is not None
        self._flushing = None
