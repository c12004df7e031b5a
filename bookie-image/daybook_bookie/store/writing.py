"""Flushing a generation into the store, and taking ledgers and replicas out of it.

What already exists is trimmed off (the same entry has the same bytes, by protocol), small neighbours become one block,
and blocks whose ranges would overlap are rewritten so that they do not. Transactions are bounded, because LMDB keeps
their pages in memory; the journal mark moves only with the last one, so a crash in between replays (rule 24).
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

import lmdb

from daybook.core.format.block import (
    Block,
    block_entry_ids,
    cut_rows,
    is_regular,
    merge_small,
    regular_stripe,
    sound_parts,
    untangle,
)
from daybook.core.format.intervals import Interval, IntervalSet, clip
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId
from daybook.runtime.logs import get_logger
from daybook_bookie.disk.errors import CorruptStoreError
from daybook_bookie.journal.format import Position
from daybook_bookie.store.entry_store import Blocks, EntryStore, LedgerChange
from daybook_bookie.store.ledger_record import LedgerRecord
from daybook_bookie.store.reading import block_key, holds_all
from daybook_bookie.store.write_cache import Generation, PendingLedger

_LOG: Final = get_logger(__name__)
LEDGERS_MAX: Final = 1024
"""Of one transaction, however little there is of each: LMDB keeps a page for every few in memory."""


def flush(store: EntryStore, generation: Generation, mark: Position) -> None:
    """Make all of `generation` durable; `mark` is a journal position before which everything is in it or stored.

    Deletions come first: they need no room and may make it. May be repeated after StorageFullError: what was stored by
    then is trimmed off. Raises StorageFullError and BookieMustStopError.
    """
    mark_deleted(store, [generation])
    for ledger_id in sorted(generation.ledgers):
        pending = generation.ledgers[ledger_id]
        record = store.stored(ledger_id)
        if pending.removed is not None and record is not None and not record.deleting:
            for change in _removals(store, ledger_id, record, pending.removed):
                store.commit([change], store.mark)
    batch: list[LedgerChange] = []
    size = 0
    limit = store.settings.flush_transaction_bytes
    for change, change_bytes in _changes(store, generation):
        is_full = size + change_bytes > limit or len(batch) == LEDGERS_MAX
        if batch and (is_full or batch[-1].ledger_id == change.ledger_id):
            _commit(store, batch, size, store.mark)
            batch, size = [], 0
        batch.append(change)
        size += change_bytes
    _commit(store, batch, size, mark)


def mark_deleted(store: EntryStore, generations: Iterable[Generation]) -> None:
    """Commit the deletions of `generations`, and nothing else of them; their own flush has nothing to add then.

    Raises StorageFullError and BookieMustStopError.
    """
    deleted = sorted(set().union(*(generation.deleted.copy() for generation in generations)))
    changes = (
        LedgerChange(ledger_id, [], [], replace(record, deleting=True))
        for ledger_id in deleted
        if (record := store.ledger(ledger_id)) is not None
    )
    while batch := list(islice(changes, LEDGERS_MAX)):
        store.commit(batch, store.mark)


def _commit(store: EntryStore, batch: list[LedgerChange], size: int, mark: Position) -> None:
    if size:
        store.check_room(size)
    store.commit(batch, mark)


def _changes(store: EntryStore, generation: Generation) -> Iterator[tuple[LedgerChange, int]]:
    """The ledgers' changes by ledger, with their sizes; a large one in several, each consistent in itself."""
    limit = store.settings.flush_transaction_bytes
    for ledger_id in sorted(generation.ledgers):
        pending = generation.ledgers[ledger_id]
        record = with_pending(store.stored(ledger_id) or LedgerRecord(), pending)
        if record.deleting:
            continue  # marked already, or there was nothing of it
        if pending.fence_dropped and not pending.blocks and record == LedgerRecord():
            yield LedgerChange(ledger_id, [], [], None), 0  # nothing else ever made it known here
            continue
        blocks, deletes = _plan(store, ledger_id, record.intervals, pending)
        chunk: list[Block] = []
        size = 0
        for block in blocks:
            if chunk and not deletes and size + block.size_bytes > limit:
                record = _with_blocks(record, chunk)
                yield _change(ledger_id, chunk, [], record), size
                chunk, size = [], 0
            chunk.append(block)
            size += block.size_bytes
        record = _with_blocks(record, chunk)
        yield _change(ledger_id, chunk, deletes, record), size


