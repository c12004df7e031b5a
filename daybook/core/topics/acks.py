"""What one subscription has acknowledged of a topic: the mark-delete position, ranges beyond it, and batches of which a part is.

The mark-delete position moves as soon as nothing before it is missing, over the ends of ledgers as well. In memory the rest is ranges,
as in the record that survives the broker (cursor_record.py): a subscription may have a hundred thousand holes. What is acknowledged and
does not exist, or would take more memory than is allowed, is ignored; the message is delivered again.

A subscription that reads what is compacted may also receive entries of ledgers that were trimmed: early ones. The mark-delete position
follows them one by one, and what is acknowledged behind them counts, and is stored, only once none of them is left. One that is not
compacted any more counts as acknowledged: nobody can receive it again.
"""

from bisect import bisect_left
from collections.abc import Container, Mapping, Sequence
from typing import Final

from daybook.core.ids import MAX_ID, LedgerId
from daybook.core.topics.cursor_record import NO_LEDGER, AckedRange, CursorRecord
from daybook.core.topics.entry_ranges import EntryRanges
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position

RANGES_MAX: Final = 500_000
"""Ranges of a subscription in memory: more than a subscription may have messages that are delivered and not acknowledged."""
BATCHES_MAX: Final = 100_000
"""Batches of a subscription of which a part is acknowledged, in memory."""
BATCH_WORDS_MAX: Final = 1_024
"""Words of 64 messages of one batch."""
RECORD_WORDS_MAX: Final = 16
"""Words of a record, for each of the batches that it may have: batches of a thousand messages fit."""
_WORD: Final = 64
_WORD_MASK: Final = (1 << _WORD) - 1


