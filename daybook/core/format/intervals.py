"""Which entries of a ledger exist, as a value that stays small: the interval index.

A store's pages can vanish without a trace, and a vanished entry that is answered with "not found" lets a recovery cut
the ledger short (rule 26). So existence is decided by this index, which is committed with the data under a checksum,
and a miss inside an interval is an I/O error. The same value travels to the auditor, who compares it with everything
the bookie owes, entry by entry of a ledger (rule 47).

An interval is (first, last, stripe): all entries n of first … last that the stripe holds. A dense ledger is one
interval, and so is a striped one whatever its length, because neighbours merge when the stripe holds nothing between.
Anything else is still right, only longer. Intervals of a set never overlap in range, and begin and end with entries
that they hold.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from math import lcm
from typing import Final, NamedTuple

from crc32c import crc32c

from daybook.core.errors import IntervalError
from daybook.core.ids import MAX_ID, NO_ENTRY, EntryId
from daybook.core.quorum import DENSE, Stripe

_PERIOD_MAX: Final = 64
_HEADER: Final = struct.Struct("<4sI")
_ROW: Final = struct.Struct("<qqBQ")
_CRC: Final = struct.Struct("<I")
_MAGIC: Final = b"DBI1"


class Interval(NamedTuple):
    """All entries n of first … last (inclusive, both held) that `stripe` holds."""

    first: EntryId
    last: EntryId
    stripe: Stripe

    @property
    def entry_count(self) -> int:
        """How many entries these are."""
        return self.stripe.count_between(self.first, self.last)

    def entry_ids(self) -> list[EntryId]:
        """The entries, rising; as many as `entry_count`."""
        return [n for n in range(self.first, self.last + 1) if self.stripe.holds(n)]


def first_held(stripe: Stripe, entry: EntryId) -> EntryId:
    """The smallest n ≥ `entry` that the stripe holds."""
    at = entry % stripe.period
    turned = stripe.mask >> at | stripe.mask << (stripe.period - at)
    return entry + (turned & -turned).bit_length() - 1


def last_held(stripe: Stripe, entry: EntryId) -> EntryId:
    """The largest n ≤ `entry` that the stripe holds (it may be negative where the stripe begins later)."""
    above = (stripe.period - 1 - entry) % stripe.period  # residues above this one
    turned = stripe.mask << above | stripe.mask >> (stripe.period - above)
    turned &= (1 << stripe.period) - 1
    return entry - (stripe.period - turned.bit_length())


def _widen(stripe: Stripe, period: int) -> int:
    """The stripe's mask, repeated up to `period`, a multiple of its own."""
    mask = 0
    for at in range(0, period, stripe.period):
        mask |= stripe.mask << at
    return mask


def _same_between(one: Stripe, other: Stripe, first: EntryId, last: EntryId) -> bool:
    """Whether both stripes hold the same entries of first … last."""
    if one == other:
        return True
    if first == last:
        return one.holds(first) == other.holds(first)
    end = min(last, first + lcm(one.period, other.period) - 1)
    return all(one.holds(n) == other.holds(n) for n in range(first, end + 1))


def clip(first: EntryId, last: EntryId, stripe: Stripe) -> Interval | None:
    """The interval of what `stripe` holds of first … last; None if that is nothing."""
    first = first_held(stripe, first)
    if first > last:
        return None
    last = last_held(stripe, last)
    return Interval(first, last, DENSE if first == last else stripe)


def _runs(entry_ids: Iterable[EntryId]) -> Iterator[Interval]:
    """Rising ids as dense intervals."""
    first = last = None
    for entry in entry_ids:
        if last is not None and first is not None:
            if entry == last + 1:
                last = entry
                continue
            yield Interval(first, last, DENSE)
        first = last = entry
    if first is not None and last is not None:
        yield Interval(first, last, DENSE)


def _combine(
    first: EntryId, last: EntryId, one: Stripe, other: Stripe, *, subtract: bool
) -> Iterator[Interval]:
    """What `one` and `other` hold together of first … last, or what `one` holds without `other`."""
    period = lcm(one.period, other.period)
    if period <= _PERIOD_MAX:
        a, b = _widen(one, period), _widen(other, period)
        mask = a & ~b if subtract else a | b
        if not mask:
            return
        clipped = clip(first, last, DENSE if mask == (1 << period) - 1 else Stripe(period, mask))
        if clipped is not None:
            yield clipped
        return
    ids = range(first, last + 1)
    if subtract:
        yield from _runs(n for n in ids if one.holds(n) and not other.holds(n))
    else:
        yield from _runs(n for n in ids if one.holds(n) or other.holds(n))