def _change(
    ledger_id: LedgerId, blocks: list[Block], deletes: list[bytes], record: LedgerRecord
) -> LedgerChange:
    return LedgerChange(ledger_id, [(block_key(ledger_id, b.first), b.data) for b in blocks], deletes, record)


def with_pending(record: LedgerRecord, pending: PendingLedger) -> LedgerRecord:
    """The record after the decisions of a generation; entries are not looked at."""
    if pending.fence_dropped:
        record = replace(record, fenced=False, password_hash=b"", first_seen_ms=0)
    newer = pending.last_add_confirmed > record.last_add_confirmed
    intro = pending.intro
    return replace(
        record,
        fenced=record.fenced or pending.fenced,
        limbo=limbo_after(record.limbo, pending),
        deleting=record.deleting or pending.deleted,
        last_add_confirmed=pending.last_add_confirmed if newer else record.last_add_confirmed,
        length_at_lac=pending.length_at_lac if newer else record.length_at_lac,
        password_hash=intro.password_hash if intro is not None else record.password_hash,
        first_seen_ms=intro.first_seen_ms if intro is not None else record.first_seen_ms,
    )


def limbo_after(nonce: bytes | None, pending: PendingLedger) -> bytes | None:
    """The mark that stands after a generation, if `nonce` stood before it (rule 29)."""
    if pending.marked:
        return pending.limbo
    return None if nonce in pending.cleared else nonce


def _with_blocks(record: LedgerRecord, blocks: list[Block]) -> LedgerRecord:
    """The record after these blocks were put."""
    if not blocks:
        return record
    intervals = record.intervals.copy()
    for block in blocks:
        add_block(intervals, block)
    return replace(record, intervals=intervals)


def add_block(intervals: IntervalSet, block: Block) -> None:
    """Add what the block holds."""
    if is_regular(block):
        intervals.add(block.first, block.last, regular_stripe(block))
    else:
        intervals.add_ids(block_entry_ids(block))


# -- what to put, and what it replaces -----------------------------------------------------------------------------


def _plan(
    store: EntryStore, ledger_id: LedgerId, intervals: IntervalSet, pending: PendingLedger
) -> tuple[list[Block], list[bytes]]:
    """The blocks to put for a ledger's frames, rising, and the keys of those that they replace."""
    frames, target = pending.blocks, store.settings.block_bytes
    if pending.rising and (not frames or frames[0].first > intervals.last):
        return merge_small(frames, target), []
    with store.blocks(ledger_id) as reader:
        puts: list[Block] = []
        deletes: list[bytes] = []
        waiting = [frame for frame in frames if frame.header.is_recovery or not holds_all(intervals, frame)]
        while waiting:
            cluster, stored = _cluster(reader, intervals, waiting)
            if not stored and len(cluster) == 1:
                puts += cluster
            elif not _is_superfluous(cluster, stored):
                sound = [part for block in stored for part in sound_parts(block)]
                deletes += [block_key(ledger_id, block.first) for block in stored]
                puts += untangle([*sound, *cluster], target)
        merged = [block for run in _free_runs(intervals, puts) for block in merge_small(run, target)]
        kept = [block._replace(data=bytes(block.data)) for block in merged]
    return kept, deletes


def _free_runs(intervals: IntervalSet, blocks: list[Block]) -> Iterator[list[Block]]:
    """Cut rising blocks into runs that may be merged: nothing that is stored lies between blocks of a run."""
    run: list[Block] = []
    for block in blocks:
        if run and intervals.count_between(run[-1].last + 1, block.first - 1):
            yield run
            run = []
        run.append(block)
    if run:
        yield run


def _is_superfluous(cluster: list[Block], stored: list[Block]) -> bool:
    """Whether the stored blocks are sound and hold all that the cluster holds: a repair of what is not damaged."""
    found = IntervalSet()
    for block in stored:
        if sound_parts(block) != [block]:
            return False
        add_block(found, block)
    return all(holds_all(found, block) for block in cluster)


