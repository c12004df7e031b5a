"""Offloaded ledgers come back to bookies: what a job copies, and what the owner changes in the list for it (rule 72).

A ledger whose file is the only copy is written into a fresh ledger, entry for entry, which the list names in place of the file. The row of the
list stays under its own id, so that no message gets another one. A ledger whose replicas are still there loses the mark of the file alone.
In both cases the list remembers for a lag where the file is: jobs delete no file before that, also where the ledger is offloaded again meanwhile.
A row has room for one such file. So a ledger whose file is the only copy once more waits for the end of that lag.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from daybook.core.errors import PlanOutdatedError
from daybook.core.ids import LedgerId
from daybook.core.topics.ledger_list import LedgerList, ListedLedger
from daybook.core.topics.offload.record import Restored, name_of
from daybook.core.topics.trim_plan import PlannedLedger, check_unchanged


@dataclass(frozen=True, slots=True)
class RestoreLimits:
    """Which offloaded ledgers come back. The defaults restore all of them."""

    newest_bytes: int = 0
    """The newest ledgers of a topic up to this size; 0: of any size."""
    newest_ms: int = 0
    """Ledgers that were closed within this time; 0: at any time."""
    ledger_ids: Collection[LedgerId] = ()
    """These ledgers; none given: any."""


def plan_restore(ledger_list: LedgerList, limits: RestoreLimits, unix_ms: int) -> list[ListedLedger]:
    """The ledgers that a job restores now, the oldest first: those that have a file."""
    chosen: list[ListedLedger] = []
    size_bytes = 0
    for ledger in reversed(ledger_list.ledgers):
        size_bytes += ledger.size_bytes
        is_large = limits.newest_bytes and size_bytes > limits.newest_bytes
        is_old = limits.newest_ms and unix_ms - (ledger.closed_at_ms or unix_ms) > limits.newest_ms
        if is_large or is_old:
            break
        if ledger.offload is not None and (not limits.ledger_ids or ledger.ledger_id in limits.ledger_ids):
            chosen.append(ledger)
    return chosen[::-1]


class RestoredLedger(NamedTuple):
    """A ledger that a run has restored, as it was planned."""

    ledger: PlannedLedger
    place: str
    """The file that the list named."""
    crc: int
    """As `Offload.crc`: of that file, and of what was read back from the copy."""
    stored_as: LedgerId | None
    """The ledger with the copy; None: the replicas are still there."""


@dataclass(frozen=True, slots=True)
class LedgersRestored:
    """A run has restored ledgers: the list names the copies in place of the files."""

    job: str
    """In the custom metadata of the copies."""
    ledgers: tuple[RestoredLedger, ...]
    unix_ms: int
    lag_ms: int
    """How long the files stay."""

    def applied(self, current: LedgerList) -> LedgerList:
        """The list after it."""
        restored = {each.ledger.ledger_id: each for each in self.ledgers}
        return replace(
            current,
            ledgers=tuple(self._row(ledger, restored.get(ledger.ledger_id)) for ledger in current.ledgers),
        )

    def _row(self, row: ListedLedger, restored: RestoredLedger | None) -> ListedLedger:
        if restored is None or not is_planned(row, restored):
            return row
        record = former_file(row, self.unix_ms)
        if record is None:
            stored_as = row.stored_as if restored.stored_as is None else restored.stored_as
            record = Restored(stored_as, restored.place, self.unix_ms + self.lag_ms)
        elif not row.has_replicas:
            return row
        return replace(row, offload=None, restored=record)


def is_planned(row: ListedLedger, restored: RestoredLedger) -> bool:
    """Whether the row is the one that a run has planned on: the same entries, in the same file, with replicas or without."""
    return (
        row.offload is not None
        and (row.entries, row.size_bytes) == restored.ledger[1:]
        and (row.offload.place, row.offload.crc) == (restored.place, restored.crc)
        and row.has_replicas == (restored.stored_as is None)
    )


def former_file(row: ListedLedger, unix_ms: int) -> Restored | None:
    """What an earlier restore says of the row, while the file that it names has to stay and is not the one that the list names now.

    A file beside replicas needs no lag: nobody ever had it as the only copy, so this one stays remembered in its place.
    """
    former = row.restored
    if former is None or former.file_until_ms <= unix_ms:
        return None
    if row.offload is not None and name_of(row.offload.place) == name_of(former.place):
        return None
    return former


def check_former_file(row: ListedLedger, unix_ms: int) -> None:
    """Raise PlanOutdatedError for a ledger without replicas whose row remembers another file that has to stay."""
    former = former_file(row, unix_ms)
    if former is not None and not row.has_replicas:
        msg = f"ledger {row.ledger_id} was restored before, from {former.place}, which has to stay until {former.file_until_ms} ms since 1970, and the list remembers one former file of a ledger: restore it after that"
        raise PlanOutdatedError(msg)


def files_due(ledger_list: LedgerList, unix_ms: int) -> dict[LedgerId, str]:
    """The former files of restored ledgers, by ledger, whose lag is over, and that the list does not name once more."""
    return {
        row.ledger_id: row.restored.place
        for row in ledger_list.ledgers
        if row.restored is not None
        and row.restored.file_until_ms <= unix_ms
        and (row.offload is None or name_of(row.offload.place) != name_of(row.restored.place))
    }


def is_restored(row: ListedLedger | None, restored: RestoredLedger) -> bool:
    """Whether a list's row says so already: an owner has carried the same request out, and its answer was lost."""
    if row is None or row.restored is None:
        return False
    if restored.stored_as is not None:
        return row.stored_as == restored.stored_as
    return row.offload is None


def check_restored(ledger_list: LedgerList, restored: LedgersRestored) -> bool:
    """Whether the list names what a run has restored; False: it may name it now.

    Raises PlanOutdatedError if a row is not the one that was planned on, or remembers another file; LedgersNeededError for an open one.
    """
    is_done = True
    for each in restored.ledgers:
        row = ledger_list.row(each.ledger.ledger_id)
        if is_restored(row, each):
            continue
        check_unchanged(each.ledger, row)
        is_done = False
        if row is None or not is_planned(row, each):
            msg = f"ledger {each.ledger.ledger_id} is not in the file {each.place} any more, or its replicas have gone meanwhile: read the topic's list and plan again"
            raise PlanOutdatedError(msg)
        check_former_file(row, restored.unix_ms)
        if each.stored_as is not None and each.stored_as in ledger_list.ids | ledger_list.named_ids:
            msg = f"the list names ledger {each.stored_as} already, and that is no copy of ledger {each.ledger.ledger_id}: run the job again"
            raise PlanOutdatedError(msg)
    return is_done
