"""Flushing a generation of the write cache into the store.

Entries that exist already are trimmed off (the same entry has the same bytes, by protocol), small neighbours become one
block, and blocks whose ranges would overlap are rewritten so that they do not. Transactions are bounded, because LMDB
keeps their pages in memory; the checkpoint moves only with the last one, so a crash in between replays (rule 24).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from daybook.core.format.block import Block, merge_small, sound_parts, untangle
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import EntryId, LedgerId
from daybook_bookie.journal.format import Position
from daybook_bookie.store.entry_store import Blocks, EntryStore, LedgerChange
from daybook_bookie.store.generation import Generation, PendingLedger
from daybook_bookie.store.reading import add_block, block_key, holds_all
from daybook_bookie.store.removing import LEDGERS_MAX, mark_deleted, minus, remove_replicas
from daybook_bookie.store.stored_ledger import StoredLedger


def nothing() -> None:
    """Nobody waits for progress."""


def flush(
    store: EntryStore, generation: Generation, checkpoint: Position, on_progress: Callable[[], None] = nothing
) -> dict[LedgerId, IntervalSet]:
    """Make all of `generation` durable; the journal before `checkpoint` is in it or stored.

    Deletions and removals come first: they need no room and may free some. May be repeated after StorageFullError: what
    was stored by then is trimmed off, and what was removed is removed no more. `on_progress` is called before each
    commit. Returns the replicas that are left for a later flush to remove. Raises StorageFullError and
    BookieMustStopError.
    """
    mark_deleted(store, [generation])
    _remove(store, generation, on_progress)
    batch: list[LedgerChange] = []
    size = 0
    limit = store.settings.flush_transaction_bytes
    for change, change_bytes in _changes(store, generation):
        is_full = size + change_bytes > limit or len(batch) == LEDGERS_MAX
        if batch and (is_full or batch[-1].ledger_id == change.ledger_id):
            on_progress()
            _commit(store, batch, size, store.checkpoint)
            batch, size = [], 0
        batch.append(change)
        size += change_bytes
    on_progress()
    _commit(store, batch, size, checkpoint)
    return {key: each.removed for key, each in generation.ledgers.items() if each.removed}


def _remove(store: EntryStore, generation: Generation, on_progress: Callable[[], None]) -> None:
    """Remove replicas; what is left of them stays in the generation, without what its frames bring back afterwards.

    A flush that is repeated must not remove what came after: the checkpoint may be past these frames already (rule 24).
    """
    removed = {key: each.removed for key, each in generation.ledgers.items() if each.removed is not None}
    left = remove_replicas(store, removed, on_progress)
    for ledger_id in removed:
        pending = generation.ledgers[ledger_id]
        entries = left.get(ledger_id)
        pending.removed = minus(entries, _held(pending)) if entries is not None else IntervalSet()


def _held(pending: PendingLedger) -> IntervalSet:
    """What this flush stores of a ledger: a repair may have brought it back after the removal, so it stays (rule 47)."""
    held = IntervalSet()
    for block in pending.blocks:
        add_block(held, block)
    return held


def _commit(store: EntryStore, batch: list[LedgerChange], size: int, checkpoint: Position) -> None:
    if size:
        store.check_room(size)
    store.commit(batch, checkpoint)


def _changes(store: EntryStore, generation: Generation) -> Iterator[tuple[LedgerChange, int]]:
    """The changes by ledger, with their sizes; a large ledger has several, each consistent in itself."""
    limit = store.settings.flush_transaction_bytes
    for ledger_id in sorted(generation.ledgers):
        pending = generation.ledgers[ledger_id]
        record = pending.applied_to(store.stored(ledger_id) or StoredLedger())
        if record.deleting:
            continue  # its deletion is committed already, or nothing of it was stored
        if pending.fence_dropped and not pending.blocks and record == StoredLedger():
            yield LedgerChange(ledger_id, [], [], None), 0  # the dropped fence was all that was known of it
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
    ledger_id: LedgerId, blocks: list[Block], deletes: list[bytes], record: StoredLedger
) -> LedgerChange:
    return LedgerChange(ledger_id, [(block_key(ledger_id, b.first), b.data) for b in blocks], deletes, record)


def _with_blocks(record: StoredLedger, blocks: list[Block]) -> StoredLedger:
    """The record after these blocks were put."""
    if not blocks:
        return record
    intervals = record.intervals.copy()
    for block in blocks:
        add_block(intervals, block)
    return replace(record, intervals=intervals)


# -- what to put, and what it replaces -----------------------------------------------------------------------------


def _plan(
    store: EntryStore, ledger_id: LedgerId, intervals: IntervalSet, pending: PendingLedger
) -> tuple[list[Block], list[bytes]]:
    """The blocks to put for a ledger's frames, rising, and the keys of the blocks that they replace."""
    frames, target = pending.blocks, store.settings.block_bytes
    if pending.rising and (not frames or frames[0].first > intervals.last):
        return merge_small(frames, target), []
    with store.blocks(ledger_id) as reader:
        puts: list[Block] = []
        deletes: list[bytes] = []
        waiting = [frame for frame in frames if frame.header.is_recovery or not holds_all(intervals, frame)]
        while waiting:
            cluster, stored, unreadable = _cluster(reader, intervals, waiting)
            if not stored and not unreadable and len(cluster) == 1:
                puts += cluster
            elif unreadable or not _is_superfluous(cluster, stored):
                sound = [part for block in stored for part in sound_parts(block)]
                gone = [block.first for block in stored] + unreadable
                deletes += [block_key(ledger_id, first) for first in gone]
                puts += untangle([*sound, *cluster], target)
        merged = [block for run in _free_runs(intervals, puts) for block in merge_small(run, target)]
        kept = [block._replace(data=bytes(block.data)) for block in merged]
    return kept, deletes


