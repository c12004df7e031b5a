"""What a writer's handle reports to its user while nobody awaits it: a broker switches ledgers and raises alarms by these.

`Client.create_ledger(on_event=…)` and `attach_ledger` take a function of one `LedgerEvent`. The event loop calls it in the order
of the events and after the step of the machine that caused them, so that it may use the handle. The last event is
`LedgerClosed`, or `LedgerFenced` or `LedgerEnded` of a ledger that this handle does not close.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from daybook.core.errors import DaybookError, LedgerFencedError
from daybook.core.ids import BookieId
from daybook.core.ledger.metadata import LedgerMetadata


@dataclass(frozen=True, slots=True)
class LedgerDegraded:
    """The writer continues without the bookies `missing`, because no other bookie can take their places (rule 45).

    It is reported again whenever `missing` changes.
    """

    missing: tuple[BookieId, ...]


@dataclass(frozen=True, slots=True)
class LedgerWhole:
    """No bookie is missing any more: new entries get all their copies again (rule 45)."""


@dataclass(frozen=True, slots=True)
class LedgerFenced:
    """Another client recovers or closed the ledger: the handle takes nothing more.

    The outcome of what was not acknowledged is unknown (rule 13); it has failed with `error`.
    """

    error: LedgerFencedError


@dataclass(frozen=True, slots=True)
class LedgerEnded:
    """The handle takes nothing more, for another reason than a fence or a close; continue in a new ledger.

    The handle closes the ledger itself if that is its part: `Ledger.close` waits for that and returns the end.
    """

    error: DaybookError


@dataclass(frozen=True, slots=True)
class LedgerClosed:
    """The ledger is closed with `metadata`, whoever closed it (rule 11)."""

    metadata: LedgerMetadata


LedgerEvent: TypeAlias = LedgerDegraded | LedgerWhole | LedgerFenced | LedgerEnded | LedgerClosed

OnEvent: TypeAlias = Callable[[LedgerEvent], None]
"""What receives the events of a handle; an error that it raises goes to the event loop's exception handler."""


def end_of(error: DaybookError) -> LedgerFenced | LedgerEnded:
    """The event of a handle that ended with `error`."""
    return LedgerFenced(error) if isinstance(error, LedgerFencedError) else LedgerEnded(error)
