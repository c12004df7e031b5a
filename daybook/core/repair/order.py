"""What a worker is asked to repair, and whose observation it relies on for a lost bookie or a writer that is gone.

A task carries the auditor's: it has observed bookies and open fragments for as long as the cluster's settings say
(rule 31, rule 33). Whoever asks for a ledger or a bookie by its id has no auditor, and observes them for as long itself
(`daybook.autorecovery.asked`).
"""

from collections.abc import Mapping
from typing import Protocol

from daybook.core.ids import BookieId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import BookieInfo
from daybook.core.repair.judgement import Problem
from daybook.core.repair.task import RepairTask


class Order(Protocol):
    """A repair of one ledger. Times are of the monotonic clock."""

    @property
    def leaving(self) -> frozenset[BookieId]:
        """The bookies that the ledger is to be taken from."""

    @property
    def waits(self) -> bool:
        """Whether the order includes the open fragment, and is kept until its grace period and the delay are over."""

    def lost(
        self, metadata: LedgerMetadata, registered: Mapping[BookieId, BookieInfo], now_ms: int
    ) -> frozenset[BookieId]:
        """The bookies that count as lost, of those that metadata names (rule 33)."""

    def grace_is_over(self, metadata: LedgerMetadata, now_ms: int) -> bool:
        """Whether the open fragment, if it is in need, may be fenced now (rule 31)."""

    def again_ms(self) -> int | None:
        """When a delay or a grace period is over; None if none is waited for."""

    def concerns(self, problem: Problem) -> bool:
        """Whether the order is unfulfilled while `problem` is left."""


class TaskOrder:
    """What the auditor marked: nothing is waited for, and everything concerns it."""

    waits = False

    def __init__(self, task: RepairTask) -> None:
        """By what `task` says."""
        self._task = task

    @property
    def leaving(self) -> frozenset[BookieId]:
        """See `Order`."""
        return self._task.leaving

    def lost(
        self,
        metadata: LedgerMetadata,  # noqa: ARG002 - the task names them
        registered: Mapping[BookieId, BookieInfo],
        now_ms: int,  # noqa: ARG002 - the auditor measured the time
    ) -> frozenset[BookieId]:
        """See `Order`."""
        return self._task.still_lost(registered.keys())

    def grace_is_over(self, metadata: LedgerMetadata, now_ms: int) -> bool:  # noqa: ARG002 - the task says it
        """See `Order`."""
        return self._task.may_recover

    def again_ms(self) -> int | None:
        """See `Order`."""
        return None

    def concerns(self, problem: Problem) -> bool:  # noqa: ARG002 - everything does
        """See `Order`."""
        return True
