"""What a bookie decides about a ledger and must remember over a crash, beside the frames.

Each decision becomes one record of the journal. The owner's storage spells the record, and makes the decision visible to
whoever asks next (rule 43).
"""

from typing import NamedTuple, TypeAlias

from daybook.core.ids import LedgerId


class FencePlaced(NamedTuple):
    """The ledger is fenced (rule 4)."""

    ledger_id: LedgerId


class FenceDropped(NamedTuple):
    """The fences before this came with a key that is not the ledger's; that key is void with them (rule 3)."""

    ledger_id: LedgerId


class KeyLearned(NamedTuple):
    """The ledger's key, and whether metadata has shown the ledger OPEN with it (rule 20)."""

    ledger_id: LedgerId
    key: str
    introduced: bool


class LimboMarked(NamedTuple):
    """The bookie cannot vouch for the ledger; the nonce tells this mark from an earlier one (rule 29)."""

    ledger_id: LedgerId
    nonce: str


class LimboCleared(NamedTuple):
    """The mark with this nonce stands no longer."""

    ledger_id: LedgerId
    nonce: str


class LedgerDeleted(NamedTuple):
    """The ledger is no longer in the metadata (rule 28)."""

    ledger_id: LedgerId


Decision: TypeAlias = FencePlaced | FenceDropped | KeyLearned | LimboMarked | LimboCleared | LedgerDeleted
