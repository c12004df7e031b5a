"""Fencing a ledger: refused from this moment on, answered once it is durable (rule 2, rule 3, rule 4).

Used by the Fence call and by recovery reads. A second fencer waits for the same sync as the first: every fencer that
must wait puts the fence into the journal behind what is queued, and one group makes all of them durable.
"""

from functools import partial
from typing import Final

from daybook.core.bookie.ledger import AttachVerdict, LacAnswer
from daybook.core.errors import Code
from daybook.core.ids import LedgerId
from daybook_bookie.journal.format import fence_record
from daybook_bookie.journal.thread import Barrier, JournalThread
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.service.ledgers import LedgerTable
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
        """Fence the ledger and wait until that is durable.

        The LAC that is told with it was confirmed, but need not be durable here: the journal may have had no room for
        the frame that brought it, and that must not keep a fence from its answer (rule 30).
        """
        code, lac = self._fence(ledger_id, key)
        self._metrics.fences.labels(code.name).inc()
        return code, lac

    def _fence(self, ledger_id: LedgerId, key: str) -> tuple[Code, LacAnswer]:
        with self._table.pinned(ledger_id) as ledger:
            code = self._passwords.check(ledger_id, key)
            if code is not Code.OK:
                return code, _NOTHING
            with self._table.lock:
                fence = ledger.fence(key)
                if fence.verdict is not AttachVerdict.OK:
                    return fence.verdict.code, _NOTHING
                lac = ledger.last_add_confirmed()
                records = self._table.changed_records(ledger) if ledger.record_changed else []
                if fence.wait:
                    records.append(self._table.storage.decide(fence_record(ledger_id)))
                barrier = Barrier(records, on_durable=partial(ledger.fence_is_durable, fence.number))
                self._table.touched(ledger_id)
                self._journal.put(barrier)
            code = barrier.wait(self._timeout_s)
        if code is Code.OK:
            self._long_polls.wake(ledger_id, lac, is_durable=not self._journal.has_unstored_refusals)
        return code, lac


_NOTHING: Final = LacAnswer(-1, 0, limbo=False, fenced=False)
