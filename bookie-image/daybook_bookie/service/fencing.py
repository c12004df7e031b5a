"""Fencing a ledger: the bookie refuses normal frames from this moment on, and answers once that is durable.

Used by the Fence call, by recovery reads, and by Recover, which has many of both (rule 2, rule 3, rule 4).
"""

from collections.abc import Sequence
from typing import NamedTuple

from daybook.core.bookie.ledger import LacAnswer
from daybook.core.bookie.machine import NO_LAC, FenceDecided
from daybook.core.bookie.questions import FenceQuestion
from daybook.core.errors import Code
from daybook.core.ids import LedgerId
from daybook.runtime.clock import monotonic_ms
from daybook_bookie.journal.format import Record
from daybook_bookie.journal.thread import Barrier, JournalThread
from daybook_bookie.ledgers import LedgerTable
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.service.long_poll import LongPolls
from daybook_bookie.service.questions import Questions


class Fencer:
    """Fences ledgers of a table."""

    def __init__(
        self,
        table: LedgerTable,
        journal: JournalThread,
        long_polls: LongPolls,
        questions: Questions,
        metrics: BookieMetrics,
        *,
        timeout_s: float,
    ) -> None:
        """`timeout_s`: how long a fence waits for the journal before it is answered with TIMEOUT."""
        self._table = table
        self._journal = journal
        self._long_polls = long_polls
        self._questions = questions
        self._metrics = metrics
        self._timeout_s = timeout_s

    def fence(self, ledger_id: LedgerId, key: str) -> tuple[Code, LacAnswer]:
        """Fence the ledger and wait until that is durable; the LAC in the answer need not be (see FenceDecided)."""
        (fenced,) = self.fence_each([(ledger_id, key)])
        return fenced

    def fence_each(self, wanted: Sequence[tuple[LedgerId, str]]) -> list[tuple[Code, LacAnswer]]:
        """What `fence` returns for each ledger and key. All share the reads of metadata that they need, and mostly one sync."""
        fences = [self._fence_of(ledger_id, key) for ledger_id, key in wanted]
        with self._table.lock:
            for each in fences:
                each.question.begin()
        try:
            self._questions.settle(*(each.question for each in fences))
            fenced = self._wait(fences)
        finally:
            with self._table.lock:
                for each in fences:
                    each.question.end()
        is_durable = not self._table.machine.refusals.owes
        for (ledger_id, _), (code, lac) in zip(wanted, fenced, strict=True):
            self._metrics.fences.labels(code.name).inc()
            if code is Code.OK:
                self._long_polls.wake(ledger_id, lac, is_durable=is_durable)
        return fenced

    def _fence_of(self, ledger_id: LedgerId, key: str) -> "_Fence":
        decided: list[tuple[FenceDecided[Record], Barrier]] = []

        def queue(fence: FenceDecided[Record]) -> None:
            barrier = Barrier(fence.records, on_durable=fence.is_durable)
            self._journal.put(barrier)
            decided.append((fence, barrier))

        return _Fence(FenceQuestion(self._table.machine, ledger_id, key, queue), decided)

    def _wait(self, fences: Sequence["_Fence"]) -> list[tuple[Code, LacAnswer]]:
        """The outcome of each, once those that stand are durable."""
        deadline_ms = monotonic_ms() + 1000 * self._timeout_s
        outcomes: list[tuple[Code, LacAnswer]] = []
        for question, decided in fences:
            if decided:
                ((fence, barrier),) = decided
                outcomes.append((barrier.wait(max(0.0, (deadline_ms - monotonic_ms()) / 1000)), fence.lac))
            else:
                outcomes.append((question.verdict.code, NO_LAC))
        return outcomes


class _Fence(NamedTuple):
    """A fence under way."""

    question: FenceQuestion[Record]
    decided: list[tuple[FenceDecided[Record], Barrier]]
    """Empty until it stands."""
