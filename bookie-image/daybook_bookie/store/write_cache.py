"""The write cache: where an accepted frame is found until the store has it.

A frame enters under the lock that checks the fence, before it goes to the journal, so that no read and no fence can
overtake it (rule 43). There are two generations: one takes frames while the other is being flushed; the second is
dropped only after the store's commit. What is known of a ledger besides entries (fence, limbo, LAC, deletion) travels
in the same generation, or a journal file could go before it is stored (rule 24).

All methods are called under the caller's lock, but a generation that is being flushed is no longer changed and may be
read without it. A few microseconds a frame: nothing here looks at entries.
"""

from bisect import bisect_left, bisect_right, insort
from operator import attrgetter
from typing import Final

from daybook.core.format.block import Block, block_entry_ids, is_dense_block
from daybook.core.format.frame import Buffer, FrameHeader, decode_header, last_entry
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId
from daybook_bookie.journal.records import (
    LedgerIntro,
    Record,
    RecordKind,
    record_intro,
    record_ledger,
    record_nonce,
)

_FIRST: Final = attrgetter("first")
_FRAME_OVERHEAD_BYTES: Final = 600
"""What the objects around a frame take."""


class PendingLedger:
    """What one generation knows of one ledger."""

    __slots__ = (
        "blocks",
        "cleared",
        "deleted",
        "fence_dropped",
        "fenced",
        "intro",
        "last_add_confirmed",
        "length_at_lac",
        "limbo",
        "longest",
        "marked",
        "removed",
        "rising",
    )

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        """By first entry; they may overlap unless `rising`."""
        self.rising = True
        self.longest = 0
        """The most that a block's last entry is behind its first: how far before an entry its block may begin."""
        self.fenced = False
        self.fence_dropped = False
        """Whether a fence that was known before, and the key that came with it, stand no more (rule 3)."""
        self.limbo: bytes | None = None
        self.marked = False
        """Whether `limbo` stands for whatever was known before, also when it is None again."""
        self.cleared: set[bytes] = set()
        """The nonces whose marks no longer stand, if one of them is what was known before."""
        self.deleted = False
        self.removed: IntervalSet | None = None
        """Replicas to take out of the store before this generation's frames are put into it."""
        self.intro: LedgerIntro | None = None
        self.last_add_confirmed = NO_ENTRY
        self.length_at_lac = 0

    def add(self, block: Block) -> None:
        """Put a frame with entries in its place."""
        blocks = self.blocks
        self.longest = max(self.longest, block.last - block.first)
        if not blocks or block.first > blocks[-1].last:
            blocks.append(block)
            return
        self.rising = False
        insort(blocks, block, key=_FIRST)

    def next_from(self, entry: EntryId) -> tuple[EntryId, Block] | None:
        """The smallest entry ≥ `entry` and a block that holds it."""
        begin, end = self._begin_within(entry, entry)
        best: tuple[EntryId, Block] | None = None
        for block in self.blocks[begin : end + 1]:
            found = _next_in(block, entry)
            if found != NO_ENTRY and (best is None or found < best[0]):
                best = found, block
        return best

    def overlapping(self, first: EntryId, last: EntryId) -> int:
        """How many blocks' ranges overlap first … last."""
        begin, end = self._begin_within(first, last)
        return sum(block.last >= first for block in self.blocks[begin:end])

    def _begin_within(self, first: EntryId, last: EntryId) -> tuple[int, int]:
        """The indexes [begin, end) of the blocks that begin at or before `last` and may reach `first`.

        The lock is held meanwhile, so this must not look at every block of a ledger.
        """
        end = bisect_right(self.blocks, last, key=_FIRST)
        if self.rising:
            return max(bisect_right(self.blocks, first, 0, end, key=_FIRST) - 1, 0), end
        return bisect_left(self.blocks, first - self.longest, 0, end, key=_FIRST), end


def _next_in(block: Block, entry: EntryId) -> EntryId:
    if block.last < entry:
        return NO_ENTRY
    if block.first >= entry:
        return block.first
    if is_dense_block(block):
        return entry
    ids = block_entry_ids(block)
    return ids[bisect_right(ids, entry - 1)]


class Generation:
    """The ledgers that changed since the swap before."""

    __slots__ = ("deleted", "ledgers", "limbo_decided", "size_bytes")

    def __init__(self) -> None:
        self.ledgers: dict[LedgerId, PendingLedger] = {}
        self.deleted: set[LedgerId] = set()
        self.limbo_decided: set[LedgerId] = set()
        """The ledgers whose limbo began or ended, so that who asks for them does not walk all others."""
        self.size_bytes = 0

    def ledger(self, ledger_id: LedgerId) -> PendingLedger:
        """The ledger's state, made on first use."""
        pending = self.ledgers.get(ledger_id)
        if pending is None:
            pending = self.ledgers[ledger_id] = PendingLedger()
        return pending


class WriteCache:
    """Two generations; see the module."""

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
        """Those that are not stored yet, older first."""
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
        """Take a frame whose body was checked; `data` is the frame alone and must not change any more."""
        pending = self._active.ledger(header.ledger_id)
        if header.last_add_confirmed > pending.last_add_confirmed:
            pending.last_add_confirmed = header.last_add_confirmed
            pending.length_at_lac = header.length_at_lac
        if header.count:
            pending.add(Block(header.first_entry, last_entry(data, header), header, data))
            self._active.size_bytes += len(data)
        self._active.size_bytes += _FRAME_OVERHEAD_BYTES

    def apply(self, record: Record) -> None:
        """Take a record: a decision that is about to be journalled, or anything that a replay gives back."""
        if record.kind is RecordKind.FRAME:
            self.add_frame(record.body, decode_header(record.body))
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
        """Take replicas that metadata no longer places here out of the store, with the next flush (rule 47).

        Frames that are accepted after this call stay, whatever they hold. Not journalled: a removal that a crash
        forgets is found necessary again.
        """
        pending = self._active.ledger(ledger_id)
        self._active.size_bytes += _FRAME_OVERHEAD_BYTES
        if pending.removed is None:
            pending.removed = IntervalSet()
        for interval in entries:
            pending.removed.add(*interval)

    def pending(self, ledger_id: LedgerId) -> list[PendingLedger]:
        """What the generations know of a ledger, older first."""
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
