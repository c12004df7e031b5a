"""Which copies nobody owes any more: while the tasks of an audit read, owners trim topics, and repairs move copies.

A bookie deletes what the metadata does not name within a minute, so a task that comes later finds nothing there, and that is no fault. So the
job reads the metadata of ledgers with faults once more, after the last copy was read and after a `sync`: a fault is what that still asks for.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from daybook.core.errors import DaybookError, NoSuchLedgerError
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.store import Versioned

READ_TOGETHER: Final = 1000
"""Ledgers whose metadata is read at a time."""
SCHEMA: Final = "ledger_id bigint, first_entry bigint, bookie string"
"""Of `Copy`, for a table."""


class Copy(NamedTuple):
    """What names a row of the audit's table: a range by its first entry, and who owed copies of it."""

    ledger_id: LedgerId
    first_entry: EntryId
    bookie: BookieId


async def no_longer_owed(ledgers: LedgerManager, copies: Sequence[Copy]) -> list[Copy]:
    """Those of `copies` whose ledger is gone, or whose fragment does not name the bookie. Raises MetadataUnavailableError.

    Where the metadata of a ledger cannot be read its copies are owed: nobody knows better.
    """
    found = await _metadata(ledgers, copies)
    return [copy for copy in copies if not _is_owed(copy, found[copy.ledger_id])]


async def _metadata(
    ledgers: LedgerManager, copies: Sequence[Copy]
) -> dict[LedgerId, Versioned[LedgerMetadata] | DaybookError]:
    ids = sorted({copy.ledger_id for copy in copies})
    found: dict[LedgerId, Versioned[LedgerMetadata] | DaybookError] = {}
    for at in range(0, len(ids), READ_TOGETHER):
        together = ids[at : at + READ_TOGETHER]
        found.update(zip(together, await ledgers.read_each(together, sync=True), strict=True))
    return found


def _is_owed(copy: Copy, found: Versioned[LedgerMetadata] | DaybookError) -> bool:
    if isinstance(found, DaybookError):
        return not isinstance(found, NoSuchLedgerError)
    return copy.bookie in found.value.fragment_of(copy.first_entry).bookies
