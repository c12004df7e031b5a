"""How a simulated bookie writes: syncs in turn, answers after them, flushes beside them, and stops when its disk fails.

Both kinds of disk are driven from here. The short cut has one event for each sync; the real journal has two, the write
and the sync, so that a crash comes between them, and a flush has two as well, so that frames arrive meanwhile.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from daybook_bookie.disk.errors import BookieMustStopError, StorageFullError
from daybook_bookie.store.generation import Generation

from daybook.core.bookie.machine import BookieMachine
from daybook.core.bookie.range_scan import RangeScan, RangeSource
from daybook.core.errors import Code
from daybook.core.format.entries import decode_entries
from daybook.core.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from tests.model.sim.disk import Barrier, Disk, FrameWritten, Written, is_unhurried, nothing
from tests.model.sim.journalled import JournalledDisk
from tests.model.sim.world import MS, Process

if TYPE_CHECKING:
    from tests.model.sim.cluster import Cluster

logging.getLogger("daybook_bookie").addHandler(logging.NullHandler())
"""What a bookie logs of damage is no news in a simulation; without a handler it would be printed."""

_SYNC_MIN_US: Final = 300
_SYNC_SPREAD_US: Final = 1500
_STALL_US: Final = 150 * MS
_ROOM_US: Final = 15 * MS
_SLOW_FACTOR: Final = 10


class BookieDisk(Process):
    """The disk of a bookie, and what its process does with it."""

    machine: BookieMachine[Written]

    replaced: bool = False
    """The disk is new and its replacement authorised: limbo has to be marked before anything is served."""

    doomed = False
    """It is taken for dead, and somebody has its replacement started: its disk counts as lost (rule 57)."""
    was_replaced = False
    """It is the bookie no more."""

    def __init__(self, cluster: "Cluster", bookie: BookieId, place: str) -> None:
        super().__init__(cluster.world, bookie)
        self.cluster = cluster
        self.place = place
        self._rng = self.world.rng(place)
        swarm = cluster.disks
        self.journalled: JournalledDisk | None = None
        if swarm.journalled:
            rng = self.world.rng(f"{place}/disk")
            self.journalled = JournalledDisk(
                swarm,
                rng,
                cluster.checkers.fail,
                lambda: cluster.is_faulty,
                failures=self.world.rng(f"{bookie}/failures"),
            )
        self.disk: Disk = self.journalled or Disk()
        is_slow = swarm.journalled and len(cluster.bookies) < swarm.slow_bookies
        self._slowness = _SLOW_FACTOR if is_slow else 1
        self._reset_disk()

    def _reset_disk(self) -> None:
        """Forget what only memory held."""
        self._syncing = False
        self._flush_is_due = False
        self._waits_for_room = False
        self._damaged: dict[LedgerId, set[EntryId]] = {}

    # What the bookie does about it

    def set_read_only(self, *, read_only: bool) -> None:
        """Run out of space, or have it back (rule 30)."""

    def fail(self) -> None:
        """End the process as a power cut does; it starts again some time later."""
        raise NotImplementedError

    def on_removed(self, ledger_id: LedgerId) -> None:
        """Replicas of the ledger are gone for good."""

    # Syncs

    def queue(self, records: Sequence[Written], settle: Callable[[Code], None] = lambda _code: None) -> None:
        """Queue what the machine decided, as the server does; without records `settle` waits for what is queued already.

        `settle` is called with OK once all of it is durable, or READ_ONLY if the journal had no room for it.
        """
        *before, last = records or [Barrier()]
        for written in before:
            self.disk.queue(written, nothing)
        self.disk.queue(last, partial(settle, Code.OK), partial(settle, Code.READ_ONLY))
        self._sync_soon()

    def queue_unhurried(self, records: Sequence[Written]) -> None:
        """Queue what needs no sync of its own: it is synced with what comes next."""
        for written in records:
            self.disk.queue(written, nothing)
        self._flush_soon()

    def when_durable(self, settle: Callable[[Code], None]) -> None:
        """Call `settle` when everything accepted so far is durable; not with OK while something refused is not stored."""
        self.queue([], lambda code: settle(self.machine.refusals.vouch(code)))

    def _sync_soon(self) -> None:
        """Sync what waits, unless a sync is under way; the next one takes what came meanwhile."""
        self._flush_soon()
        if self._syncing or all(map(is_unhurried, self.disk.unsynced)):
            return
        self._syncing = True
        delay = _SYNC_MIN_US + int(_SYNC_SPREAD_US * self._rng.random())
        if self._slowness > 1 and self.cluster.is_faulty:
            self.world.tally.fault("slow disk")
            delay *= self._slowness
        stall = self.cluster.swarm.fsync_stall
        if self.cluster.is_faulty and stall and self._rng.random() < stall:
            self.world.tally.fault("fsync stall")
            delay += int(_STALL_US * self._rng.random())
        crash = self.cluster.swarm.crash_in_sync
        if self.cluster.is_faulty and crash and self._rng.random() < crash:
            self.later(int(delay * self._rng.random()), self.fail)
        if self.journalled is None:
            self.later(delay, self._synced, len(self.disk.unsynced))
        else:
            self.later(0, self._append, self.journalled, delay)

    def _append(self, disk: JournalledDisk, delay: int) -> None:
        """Write the group; its sync takes its time."""
        try:
            count = disk.append()
        except StorageFullError:
            self._refuse(disk)
        except BookieMustStopError as error:
            self._stop(error)
        else:
            self.later(delay, self._synced, count)
            if disk.draws_crash():
                self.later(int(delay * self._rng.random()), self.fail)

    def _synced(self, count: int) -> None:
        try:
            synced = self.disk.sync(count)
        except BookieMustStopError as error:
            self._stop(error)
            return
        self._syncing = False
        for waiting in synced:
            self.report_durable(waiting.written)
            waiting.when_durable()
        self._sync_soon()

    def report_durable(self, written: Written) -> None:
        """The checkers learn what no crash takes any more."""
        if isinstance(written, FrameWritten):
            self.cluster.checkers.became_durable(self.name, written.ledger_id, written.entries)

    def _stop(self, error: BookieMustStopError) -> None:
        """Nobody knows what is durable: the process ends without another answer, and its next start replays."""
        self.note(f"stops: {error}")
        self.world.tally.fault("EIO")
        self.world.tally.state("stopped by its disk")
        assert self.journalled is not None
        self.journalled.draws_power_loss()
        if self.journalled.keeps_power:
            self.world.tally.state("read what was not written")
        self.fail()

    # Room

    def _refuse(self, disk: JournalledDisk) -> None:
        """The journal has no room: what waited is answered so, and the bookie is read-only (rule 30)."""
        self.world.tally.state("journal full")
        self.machine.refusals.refused()
        refused = disk.refuse(len(disk.unsynced))
        self._syncing = False
        self._is_full()
        self._flush_soon()
        for waiting in refused:
            waiting.when_refused()

    def _is_full(self) -> None:
        self.set_read_only(read_only=True)
        if not self._waits_for_room:
            self._waits_for_room = True
            self.later(_ROOM_US, self._ask_for_room)

    def _ask_for_room(self) -> None:
        assert self.journalled is not None
        if self.journalled.has_room():
            self._waits_for_room = False
            self.set_read_only(read_only=False)
        else:
            self.later(_ROOM_US, self._ask_for_room)

    # Flushes

    def _flush_soon(self) -> None:
        disk = self.journalled
        if disk is not None and not self._flush_is_due and (disk.has_changes or self.machine.refusals.owes):
            self._flush_is_due = True
            self.later(int(self.cluster.disks.flush_us * (0.5 + self._rng.random())), self._flush, disk)

    def _flush(self, disk: JournalledDisk) -> None:
        if not disk.has_changes:  # the flush before has stored what the journal refused meanwhile
            self.machine.refusals.stored(self.machine.refusals.count)
            self._flush_is_due = False
            return
        generation = disk.begin_flush()
        self.later(
            self.cluster.disks.flush_takes_us, self._flushed, disk, generation, self.machine.refusals.count
        )

    def _flushed(self, disk: JournalledDisk, generation: Generation, refusals: int) -> None:
        try:
            flushed = disk.finish_flush(generation)
        except StorageFullError:
            self.world.tally.state("store full")
            self._is_full()
            self.later(_ROOM_US, self._flushed, disk, generation, refusals)
            return
        except BookieMustStopError as error:
            self._stop(error)
            return
        self.machine.refusals.stored(refusals)
        if flushed.files > 0:
            self.world.tally.state("journal trimmed")
        for written in flushed.durable:
            self.report_durable(written)
        for ledger_id in flushed.removed:
            self.on_removed(ledger_id)
        self._flush_is_due = False
        self._flush_soon()

    # Reads

    def scan(
        self, source: RangeSource, ledger_id: LedgerId, first: EntryId, last: EntryId, bytes_max: int
    ) -> tuple[RangeScan, dict[EntryId, bytes], list[EntryId]]:
        """Read a range; what was found, and what is there and damaged."""
        scan = RangeScan(source, ledger_id, first, last)
        found: dict[EntryId, bytes] = {}
        damaged: list[EntryId] = []
        room = bytes_max
        while not scan.done and room > 0:
            block = scan.step(room, store_bytes=room)
            if block is not None:
                good, bad = decode_entries(block.data, block.header)
                found |= {entry.entry_id: entry.data for entry in good if first <= entry.entry_id <= last}
                damaged += [entry for entry in bad if first <= entry <= last]
                room -= block.header.payload_bytes
            elif scan.damaged != NO_ENTRY:
                damaged.append(scan.damaged)
        if damaged:
            self.world.tally.state("damaged entry")
            self._damaged.setdefault(ledger_id, set()).update(damaged)
        return scan, found, damaged

    def known_damage(self, ledger_id: LedgerId) -> frozenset[EntryId]:
        """What a read or a scrub met, and is not repaired by now: as good as missing for an auditor."""
        known, disk = self._damaged.get(ledger_id), self.journalled
        if not known or disk is None:
            return frozenset()
        known &= {entry for entry in known if disk.is_damaged(ledger_id, entry)}
        return frozenset(known)

    def scrub(self) -> None:
        """Read everything that is stored."""
        if self.journalled is not None:
            for ledger_id, damaged in self.journalled.scrubbed().items():
                self.world.tally.state("damaged entry")
                self._damaged.setdefault(ledger_id, set()).update(damaged)
