"""A ledger or a bookie that somebody asks for by its id: nobody has observed it so far, so the worker does.

Rule 31 and rule 33 hold for such an order as well: the worker observes bookies that are away and open fragments in need for
as long as the auditor would.
"""

from collections.abc import Mapping
from typing import Final

from daybook.core.audit.lost_bookies import GracePeriods, LostBookies
from daybook.core.ids import BookieId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import BookieInfo
from daybook.core.repair.judgement import Problem
from daybook.core.repair.task import RepairTask

_OBSERVE_MS: Final = 1000
"""How often an open fragment is examined during its grace period: its writer may change the ensemble."""


class Patience:
    """How long bookies were seen away and open fragments in need; shared by all that is asked for at once."""

    def __init__(self, lost_delay_ms: int, open_grace_ms: int) -> None:
        """Begin to observe now."""
        self.bookies = LostBookies(lost_delay_ms)
        self.grace = GracePeriods(open_grace_ms)


class AskedOrder:
    """An `Order` for a ledger that was asked for by its id; with `bookie` only as far as that bookie is concerned."""

    waits = True

    def __init__(self, task: RepairTask | None, patience: Patience, bookie: BookieId | None = None) -> None:
        """`patience` observes for the whole request. What a `task` says holds as well, if there is one."""
        self._task = task
        self._patience = patience
        self._bookie = bookie
        self._examine_again_ms: int | None = None

    @property
    def leaving(self) -> frozenset[BookieId]:
        """See `Order`."""
        return self._task.leaving if self._task else frozenset()

    def lost(
        self, metadata: LedgerMetadata, registered: Mapping[BookieId, BookieInfo], now_ms: int
    ) -> frozenset[BookieId]:
        """See `Order`."""
        asked = frozenset({self._bookie}) if self._bookie else metadata.bookies()
        bookies = self._patience.bookies
        bookies.expect(asked)
        bookies.observe(now_ms, registered.keys(), frozenset())
        found_by_auditor = self._task.still_lost(registered.keys()) if self._task else frozenset()
        return bookies.lost() & asked | found_by_auditor

    def grace_is_over(self, metadata: LedgerMetadata, now_ms: int) -> bool:
        """See `Order`."""
        grace = self._patience.grace
        is_over = grace.is_over(metadata.ledger_id, metadata.last_fragment, now_ms)
        is_settled = is_over or metadata.is_closed
        self._examine_again_ms = None if is_settled else now_ms + min(grace.grace_ms, _OBSERVE_MS)
        return is_over or (self._task is not None and self._task.may_recover)

    def again_ms(self) -> int | None:
        """See `Order`."""
        ends = [self._examine_again_ms, self._patience.bookies.next_check_ms()]
        return min((end for end in ends if end is not None), default=None)

    def concerns(self, problem: Problem) -> bool:
        """See `Order`."""
        return self._bookie is None or problem.bookie in {self._bookie, ""}
