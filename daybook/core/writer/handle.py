"""The life of a writer's handle: whether it takes appends, whether those under way can succeed, and who closes the ledger.

A handle ends in one of two ways. In order: its user asks for a close, or the ensemble cannot change any more (rule 21). Then the
handle takes nothing more, acknowledges what it can, and closes the ledger (CLOSING). Or at once: a failure makes the outcome of
everything under way unknown (rule 13, rule 22). What happens to the ledger then depends on whose it is. One that may still be the
writer's own is closed at its LAC, because nobody else would close it soon (FAILED). One that another client fenced, closed or deleted
is not this writer's to close (LOST), but its user may ask for that: the compare-and-set decides who closes it (rule 11).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class HandleState(Enum):
    """What the handle still does."""

    OPEN = "it takes appends"
    CLOSING = "it takes nothing more; once what is under way is decided, it closes the ledger"
    FAILED = "no append can succeed any more; it closes the ledger at the LAC"
    LOST = "no append can succeed any more; the ledger is another client's to close"
    CLOSED = "the ledger is closed"


TRANSITIONS: Final[Mapping[tuple[HandleState, HandleState], str]] = {
    (HandleState.OPEN, HandleState.CLOSING): "its user asks for a close, or the ensemble cannot continue",
    (
        HandleState.OPEN,
        HandleState.FAILED,
    ): "no quorum is left, or with deferred sync a bookie failed (rule 22)",
    (HandleState.OPEN, HandleState.LOST): "a bookie or the metadata shows that another client has the ledger",
    (HandleState.CLOSING, HandleState.FAILED): "a failure decides what was under way",
    (HandleState.CLOSING, HandleState.LOST): "the metadata shows that another client has the ledger",
    (HandleState.CLOSING, HandleState.CLOSED): "the metadata says so, whoever closed it (rule 11)",
    (HandleState.FAILED, HandleState.LOST): "the metadata shows that another client has the ledger",
    (HandleState.FAILED, HandleState.CLOSED): "the metadata says so, whoever closed it (rule 11)",
    (HandleState.LOST, HandleState.FAILED): "its user asks for a close",
}

OPEN: Final = HandleState.OPEN
"""For the code that every append and answer runs: Python 3.11 calls a function to find a member in its enum."""

ENDED: Final = (HandleState.FAILED, HandleState.LOST, HandleState.CLOSED)
"""No append can succeed any more."""

TO_BE_CLOSED: Final = (HandleState.CLOSING, HandleState.FAILED)
"""The ledger is still to be closed by this handle."""
