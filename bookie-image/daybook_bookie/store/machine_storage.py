"""Write cache and store as the core's machine sees them, and its decisions as records of the journal."""

from collections.abc import Sequence
from typing import Final

from daybook.core.bookie.decisions import (
    Decision,
    FenceDropped,
    FencePlaced,
    KeyLearned,
    LedgerDeleted,
    LimboCleared,
    LimboMarked,
)
from daybook.core.bookie.ledger import LedgerRecord
from daybook.core.format.lac_table import LacRow
from daybook.core.ids import LedgerId
from daybook.runtime.clock import unix_ms
from daybook_bookie.journal.format import (
    LedgerIntro,
    Record,
    deletion_record,
    fence_dropped_record,
    fence_record,
    intro_record,
    limbo_clear_record,
    limbo_record,
)
from daybook_bookie.store.storage import Storage
from daybook_bookie.store.stored_ledger import StoredLedger

KEY_ONLY_MS: Final = 0
"""`first_seen_ms` of a ledger whose key is known, but which metadata never showed OPEN (rule 20)."""


def core_record(ledger_id: LedgerId, stored: StoredLedger) -> LedgerRecord:
    """What the core's ledger is restored from."""
    has_key = stored.fenced or stored.password_hash or stored.first_seen_ms  # a fence always comes with a key
    return LedgerRecord(
        ledger_id,
        stored.password_hash.decode() if has_key else None,
        introduced=stored.first_seen_ms > KEY_ONLY_MS,
        fenced=stored.fenced,
        limbo_nonce=stored.limbo.hex() if stored.limbo else None,
        last_add_confirmed=stored.last_add_confirmed,
        length_at_lac=stored.length_at_lac,
    )


def record_of(decision: Decision, now_ms: int) -> Record:
    """The journal's record of a decision that is made at `now_ms`."""
    match decision:
        case FencePlaced(ledger_id):
            return fence_record(ledger_id)
        case FenceDropped(ledger_id):
            return fence_dropped_record(ledger_id)
        case KeyLearned(ledger_id, key, introduced):
            return intro_record(LedgerIntro(ledger_id, now_ms if introduced else KEY_ONLY_MS, key.encode()))
        case LimboMarked(ledger_id, nonce):
            return limbo_record(ledger_id, bytes.fromhex(nonce))
        case LimboCleared(ledger_id, nonce):
            return limbo_clear_record(ledger_id, bytes.fromhex(nonce))
        case LedgerDeleted(ledger_id):
            return deletion_record(ledger_id)


class MachineStorage:
    """See BookieStorage; called with the table's lock held, or before anything else runs."""

    def __init__(self, storage: Storage, write_cache_bytes: int = 0) -> None:
        """`write_cache_bytes` bounds the generation that accepts frames."""
        self._storage = storage
        self._write_cache_bytes = write_cache_bytes
        self.accept = storage.accept

    def ledger(self, ledger_id: LedgerId) -> LedgerRecord | None:
        """See BookieStorage."""
        stored = self._storage.ledger(ledger_id)
        return None if stored is None else core_record(ledger_id, stored)

    def has_entries(self, ledger_id: LedgerId) -> bool:
        """See BookieStorage."""
        record = self._storage.ledger(ledger_id)
        if record is not None and record.intervals:
            return True
        return any(pending.blocks for pending in self._storage.cache.pending(ledger_id))

    def publish(self, rows: Sequence[LacRow]) -> Sequence[Record]:
        """See BookieStorage."""
        return [self._storage.publish(rows)]

    def decide(self, decision: Decision) -> Record:
        """See BookieStorage."""
        return self._storage.decide(record_of(decision, unix_ms()))

    @property
    def has_room(self) -> bool:
        """See BookieStorage."""
        return self._storage.cache.active_bytes < self._write_cache_bytes