def _cluster(reader: Blocks, intervals: IntervalSet, waiting: list[Block]) -> tuple[list[Block], list[Block]]:
    """Take from `waiting` the first frame and all whose range overlaps it or what is stored there, transitively."""
    cluster = [waiting.pop(0)]
    low, high = cluster[0].first, cluster[0].last
    stored: dict[EntryId, Block] = {}
    grown = True
    while grown:
        grown = False
        if low <= intervals.last:
            for block in _readable(reader, low, high):
                if block.first not in stored:
                    stored[block.first] = block
                    low, high, grown = min(low, block.first), max(high, block.last), True
        while waiting and waiting[0].first <= high:
            frame = waiting.pop(0)
            cluster.append(frame)
            high, grown = max(high, frame.last), True
    return cluster, [stored[first] for first in sorted(stored)]


def _readable(reader: Blocks, first: EntryId, last: EntryId) -> list[Block]:
    """The stored blocks that overlap first … last, without those that cannot be read: their entries stay lost."""
    try:
        return reader.overlapping(first, last)
    except (CorruptStoreError, lmdb.Error):
        return []


# -- taking out ----------------------------------------------------------------------------------------------------


def _removals(
    store: EntryStore, ledger_id: LedgerId, record: LedgerRecord, removed: IntervalSet
) -> Iterator[LedgerChange]:
    """Take `removed` out of the stored blocks, a bounded number of them at a time; the last change has all of it.

    It ends at a block that cannot be read: what else that one holds is unknown, and must stay an I/O error (rule 26).
    """
    limit = store.settings.delete_transaction_blocks
    at = removed.next_from(0)
    while at != NO_ENTRY:
        try:
            with store.blocks(ledger_id) as reader:
                blocks = reader.overlapping(at, removed.last, limit)
                sound = [part for block in blocks for part in sound_parts(block)]
                puts = [
                    part._replace(data=bytes(part.data)) for each in sound for part in _without(each, removed)
                ]
        except (CorruptStoreError, lmdb.Error) as error:
            _LOG.error("surplus replicas stay beside damage", ledger_id=ledger_id, reason=str(error))
            return
        end = blocks[-1].last if len(blocks) == limit else removed.last
        gone = IntervalSet(part for each in removed if (part := _up_to(each, end)) is not None)
        record = replace(record, intervals=_minus(record.intervals, gone))
        yield _change(ledger_id, puts, [block_key(ledger_id, block.first) for block in blocks], record)
        at = removed.next_from(end + 1)


def _up_to(interval: Interval, last: EntryId) -> Interval | None:
    return clip(interval.first, min(interval.last, last), interval.stripe) if interval.first <= last else None


def _minus(intervals: IntervalSet, gone: IntervalSet) -> IntervalSet:
    return IntervalSet(part for interval in intervals for part in gone.missing(*interval))


def _without(block: Block, gone: IntervalSet) -> Iterator[Block]:
    """The runs of the block's rows whose entries are not in `gone`."""
    begin = 0
    ids = block_entry_ids(block)
    for row, entry in enumerate(ids):
        if gone.contains(entry):
            part = cut_rows(block, begin, row)
            if part is not None:
                yield part
            begin = row + 1
    part = cut_rows(block, begin, len(ids))
    if part is not None:
        yield part


def delete_some(store: EntryStore) -> bool:
    """Remove a bounded number of blocks of ledgers marked as deleting; True when nothing is left of any.

    Each call is one transaction, of part of a large ledger or of many small ones, so a deletion of any size survives a
    crash anywhere, never fills the map, and holds up no flush for long. Raises StorageFullError and BookieMustStopError.
    """
    room = store.settings.delete_transaction_blocks
    waiting = store.deletions()
    changes: list[LedgerChange] = []
    for ledger_id in waiting:
        if room <= 0:
            break
        record = store.stored(ledger_id)
        assert record is not None
        assert record.deleting, "only a ledger whose deletion was journalled and flushed is removed"
        keys = store.block_keys(ledger_id, room)
        changes.append(LedgerChange(ledger_id, [], keys, None if len(keys) < room else record))
        room -= len(keys) + 1  # its record is written as well
    if changes:
        store.commit(changes, store.mark)
    return not store.deletions()
