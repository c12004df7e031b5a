"""Ends the limbo of a bookie in an explored world, by the shipped repair.

The repair reads, copies and looks at the metadata in one go: what it copies is confirmed and changes no more. What others
do between that look and the end of limbo is for the explorer, so the request that ends it travels like any other one.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from daybook.core.effects import ClearLimbo, Effect, RepairFailed, RepairFinished
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.repair.plan import limbo_plan
from daybook.core.repair.repair import LedgerRepair
from tests.unit.core.one_ledger import LedgerBookie, OneLedger

REPAIRER: Final = -3
"""The client whose only request is the end of limbo."""


def repaired(metadata: LedgerMetadata, bookies: Sequence[LedgerBookie], position: int) -> ClearLimbo | None:
    """Copy back what the bookie owes; the request that ends its limbo, or None if it must not end or has ended."""
    ledger = OneLedger(metadata, {bookie.name: bookie for bookie in bookies})
    repair = LedgerRepair(metadata, ledger.version, limbo_plan(metadata, bookies[position].name))
    effects: deque[Effect] = deque(repair.start())
    while True:
        effect = effects.popleft()
        match effect:
            case ClearLimbo():
                return effect
            case RepairFailed() | RepairFinished():
                return None
        for answer in ledger.perform(effect, REPAIRER):
            effects.extend(repair.step(answer))
