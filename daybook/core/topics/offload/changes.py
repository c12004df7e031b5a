"""What an owner changes in its topic's list for an offload, and what it refuses (rule 70).

A run of a job begins with its name in the list, and the list names files of that run alone. So from then on no file of an earlier run,
which may only be slow, is named any more, and those that nobody names can be deleted, by the order of changes and whatever clocks say.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from daybook.core.errors import PlanOutdatedError
from daybook.core.ids import LedgerId
from daybook.core.topics.ledger_list import LedgerList, ListedLedger
from daybook.core.topics.offload.record import Offload
from daybook.core.topics.offload.restore import LedgersRestored
from daybook.core.topics.trim_plan import PlannedLedger, check_unchanged


@dataclass(frozen=True, slots=True)
class OffloadBegun:
    """A run begins: the list names no file of another one from now on."""

    job: str

    def applied(self, current: LedgerList) -> LedgerList:
        """The list after it."""
        return replace(current, offload_job=self.job)


class WrittenFile(NamedTuple):
    """A file that a run has written, read back and verified."""

    ledger: PlannedLedger
    """What it has copied."""
    place: str
    format_version: int
    size_bytes: int
    """Of the file."""
    crc: int
    """As `Offload.crc`."""


@dataclass(frozen=True, slots=True)
class OffloadsWritten:
    """A run has written files; those of ledgers that the topic has are named. A run that another one has followed changes nothing."""

    job: str
    files: tuple[WrittenFile, ...]
    unix_ms: int
    lag_ms: int | None
    """How long the replicas stay; None: as long as the ledger."""

    def __post_init__(self) -> None:
        """Refuse what no list can say. Raises MetadataError."""
        for file in self.files:
            self._offload(file)

    def applied(self, current: LedgerList) -> LedgerList:
        """The list after it."""
        if current.offload_job != self.job:
            return current
        files = {file.ledger.ledger_id: file for file in self.files}
        return replace(
            current,
            ledgers=tuple(self._row(ledger, files.get(ledger.ledger_id)) for ledger in current.ledgers),
        )

    def _row(self, ledger: ListedLedger, file: WrittenFile | None) -> ListedLedger:
        if (
            file is None
            or is_named(ledger.offload, file)
            or ledger.is_open
            or not ledger.has_replicas
            or (ledger.entries, ledger.size_bytes) != file.ledger[1:]
        ):
            return ledger
        return replace(ledger, offload=self._offload(file))

    def _offload(self, file: WrittenFile) -> Offload:
        return Offload(
            file.place,
            file.format_version,
            file.size_bytes,
            file.ledger.entries,
            file.crc,
            offloaded_at_ms=self.unix_ms,
            replicas_until_ms=None if self.lag_ms is None else self.unix_ms + self.lag_ms,
        )


@dataclass(frozen=True, slots=True)
class ReplicasUnneeded:
    """The owner has read these files and found them whole: their ledgers, or the copies of these, leave the bookies, unless the list names
    other files by now. What an earlier restore says of a former file stays: that one has a lag of its own (rule 72).
    """

    offloads: Mapping[LedgerId, Offload]

    def applied(self, current: LedgerList) -> LedgerList:
        """The list after it."""
        return replace(current, ledgers=tuple(map(self._row, current.ledgers)))

    def _row(self, row: ListedLedger) -> ListedLedger:
        if row.offload is None or self.offloads.get(row.ledger_id) != row.offload:
            return row
        restored = None if row.restored is None else replace(row.restored, stored_as=None)
        return replace(row, offload=row.offload.without_replicas, restored=restored)


OffloadChange: TypeAlias = OffloadBegun | OffloadsWritten | ReplicasUnneeded | LedgersRestored


def is_named(offload: Offload | None, file: WrittenFile) -> bool:
    """Whether a list's row names this file."""
    return offload is not None and (offload.place, offload.crc) == (file.place, file.crc)


def check_files(ledger_list: LedgerList, written: OffloadsWritten) -> bool:
    """Whether the list names all files of a run; False: it may name them now.

    Raises PlanOutdatedError if another run has begun, or a ledger is not the one that was copied; LedgersNeededError for an open one.
    """
    listed = {ledger.ledger_id: ledger for ledger in ledger_list.ledgers}
    rows = [listed.get(file.ledger.ledger_id) for file in written.files]
    for file, row in zip(written.files, rows, strict=True):
        check_unchanged(file.ledger, row)
    if all(row and is_named(row.offload, file) for file, row in zip(written.files, rows, strict=True)):
        return True
    if ledger_list.offload_job != written.job:
        msg = f"another run has begun to offload the topic since run {written.job!r} did: run the job again"
        raise PlanOutdatedError(msg)
    for row in rows:
        if row is not None and not row.has_replicas:
            msg = f"ledger {row.ledger_id} is offloaded, and its file is the only copy: leave it out"
            raise PlanOutdatedError(msg)
    return False
