"""The ledgers of the store in memory: what exists by the newest commit, and who of them is in limbo or being deleted.

Filled when the store opens, changed when a commit is published, by one thread; read by any. Of a hundred thousand ledgers
few are in limbo or on their way out, so these have an index of their own: who asks for them does not walk all others.
"""

from collections.abc import Iterator, Mapping

from daybook.core.ids import LedgerId
from daybook_bookie.store.ledger_record import LedgerRecord


class LedgerIndex:
    """Records and their digests by ledger."""

    def __init__(self) -> None:
        """Nothing is stored."""
        self._records: dict[LedgerId, LedgerRecord] = {}
        self._digests: dict[LedgerId, int] = {}
        self._limbo: dict[LedgerId, bytes] = {}
        self._deleting: dict[LedgerId, None] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[tuple[LedgerId, LedgerRecord]]:
        return iter(list(self._records.items()))

    def put(self, ledger_id: LedgerId, record: LedgerRecord, digest: int) -> None:
        """The ledger's record is this one now."""
        self._records[ledger_id], self._digests[ledger_id] = record, digest
        if record.limbo is None or record.deleting:
            self._limbo.pop(ledger_id, None)
        else:
            self._limbo[ledger_id] = record.limbo
        if record.deleting:
            self._deleting[ledger_id] = None

    def remove(self, ledger_id: LedgerId) -> None:
        """Nothing is stored of the ledger any more."""
        for part in (self._records, self._digests, self._limbo, self._deleting):
            part.pop(ledger_id, None)

    def record(self, ledger_id: LedgerId) -> LedgerRecord | None:
        """What is stored of the ledger."""
        return self._records.get(ledger_id)

    def digest(self, ledger_id: LedgerId) -> int:
        """What the ledger adds to the root's digest; 0 if nothing is stored of it."""
        return self._digests.get(ledger_id, 0)

    def limbo_marks(self) -> Mapping[LedgerId, bytes]:
        """The nonces of the ledgers in limbo, as of now."""
        return self._limbo.copy()

    def deleting(self) -> list[LedgerId]:
        """The ledgers whose blocks are still being removed, rising."""
        return sorted(self._deleting.copy())
