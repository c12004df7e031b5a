"""A bookie's disk: a journal whose tail is not synced yet, and what is durable.

A crash keeps everything synced and any subset of the rest, in its order: that is what unsynced sectors do (rule 25).
`Disk` is the short cut of most seeds: it has no bytes, and what is durable is what a replay would find. `JournalledDisk`
(journalled.py) runs the real journal instead; both answer to the same calls.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, TypeAlias

from daybook.core.bookie.decisions import Decision
from daybook.core.bookie.ledger import LedgerRecord
from daybook.core.ids import EntryId, LedgerId

Entries: TypeAlias = dict[EntryId, bytes]


@dataclass(slots=True)
class Stored:
    """What is durable of one ledger."""

    record: LedgerRecord
    entries: Entries = field(default_factory=dict)
    last_add_confirmed: EntryId = -1
    length_at_lac: int = 0


@dataclass(frozen=True, slots=True)
class FrameWritten:
    """A frame's entries and its LAC."""

    ledger_id: LedgerId
    entries: Entries
    last_add_confirmed: EntryId
    length_at_lac: int
    frame: bytes = b""
    """Its bytes, for a disk that has any."""


@dataclass(frozen=True, slots=True)
class LacWritten:
    """A LAC that came without entries, in a table."""

    ledger_id: LedgerId
    last_add_confirmed: EntryId
    length_at_lac: int


@dataclass(frozen=True, slots=True)
class RecordWritten:
    """The other durable fields of a ledger: key, fence, limbo."""

    record: LedgerRecord
    """All of them, after the decision."""
    decision: Decision

    @property
    def ledger_id(self) -> LedgerId:
        """The ledger it is about."""
        return self.record.ledger_id


@dataclass(frozen=True, slots=True)
class LedgerDropped:
    """The ledger was deleted and collected."""

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class EntriesRemoved:
    """Replicas that metadata no longer places here were removed (rule 47)."""

    ledger_id: LedgerId
    entries: tuple[EntryId, ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """Nothing: somebody waits for what was written before it."""

    ledger_id: LedgerId = -1


Written: TypeAlias = FrameWritten | LacWritten | RecordWritten | LedgerDropped | EntriesRemoved | Barrier


def nothing() -> None:
    """No one waits."""


class Waiting(NamedTuple):
    """What is written and not durable yet."""

    written: Written
    when_durable: Callable[[], None]
    when_refused: Callable[[], None]
    """There was no room for it: nothing is promised (rule 30)."""


def is_unhurried(waiting: Waiting) -> bool:
    """Whether it is a LAC for which nobody waits."""
    return waiting.when_durable is nothing and isinstance(waiting.written, LacWritten)


class Disk:
    """What survives, and what may."""

    def __init__(self) -> None:
        self.ledgers: dict[LedgerId, Stored] = {}
        self.unsynced: list[Waiting] = []

    def write(
        self,
        written: Written,
        when_durable: Callable[[], None],
        when_refused: Callable[[], None] = nothing,
    ) -> None:
        """`take` and `queue` at once."""
        self.take(written)
        self.queue(written, when_durable, when_refused)

    def take(self, written: Written) -> None:
        """From now on a read and a restart of the process may find it (rule 43); it is queued next."""

    def queue(
        self,
        written: Written,
        when_durable: Callable[[], None],
        when_refused: Callable[[], None] = nothing,
    ) -> None:
        """Wait for the journal; `when_durable` is called after the sync that covers what was taken."""
        self.unsynced.append(Waiting(written, when_durable, when_refused))

    def sync(self, count: int) -> list[Waiting]:
        """The first `count` records are durable now; returns them."""
        synced, self.unsynced = self.unsynced[:count], self.unsynced[count:]
        for waiting in synced:
            self._apply(waiting.written)
        return synced

    def crash(self, rng: Random, keep: float) -> tuple[list[Written], int]:
        """Power is lost: each unsynced record survives with probability `keep`. Returns those, and how many did not."""
        unsynced: list[Written] = [
            each.written for each in self.unsynced if not isinstance(each.written, Barrier)
        ]
        kept = [written for written in unsynced if rng.random() < keep]
        lost = len(unsynced) - len(kept)
        self.unsynced = []
        for written in kept:
            self._apply(written)
        return kept, lost

    def readable(self, ledger_id: LedgerId) -> dict[EntryId, bytes]:
        """What a read finds of a ledger after a start."""
        return dict(self.ledgers[ledger_id].entries)

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        self.ledgers = {}
        self.unsynced = []

    def _apply(self, written: Written) -> None:
        if isinstance(written, Barrier):
            return
        if isinstance(written, LedgerDropped):
            self.ledgers.pop(written.ledger_id, None)
            return
        stored = self.ledgers.get(written.ledger_id)
        if stored is None:
            stored = self.ledgers[written.ledger_id] = Stored(LedgerRecord(written.ledger_id))
        if isinstance(written, EntriesRemoved):
            for entry in written.entries:
                stored.entries.pop(entry, None)
            return
        if isinstance(written, RecordWritten):
            stored.record = written.record
            lac, length = written.record.last_add_confirmed, written.record.length_at_lac
        else:
            if isinstance(written, FrameWritten):
                stored.entries.update(written.entries)
            lac, length = written.last_add_confirmed, written.length_at_lac
        if lac > stored.last_add_confirmed:
            stored.last_add_confirmed, stored.length_at_lac = lac, length
