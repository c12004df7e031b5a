"""What an owner is to change in its topic's list beside the ledgers of messages: trims, what a compaction wrote, and offloads.

Each is one change of the list, carried out in a phase of its own (phases.py). The ledgers that the list loses by it are deleted only
once the change is known to be done (rule 41, rule 51, rule 70).
"""

from collections import deque
from dataclasses import replace

from daybook.core.ids import LedgerId
from daybook.core.topics.events import CompactionWritten, TrimRequested
from daybook.core.topics.ledger_list import LedgerList
from daybook.core.topics.offload.changes import OffloadChange
from daybook.core.topics.phases import Phase
from daybook.core.topics.trimming import trimmed


class ListOrders:
    """What waits, and which ledgers leave by the change that is under way. Of compactions the newest waits, of offloads each, of trims none."""

    __slots__ = ("_changing", "_compaction", "_offloads", "_trim", "leaving", "settled", "taken")

    def __init__(self) -> None:
        self._trim: TrimRequested | None = None
        self._compaction: CompactionWritten | None = None
        self._offloads: deque[OffloadChange] = deque()
        self._changing = 0
        """1 while a change for an offload is under way."""
        self.taken = 0
        """How many changes for offloads were ordered; they are carried out in this order."""
        self.settled = 0
        """How many of them are done, or have changed nothing because of what came before them."""
        self.leaving: tuple[LedgerId, ...] = ()
        """The ledgers of bookies that the list is to give up."""

    @property
    def are_waiting(self) -> bool:
        """Whether there is an order."""
        return self._trim is not None or self._compaction is not None or bool(self._offloads)

    def take(self, order: TrimRequested | CompactionWritten | OffloadChange) -> None:
        """Carry this out when the phase allows it. A trim is to begin in the same step, or not at all: `drop_trim`."""
        if isinstance(order, TrimRequested):
            self._trim = order
        elif isinstance(order, CompactionWritten):
            self._compaction = order
        else:
            self.taken += 1
            self._offloads.append(order)

    def drop_trim(self) -> None:
        """A trim that did not begin is dropped: until it could, a seek or a new subscription may need what its marks have passed (rule 51)."""
        self._trim = None

    def begin(self, current: LedgerList, unix_ms: int) -> tuple[Phase, LedgerList] | None:
        """The next change of the list `current`, and its phase; None if there is none."""
        change = self._next(current, unix_ms)
        if change is not None:
            self.leaving = tuple(sorted(current.named_ids - change[1].named_ids))
        return change

    def _next(self, current: LedgerList, unix_ms: int) -> tuple[Phase, LedgerList] | None:
        compaction, self._compaction = self._compaction, None
        if compaction is not None:
            return Phase.COMPACTING, replace(current, compaction=compaction.compaction)
        while self._offloads:
            target = self._offloads.popleft().applied(current)
            if target != current:
                self._changing = 1
                return Phase.OFFLOADING, target
            self.settled += 1
        trim, self._trim = self._trim, None
        count = 0 if trim is None else trimmed(current, trim.marks, trim.retention, unix_ms)
        return (Phase.TRIMMING, replace(current, ledgers=current.ledgers[count:])) if count else None

    def done(self) -> tuple[LedgerId, ...]:
        """The list was changed; the ledgers that it has given up."""
        self.settled += self._changing
        self._changing = 0
        gone, self.leaving = self.leaving, ()
        return gone
