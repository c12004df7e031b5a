"""What a worker is asked to mend, and whose word it takes for a bookie being lost or a writer being gone.

A task carries the auditor's word: it has watched bookies and open fragments for as long as the cluster's settings say
(rule 31, rule 33). Who asks for a ledger or a bookie by name has no auditor, so the worker watches for as long itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final

from daybook.autorecovery.words import RECOVER, named_with, still_lost
from daybook.core.audit.judgement import Problem, Reason
from daybook.core.audit.lost_bookies import GracePeriods, LostBookies
from daybook.core.ids import BookieId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.tasks import RepairTask
from daybook.runtime.clock import monotonic_ms

_LOOK_MS: Final = 1000
"""How often an open fragment is looked at during its grace period: its writer may change the ensemble."""


class Order(ABC):
    """A repair of one ledger, by the word of `task`, if there is one."""

    waits: ClassVar[bool]
    """Whether the order includes the open fragment, and is waited for until its grace and delay are over."""

    def __init__(self, task: RepairTask | None) -> None:
        """By the auditor's word, as far as it goes."""
        self._task = task
        words = task.reasons if task else ()
        self.leaving = named_with(Reason.LEAVING, words)
        """The bookies that the ledger is to be taken from."""
        self._may_recover = RECOVER in words

    def lost(
        self,
        metadata: LedgerMetadata,  # noqa: ARG002 - a task names them
        registered: Mapping[BookieId, BookieInfo],
    ) -> frozenset[BookieId]:
        """The bookies that count as lost, of those that metadata names (rule 33)."""
        return still_lost(self._task, registered.keys()) if self._task else frozenset()

    def grace_is_over(self, metadata: LedgerMetadata) -> bool:  # noqa: ARG002 - a task says it
        """Whether the open fragment, if it is in need, may be fenced now (rule 31)."""
        return self._may_recover

    @abstractmethod
    def again_ms(self) -> int | None:
        """When, by the monotonic clock, a delay or a grace period is over; None if none is waited for."""

    def concerns(self, problem: Problem) -> bool:  # noqa: ARG002 - the default is everything
        """Whether the order is unfulfilled while this is left."""
        return True


class TaskOrder(Order):
    """What the auditor marked."""

    waits = False

    def again_ms(self) -> int | None:
        return None


class Patience:
    """How long who asks by name has seen bookies away and open fragments in need; shared by all that is asked for."""

    def __init__(self, lost_delay_ms: int, open_grace_ms: int) -> None:
        """Begin to watch now."""
        self.bookies = LostBookies(lost_delay_ms)
        self.grace = GracePeriods(open_grace_ms)


class AskedOrder(Order):
    """A ledger that was asked for by its id; with `bookie` only as far as that bookie is concerned."""

    waits = True

    def __init__(self, task: RepairTask | None, patience: Patience, bookie: BookieId | None = None) -> None:
        """`patience` watches over the whole request."""
        super().__init__(task)
        self._patience = patience
        self._bookie = bookie
        self._look_again_ms: int | None = None

    def lost(
        self, metadata: LedgerMetadata, registered: Mapping[BookieId, BookieInfo]
    ) -> frozenset[BookieId]:
        bookies = self._patience.bookies
        bookies.expect({self._bookie} if self._bookie else metadata.bookies())
        bookies.observe(monotonic_ms(), registered.keys(), frozenset())
        away_for_long = bookies.lost() & ({self._bookie} if self._bookie else metadata.bookies())
        return away_for_long | super().lost(metadata, registered)

    def grace_is_over(self, metadata: LedgerMetadata) -> bool:
        now_ms = monotonic_ms()
        grace = self._patience.grace
        is_over = grace.is_over(metadata.ledger_id, metadata.last_fragment, now_ms)
        self._look_again_ms = (
            None if is_over or metadata.is_closed else now_ms + min(grace.grace_ms, _LOOK_MS)
        )
        return is_over or super().grace_is_over(metadata)

    def again_ms(self) -> int | None:
        ends = [self._look_again_ms, self._patience.bookies.next_check_ms()]
        return min((end for end in ends if end is not None), default=None)

    def concerns(self, problem: Problem) -> bool:
        return self._bookie is None or problem.bookie in {self._bookie, ""}
