"""Answers the questions of the core that need a ledger's metadata (`daybook.core.bookie.questions`).

If the metadata store does not answer, the request is refused as unavailable, not as unauthorised (rule 46).
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from daybook.core.bookie.questions import KeyQuestion, Question
from daybook.core.errors import Code, DaybookError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.runtime.logs import get_logger
from daybook_bookie.journal.format import Record
from daybook_bookie.ledgers import LedgerTable

_LOG: Final = get_logger(__name__)

ReadMetadata: TypeAlias = Callable[[Sequence[LedgerId]], list[LedgerMetadata | DaybookError | None]]
"""Of each ledger the metadata after a sync, None if it is not there, or why this one cannot be read; raises DaybookError
when the store does not answer."""


class Questions:
    """Reads metadata for questions; takes the table's lock itself."""

    def __init__(self, table: LedgerTable, read_metadata: ReadMetadata) -> None:
        self._table = table
        self._read_metadata = read_metadata

    def check(self, ledger_id: LedgerId, key: str) -> Code:
        """Whether `key` is the ledger's: OK, UNAUTHORIZED, UNAVAILABLE, NO_SUCH_LEDGER or BAD_FRAME."""
        question = KeyQuestion(self._table.machine, ledger_id, key)
        with self._table.lock:
            question.begin()
        self.settle(question)
        return question.verdict.code

    def settle(self, *questions: Question[Record]) -> DaybookError | None:
        """Read metadata until the questions, which have begun, are done; the error if the store did not answer.

        All of them share each sync: it begins after the last of them was asked, so it is new enough for each (rule 20).
        """
        waiting = [each for each in questions if not each.is_done]
        while waiting:
            with self._table.lock:
                for each in waiting:
                    each.ask()
            try:
                found = self._read_metadata([each.ledger_id for each in waiting])
            except BaseException as error:
                with self._table.lock:
                    for each in waiting:
                        each.give_up()
                if not isinstance(error, DaybookError):
                    raise
                _LOG.warning("metadata cannot be read", ledgers=len(waiting), reason=str(error))
                return error
            self._take_answers(waiting, found)
            waiting = [each for each in waiting if not each.is_done]
        return None

    def _take_answers(
        self,
        questions: Sequence[Question[Record]],
        found: Sequence[LedgerMetadata | DaybookError | None],
    ) -> None:
        with self._table.lock:
            for question, metadata in zip(questions, found, strict=True):
                if isinstance(metadata, DaybookError):
                    question.give_up()
                else:
                    question.metadata_read(metadata)
        for question, metadata in zip(questions, found, strict=True):
            if isinstance(metadata, DaybookError):
                ledger_id = question.ledger_id
                _LOG.warning("a ledger's metadata cannot be read", ledger_id=ledger_id, reason=str(metadata))
