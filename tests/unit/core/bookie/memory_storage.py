"""A bookie's write cache and store in memory, as `BookieMachine` sees them."""

from dataclasses import replace

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
from daybook.core.format.frame import Buffer, FrameHeader
from daybook.core.ids import LedgerId


def after_decision(record: LedgerRecord, decision: Decision) -> LedgerRecord | None:
    """What is known of a ledger once `decision` was made; None if it is deleted."""
    match decision:
        case FencePlaced():
            return replace(record, fenced=True)
        case FenceDropped():
            return replace(record, fenced=False, key=None)
        case KeyLearned(_, key, introduced):
            return replace(record, key=key, introduced=introduced)
        case LimboMarked(_, nonce):
            return replace(record, limbo_nonce=nonce)
        case LimboCleared(_, nonce):
            return replace(record, limbo_nonce=None) if record.limbo_nonce == nonce else record
        case LedgerDeleted():
            return None


def after_frame(record: LedgerRecord, header: FrameHeader) -> LedgerRecord:
    """What is known of a ledger once a frame was accepted."""
    if header.last_add_confirmed <= record.last_add_confirmed:
        return record
    return replace(record, last_add_confirmed=header.last_add_confirmed, length_at_lac=header.length_at_lac)


class MemoryStorage:
    """See BookieStorage; a record of the journal is the decision itself, or the frame's bytes."""

    def __init__(self) -> None:
        self.known: dict[LedgerId, LedgerRecord] = {}
        self.frames: dict[LedgerId, list[bytes]] = {}
        self.has_room = True

    def ledger(self, ledger_id: LedgerId) -> LedgerRecord | None:
        return self.known.get(ledger_id)

    def has_entries(self, ledger_id: LedgerId) -> bool:
        return bool(self.frames.get(ledger_id))

    def accept(self, frame: Buffer, header: FrameHeader) -> Decision | bytes:
        ledger_id = header.ledger_id
        self.known[ledger_id] = after_frame(self.known.get(ledger_id, LedgerRecord(ledger_id)), header)
        self.frames.setdefault(ledger_id, []).append(bytes(frame))
        return bytes(frame)

    def decide(self, decision: Decision) -> Decision | bytes:
        ledger_id = decision.ledger_id
        record = after_decision(self.known.get(ledger_id, LedgerRecord(ledger_id)), decision)
        if record is None:
            self.known.pop(ledger_id, None)
            self.frames.pop(ledger_id, None)
        else:
            self.known[ledger_id] = record
        return decision
