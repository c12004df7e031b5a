"""What a simulated bookie has in its write cache and store, as the core's machine sees it.

Beside it stands what a read would find of each ledger (`caches`), which is what the checkers ask for.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from daybook_bookie.store.machine_storage import core_record

from daybook.core.bookie.decisions import Decision, LedgerDeleted
from daybook.core.bookie.ledger import LedgerRecord
from daybook.core.bookie.range_scan import NOTHING_HELD, Held
from daybook.core.format.block import Block, decode_block
from daybook.core.format.checksums import entry_crcs
from daybook.core.format.entries import decode_entries
from daybook.core.format.frame import Buffer, FrameHeader, encode_frame
from daybook.core.format.lac_table import LacRow
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId
from tests.fixtures.memory_storage import after_decision, after_frame
from tests.model.sim.disk import Entries, FrameWritten, LacWritten, LedgerDropped, RecordWritten, Written

if TYPE_CHECKING:
    from tests.model.sim.bookie_calls import BookieCalls

_RUN_MAX: Final = 32


class SimStorage:
    """See BookieStorage; a record of the journal is what the simulated disk writes."""

    has_room = True

    def __init__(self, bookie: "BookieCalls") -> None:
        self._bookie = bookie
        self._known: dict[LedgerId, LedgerRecord] = {}
        """By ledger, where the disk has no storage of its own."""
        self.caches: dict[LedgerId, Entries] = {}
        """The entries of each ledger that a read finds: write cache and store together."""

    def restored(self, record: LedgerRecord, entries: Entries) -> None:
        """A start has found this on the disk."""
        self._known[record.ledger_id] = record
        self.caches[record.ledger_id] = entries

    def ledger(self, ledger_id: LedgerId) -> LedgerRecord | None:
        disk = self._bookie.journalled
        if disk is None:
            return self._known.get(ledger_id)
        stored = disk.storage.ledger(ledger_id)
        return None if stored is None else core_record(ledger_id, stored)

    def ledger_ids(self) -> set[LedgerId]:
        """The ledgers of which there is, or was, something.

        A fence that follows a deletion counts once the deletion is in the store; until then no cache here has it.
        """
        found = set(self.caches)
        if (disk := self._bookie.journalled) is not None:
            found.update(disk.storage.store.ledgers())
            for generation in disk.storage.cache.generations:
                found.update(generation.ledgers)
        return found

    def has_entries(self, ledger_id: LedgerId) -> bool:
        return bool(self.caches.get(ledger_id))

    def accept(self, frame: Buffer, header: FrameHeader) -> Written:
        ledger_id = header.ledger_id
        found, damaged = decode_entries(frame, header)
        assert not damaged, "the simulator damages no bytes on the way"
        entries = {entry.entry_id: entry.data for entry in found}
        self._known[ledger_id] = after_frame(self._known.get(ledger_id, LedgerRecord(ledger_id)), header)
        self.cache_entries(ledger_id, entries)
        data = bytes(frame) if self._bookie.journalled is not None else b""
        written = FrameWritten(ledger_id, entries, header.last_add_confirmed, header.length_at_lac, data)
        self._bookie.accepted(header)
        self._bookie.disk.take(written)
        return written

    def publish(self, rows: Sequence[LacRow]) -> Sequence[Written]:
        """One record for each row, where a real bookie has one for all."""
        records: list[Written] = [LacWritten(*row) for row in rows]
        for row, written in zip(rows, records, strict=True):
            record = self._known.get(row.ledger_id, LedgerRecord(row.ledger_id))
            self._known[row.ledger_id] = replace(
                record, last_add_confirmed=row.last_add_confirmed, length_at_lac=row.length_at_lac
            )
            self._bookie.published(row)
            self._bookie.disk.take(written)
        return records

    def cache_entries(self, ledger_id: LedgerId, entries: Entries) -> None:
        """Let fences and reads find them, before their sync (rule 43)."""
        self.caches.setdefault(ledger_id, {}).update(entries)

    def decide(self, decision: Decision) -> Written:
        ledger_id = decision.ledger_id
        written: Written
        if isinstance(decision, LedgerDeleted):
            self._known.pop(ledger_id, None)
            self.caches.pop(ledger_id, None)
            written = LedgerDropped(ledger_id)
        else:
            record = after_decision(self.ledger(ledger_id) or LedgerRecord(ledger_id), decision)
            assert record is not None
            self._known[ledger_id] = record
            self.caches.setdefault(ledger_id, {})
            written = RecordWritten(record, decision)
        self._bookie.disk.take(written)
        if (
            self.ledger(ledger_id) is None
        ):  # the real cache keeps nothing of a ledger whose deletion it has not stored yet
            self.caches.pop(ledger_id, None)
        return written


class MemorySource:
    """See RangeSource: the entries of a bookie whose disk has no bytes."""

    def __init__(self, bookie: "BookieCalls") -> None:
        self._bookie = bookie

    def look(self, ledger_id: LedgerId, at: EntryId) -> Held:
        ledger = self._bookie.machine.ledgers.find(ledger_id)
        if ledger is None:
            return NOTHING_HELD
        cache = self._bookie.storage.caches.get(ledger_id, {})
        first = min((entry for entry in cache if entry >= at), default=NO_ENTRY)
        cached = None if first == NO_ENTRY else (first, _block(ledger_id, first, cache))
        return Held(cached, cached_whole=True, stored=NO_ENTRY, lac=ledger.last_add_confirmed())

    def read_stored(
        self, ledger_id: LedgerId, first: EntryId, end: EntryId, room_bytes: int
    ) -> Sequence[Block]:
        raise AssertionError("nothing is stored apart from the cache")


def _block(ledger_id: LedgerId, first: EntryId, cache: Entries) -> Block:
    """The run of entries from `first` on, as a writer's frame would hold them."""
    run = [first]
    while len(run) < _RUN_MAX and run[-1] + 1 in cache:
        run.append(run[-1] + 1)
    payloads = [cache[entry] for entry in run]
    return decode_block(encode_frame(ledger_id, first, payloads, entry_crcs(ledger_id, run, payloads)))
