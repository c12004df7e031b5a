"""How what a simulated bookie decides is spelled in a journal, and read back: as the bookie process does it."""

from collections.abc import Iterator
from dataclasses import replace

from daybook_bookie.journal.format import (
    NONCE_BYTES,
    Record,
    fence_dropped_record,
    fence_record,
    limbo_clear_record,
    limbo_record,
)
from daybook_bookie.service.ledgers import core_record, intro_of
from daybook_bookie.store.stored_ledger import StoredLedger

from daybook.core.bookie.ledger import LedgerRecord
from daybook.core.ids import LedgerId

_SEEN_MS = 1


def changed_records(known: LedgerRecord, record: LedgerRecord) -> Iterator[Record]:
    """What must be journalled of a ledger's `record` after `known` was. A fence is journalled again for each request."""
    ledger_id = record.ledger_id
    if known.fenced and not record.fenced:
        yield fence_dropped_record(ledger_id)
    if (record.key, record.introduced) != (known.key, known.introduced):
        yield intro_of(ledger_id, record.key, _SEEN_MS, introduced=record.introduced)
    if record.fenced:
        yield fence_record(ledger_id)
    if record.limbo_nonce is not None and record.limbo_nonce != known.limbo_nonce:
        yield limbo_record(ledger_id, _packed(record.limbo_nonce))
    if record.limbo_nonce is None and known.limbo_nonce is not None:
        yield limbo_clear_record(ledger_id, _packed(known.limbo_nonce))


def restored(ledger_id: LedgerId, record: StoredLedger) -> LedgerRecord:
    """The record that a bookie starts with, its nonce as the simulator spells it."""
    nonce = None if record.limbo is None else record.limbo.rstrip(b"\0").decode()
    return replace(core_record(ledger_id, record), limbo_nonce=nonce)


def _packed(nonce: str) -> bytes:
    data = nonce.encode().ljust(NONCE_BYTES, b"\0")
    assert len(data) == NONCE_BYTES, nonce
    return data