class AckState:
    """The acknowledgements of one subscription. Make it once the topic's list is known, so that `extent` has all that was acknowledged."""

    __slots__ = (
        "_acked",
        "_batches",
        "_deferred",
        "_early",
        "_extent",
        "_passed",
        "_range_count",
        "_ranges",
        "_unknown_fields",
        "ignored",
        "last_active_ms",
        "mark_delete",
        "properties",
        "resets",
        "version",
    )

    def __init__(self, extent: TopicExtent, record: CursorRecord | None = None) -> None:
        """Begin where `record` says; without one everything that the topic has is not acknowledged."""
        record = record or CursorRecord()
        self._extent = extent
        self.mark_delete: Position = min(record.mark_delete, extent.last_confirmed)
        """Everything up to it is acknowledged."""
        self._ranges: dict[LedgerId, EntryRanges] = {}
        """What is acknowledged beyond it, by ledger; none is empty."""
        self._acked = 0
        """How many entries these are."""
        self._range_count = 0
        self._batches: dict[Position, int] = {}
        """The messages of a batch that are not acknowledged, as bits; some batches may be passed already."""
        self._passed = 0
        """How often the mark-delete position moved since those were removed."""
        self._early: dict[Position, int] = {}
        """Entries that were delivered and do not exist any more, in order, and which of their messages are not acknowledged, as bits."""
        self._deferred: list[tuple[Position, Position]] = []
        """What was acknowledged behind them: from a position up to, and without, another."""
        self.ignored = 0
        """Acknowledgements beyond a limit."""
        self.version = 0
        """Rises with every change."""
        self.resets = 0
        """Rises with every `reset`."""
        self.last_active_ms = record.last_active_ms
        """When a consumer last used the subscription, in ms since 1970."""
        self.properties: Mapping[str, str] = record.properties
        self._unknown_fields = record.unknown_fields
        self._load(record)

    def _load(self, record: CursorRecord) -> None:
        for acked in record.ranges:
            run = self._extent.run(acked.first, acked.last_entry - acked.first_entry + 1)
            if run is not None and run[:2] == acked.first and acked.first > self.mark_delete:
                self._ranges.setdefault(acked.ledger_id, EntryRanges()).append(*run[1:])
                self._acked += run[2] - run[1] + 1
        self._range_count = sum(map(len, self._ranges.values()))
        for position, words in record.batches:
            if self._is_open(position) and (bits := bits_of(words)):
                self._batches[position] = bits
        self._move_on()

    # Acknowledgements

    def ack(self, position: Position) -> bool:
        """Acknowledge an entry. False if it was acknowledged before, if it does not exist, and beyond `RANGES_MAX`."""
        mark = self.mark_delete
        if self._early:
            return self._ack_behind_early(position)
        if position <= mark or not self._extent.contains(position):
            return False
        ledger_id, entry_id = position
        is_next = entry_id == mark[1] + 1 if ledger_id == mark[0] else position == self._extent.after(mark)
        if is_next:
            self.mark_delete = position
            if self._ranges:
                if ledger_id != mark[0]:
                    self._drop_passed(position)
                self._move_on()
        elif not self._add(ledger_id, entry_id):
            return False
        if self._batches:
            self._batches.pop(position, None)
        self.version += 1
        return True

    def _add(self, ledger_id: LedgerId, entry_id: int) -> bool:
        ranges = self._ranges.get(ledger_id)
        if self._range_count >= RANGES_MAX and (ranges is None or not ranges.touches(entry_id)):
            self.ignored += 1
            return False
        if ranges is None:
            ranges = self._ranges[ledger_id] = EntryRanges()
        before = len(ranges)
        if not ranges.add(entry_id):
            return False
        self._range_count += len(ranges) - before
        self._acked += 1
        return True

    def ack_absent(self, first: Position, end: Position) -> None:
        """Acknowledge the entries from `first` on that are before `end`: nobody receives them, because a compaction removed them."""
        extent = self._extent
        start = extent.at_or_after(first)
        if start >= end or not extent.contains(start):
            return
        if self._early:
            self._defer(start, end)
            return
        if extent.after(self.mark_delete) >= start:
            self.ack_through(extent.before(end))
            return
        while (run := extent.run(start, MAX_ID)) is not None and start < end:
            ledger_id, first_entry, last_entry = run
            if ledger_id == end.ledger_id:
                last_entry = min(last_entry, end.entry_id - 1)
            self._add_range(ledger_id, first_entry, last_entry)
            start = extent.after(Position(ledger_id, last_entry))
        self.version += 1

    def delivers(self, position: Position, words: Sequence[int], batch_size: int) -> None:
        """An entry is delivered that a compaction left, or so much of its batch as `words` say."""
        if self.mark_delete < position < self._extent.first:
            self._early[position] = self._early.get(position, -1) & (bits_of(words) if words else -1)
        elif words:
            self.ack_batch(position, words, batch_size)

    def lose_early(self, first: Position, end: Position, kept: Container[Position] = ()) -> None:
        """Acknowledge the early entries from `first` on that are before `end`, but for those `kept`: they are not compacted any more."""
        early = list(self._early)
        for position in early[bisect_left(early, first) : bisect_left(early, end)]:
            if position not in kept:
                self._early[position] = 0
        self._pass_early()

    def _ack_behind_early(self, position: Position) -> bool:
        if position in self._early:
            return self._ack_early(position, 0)
        if position <= self.mark_delete or not self._extent.contains(position):
            return False
        return self._defer(position, position.behind)

    def _ack_early(self, position: Position, left: int) -> bool:
        before = self._early[position]
        self._early[position] = before & left
        self.version += 1
        self._pass_early()
        return bool(before) and not before & left

    def _pass_early(self) -> None:
        """Move the mark-delete position over the early entries that are acknowledged; behind the last one, take what was deferred."""
        while self._early:
            first = next(iter(self._early))
            if self._early[first] and first > self.mark_delete:
                return
            self.mark_delete = max(self.mark_delete, first)
            self.version += 1
            self._drop_passed(self.mark_delete)
            del self._early[first]
        deferred, self._deferred = self._deferred, []
        for start, end in deferred:
            self.ack_absent(start, end)

    def _defer(self, start: Position, end: Position) -> bool:
        if len(self._deferred) >= RANGES_MAX:
            self.ignored += 1
            return False
        self._deferred.append((start, end))
        return True

    def _add_range(self, ledger_id: LedgerId, first: int, last: int) -> None:
        if self._range_count >= RANGES_MAX:
            self.ignored += 1
            return
        ranges = self._ranges.setdefault(ledger_id, EntryRanges())
        before = len(ranges)
        self._acked += ranges.add_range(first, last)
        self._range_count += len(ranges) - before
        self._drop_batches(ledger_id, first, last)

    def _drop_batches(self, ledger_id: LedgerId, first: int, last: int) -> None:
        """Nothing is left of those among these entries."""
        batches = self._batches
        if last - first < len(batches):
            for entry_id in range(first, last + 1):
                batches.pop(Position(ledger_id, entry_id), None)
        else:
            for position in [
                each for each in batches if each.ledger_id == ledger_id and first <= each.entry_id <= last
            ]:
                del batches[position]

    def ack_batch(self, position: Position, words: Sequence[int], batch_size: int) -> bool:
        """Acknowledge a part of an entry: a set bit of `words` is a message that is not acknowledged. True once the whole entry is.

        Words that are missing at the end have no set bit. `batch_size` 0: nobody knows how many messages there are.
        """
        if position in self._early:
            return self._ack_early(position, bits_of(words))
        if not self._is_open(position):
            return False
        if len(words) > BATCH_WORDS_MAX or batch_size > BATCH_WORDS_MAX * _WORD:
            self.ignored += 1
            return False
        every = (1 << batch_size) - 1 if batch_size > 0 else -1
        left = bits_of(words) & self._batches.get(position, every)
        if not left:
            return self.ack(position)
        if left == every:
            return False
        if len(self._batches) >= BATCHES_MAX and position not in self._batches:
            self._forget_passed()
            if len(self._batches) >= BATCHES_MAX:
                self.ignored += 1
                return False
        if self._batches.get(position) != left:
            self._batches[position] = left
            self.version += 1
        return False

    def ack_through(self, position: Position, words: Sequence[int] = (), batch_size: int = 0) -> None:
        """Acknowledge everything up to `position`; with `words`, of its last entry only the messages whose bits are not set.

        A position that the topic never had acknowledges nothing (rule 40). Entry −1 is what is before entry 0.
        """
        exists = self._extent.contains(position)
        if not exists and self._never_was(position):
            return
        if words:
            self.ack_through(min(position.before, self._extent.before(position)))
            self.ack_batch(position, words, batch_size)
            return
        if not exists:  # a reader of what is compacted may be before all that exists
            position = min(position, self._extent.before(position))
        if position <= self.mark_delete:
            return
        self.mark_delete = position
        if self._early:
            self._pass_early()
        if self._ranges:
            self._drop_passed(position)
            self._move_on()
        if self._batches:
            self._passed += 1
            if self._passed >= len(self._batches):
                self._forget_passed()
        self.version += 1

    def reset(self, mark_delete: Position, *, reaches_back: bool = False) -> None:
        """Begin again behind `mark_delete`, or as near to it as the topic reaches: a seek.

        With `reaches_back` a position before all that exists is taken as it is: what is compacted begins earlier.
        """
        exists = self._extent.contains(mark_delete)
        before = mark_delete if exists else self._extent.before(mark_delete)
        self.mark_delete = min(mark_delete, before) if reaches_back else before
        self._ranges.clear()
        self._batches.clear()
        self._early.clear()
        self._deferred.clear()
        self._acked = self._range_count = self._passed = 0
        self.resets += 1
        self.version += 1

    # The mark-delete position

    def _move_on(self) -> None:
        """Move the mark-delete position over the ranges that follow it at once."""
        while self._ranges:
            ledger_id, entry_id = self._extent.after(self.mark_delete)
            ranges = self._ranges.get(ledger_id)
            if ranges is None or ranges.first != entry_id:
                return
            self.mark_delete = Position(ledger_id, ranges.end_from(entry_id) - 1)
            self._drop_through(ledger_id, self.mark_delete.entry_id)

    def _drop_passed(self, position: Position) -> None:
        """Forget the ranges up to `position`, which no record may have, also those of ledgers that were trimmed."""
        for ledger_id in [each for each in self._ranges if each < position.ledger_id]:
            ranges = self._ranges.pop(ledger_id)
            self._range_count -= len(ranges)
            self._acked -= sum(last + 1 - first for first, last in ranges)
        if position.ledger_id in self._ranges:
            self._drop_through(*position)

    def _drop_through(self, ledger_id: LedgerId, entry_id: int) -> None:
        ranges = self._ranges[ledger_id]
        before = len(ranges)
        self._acked -= ranges.drop_through(entry_id)
        self._range_count += len(ranges) - before
        if not ranges:
            del self._ranges[ledger_id]

    def _forget_passed(self) -> None:
        self._passed = 0
        mark = self.mark_delete
        self._batches = {position: bits for position, bits in self._batches.items() if position > mark}

    # Questions

    @property
    def range_count(self) -> int:
        """How many ranges are acknowledged beyond the mark-delete position."""
        return self._range_count

    def fits(self, ranges_max: int) -> bool:
        """Whether `record(ranges_max)` has everything, but for words of very large batches."""
        if len(self._batches) > ranges_max:
            self._forget_passed()
        return max(self._range_count, len(self._batches)) <= ranges_max

    def is_acked(self, position: Position) -> bool:
        """Whether the whole entry is acknowledged."""
        if position <= self.mark_delete:
            return True
        ranges = self._ranges.get(position.ledger_id)
        return ranges is not None and position.entry_id in ranges

    def is_untouched_from(self, position: Position) -> bool:
        """Whether nothing at `position` and beyond is acknowledged. It may be False all the same: then ask for each entry."""
        return position > self.mark_delete and not self._ranges and not self._batches

    def ack_set(self, position: Position) -> tuple[int, ...]:
        """The words of a batch of which a part is acknowledged; () if nothing of it is, or all."""
        bits = self._batches.get(position, 0)
        return words_of(bits) if bits and position > self.mark_delete else ()

    def next_unacked(self, position: Position) -> Position:
        """The first position from `position` on that is not acknowledged; it may be that of an entry that is yet to come."""
        extent = self._extent
        found = (
            extent.after(self.mark_delete) if position <= self.mark_delete else extent.at_or_after(position)
        )
        while (ranges := self._ranges.get(found.ledger_id)) is not None:
            end = ranges.end_from(found.entry_id)
            if end == found.entry_id:
                break
            found = extent.at_or_after(Position(found.ledger_id, end))
        return found

    def run(self, position: Position, entries_max: int) -> tuple[LedgerId, int, int] | None:
        """As `TopicExtent.run`, of entries that are not acknowledged."""
        run = self._extent.run(self.next_unacked(position), entries_max)
        if run is not None and (ranges := self._ranges.get(run[0])) is not None:
            following = ranges.next_from(run[1])
            if following is not None and following <= run[2]:
                return run[0], run[1], following - 1
        return run

    def unacked_entries(self) -> int:
        """How many entries are not acknowledged: the backlog."""
        return self._extent.count(self.mark_delete) - self._acked

    def nth_unacked(self, n: int) -> Position:
        """The `n`-th entry that is not acknowledged, or the last of the topic if there are fewer; the mark-delete position for 0."""
        position = self.mark_delete
        for ledger_id in sorted(self._ranges):
            for first, last in self._ranges[ledger_id]:
                between = self._extent.count(position, Position(ledger_id, first - 1))
                if between >= n:
                    return self._extent.nth_after(position, n)
                n -= between
                position = Position(ledger_id, last)
        return self._extent.nth_after(position, n)

    # The record

    def record(self, ranges_max: int, *, cursor_ledger: LedgerId = NO_LEDGER) -> CursorRecord:
        """The state as it is stored, with the first `ranges_max` ranges and as many batches (rule 40)."""
        ranges: list[AckedRange] = []
        for ledger_id in sorted(self._ranges):
            for first, last in self._ranges[ledger_id]:
                if len(ranges) == ranges_max:
                    break
                ranges.append(AckedRange(ledger_id, first, last))
        self._forget_passed()
        words_left = RECORD_WORDS_MAX * ranges_max
        batches: list[tuple[Position, tuple[int, ...]]] = []
        for position in sorted(self._batches)[:ranges_max]:
            words = words_of(self._batches[position])
            words_left -= len(words)
            if words_left < 0:
                break
            batches.append((position, words))
        return CursorRecord(
            self.mark_delete,
            tuple(ranges),
            tuple(batches),
            cursor_ledger,
            self.last_active_ms,
            self.properties,
            self._unknown_fields,
        )

    def _never_was(self, position: Position) -> bool:
        """Whether a position that does not exist never did. What is before all that exists may have been trimmed; nobody knows that."""
        is_before_a_ledger = self._extent.contains(position.behind)
        return position.entry_id < -1 or (position >= self._extent.first and not is_before_a_ledger)

    def _is_open(self, position: Position) -> bool:
        """Whether the entry exists and is not acknowledged as a whole."""
        return self._extent.contains(position) and not self.is_acked(position)


def bits_of(words: Sequence[int]) -> int:
    """The words as one number; they are signed, as they travel."""
    return sum((word & _WORD_MASK) << (_WORD * index) for index, word in enumerate(words))


def words_of(bits: int) -> tuple[int, ...]:
    """The inverse of `bits_of`."""
    raw = bits.to_bytes((bits.bit_length() + _WORD - 1) // _WORD * 8, "little")
    return tuple(int.from_bytes(raw[at : at + 8], "little", signed=True) for at in range(0, len(raw), 8))
