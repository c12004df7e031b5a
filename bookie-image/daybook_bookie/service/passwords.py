"""Is this the ledger's password? Mostly the bookie knows; now and then only the metadata does.

A key that a fence brought to an unknown ledger was never checked (rule 3, rule 46), so before the bookie refuses another
one it reads the metadata. If that does not answer, the request is refused as unavailable, not as unauthorised.

Whoever can open a connection can ask, so what could not be stored is refused here, before anything knows of it: a fence
is accepted without reading metadata, and one of an impossible ledger would stop the store at its next flush, and each start.
"""

from collections.abc import Callable
from typing import Final

from daybook.core.bookie.ledger import AttachVerdict
from daybook.core.errors import Code, DaybookError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.runtime.logs import get_logger
from daybook_bookie.journal.format import PASSWORD_HASH_BYTES_MAX
from daybook_bookie.ledgers import LedgerTable

_LOG: Final = get_logger(__name__)


def refuse_impossible(ledger_id: LedgerId, key: str) -> Code:
    """BAD_FRAME for an id that no ledger has, UNAUTHORIZED for a key that no password has; otherwise OK."""
    if ledger_id < 0:
        return Code.BAD_FRAME
    is_possible = key.isascii() and len(key) <= PASSWORD_HASH_BYTES_MAX
    return Code.OK if is_possible else Code.UNAUTHORIZED


class Passwords:
    """Judges the keys that calls present; takes the table's lock itself."""

    def __init__(
        self, table: LedgerTable, read_metadata: Callable[[LedgerId], LedgerMetadata | None]
    ) -> None:
        """`read_metadata` syncs first; it raises DaybookError when the store does not answer."""
        self._table = table
        self._read_metadata = read_metadata

    def check(self, ledger_id: LedgerId, key: str) -> Code:
        """OK, UNAUTHORIZED, UNAVAILABLE, NO_SUCH_LEDGER or BAD_FRAME."""
        impossible = refuse_impossible(ledger_id, key)
        if impossible is not Code.OK:
            return impossible
        with self._table.lock:
            verdict = self._table.machine.authorize(ledger_id, key)
        if verdict is AttachVerdict.NEEDS_METADATA:
            verdict = self._ask(ledger_id, key)
        return verdict.code

    def _ask(self, ledger_id: LedgerId, key: str) -> AttachVerdict:
        with self._table.pinned(ledger_id) as held:
            try:
                metadata = self._read_metadata(ledger_id)
            except DaybookError as error:
                _LOG.warning("a ledger's metadata cannot be read", ledger_id=ledger_id, reason=str(error))
                return AttachVerdict.NEEDS_METADATA
            with self._table.lock:
                return self._table.machine.authorize_with_metadata(held, key, metadata)
