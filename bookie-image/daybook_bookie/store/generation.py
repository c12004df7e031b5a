"""A generation of the write cache: the entries and decisions that it took for each ledger since the previous swap.

What is known of a ledger besides entries (fence, limbo, LAC, deletion) is in the same generation as its frames, or a
journal file could be trimmed before the store has them (rule 24).
"""

from bisect import bisect_left, bisect_right, insort
from operator import attrgetter
from typing import Final

from daybook.core.format.block import Block, block_entry_ids, is_dense_block
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId
from daybook_bookie.journal.format import LedgerIntro
from daybook_bookie.store.stored_ledger import StoredLedger

_FIRST: Final = attrgetter("first")


class PendingLedger:
    """What one generation has of one ledger."""

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
        """Whether an earlier fence, and the password that came with it, are void (rule 3)."""
        self.limbo: bytes | None = None
        self.marked = False
        """Whether `limbo` replaces what was known before, also when it is None again."""
        self.cleared: set[bytes] = set()
        """The nonces whose limbo marks are cleared, if one of them is what was known before."""
        self.deleted = False
        self.removed: IntervalSet | None = None
        """Replicas to take out of the store before this generation's frames are put into it."""
        self.intro: LedgerIntro | None = None
        self.last_add_confirmed = NO_ENTRY
        self.length_at_lac = 0

    def raise_lac(self, lac: EntryId, length: int) -> None:
        """A frame or a table brought this LAC."""
        if lac > self.last_add_confirmed:
            self.last_add_confirmed = lac
            self.length_at_lac = length

    def add(self, block: Block) -> None:
        """Put a frame with entries in its place."""
        blocks = self.blocks
        first, last, _, _ = block
        if last - first > self.longest:
            self.longest = last - first
        if not blocks or first > blocks[-1].last:
            blocks.append(block)
            return
        self.rising = False
        insort(blocks, block, key=_FIRST)

    def next_from(self, entry: EntryId) -> tuple[EntryId, Block] | None:
        """The smallest entry ≥ `entry` and a block that holds it."""
        begin, end = self.begin_within(entry, entry)
        best: tuple[EntryId, Block] | None = None
        for block in self.blocks[begin : end + 1]:
            found = next_in(block, entry)
            if found != NO_ENTRY and (best is None or found < best[0]):
                best = found, block
        return best

    def overlapping(self, first: EntryId, last: EntryId) -> int:
        """How many blocks' ranges overlap first … last."""
        begin, end = self.begin_within(first, last)
        return sum(block.last >= first for block in self.blocks[begin:end])

    def begin_within(self, first: EntryId, last: EntryId) -> tuple[int, int]:
        """The indexes [begin, end) of the blocks that begin at or before `last` and may reach `first`.

        The caller holds the lock, so this must not visit every block of a ledger.
        """
        end = bisect_right(self.blocks, last, key=_FIRST)
        if self.rising:
            return max(bisect_right(self.blocks, first, 0, end, key=_FIRST) - 1, 0), end
        return bisect_left(self.blocks, first - self.longest, 0, end, key=_FIRST), end

    def limbo_after(self, nonce: bytes | None) -> bytes | None:
        """The nonce of the ledger's limbo mark after this generation, if it was `nonce` before it (rule 29)."""
        if self.marked:
            return self.limbo
        return None if nonce in self.cleared else nonce

    def applied_to(self, record: StoredLedger) -> StoredLedger:
        """The stored record after the decisions of this generation; entries are not considered."""
        fenced, password_hash, first_seen_ms = record.fenced, record.password_hash, record.first_seen_ms
        if self.fence_dropped:
            fenced, password_hash, first_seen_ms = False, b"", 0
        newer = self.last_add_confirmed > record.last_add_confirmed
        intro = self.intro
        return StoredLedger(
            record.intervals,
            fenced=fenced or self.fenced,
            limbo=self.limbo_after(record.limbo),
            deleting=record.deleting or self.deleted,
            last_add_confirmed=self.last_add_confirmed if newer else record.last_add_confirmed,
            length_at_lac=self.length_at_lac if newer else record.length_at_lac,
            password_hash=intro.password_hash if intro is not None else password_hash,
            first_seen_ms=intro.first_seen_ms if intro is not None else first_seen_ms,
        )


def next_in(block: Block, entry: EntryId) -> EntryId:
    """The smallest entry ≥ `entry` that the block holds; NO_ENTRY if there is none."""
    if block.last < entry:
        return NO_ENTRY
    if block.first >= entry:
        return block.first
    if is_dense_block(block):
        return entry
    ids = block_entry_ids(block)
    return ids[bisect_right(ids, entry - 1)]


class Generation:
    """The ledgers that changed since the previous swap."""

    __slots__ = ("deleted", "ledgers", "limbo_decided", "size_bytes")

    def __init__(self) -> None:
        self.ledgers: dict[LedgerId, PendingLedger] = {}
        self.deleted: set[LedgerId] = set()
        self.limbo_decided: set[LedgerId] = set()
        """The ledgers whose limbo began or ended, so that a listing of these does not walk all ledgers."""
        self.size_bytes = 0

    def ledger(self, ledger_id: LedgerId) -> PendingLedger:
        """What the generation has of the ledger, created on first use."""
        pending = self.ledgers.get(ledger_id)
        if pending is None:
            pending = self.ledgers[ledger_id] = PendingLedger()
        return pending
