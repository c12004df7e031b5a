"""What a compaction reads: the compacted ledgers that the list names, then the topic's own entries behind the horizon.

It ends at the last entry that is acknowledged when it begins: that one, and all before it, never change any more, also in the ledger
that is open.
"""

from dataclasses import dataclass

from daybook.core.topics.ledger_list import NO_POSITION, Compaction, LedgerList, Position


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """One compaction of a topic."""

    former: Compaction | None
    """What the list named when the compaction was planned: what is written takes its place, and nothing else's."""
    horizon: Position
    """The new one."""
    size_bytes: int
    """About how much is read in each of two passes."""

    @property
    def start(self) -> Position:
        """The topic's own entries behind this one are read."""
        return NO_POSITION if self.former is None else self.former.horizon


def plan_compaction(
    ledger_list: LedgerList, last_confirmed: Position, open_bytes: int
) -> CompactionPlan | None:
    """The next compaction of a topic; None if nothing came since the last one. `open_bytes` is the size of the open ledger."""
    former = ledger_list.compaction
    start = NO_POSITION if former is None else former.horizon
    if last_confirmed <= start:
        return None
    size_bytes = 0 if former is None else sum(ledger.size_bytes for ledger in former.ledgers)
    size_bytes += sum(
        open_bytes if ledger.is_open else ledger.size_bytes
        for ledger in ledger_list.ledgers
        if ledger.is_open or ledger.last_position > start
    )
    return CompactionPlan(former, last_confirmed, size_bytes)
