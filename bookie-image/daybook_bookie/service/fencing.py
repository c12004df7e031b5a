"""Fencing a ledger: the bookie refuses normal frames from this moment on, and answers once that is durable.

Used by the Fence call and by recovery reads (rule 2, rule 3, rule 4).
"""

from daybook.core.bookie.ledger import LacAnswer
from daybook.core.bookie.machine import NO_LAC, FenceDecided
from daybook.core.bookie.questions import FenceQuestion
from daybook.core.errors import Code
from daybook.core.ids import LedgerId
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
        code, lac = self._fence(ledger_id, key)
        self._metrics.fences.labels(code.name).inc()
        return code, lac

    def _fence(self, ledger_id: LedgerId, key: str) -> tuple[Code, LacAnswer]:
        decided: list[tuple[FenceDecided[Record], Barrier]] = []

        def queue(fence: FenceDecided[Record]) -> None:
            barrier = Barrier(fence.records, on_durable=fence.is_durable)
            self._journal.put(barrier)
            decided.append((fence, barrier))

        question = FenceQuestion(self._table.machine, ledger_id, key, queue)
        with self._table.lock:
            question.begin()
        try:
            self._questions.settle(question)
            if not decided:
                return question.verdict.code, NO_LAC
            ((fence, barrier),) = decided
            code = barrier.wait(self._timeout_s)
        finally:
            with self._table.lock:
                question.end()
        if code is Code.OK:
            is_durable = not self._table.machine.refusals.owes
            self._long_polls.wake(ledger_id, fence.lac, is_durable=is_durable)
        return code, fence.lac
