"""Fencing a ledger: the bookie refuses normal frames from this moment on, and answers once that is durable.

Used by the Fence call and by recovery reads (rule 2, rule 3, rule 4).
"""

from daybook.core.bookie.ledger import AttachVerdict, LacAnswer
from daybook.core.bookie.machine import NO_LAC
from daybook.core.errors import Code
from daybook.core.ids import LedgerId
from daybook_bookie.journal.thread import Barrier, JournalThread
from daybook_bookie.ledgers import LedgerTable
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.service.long_poll import LongPolls
from daybook_bookie.service.passwords import Passwords


class Fencer:
    """Fences ledgers of a table."""

    def __init__(
        self,
        table: LedgerTable,
        journal: JournalThread,
        long_polls: LongPolls,
        passwords: Passwords,
        metrics: BookieMetrics,
        *,
        timeout_s: float,
    ) -> None:
        """`timeout_s`: how long a fence waits for the journal before it is answered with TIMEOUT."""
        self._table = table
        self._journal = journal
        self._long_polls = long_polls
        self._passwords = passwords
        self._metrics = metrics
        self._timeout_s = timeout_s

    def fence(self, ledger_id: LedgerId, key: str) -> tuple[Code, LacAnswer]:
        """Fence the ledger and wait until that is durable; the LAC in the answer need not be (see FenceDecided)."""
        code, lac = self._fence(ledger_id, key)
        self._metrics.fences.labels(code.name).inc()
        return code, lac

    def _fence(self, ledger_id: LedgerId, key: str) -> tuple[Code, LacAnswer]:
        with self._table.pinned(ledger_id) as ledger:
            code = self._passwords.check(ledger_id, key)
            if code is not Code.OK:
                return code, NO_LAC
            with self._table.lock:
                fence = self._table.machine.fence(ledger, key)
                if isinstance(fence, AttachVerdict):
                    return fence.code, NO_LAC
                barrier = Barrier(fence.records, on_durable=fence.is_durable)
                self._journal.put(barrier)
            code = barrier.wait(self._timeout_s)
        if code is Code.OK:
            self._long_polls.wake(ledger_id, fence.lac, is_durable=not self._journal.has_unstored_refusals)
        return code, fence.lac
