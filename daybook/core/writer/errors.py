"""What a writer reports when it fails: what happened, what is known of the entries, what to do.

Kept together, so that the wording is one: "unknown" for what a recovery may still find (rule 13), "nothing was written"
only where that is certain.
"""

from collections.abc import Sequence

from daybook.core.errors import (
    Code,
    DaybookError,
    EntryTooLargeError,
    ForceFailedError,
    FrameError,
    LedgerClosedError,
    LedgerFencedError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    UnauthorizedError,
)
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.writer.window import Batch


def takes_no_more(ledger_id: LedgerId, ended: DaybookError | None) -> LedgerClosedError:
    """An append or force after the end of the handle, or after a close was asked for."""
    reason = "it is being closed" if ended is None else f"its handle ended with {type(ended).__name__}"
    return LedgerClosedError(
        f"ledger {ledger_id} takes no more entries: {reason}; nothing was written, use a new ledger"
    )


def bookie_refuses_ledger(ledger_id: LedgerId, bookie: BookieId, code: Code) -> DaybookError:
    """A bookie's answer that ends the handle (rule 21)."""
    if code is Code.UNAUTHORIZED:
        return UnauthorizedError(f"{bookie} refuses the password of ledger {ledger_id}: check it")
    if code is Code.NO_SUCH_LEDGER:
        return NoSuchLedgerError(f"ledger {ledger_id} was deleted while it was written ({bookie} says so)")
    return LedgerFencedError(
        f"ledger {ledger_id} is fenced ({bookie} answers {code.name}): another client recovers or closed it; "
        "the outcome of what was not acknowledged is unknown until it is recovered"
    )


def frame_refused(ledger_id: LedgerId, batch: Batch) -> DaybookError:
    """The bookies refuse a frame as every bookie would (rule 21)."""
    where = f"entries {batch.first} … {batch.last} of ledger {ledger_id}"
    if batch.refusal is Code.TOO_LARGE:
        return EntryTooLargeError(f"the bookies refuse {where} as too large: send smaller entries")
    return FrameError(f"the bookies refuse {where} as malformed: client and bookies must speak one version")


def unforced_lost(
    ledger_id: LedgerId, bookie: BookieId, what: str, last_add_confirmed: EntryId
) -> ForceFailedError:
    """A bookie failed or restarted while it held what no force had made durable (rule 22)."""
    return ForceFailedError(
        f"{bookie} {what} and may have lost what ledger {ledger_id} sent it since the last force: "
        f"the ledger ends at entry {last_add_confirmed}, write the rest to a new one"
    )


def too_many_changes(ledger_id: LedgerId, changes: int) -> NotEnoughBookiesError:
    """The cap on ensemble changes is reached (rule 21)."""
    return NotEnoughBookiesError(
        f"ledger {ledger_id} changed its ensemble {changes} times, the limit: "
        "continue in a new ledger, and see why its bookies fail"
    )


def no_spare(ledger_id: LedgerId, missing: Sequence[BookieId]) -> NotEnoughBookiesError:
    """No quorum is left, or the policy forbids to go on without a spare (rule 45)."""
    return NotEnoughBookiesError(
        f"ledger {ledger_id} lost {', '.join(missing)} and there is no bookie to take over: "
        "add bookies, then continue in a new ledger"
    )
