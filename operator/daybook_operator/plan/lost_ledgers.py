"""Whether an entry that the last repair found on no bookie is lost, or may be on a bookie that is only away.

Bookies that start, and so are away together for a moment, look like the loss of everything that they share. So nothing
counts as lost, and no message advises to delete a ledger, unless all of this holds: every bookie that the ledger names
serves and reports what it has, or is known to have lost its disk (it was replaced and is in limbo, or its cookie was
removed); there is such a disk; and the repair that found nothing began after the last of them came back.
"""

from collections.abc import Collection
from dataclasses import dataclass

from daybook.core.ids import BookieId, LedgerId


@dataclass(frozen=True, slots=True)
class Nowhere:
    """A ledger with an entry that the last repair found on no bookie; `named` are the bookies of all its ensembles.

    `in_limbo` are those of them that were replaced and still owe the ledger. `is_settled`: the repair began after the
    last bookie of the cluster came back.
    """

    ledger_id: LedgerId
    named: frozenset[BookieId]
    in_limbo: frozenset[BookieId] = frozenset()
    is_settled: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known: `awaited` may have the entry and cannot be asked now; the disks of `gone` are lost."""

    ledger_id: LedgerId
    awaited: tuple[BookieId, ...] = ()
    gone: tuple[BookieId, ...] = ()
    is_settled: bool = True

    @property
    def is_lost(self) -> bool:
        """Whether no bookie can have the entry any more."""
        return self.is_settled and bool(self.gone) and not self.awaited


def verdict_on(
    found: Nowhere,
    *,
    registered: Collection[BookieId],
    cookies: Collection[BookieId],
    silent: Collection[BookieId],
) -> Verdict:
    """`silent` are registered bookies that did not report to the last audit what they have."""
    away = found.named - frozenset(registered)
    forgotten = away - frozenset(cookies)
    awaited = (away - forgotten) | (found.named & frozenset(silent))
    gone = forgotten | (found.in_limbo & found.named)
    return Verdict(found.ledger_id, tuple(sorted(awaited)), tuple(sorted(gone - awaited)), found.is_settled)


def deletion_of(ledger_id: LedgerId) -> str:
    """The command that deletes a ledger that can be neither recovered nor closed."""
    return f"daybook ledger delete {ledger_id} --without-recovery"