class IntervalSet:
    """A set of entry ids of one ledger. Mutable while it is built; compare, copy and send it as a value."""

    __slots__ = ("_items",)
    __hash__ = None  # type: ignore[assignment]  # mutable: no key of a dictionary

    def __init__(self, intervals: Iterable[Interval] = ()) -> None:
        self._items: list[Interval] = []
        for first, last, stripe in intervals:
            self.add(first, last, stripe)

    def __iter__(self) -> Iterator[Interval]:
        return iter(self._items)

    def __len__(self) -> int:
        """How many intervals there are, not entries (see `count`)."""
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same entries, however they came to be written down."""
        if not isinstance(other, IntervalSet):
            return NotImplemented
        if self._items == other._items:
            return True
        return (
            self.count == other.count
            and self.last == other.last
            and all(not self.missing(*interval) for interval in other)
        )

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{first}…{last}" + ("" if stripe == DENSE else f" of {stripe.period}:{stripe.mask:#x}")
            for first, last, stripe in self._items[:8]
        )
        return f"IntervalSet({shown}{', …' if len(self._items) > 8 else ''})"

    @property
    def count(self) -> int:
        """How many entries there are."""
        return sum(interval.entry_count for interval in self._items)

    @property
    def last(self) -> EntryId:
        """The largest entry; NO_ENTRY if there is none."""
        return self._items[-1].last if self._items else NO_ENTRY

    def copy(self) -> "IntervalSet":
        """An independent copy; intervals are shared, they never change."""
        other = IntervalSet()
        other._items = self._items.copy()
        return other

    def contains(self, entry: EntryId) -> bool:
        """Whether the entry is in the set."""
        at = self._at_or_before(entry)
        return at >= 0 and self._items[at].last >= entry and self._items[at].stripe.holds(entry)

    def count_between(self, first: EntryId, last: EntryId) -> int:
        """How many entries of first … last (inclusive) there are."""
        total = 0
        for interval in self._overlapping(first, last):
            total += interval.stripe.count_between(max(first, interval.first), min(last, interval.last))
        return total

    def next_from(self, entry: EntryId) -> EntryId:
        """The smallest entry ≥ `entry`; NO_ENTRY if there is none."""
        at = self._at_or_before(entry)
        if at >= 0 and self._items[at].last >= entry:
            return first_held(self._items[at].stripe, entry)
        return self._items[at + 1].first if at + 1 < len(self._items) else NO_ENTRY

    def missing(self, first: EntryId, last: EntryId, stripe: Stripe = DENSE) -> "IntervalSet":
        """What `stripe` holds of first … last and this set does not: the gap check (rule 47)."""
        gaps = IntervalSet()
        at = first
        for interval in self._overlapping(first, last):
            gaps._add_clipped(at, interval.first - 1, stripe)
            begin, end = max(first, interval.first), min(last, interval.last)
            if interval.stripe not in (DENSE, stripe):
                for gap in _combine(begin, end, stripe, interval.stripe, subtract=True):
                    gaps.add(*gap)
            at = end + 1
        gaps._add_clipped(at, last, stripe)
        return gaps

    def covers(self, first: EntryId, last: EntryId, stripe: Stripe = DENSE) -> bool:
        """Whether everything that `stripe` holds of first … last is in the set."""
        return not self.missing(first, last, stripe)

    def add_ids(self, entry_ids: Iterable[EntryId]) -> None:
        """Add the entries of an irregular frame, rising."""
        for run in _runs(entry_ids):
            self.add(*run)

    def add(self, first: EntryId, last: EntryId, stripe: Stripe = DENSE) -> None:
        """Add what `stripe` holds of first … last."""
        assert 0 <= first <= MAX_ID
        assert last <= MAX_ID
        new = clip(first, last, stripe)
        if new is None:
            return
        items = self._items
        if not items or new.first > items[-1].last:
            items.append(new)
            self._merge(len(items) - 1)
            return
        left = max(self._at_or_before(new.first), 0)
        if items[left].last < new.first:
            left += 1
        right = self._at_or_before(new.last) + 1
        replaced = list(self._union(new, items[left:right])) if right > left else [new]
        items[left:right] = replaced
        for at in range(left + len(replaced), left - 1, -1):
            self._merge(at)

    def _union(self, new: Interval, old: list[Interval]) -> Iterator[Interval]:
        """`new` together with the intervals whose range it overlaps, rising and without overlap."""
        at = new.first
        for interval in old:
            parts = (
                clip(at, interval.first - 1, new.stripe),
                clip(interval.first, new.first - 1, interval.stripe),
            )
            yield from (part for part in parts if part is not None)
            begin, end = max(new.first, interval.first), min(new.last, interval.last)
            if _same_between(new.stripe, interval.stripe, begin, end):
                shared = clip(begin, end, interval.stripe)
                assert shared is not None, "one of them begins there, so both hold that entry"
                yield shared
            else:
                yield from _combine(begin, end, new.stripe, interval.stripe, subtract=False)
            at = end + 1
            tail = clip(at, interval.last, interval.stripe)
            if tail is not None and interval.last > new.last:
                yield tail
        rest = clip(at, new.last, new.stripe)
        if rest is not None:
            yield rest

    def _merge(self, at: int) -> None:
        """Merge the interval at `at` with the one before it, if one stripe says what both say."""
        if not 0 < at < len(self._items):
            return
        before, after = self._items[at - 1], self._items[at]
        for stripe in (before.stripe, after.stripe):
            if (
                (stripe is before.stripe or _same_between(stripe, before.stripe, before.first, before.last))
                and (stripe is after.stripe or _same_between(stripe, after.stripe, after.first, after.last))
                and first_held(stripe, before.last + 1) == after.first
            ):
                self._items[at - 1 : at + 1] = [Interval(before.first, after.last, stripe)]
                return

    def _add_clipped(self, first: EntryId, last: EntryId, stripe: Stripe) -> None:
        if first <= last:
            self.add(first, last, stripe)

    def _at_or_before(self, entry: EntryId) -> int:
        """The index of the last interval that begins at or before `entry`; −1 if none does."""
        return bisect_right(self._items, (entry, MAX_ID + 1)) - 1

    def _overlapping(self, first: EntryId, last: EntryId) -> Iterator[Interval]:
        """The intervals whose range overlaps first … last."""
        for at in range(max(self._at_or_before(first), 0), len(self._items)):
            interval = self._items[at]
            if interval.first > last:
                return
            if interval.last >= first:
                yield interval

    def to_bytes(self) -> bytes:
        """Magic, count, rows and a CRC32C over all of it; little-endian."""
        rows = [_ROW.pack(first, last, period, mask) for first, last, (period, mask) in self._items]
        data = b"".join([_HEADER.pack(_MAGIC, len(rows)), *rows])
        return data + _CRC.pack(crc32c(data))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> "IntervalSet":
        """Read what `to_bytes` wrote; raises IntervalError if it is damaged or breaks an invariant."""
        if len(data) < _HEADER.size + _CRC.size:
            msg = f"{len(data)} bytes are too few for an interval index"
            raise IntervalError(msg)
        (expected,) = _CRC.unpack_from(data, len(data) - _CRC.size)
        magic, count = _HEADER.unpack_from(data)
        if crc32c(memoryview(data)[: -_CRC.size]) != expected or magic != _MAGIC:
            msg = "an interval index fails its checksum: take the entries from another replica"
            raise IntervalError(msg)
        if len(data) != _HEADER.size + count * _ROW.size + _CRC.size:
            msg = f"an interval index of {count} intervals has {len(data)} bytes"
            raise IntervalError(msg)
        index = cls()
        end = NO_ENTRY
        for at in range(count):
            first, last, period, mask = _ROW.unpack_from(data, _HEADER.size + at * _ROW.size)
            stripe = Stripe(period, mask)
            legal = 1 <= period <= _PERIOD_MAX and 1 <= mask < 1 << period and end < first <= last <= MAX_ID
            if not legal or not stripe.holds(first) or not stripe.holds(last):
                msg = f"interval {first}…{last} of stripe {period}:{mask:#x} after entry {end} is not legal"
                raise IntervalError(msg)
            index._items.append(Interval(first, last, stripe))
            end = last
        return index