def _free_runs(intervals: IntervalSet, blocks: list[Block]) -> Iterator[list[Block]]:
    """Cut rising blocks into runs that may be merged: no stored entry is between blocks of a run."""
    run: list[Block] = []
    for block in blocks:
        if run and intervals.count_between(run[-1].last + 1, block.first - 1):
            yield run
            run = []
        run.append(block)
    if run:
        yield run


def _is_superfluous(cluster: list[Block], stored: list[Block]) -> bool:
    """Whether the stored blocks are sound and hold all that the cluster holds: a repair of undamaged entries."""
    found = IntervalSet()
    for block in stored:
        if sound_parts(block) != [block]:
            return False
        add_block(found, block)
    return all(holds_all(found, block) for block in cluster)


def _cluster(
    reader: Blocks, intervals: IntervalSet, waiting: list[Block]
) -> tuple[list[Block], list[Block], list[EntryId]]:
    """Take from `waiting` the first frame and all frames whose range overlaps it or stored blocks, transitively.

    Also the stored blocks, and the keys in the range of all these whose blocks cannot be read. Such a block goes, or it
    would hide what is put before it and overlap it: its entries are lost either way, and the index still has them (rule 26).
    """
    cluster = [waiting.pop(0)]
    low, high = cluster[0].first, cluster[0].last
    stored: dict[EntryId, Block] = {}
    unreadable: list[EntryId] = []
    grown = True
    while grown:
        grown = False
        if low <= intervals.last:
            found, unreadable = reader.readable(low, high)
            for block in found:
                if block.first not in stored:
                    stored[block.first] = block
                    end = min(
                        block.last, intervals.last
                    )  # of a damaged block that ends the ledger it may be any
                    low, high, grown = min(low, block.first), max(high, end), True
        while waiting and waiting[0].first <= high:
            frame = waiting.pop(0)
            cluster.append(frame)
            high, grown = max(high, frame.last), True
    return cluster, [stored[first] for first in sorted(stored)], unreadable
