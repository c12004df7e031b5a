"""Reading a range: cache first, then store, exactly what was asked for, and never a gap that was not looked at.

Each step looks at both at once: an entry is in the cache until the store has it (rule 43), so one look at both misses
nothing, and the blocks that it found stay valid without the lock. What exists and cannot be read is named as damaged, never
left out (rule 26): a reader takes what is left out as a proof that it was never stored (rule 6).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from daybook.core.bookie.ledger import LacAnswer
from daybook.core.errors import FrameError
from daybook.core.format.block import Block, cut_rows, rows_between, rows_that_fit
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId


class Held(NamedTuple):
    """What a bookie has at or after an entry, and what it knows of the LAC."""

    cached: tuple[EntryId, Block] | None
    """The first entry there that the cache has, and the block that has it."""
    cached_whole: bool
    """No other block of cache or store has entries within the range of the cached one."""
    stored: EntryId
    """The first entry there that the store's index has; −1 if there is none."""
    lac: LacAnswer


NOTHING_HELD: Final = Held(
    cached=None,
    cached_whole=True,
    stored=NO_ENTRY,
    lac=LacAnswer(NO_ENTRY, 0, limbo=False, fenced=False),
)
"""What a bookie has of a ledger that it does not know."""


class RangeSource(Protocol):
    """Cache and store, as a scan sees them."""

    def look(self, ledger_id: LedgerId, at: EntryId) -> Held:
        """Look at cache and index together, under one hold of the lock."""

    def read_stored(
        self, ledger_id: LedgerId, first: EntryId, end: EntryId, room_bytes: int
    ) -> Sequence[Block]:
        """The store's blocks from the one that has `first` up to about `end`, as many as `room_bytes` allows.

        Empty: the ledger was deleted since the look. Raises FrameError if `first` cannot be read. Their data may be views that end
        before the scan does: see `RangeScan.copy_waiting`.
        """


class RangeScan:
    """One pass over a range of entries."""

    def __init__(self, source: RangeSource, ledger_id: LedgerId, first: EntryId, last: EntryId) -> None:
        """Scan `first` … `last`."""
        self._source = source
        self._ledger_id = ledger_id
        self._first = first
        self._at = first
        self._last = last
        self.limbo = False
        self.last_add_confirmed = NO_ENTRY
        self.length_at_lac = 0
        self.damaged = NO_ENTRY
        """The entry that the last step could not read; −1 if there was none."""
        self.damage = ""
        """Why it could not."""
        self._waiting: list[Block] = []
        """Blocks that the store gave at once and that were not handed out yet."""

    @property
    def done(self) -> bool:
        """Whether everything up to the end was looked at."""
        return self._at > self._last

    @property
    def through(self) -> EntryId:
        """Up to where everything was looked at."""
        return min(self._at - 1, self._last)

    def step(self, room_bytes: int, *, store_bytes: int) -> Block | None:
        """The next block, cut to what was asked for; None if an entry was damaged, or nothing is left.

        At most about `store_bytes` are read from the store now, where it is read: what later steps give of them is held until then.
        """
        if not self._waiting:
            self.damaged = NO_ENTRY
            held = self._source.look(self._ledger_id, self._at)
            lac = held.lac
            self.last_add_confirmed, self.length_at_lac = lac.last_add_confirmed, lac.length_at_lac
            self.limbo = self.limbo or lac.limbo  # what was absent while limbo lasted is not reported absent
            if held.cached is not None and not NO_ENTRY < held.stored < held.cached[0]:
                self._waiting = self._from_cache(held.cached, room_bytes, whole=held.cached_whole)
            elif NO_ENTRY < held.stored <= self._last:
                end = self._last if held.cached is None else min(self._last, held.cached[0] - 1)
                self._waiting = self._from_store(held.stored, end, min(room_bytes, store_bytes))
            else:
                self._at = self._last + 1
        if not self._waiting:
            return None
        block = self._waiting.pop(0)
        self._at = block.last + 1
        return block

    def copy_waiting(self) -> None:
        """Keep what later steps give of what was read so far: views of the store end now."""
        self._waiting = [block._replace(data=bytes(block.data)) for block in self._waiting]

    def _from_cache(self, found: tuple[EntryId, Block], room_bytes: int, *, whole: bool) -> list[Block]:
        entry, block = found
        if entry > self._last:
            self._at = self._last + 1
            return []
        return [_cut(block, entry, self._last if whole else entry, room_bytes)]

    def _from_store(self, first: EntryId, end: EntryId, room_bytes: int) -> list[Block]:
        """What the store gives of first … end in one go; moves on past an entry that it cannot read."""
        begun, self._at = self._at > self._first, first
        try:
            blocks = list(self._source.read_stored(self._ledger_id, first, end, room_bytes))
            if blocks and blocks[0].first < first and begun:  # what comes before was given already
                blocks[0] = _cut(blocks[0], first, blocks[0].last, len(blocks[0].data))
            if blocks and blocks[-1].last > end and end < self._last:  # the cache has what comes next
                blocks[-1] = _cut(blocks[-1], max(first, blocks[-1].first), end, len(blocks[-1].data))
        except FrameError as error:
            self.damaged, self.damage = first, str(error)
            self._at = first + 1
            return []
        return blocks


def _cut(block: Block, first: EntryId, last: EntryId, room_bytes: int) -> Block:
    """The rows of first … last that fit, at least one; the block itself if that is all of it."""
    if first <= block.first and block.last <= last and block.size_bytes <= room_bytes:
        return block
    begin, end = rows_between(block, first, last)
    part = cut_rows(block, begin, rows_that_fit(block, begin, end, room_bytes))
    assert part is not None, "the block holds the first entry"
    return part
