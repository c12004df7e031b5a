"""Which ledgers a bookie knows, and what of that proves that a ledger existed (rule 28, rule 62).

The owner lists what the write cache has, under its lock; then reads the store's records, without the lock; then judges what the
cache had, under the lock. What is flushed meanwhile is then found in one or the other.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from daybook.core.bookie.ledger import LedgerRecord
from daybook.core.bookie.machine import BookieMachine, proves_existence
from daybook.core.ids import NO_ENTRY, LedgerId


class Known(NamedTuple):
    """The ledgers of a bookie."""

    ledger_ids: list[LedgerId]
    """Rising."""
    bare: frozenset[LedgerId]
    """Those of which there is no more than a fence: whoever can open a connection can have left that."""
    highest_proved: LedgerId
    """The highest of the others, which only a ledger that metadata has shown can have left; −1 without any."""


class Listing:
    """One listing of a bookie's ledgers."""

    def __init__(self, machine: BookieMachine[Any]) -> None:
        self._machine = machine
        self._proved: set[LedgerId] = set()
        self._bare: set[LedgerId] = set()

    def stored(self, record: LedgerRecord, *, has_entries: bool) -> None:
        """The store has this."""
        is_proved = has_entries or proves_existence(record)
        (self._proved if is_proved else self._bare).add(record.ledger_id)

    def judge(self, ledger_ids: Iterable[LedgerId]) -> None:
        """These were in the cache: what they are now, deleted ones included. Under the owner's lock, after `stored`."""
        for ledger_id in ledger_ids:
            self._proved.discard(ledger_id)
            self._bare.discard(ledger_id)
            if self._machine.ledgers.find(ledger_id) is not None:
                (self._bare if self._machine.is_bare(ledger_id) else self._proved).add(ledger_id)

    def known(self) -> Known:
        """The result."""
        ledger_ids = sorted(self._proved | self._bare)
        return Known(ledger_ids, frozenset(self._bare), max(self._proved, default=NO_ENTRY))
