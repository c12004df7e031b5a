"""What was read from bookies and is not yet dispatched: runs of entries, some of them still on their way.

A run is found by any entry in it, so that subscriptions that read the same part of a ledger share one read, and so that the
next run is under way while one is dispatched. All runs of a broker share one bound in bytes. Runs of which something was
dispatched leave first, because most consumers read forwards only; what nobody has used yet leaves only for a read that somebody
waits for.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from daybook.core.ids import EntryId, LedgerId
from daybook.core.topics.dispatch.entries import TopicEntry
from daybook_broker.topics.tail_cache import ENTRY_COST_BYTES

RUN_COST_BYTES: Final = 1_000
"""What a run takes beside its entries."""


@dataclass(slots=True, eq=False)
class Run:
    """Entries of one ledger that follow each other, from `first` on."""

    ledger_id: LedgerId
    first: EntryId
    last: EntryId
    """While it is on its way: how far it may reach. Then its last entry."""
    ask_bytes: int
    """How much was asked for; the next run asks for more."""
    entries: list[TopicEntry] = field(default_factory=list)
    size_bytes: int = 0
    is_used: bool = False
    """Whether some of it was dispatched."""
    reading: "asyncio.Task[None] | None" = None
    """Who reads it, until it is here."""

    def part(self, first: EntryId, last: EntryId, bytes_max: int) -> list[TopicEntry]:
        """Its entries from `first` to at most `last`: at least one, and as many as fit."""
        chosen = self.entries[first - self.first : last + 1 - self.first]
        room_bytes = bytes_max
        for count, entry in enumerate(chosen):
            room_bytes -= len(entry.data)
            if room_bytes < 0:
                return chosen[: max(1, count)]
        return chosen


class _Shelf:
    """The runs of one ledger in order; they do not overlap."""

    __slots__ = ("firsts", "runs")

    def __init__(self) -> None:
        self.firsts: list[EntryId] = []
        self.runs: list[Run] = []

    def at(self, entry_id: EntryId) -> Run | None:
        index = bisect_right(self.firsts, entry_id) - 1
        if index >= 0 and entry_id <= self.runs[index].last:
            return self.runs[index]
        return None

    def before_next(self, first: EntryId, last: EntryId) -> EntryId:
        """`last`, or the entry before the next run if that is lower."""
        index = bisect_right(self.firsts, first)
        return last if index == len(self.firsts) else min(last, self.firsts[index] - 1)

    def add(self, run: Run) -> None:
        index = bisect_left(self.firsts, run.first)
        self.firsts.insert(index, run.first)
        self.runs.insert(index, run)

    def remove(self, run: Run) -> None:
        index = bisect_left(self.firsts, run.first)
        assert self.runs[index] is run, "a run is on its shelf until it is dropped"
        del self.firsts[index], self.runs[index]


class ReadAhead:
    """The runs of all topics of a broker, and those on their way."""

    def __init__(self, bytes_max: int) -> None:
        """Keep at most `bytes_max` bytes, what is on its way counted with what was asked for."""
        self.bytes_max = bytes_max
        self.size_bytes = 0
        """Of the runs that are here."""
        self.asked_bytes = 0
        """Of the runs that are on their way."""
        self._unused_bytes = 0
        self._shelves: dict[LedgerId, _Shelf] = {}
        self._unused: OrderedDict[Run, None] = OrderedDict()
        self._used: OrderedDict[Run, None] = OrderedDict()

    def at(self, ledger_id: LedgerId, entry_id: EntryId) -> Run | None:
        """The run with this entry, which may be on its way."""
        shelf = self._shelves.get(ledger_id)
        return None if shelf is None else shelf.at(entry_id)

    def has_spare_room(self, ask_bytes: int) -> bool:
        """Whether a run may be read that nobody waits for: all that nobody has used yet stays."""
        return self._unused_bytes + self.asked_bytes + ask_bytes <= self.bytes_max

    def has_room(self, ask_bytes: int) -> bool:
        """Whether a run may be read that somebody waits for; one may always be under way."""
        return not self.asked_bytes or self.asked_bytes + ask_bytes <= self.bytes_max

    def begin(self, ledger_id: LedgerId, first: EntryId, last: EntryId, ask_bytes: int) -> Run:
        """A run that is read from now on: of `first` to at most `last`, and at most up to the next run."""
        shelf = self._shelves.setdefault(ledger_id, _Shelf())
        assert shelf.at(first) is None, "what is here, or on its way, is not read again"
        run = Run(ledger_id, first, shelf.before_next(first, last), ask_bytes)
        shelf.add(run)
        self.asked_bytes += ask_bytes
        self._make_room()
        return run

    def arrived(self, run: Run, entries: list[TopicEntry]) -> None:
        """The entries of a run are here; at least one."""
        self.asked_bytes -= run.ask_bytes
        run.reading = None
        run.entries = entries
        run.last = entries[-1].position.entry_id
        run.size_bytes = (
            RUN_COST_BYTES + len(entries) * ENTRY_COST_BYTES + sum([len(entry.data) for entry in entries])
        )
        shelf = self._shelves.get(run.ledger_id)
        if shelf is not None and shelf.at(run.first) is run:
            self.size_bytes += run.size_bytes
            self._unused_bytes += run.size_bytes
            self._unused[run] = None
            self._make_room()

    def failed(self, run: Run) -> None:
        """A run could not be read."""
        self.asked_bytes -= run.ask_bytes
        run.reading = None
        if self.at(run.ledger_id, run.first) is run:
            self._take_off(run)

    def use(self, run: Run) -> bool:
        """Some of a run is dispatched; whether that is the first time."""
        is_first = not run.is_used
        run.is_used = True
        if run in self._unused:
            del self._unused[run]
            self._unused_bytes -= run.size_bytes
            self._used[run] = None
        return is_first

    def forget(self, ledger_id: LedgerId) -> None:
        """Drop the runs of a ledger; one that is on its way reaches those who wait for it, and nobody else."""
        shelf = self._shelves.pop(ledger_id, None)
        for run in () if shelf is None else shelf.runs:
            self._uncount(run)

    def _make_room(self) -> None:
        while self.size_bytes + self.asked_bytes > self.bytes_max and (self._used or self._unused):
            run = next(iter(self._used or self._unused))
            self._uncount(run)
            self._take_off(run)

    def _uncount(self, run: Run) -> None:
        """A run is not held any more; it has no effect for one that is on its way."""
        if run in self._used:
            del self._used[run]
        elif run in self._unused:
            del self._unused[run]
            self._unused_bytes -= run.size_bytes
        else:
            return
        self.size_bytes -= run.size_bytes

    def _take_off(self, run: Run) -> None:
        shelf = self._shelves[run.ledger_id]
        shelf.remove(run)
        if not shelf.runs:
            del self._shelves[run.ledger_id]
