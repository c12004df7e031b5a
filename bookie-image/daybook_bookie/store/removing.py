"""Taking ledgers and replicas out of the store, in bounded transactions.

A mass deletion and the removal of over-replicated entries must not hold up a flush, fill the map, or lose what a crash
interrupts: each commit is consistent in itself.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from daybook.core.format.block import Block, block_entry_ids, cut_rows, sound_parts
from daybook.core.format.intervals import Interval, IntervalSet, clip
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId
from daybook.runtime.logs import get_logger
from daybook_bookie.disk.errors import CorruptStoreError
from daybook_bookie.store.entry_store import EntryStore, LedgerChange
from daybook_bookie.store.generation import Generation
from daybook_bookie.store.reading import block_key
from daybook_bookie.store.stored_ledger import StoredLedger

_LOG: Final = get_logger(__name__)
LEDGERS_MAX: Final = 1024
"""Of one transaction, however little there is of each: LMDB keeps a page for every few in memory."""


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


def removals(
    store: EntryStore, ledger_id: LedgerId, record: StoredLedger, removed: IntervalSet
) -> Iterator[LedgerChange]:
    """Take `removed` out of the stored blocks, a bounded number of blocks for each change.

    It ends at a block that cannot be read: what else that block holds is unknown, and must stay an I/O error (rule 26).
    """
    limit = store.settings.delete_transaction_blocks
    at = removed.next_from(0)
    while at != NO_ENTRY:
        try:
            with store.blocks(ledger_id) as reader:
                blocks = reader.overlapping(at, removed.last, limit)
                sound = [part for block in blocks for part in sound_parts(block)]
                puts = [
                    (block_key(ledger_id, part.first), bytes(part.data))
                    for each in sound
                    for part in _without(each, removed)
                ]
        except CorruptStoreError as error:
            _LOG.error("over-replicated entries stay beside damage", ledger_id=ledger_id, reason=str(error))
            return
        end = blocks[-1].last if len(blocks) == limit else removed.last
        gone = IntervalSet(part for each in removed if (part := _up_to(each, end)) is not None)
        record = replace(record, intervals=_minus(record.intervals, gone))
        yield LedgerChange(ledger_id, puts, [block_key(ledger_id, block.first) for block in blocks], record)
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
