"""Taking ledgers and replicas out of the store, in bounded transactions.

A mass deletion and the removal of over-replicated entries must not hold up a flush, fill the map, or lose what a crash
interrupts: each commit is consistent in itself.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from daybook.core.format.block import Block, block_entry_ids, cut_rows, sound_parts
from daybook.core.format.intervals import IntervalSet, clip
from daybook.core.ids import EntryId, LedgerId
from daybook.runtime.logs import get_logger
from daybook_bookie.disk.errors import CorruptStoreError
from daybook_bookie.store.entry_store import EntryStore, LedgerChange
from daybook_bookie.store.generation import Generation
from daybook_bookie.store.reading import block_key, holds_all
from daybook_bookie.store.stored_ledger import StoredLedger

_LOG: Final = get_logger(__name__)
LEDGERS_MAX: Final = 1024
"""Of one transaction, however little there is of each: LMDB keeps a page for every few in memory."""
_REMOVALS_MAX: Final = 4
"""How many transactions of a flush remove replicas: writers wait for it once the cache is full."""


def mark_deleted(store: EntryStore, generations: Iterable[Generation]) -> None:
    """Commit the deletions of `generations`, and nothing else of them; their flushes need not commit these again.

    Raises StorageFullError and BookieMustStopError.
    """
    deleted = sorted(set().union(*(generation.deleted.copy() for generation in generations)))
    changes = (
        LedgerChange(ledger_id, [], [], replace(record, deleting=True))
        for ledger_id in deleted
        if (record := store.ledger(ledger_id)) is not None
    )
    while batch := list(islice(changes, LEDGERS_MAX)):
        store.commit(batch, store.checkpoint)


def delete_some(store: EntryStore) -> bool:
    """Remove a bounded number of blocks of ledgers that are being deleted; True when nothing is left of any.

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
        store.commit(changes, store.checkpoint)
    return not store.deletions()


def remove_replicas(
    store: EntryStore, removed: dict[LedgerId, IntervalSet], on_progress: Callable[[], None]
) -> dict[LedgerId, IntervalSet]:
    """Take replicas out of the stored blocks, in a few bounded transactions; returns what is left to remove.

    Small ledgers share a transaction. `on_progress` is called before each. Raises StorageFullError and
    BookieMustStopError.
    """
    left = {ledger_id: entries for ledger_id, entries in sorted(removed.items()) if entries}
    for _ in range(_REMOVALS_MAX):
        changes = _removals(store, left)
        if not changes:
            break
        on_progress()
        store.commit(changes, store.checkpoint)
    return left


def _removals(store: EntryStore, left: dict[LedgerId, IntervalSet]) -> list[LedgerChange]:
    """The changes of one transaction; what they remove is taken out of `left`."""
    blocks, size_bytes = store.settings.delete_transaction_blocks, store.settings.flush_transaction_bytes
    changes: list[LedgerChange] = []
    while left and blocks > 0 and size_bytes > 0:
        ledger_id = next(iter(left))
        removed = left.pop(ledger_id)
        record = store.stored(ledger_id)
        if record is None or record.deleting:
            continue
        try:
            change, last = _removal(store, ledger_id, record, removed, blocks, size_bytes)
        except CorruptStoreError as error:
            _LOG.error("over-replicated entries stay beside damage", ledger_id=ledger_id, reason=str(error))
            continue
        changes.append(change)
        blocks -= len(change.deletes) + 1  # its record is written as well
        size_bytes -= sum(len(data) for _, data in change.puts)
        rest = _between(removed, last + 1, removed.last)
        if rest:
            left[ledger_id] = rest
    return changes


def _removal(
    store: EntryStore,
    ledger_id: LedgerId,
    record: StoredLedger,
    removed: IntervalSet,
    blocks_max: int,
    bytes_max: int,
) -> tuple[LedgerChange, EntryId]:
    """Take `removed` out of up to `blocks_max` blocks, of which about `bytes_max` stay; returns also up to which entry.

    Raises CorruptStoreError for a block that cannot be read: what else that block holds is unknown, and must stay an I/O
    error (rule 26).
    """
    puts: list[tuple[bytes, bytes]] = []
    deletes: list[bytes] = []
    last, size_bytes = removed.last, 0
    with store.blocks(ledger_id) as reader:
        for block in reader.overlapping(removed.next_from(0), removed.last, blocks_max):
            deletes.append(block_key(ledger_id, block.first))
            for part in _without(block, removed):
                puts.append((block_key(ledger_id, part.first), bytes(part.data)))
                size_bytes += part.size_bytes
            if len(deletes) == blocks_max or size_bytes >= bytes_max:
                last = block.last
                break
    record = replace(record, intervals=minus(record.intervals, _between(removed, 0, last)))
    return LedgerChange(ledger_id, puts, deletes, record), last


def minus(intervals: IntervalSet, gone: IntervalSet) -> IntervalSet:
    """What is in `intervals` and not in `gone`."""
    return IntervalSet(part for interval in intervals for part in gone.missing(*interval))


def _between(intervals: IntervalSet, first: EntryId, last: EntryId) -> IntervalSet:
    return IntervalSet(
        part
        for interval in intervals
        if interval.first <= last
        and interval.last >= first
        and (part := clip(max(first, interval.first), min(last, interval.last), interval.stripe)) is not None
    )


def _without(block: Block, gone: IntervalSet) -> Iterator[Block]:
    """The runs of the block's sound entries that are not in `gone`; a block that goes as a whole is not read."""
    if holds_all(gone, block):
        return
    for part in sound_parts(block):
        yield from _rows_without(part, gone)


def _rows_without(block: Block, gone: IntervalSet) -> Iterator[Block]:
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
