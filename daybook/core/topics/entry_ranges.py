"""Entries of one ledger as ranges: a set that stays small while its entries are neighbours.

A shared subscription acknowledges in any order, and one message that nobody acknowledges can hold back the mark-delete position for a
hundred thousand others. The ranges are kept as their borders, first entry and end by turns, so a binary search finds a place and the
parity of its index says whether it is inside. Borders stand in blocks of bounded size, so an insertion moves a few kilobytes at
most, however many ranges there are.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from daybook.core.ids import EntryId

BLOCK_BORDERS_MAX: Final = 512
"""A block with more borders is split in two; the number is even, as a range has two."""


class EntryRanges:
    """A set of entries of one ledger. `len` is the number of its ranges."""

    __slots__ = ("_blocks", "_firsts", "_ranges")

    def __init__(self) -> None:
        self._blocks: list[list[int]] = []
        """Borders: of each range its first entry, and the entry after its last. No block is empty, and no range touches another."""
        self._firsts: list[EntryId] = []
        """The first border of each block."""
        self._ranges = 0

    def __len__(self) -> int:
        """How many ranges there are."""
        return self._ranges

    def __contains__(self, entry: EntryId) -> bool:
        """Whether the entry is in the set."""
        at = bisect_right(self._firsts, entry) - 1
        return at >= 0 and bool(bisect_right(self._blocks[at], entry) & 1)

    def __iter__(self) -> Iterator[tuple[EntryId, EntryId]]:
        """The first and the last entry of each range, in order."""
        for block in self._blocks:
            for first, end in zip(block[::2], block[1::2], strict=True):
                yield first, end - 1

    @property
    def first(self) -> EntryId:
        """The smallest entry; there must be one."""
        return self._firsts[0]

    def end_from(self, entry: EntryId) -> EntryId:
        """The first entry from `entry` on that is not in the set."""
        at = bisect_right(self._firsts, entry) - 1
        if at < 0:
            return entry
        block = self._blocks[at]
        index = bisect_right(block, entry)
        return block[index] if index & 1 else entry

    def next_from(self, entry: EntryId) -> EntryId | None:
        """The first entry from `entry` on that is in the set; None if there is none."""
        at = bisect_right(self._firsts, entry) - 1
        if at >= 0:
            block = self._blocks[at]
            index = bisect_right(block, entry)
            if index & 1:
                return entry
            if index < len(block):
                return block[index]
        return self._firsts[at + 1] if at + 1 < len(self._firsts) else None

    def touches(self, entry: EntryId) -> bool:
        """Whether `entry` is in the set, or would only make a range longer."""
        return entry - 1 in self or entry in self or entry + 1 in self

    def add(self, entry: EntryId) -> bool:
        """Add an entry; False if it was there."""
        if not self._blocks:
            self.append(entry, entry)
            return True
        at = max(bisect_right(self._firsts, entry) - 1, 0)
        block = self._blocks[at]
        index = bisect_right(block, entry)
        if index & 1:
            return False
        follows = index > 0 and block[index - 1] == entry
        if index < len(block):
            self._add_between(at, index, entry, follows=follows)
        elif at + 1 < len(self._firsts) and self._firsts[at + 1] == entry + 1:
            self._add_before_block(at + 1, entry, follows=follows)
        elif follows:
            block[-1] = entry + 1
        else:
            block += (entry, entry + 1)
            self._grown(at)
        return True

    def add_range(self, first: EntryId, last: EntryId) -> int:
        """Add the entries from `first` to `last`; how many of them were not there. The cost grows with the holes, not with the entries."""
        added = 0
        while (hole := self.end_from(first)) <= last:
            following = self.next_from(hole)
            end = last + 1 if following is None else min(last + 1, following)
            self.add(hole)
            if end - hole > 2:
                block = self._blocks[bisect_right(self._firsts, hole) - 1]
                block[bisect_right(block, hole)] = end - 1
            if end - hole > 1:
                self.add(end - 1)
            added += end - hole
            first = end
        return added

    def _add_between(self, at: int, index: int, entry: EntryId, *, follows: bool) -> None:
        """`entry` comes before the range that begins at `index` of the block; `follows`: it touches the range before."""
        block = self._blocks[at]
        if block[index] != entry + 1:
            if follows:
                block[index - 1] = entry + 1
            else:
                block[index:index] = (entry, entry + 1)
                self._grown(at)
        elif follows:
            del block[index - 1 : index + 1]
            self._ranges -= 1
        else:
            block[index] = entry
        self._firsts[at] = self._blocks[at][0]

    def _add_before_block(self, at: int, entry: EntryId, *, follows: bool) -> None:
        """`entry` touches the first range of the block `at`; `follows`: and the last one of the block before."""
        block = self._blocks[at]
        if not follows:
            block[0] = self._firsts[at] = entry
            return
        self._blocks[at - 1][-1] = block[1]
        del block[:2]
        self._ranges -= 1
        if block:
            self._firsts[at] = block[0]
        else:
            del self._blocks[at], self._firsts[at]

    def _grown(self, at: int) -> None:
        """The block has a range more."""
        self._ranges += 1
        block = self._blocks[at]
        if len(block) > BLOCK_BORDERS_MAX:
            half = BLOCK_BORDERS_MAX // 2
            self._blocks.insert(at + 1, block[half:])
            self._firsts.insert(at + 1, block[half])
            del block[half:]

    def append(self, first: EntryId, last: EntryId) -> None:
        """Add a range behind all others; one that touches the last of them makes it longer."""
        if not self._blocks:
            self._blocks.append([first, last + 1])
            self._firsts.append(first)
            self._ranges = 1
            return
        block = self._blocks[-1]
        assert first >= block[-1], f"{first} is not behind {block[-1]}"
        if first == block[-1]:
            block[-1] = last + 1
        else:
            block += (first, last + 1)
            self._grown(len(self._blocks) - 1)

    def drop_through(self, entry: EntryId) -> int:
        """Remove all entries up to and with `entry`; how many that were."""
        whole = 0
        while whole < len(self._blocks) and self._blocks[whole][-1] <= entry + 1:
            whole += 1
        dropped = sum(map(self._drop_borders, self._blocks[:whole], map(len, self._blocks[:whole])))
        del self._blocks[:whole], self._firsts[:whole]
        if self._blocks:
            block = self._blocks[0]
            index = bisect_right(block, entry + 1)
            if index & 1:  # the range has entries on both sides, or begins behind `entry`
                dropped += entry + 1 - block[index - 1]
                block[index - 1] = entry + 1
                index -= 1
            dropped += self._drop_borders(block, index)
            self._firsts[0] = block[0]
        return dropped

    def _drop_borders(self, block: list[int], count: int) -> int:
        """Remove the first `count` borders; how many entries that were."""
        dropped = sum(block[1:count:2]) - sum(block[0:count:2])
        del block[:count]
        self._ranges -= count // 2
        return dropped
