"""A bookie's disk with bytes on it: the real journal, write cache, flush and replay over a simulated disk and store.

What a bookie process runs between its lock and its files is run here, called step by step: `append` writes the group
that waits, `sync` makes it durable, `begin_flush` and `finish_flush` are the two ends of a flush, `crash` cuts the power
(synced sectors stay, of the others any subset) and replays. What was synced is remembered beside it; a replay that
lacks any of it, or gives back anything else than what was written, is a violation, whatever the cluster makes of it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, replace
from random import Random
from typing import Final, NamedTuple

from daybook_bookie.disk.errors import CorruptStoreError, JournalCorruptError
from daybook_bookie.journal.format import PAGE_BYTES, START, Record, deletion_record
from daybook_bookie.settings import StorageSettings
from daybook_bookie.store.generation import Generation, PendingLedger
from daybook_bookie.store.machine_storage import core_record, record_of
from daybook_bookie.store.reading import add_block
from daybook_bookie.store.removing import delete_some
from daybook_bookie.store.storage import Storage

from daybook.core.bookie.ledger import LedgerRecord
from daybook.core.format.block import block_entry_ids
from daybook.core.format.entries import decode_entries
from daybook.core.format.frame import decode_header
from daybook.core.format.intervals import IntervalSet
from daybook.core.format.lac_table import LacRow
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId
from tests.model.sim.disk import (
    EntriesRemoved,
    FrameWritten,
    LacWritten,
    LedgerDropped,
    RecordWritten,
    Stored,
    Waiting,
    Written,
    nothing,
)
from tests.model.sim.disk_errors import failing_commits
from tests.model.sim.disk_swarm import DiskSwarm
from tests.model.sim.failing_disk import FailingDisk
from tests.model.sim.replay_checks import Fail, check_replay
from tests.unit.bookie.sim_disk import SimDisk
from tests.unit.bookie.store.store_model import StoreModel, StorePlatter


class Flushed(NamedTuple):
    """What a flush did."""

    files: int
    """How many journal files went."""
    durable: list[FrameWritten]
    """The entries that were not durable before."""
    removed: list[LedgerId]
    """The ledgers of which replicas were removed."""


_SETTINGS: Final = replace(
    StorageSettings(),
    block_bytes=600,
    flush_transaction_bytes=1200,
    delete_transaction_blocks=2,
    read_overshoot_bytes=50,
)
_READ_BYTES: Final = 10_000
_SEEN_MS: Final = 1


class JournalledDisk(FailingDisk):
    """One bookie's journal and store. Raises what the real ones raise."""

    def __init__(
        self,
        swarm: DiskSwarm,
        rng: Random,
        fail: Fail,
        is_faulty: Callable[[], bool] = lambda: False,
        *,
        failures: Random,
    ) -> None:
        """`fail` is called with the name of what is violated, and how; `is_faulty`: whether writes may fail now.

        `failures` draws what a failed sync leaves, and what stops with the process.
        """
        super().__init__(swarm, rng, is_faulty, failures)
        self._fail = fail
        self.is_torn = False
        """Whether the last crash kept some of the unsynced sectors and lost others."""
        self._accepted: dict[LedgerId, dict[EntryId, bytes]] = {}
        self._records: list[Record] = []
        self.wipe()

    def wipe(self) -> None:
        """Both disks are replaced by empty ones, and made a bookie's."""
        super().wipe()
        self.journal_disk = SimDisk(self._swarm.sector_bytes)
        self.journal_disk.fate_of_failed = self.fate_of_failed
        self.platter = StorePlatter()
        self.journal_is_full = False
        self._dropped: set[LedgerId] = set()
        self._was_damaged = False
        self.proved = START
        """No damage to the groups before it goes unnoticed: a later group says that they were durable."""
        self._mount(new=True)

    # Writing

    def take(self, written: Written) -> None:
        """Take it into the write cache at once (rule 43); it is journalled with the next group."""
        if isinstance(written, EntriesRemoved):
            removed = IntervalSet()
            removed.add_ids(sorted(written.entries))
            self.storage.remove(written.ledger_id, removed)
            self._removing.setdefault(written.ledger_id, set()).update(written.entries)
        else:
            self._records += self._taken(written)

    def queue(
        self,
        written: Written,
        when_durable: Callable[[], None],
        when_refused: Callable[[], None] = nothing,
    ) -> None:
        """See Disk. A removal is not journalled: see `WriteCache.remove`."""
        if not isinstance(written, EntriesRemoved):
            super().queue(written, when_durable, when_refused)

    def _taken(self, written: Written) -> list[Record]:
        if isinstance(written, FrameWritten):
            self._accepted.setdefault(written.ledger_id, {}).update(written.entries)
            return [self.storage.accept(written.frame, decode_header(written.frame))]
        if isinstance(written, LacWritten):
            return [self.storage.publish([LacRow(*astuple(written))])]
        if isinstance(written, LedgerDropped):
            self._dropped.add(written.ledger_id)
            return [self.storage.decide(deletion_record(written.ledger_id))]
        if not isinstance(written, RecordWritten):
            return []
        self._decided.add(written.ledger_id)
        return [self.storage.decide(record_of(written.decision, _SEEN_MS))]

    def append(self) -> int:
        """Write all that waits as the journal thread does; how many that is. Raises StorageError."""
        records, self._records = self._records, []
        if records:
            with self._failing("pwritev", "create", "rename", "sync_directory", "fdatasync"):
                self.storage.journal.append(records)
            self._proves = self.storage.journal.durable
            self.draw_spare()
        return len(self.unsynced)

    def sync(self, count: int) -> list[Waiting]:
        """Sync the journal; raises StorageError."""
        with self._failing("fdatasync"):
            self.storage.journal.sync()
        self.proved = self._proves
        synced = super().sync(count)
        if self._was_damaged:
            for waiting in synced:
                self._forget_lost(waiting.written.ledger_id)
        return synced

    def refuse(self, count: int) -> list[Waiting]:
        """The journal had no room for these: they are in the cache alone, and durable once that is stored."""
        refused, self.unsynced = self.unsynced[:count], self.unsynced[count:]
        self._refused += refused
        self._outlived -= _deletions(refused)
        return refused

    def _apply(self, written: Written) -> None:
        """A LAC is durable with the frame that carries it, and with nothing else."""
        if isinstance(written, LedgerDropped):
            self._outlived.discard(written.ledger_id)
        elif written.ledger_id in self._outlived:
            return
        if isinstance(written, RecordWritten):
            record = replace(written.record, last_add_confirmed=NO_ENTRY, length_at_lac=0)
            written = RecordWritten(record, written.decision)
        super()._apply(written)

    # The store

    @property
    def has_changes(self) -> bool:
        """Whether a flush would store anything."""
        return self.storage.cache.has_changes and not self.storage.cache.is_flushing

    def begin_flush(self) -> Generation:
        """Swap the cache's generations."""
        self._decided: set[LedgerId] = set()
        return self.storage.begin_flush()

    def finish_flush(self, generation: Generation) -> Flushed:
        """Store the generation and trim the journal; may be repeated when there was no room. Raises StorageError."""
        before = len(self.journal_disk.names())
        ratio = self._swarm.store_eio if self._is_faulty() else 0.0
        with self._failing("unlink", "sync_directory"), failing_commits(self.store, self._rng, ratio):
            self.storage.flush(generation)
        self.storage.end_flush()
        while not delete_some(self.store):
            pass
        new = [self._is_stored(ledger_id, pending) for ledger_id, pending in generation.ledgers.items()]
        removed = [
            ledger_id for ledger_id, pending in generation.ledgers.items() if pending.removed is not None
        ]
        for ledger_id in removed:
            self._are_removed(ledger_id)
        return Flushed(
            before - len(self.journal_disk.names()),
            [written for written in new if written.entries],
            removed,
        )

    def _are_removed(self, ledger_id: LedgerId) -> None:
        """Not even a sync that comes late brings them back; only a crash may."""
        held = self.held(ledger_id)
        for written in _frames_of(ledger_id, self.unsynced):
            for entry in [entry for entry in written.entries if not held.contains(entry)]:
                del written.entries[entry]

    def _is_stored(self, ledger_id: LedgerId, pending: PendingLedger) -> FrameWritten:
        """What the store has now is durable, whatever became of it in the journal; returns the entries that are new."""
        found = self.store.ledger(ledger_id)
        new = FrameWritten(ledger_id, {}, NO_ENTRY, 0)
        if found is None:
            self.ledgers.pop(ledger_id, None)
            self._outlived |= _deletions(self.unsynced) & {ledger_id}
            return new
        stored = self.ledgers.setdefault(ledger_id, Stored(LedgerRecord(ledger_id)))
        if ledger_id in self._decided:  # and what was decided since is newer
            stored.record = replace(stored.record, fenced=stored.record.fenced or found.fenced)
        else:
            stored.record = core_record(ledger_id, found)
        if found.last_add_confirmed > stored.last_add_confirmed:
            stored.last_add_confirmed, stored.length_at_lac = found.last_add_confirmed, found.length_at_lac
        accepted = self._accepted.get(ledger_id, {})
        for block in pending.blocks:
            for entry in block_entry_ids(block):
                if entry not in stored.entries:
                    stored.entries[entry] = new.entries[entry] = accepted[entry]
        if pending.removed is not None:
            held = self.held(ledger_id)
            stored.entries = {entry: data for entry, data in stored.entries.items() if held.contains(entry)}
        if self._was_damaged:
            self._forget_lost(ledger_id)
        return replace(new, entries={e: data for e, data in new.entries.items() if e in stored.entries})

    def _forget_lost(self, ledger_id: LedgerId) -> None:
        """What is damaged in the store stays so, unless it comes by a repair: a resend is trimmed off there."""
        stored = self.ledgers.get(ledger_id)
        if stored is not None:
            for entry in [entry for entry in stored.entries if self.is_lost(ledger_id, entry)]:
                del stored.entries[entry]

    def held(self, ledger_id: LedgerId) -> IntervalSet:
        """The entries in cache and store, as a listing returns them."""
        if self.storage.ledger(ledger_id) is None:
            return IntervalSet()  # unknown, or its deletion waits for the flush
        held = self.stored(ledger_id).copy()
        for pending in self.storage.cache.pending(ledger_id):
            for block in pending.blocks:
                add_block(held, block)
        return held

    def stored(self, ledger_id: LedgerId) -> IntervalSet:
        """The entries in the store."""
        record = self.store.ledger(ledger_id)
        return IntervalSet() if record is None else record.intervals

    # Damage

    def is_damaged(self, ledger_id: LedgerId, entry: EntryId) -> bool:
        """Whether a stored entry cannot be read."""
        if not self.stored(ledger_id).contains(entry):
            return False
        try:
            frames = self.store.read_blocks(ledger_id, entry, entry, 1)
        except CorruptStoreError:
            return True
        good = {
            found.entry_id for frame in frames for found in decode_entries(frame, decode_header(frame))[0]
        }
        return entry not in good

    def scrubbed(self) -> dict[LedgerId, set[EntryId]]:
        """The stored entries that cannot be read."""
        found = {}
        for ledger_id, record in self.store.ledgers().items():
            damaged = {
                entry
                for interval in record.intervals
                for entry in range(interval.first, interval.last + 1)
                if self.is_damaged(ledger_id, entry)
            }
            if damaged:
                found[ledger_id] = damaged
        return found

    def damage_block(self, ledger_id: LedgerId, first: EntryId, at: int, bit: int) -> None:
        """Flip a bit of a stored block. What it hit is nowhere any more."""
        self._was_damaged = True
        blocks = self.platter.blocks[ledger_id]
        data = bytearray(blocks[first])
        data[at] ^= 1 << bit
        blocks[first] = bytes(data)
        self._forget_lost(ledger_id)

    def is_lost(self, ledger_id: LedgerId, entry: EntryId) -> bool:
        """Whether an entry is damaged in the store, and no repair of it waits in the cache.

        The journal may still have it, and reads find it there; the next flush leaves the store as it is all the same.
        """
        return self.is_damaged(ledger_id, entry) and not any(
            block.header.is_recovery and entry in block_entry_ids(block)
            for pending in self.storage.cache.pending(ledger_id)
            for block in pending.blocks
        )

    # The end of a process

    def crash(self, rng: Random, keep: float) -> tuple[list[Written], int]:
        """Power is lost: each unsynced sector stays with probability `keep`. Replays what is left.

        If the process stopped by itself and the machine has not, everything it wrote can still be read.
        """
        before, waiting = self.ledgers, self.unsynced + self._refused
        for ledger_id, entries in self._removing.items():
            self._forget_removed(ledger_id, entries)
        kept: list[bool] = []

        def stays(_name: str, _sector: int) -> bool:
            kept.append(rng.random() < keep)
            return kept[-1]

        if self.keeps_power:
            self.keeps_power = False
            self.journal_disk.killed()
        else:
            self.journal_disk = self.journal_disk.power_cut(stays, keep_names=rng.random() < keep)
        self.is_torn = any(kept) and not all(kept)
        self.unsynced = []
        try:
            self._mount()
        except JournalCorruptError as error:
            self._fail("a torn tail is no damage", f"{error} (rule 25)")
        self._check_replay(before, waiting)
        found: list[Written] = []
        for ledger_id, stored in self.ledgers.items():
            had = before[ledger_id].entries if ledger_id in before else {}
            new = {entry: data for entry, data in stored.entries.items() if entry not in had}
            if new:
                found.append(FrameWritten(ledger_id, new, -1, 0))
        return found, max(0, len(waiting) - len(found))

    def _forget_removed(self, ledger_id: LedgerId, removed: set[EntryId]) -> None:
        """A commit of a flush that was cut short may have happened, and nothing unsynced made up for it."""
        stored, held = self.ledgers.get(ledger_id), self.held(ledger_id)
        volatile = {
            entry
            for written in _frames_of(ledger_id, self.unsynced + self._refused)
            for entry in written.entries
        }
        if stored is not None:
            for entry in removed:
                if entry in volatile or not held.contains(entry):
                    stored.entries.pop(entry, None)

    def remount(self) -> bool:
        """Start once more on what is there; False if the bookie refuses, else all must be as it was."""
        before = self.ledgers
        try:
            self._mount()
        except JournalCorruptError:
            self.ledgers = {}
            return False
        self._check_replay(before, [])
        return True

    def _check_replay(self, before: dict[LedgerId, Stored], waiting: list[Waiting]) -> None:
        was = {ledger_id: stored for ledger_id, stored in before.items() if ledger_id not in self._dropped}
        check_replay(self._fail, was, self.ledgers, waiting, self._accepted)

    def _mount(self, *, new: bool = False) -> None:
        """Open the store, replay the journal, and learn from both what this bookie has."""
        self.store = StoreModel(self.platter, _SETTINGS)
        self.storage = Storage.replayed(
            self.store, self.journal_disk, journal_file_bytes=self._swarm.file_pages * PAGE_BYTES, new=new
        )
        self._records = []
        self._refused: list[Waiting] = []
        self._removing: dict[LedgerId, set[EntryId]] = {}
        """What may be gone as soon as a flush has begun."""
        self._outlived: set[LedgerId] = set()
        """Ledgers whose deletion the store has before the journal does: a sync of what came before brings nothing back."""
        self._decided = set()
        self._proves = self.proved  # what was read back is proved by the next group, not by a sync of nothing
        ids = set(self.store.ledgers())
        for generation in self.storage.cache.generations:
            ids |= generation.ledgers.keys()
        self.ledgers = {}
        for ledger_id in sorted(ids):
            record = self.storage.ledger(ledger_id)
            if record is None:
                continue
            self.ledgers[ledger_id] = Stored(
                core_record(ledger_id, record),
                self.readable(ledger_id),
                record.last_add_confirmed,
                record.length_at_lac,
            )
            if self._was_damaged:
                self._forget_lost(ledger_id)

    def readable(self, ledger_id: LedgerId) -> dict[EntryId, bytes]:
        """Every entry of cache and store that can be read."""
        found: dict[EntryId, bytes] = {}
        for pending in self.storage.cache.pending(ledger_id):
            for block in pending.blocks:
                found |= dict(decode_entries(block.data, block.header)[0])
        index = self.stored(ledger_id)
        at = index.next_from(0)
        while at >= 0:
            through = at
            try:
                for frame in self.store.read_blocks(ledger_id, at, index.last, _READ_BYTES):
                    entries = decode_entries(frame, decode_header(frame))[0]
                    found |= {entry: data for entry, data in entries if index.contains(entry)}
                    through = max(through, entries[-1].entry_id)
            except CorruptStoreError:
                pass  # damaged: not there for anyone who asks what is left
            at = index.next_from(through + 1)
        return found


def _deletions(waiting: Iterable[Waiting]) -> set[LedgerId]:
    return {each.written.ledger_id for each in waiting if isinstance(each.written, LedgerDropped)}


def _frames_of(ledger_id: LedgerId, waiting: Iterable[Waiting]) -> Iterator[FrameWritten]:
    for each in waiting:
        if isinstance(each.written, FrameWritten) and each.written.ledger_id == ledger_id:
            yield each.written
