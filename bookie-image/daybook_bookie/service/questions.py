"""Answers the questions of the core that need a ledger's metadata (`daybook.core.bookie.questions`).

If the metadata store does not answer, the request is refused as unavailable, not as unauthorised (rule 46).
"""

from collections.abc import Callable
from typing import Final

from daybook.core.bookie.questions import KeyQuestion, Question
from daybook.core.errors import Code, DaybookError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.runtime.logs import get_logger
from daybook_bookie.journal.format import Record
from daybook_bookie.ledgers import LedgerTable

_LOG: Final = get_logger(__name__)


class Questions:
    """Reads metadata for questions; takes the table's lock itself."""

    def __init__(
        self, table: LedgerTable, read_metadata: Callable[[LedgerId], LedgerMetadata | None]
    ) -> None:
        """`read_metadata` syncs first; it raises DaybookError when the store does not answer."""
        self._table = table
        self._read_metadata = read_metadata

    def check(self, ledger_id: LedgerId, key: str) -> Code:
        """Whether `key` is the ledger's: OK, UNAUTHORIZED, UNAVAILABLE, NO_SUCH_LEDGER or BAD_FRAME."""
        question = KeyQuestion(self._table.machine, ledger_id, key)
        with self._table.lock:
            question.begin()
        self.settle(question)
        return question.verdict.code

    def settle(self, question: Question[Record]) -> None:
        """Read metadata until the question, which has begun, is done."""
        lock = self._table.lock
        while not question.is_done:
            with lock:
                question.ask()
            try:
                metadata = self._read_metadata(question.ledger_id)
            except BaseException as error:
                with lock:
                    question.give_up()
                if not isinstance(error, DaybookError):
                    raise
                _LOG.warning(
                    "a ledger's metadata cannot be read", ledger_id=question.ledger_id, reason=str(error)
                )
            else:
                with lock:
                    question.metadata_read(metadata)
