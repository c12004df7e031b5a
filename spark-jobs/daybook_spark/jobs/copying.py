"""What a task of an offload does: it copies a ledger into a file, reads the file back, and compares the two (rule 70).

Each attempt has a file of its own, so that one which Spark has given up, and which still writes, damages nothing. What goes wrong with a
ledger is its result, so that it holds up no other ledger. An attempt that is killed leaves its file, which a later run deletes.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from pyspark import TaskContext

from daybook.core.errors import DaybookError
from daybook.core.format.frame import Entry
from daybook.core.ids import LedgerId
from daybook.core.topics.offload.changes import WrittenFile
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.offload.errors import OffloadError, OffloadFileError
from daybook.offload.format import FORMAT_VERSION
from daybook.offload.reading import EntriesFile
from daybook.offload.store import delete_file, file_uri
from daybook.offload.writing import EntriesWriter
from daybook.runtime.logs import get_logger
from daybook_spark.options import Where
from daybook_spark.plan.entry_range import EntryRange
from daybook_spark.read.entries import read_range

log = get_logger(__name__)

_NAME_END = ".parquet"


@dataclass(frozen=True, slots=True)
class LedgerCopy:
    """What a task is asked for."""

    planned: PlannedLedger
    """The ledger as the topic's list has it."""
    entries: EntryRange
    """All of the ledger."""
    folder: str
    """The URI of the topic's folder, which exists where a folder has to."""
    job: str
    """The run, whose name each of its files has."""


class Copied(NamedTuple):
    """What became of a ledger: a file that was read back and is whole, or an error."""

    ledger_id: LedgerId
    file: WrittenFile | None
    error: str = ""


def file_name(ledger_id: LedgerId, job: str, attempt: int) -> str:
    """The name of an attempt's file."""
    return f"{ledger_id}-{job}-{attempt}{_NAME_END}"


def ledger_of(place: str) -> str:
    """The ledger that the name of a file begins with, as text; another text where no job wrote the file."""
    return place.partition("?")[0].rpartition("/")[2].partition("-")[0]


def copy_ledgers(copies: Iterator[LedgerCopy], *, where: Where) -> Iterator[Copied]:
    """Copy ledgers, one after the other; what goes wrong with one is its result."""
    context = TaskContext.get()
    attempt = 0 if context is None else context.taskAttemptId()
    for copy in copies:
        yield copied(copy, read_range(where, copy.entries), attempt)


def copied(copy: LedgerCopy, runs: Iterable[Sequence[Entry]], attempt: int = 0) -> Copied:
    """Copy the entries `runs` of a ledger into the attempt's file, and verify it."""
    ledger_id = copy.planned.ledger_id
    place = file_uri(copy.folder, file_name(ledger_id, copy.job, attempt))
    try:
        return Copied(ledger_id, _verified(copy, runs, place))
    except DaybookError as error:
        why = str(error)
    except Exception as error:
        log.error(
            "a ledger was not copied after an error of the job's own", ledger_id=ledger_id, exc_info=error
        )
        why = f"{type(error).__name__}: {error}; the task's log has more: please report it"
    with suppress(OffloadError):  # a store that cannot be reached now; the next run deletes the file
        delete_file(place)
    return Copied(ledger_id, None, why)


def _verified(copy: LedgerCopy, runs: Iterable[Sequence[Entry]], place: str) -> WrittenFile:
    """Raises OffloadError, and what reading raises."""
    writer = EntriesWriter(place, copy.planned.ledger_id)
    with writer:
        for run in runs:
            writer.add(run)
    written = writer.written()
    file = EntriesFile(place, copy.planned.ledger_id, copy.planned.entries)
    try:
        found = file.verified()
    finally:
        file.close()
    if found != written:
        msg = f"{place} was read back with {found}, and was written with {written}: check the store, and run the job again"
        raise OffloadFileError(msg)
    return WrittenFile(copy.planned, place, FORMAT_VERSION, written.size_bytes, written.crc)
