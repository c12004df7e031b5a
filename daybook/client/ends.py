"""The end of a ledger that another client closes."""

from daybook.core.errors import DaybookError, MetadataUnavailableError, NoSuchLedgerError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.metadata.ledgers import LedgerManager


async def closed_by_another(
    ledger_id: LedgerId, ledgers: LedgerManager, ended: DaybookError
) -> LedgerMetadata:
    """The metadata of a ledger whose handle closes it no more, if it is closed; otherwise raise `ended`."""
    try:
        found = await ledgers.read(ledger_id, sync=True)
    except (NoSuchLedgerError, MetadataUnavailableError):
        raise ended from None
    if not found.value.is_closed:
        raise ended
    return found.value
