"""What a task of an offload does: it copies a ledger into a file, reads the file back, and compares the two (rule 70).

With rows, the task writes these while the entries pass by, and reads them back as well. Each attempt has files of its own, so that one
which Spark has given up, and which still writes, damages nothing. What goes wrong with a ledger is its result, so that it holds up no
other ledger. An attempt that is killed leaves its files, which a later run deletes.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from pyspark import TaskContext

from daybook.core.errors import DaybookError
from daybook.core.format.entries import Entry
from daybook.core.ids import LedgerId
from daybook.core.topics.offload.changes import WrittenFile
from daybook.core.topics.offload.record import name_of
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.offload.errors import OffloadError, OffloadFileError
from daybook.offload.format import FORMAT_VERSION
from daybook.offload.reading import EntriesFile
from daybook.offload.rows import RowsWriter, rows_in, waiting_rows
from daybook.offload.store import delete_file, file_uri
from daybook.offload.writing import EntriesWriter, WrittenEntries
from daybook.runtime.logs import get_logger
from daybook_spark.options import Where
from daybook_spark.plan.entry_range import EntryRange
from daybook_spark.read.entries import read_range
from daybook_spark.rows.columns import permissive_schema
from daybook_spark.rows.topic_rows import Place, message_rows

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
    with_rows: bool = False
    """Whether the messages are also written as rows; `entries` names the topic then."""


class Copied(NamedTuple):
    """What became of a ledger: a file that was read back and is whole, or an error."""

    ledger_id: LedgerId
    file: WrittenFile | None
    error: str = ""
    rows: int | None = None
    """How many rows were written and read back, which wait beside the file; None: none were asked for."""


def file_name(ledger_id: LedgerId, job: str, attempt: int) -> str:
    """The name of an attempt's file."""
    return f"{ledger_id}-{job}-{attempt}{_NAME_END}"


def ledger_of(place: str) -> str:
    """The ledger that the name of a file begins with, as text; another text where no job wrote the file."""
    return name_of(place).partition("-")[0]


def copy_ledgers(copies: Iterator[LedgerCopy], *, where: Where) -> Iterator[Copied]:
    """Copy ledgers, one after the other; what goes wrong with one is its result."""
    context = TaskContext.get()
    attempt = 0 if context is None else context.taskAttemptId()
    for copy in copies:
        yield copied(copy, read_range(where, copy.entries), attempt)


def copied(copy: LedgerCopy, runs: Iterable[Sequence[Entry]], attempt: int = 0) -> Copied:
    """Copy the entries `runs` of a ledger into the attempt's files, and verify them."""
    ledger_id = copy.planned.ledger_id
    place = file_uri(copy.folder, file_name(ledger_id, copy.job, attempt))
    try:
        return _verified(copy, runs, place)
    except DaybookError as error:
        why = str(error)
    except Exception as error:
        log.error(
            "a ledger was not copied after an error of the job's own", ledger_id=ledger_id, exc_info=error
        )
        why = f"{type(error).__name__}: {error}; the task's log has more: please report it"
    with suppress(OffloadError):  # a store that cannot be reached now; the next run deletes the files
        delete_file(place)
        if copy.with_rows:
            delete_file(waiting_rows(place))
    return Copied(ledger_id, None, why)


def _verified(copy: LedgerCopy, runs: Iterable[Sequence[Entry]], place: str) -> Copied:
    """Raises OffloadError, and what reading raises."""
    writer = EntriesWriter(place, copy.planned.ledger_id)
    rows = None
    with writer:
        passing = _added(writer, runs)
        if copy.with_rows:
            rows = _write_rows(copy, passing, waiting_rows(place))
        else:
            for _ in passing:
                continue
    written = writer.written()
    _check_entries(copy, written, place)
    if rows is not None:
        _check_rows(waiting_rows(place), rows)
    file = WrittenFile(copy.planned, place, FORMAT_VERSION, written.size_bytes, written.crc)
    return Copied(copy.planned.ledger_id, file, rows=rows)


def _added(writer: EntriesWriter, runs: Iterable[Sequence[Entry]]) -> Iterator[Sequence[Entry]]:
    """The runs as they are, each once the writer has it. Raises OffloadError, and what reading raises."""
    for run in runs:
        writer.add(run)
        yield tuple(run)


def _write_rows(copy: LedgerCopy, runs: Iterator[Sequence[Entry]], place: str) -> int:
    """Write the messages as rows, and return how many; an entry that is no message is a row that says why. Raises OffloadError."""
    entries = copy.entries
    schema = permissive_schema()
    with RowsWriter(place, schema) as writer:
        topic = Place(entries.topic, entries.partition, entries.ledger_id)
        for batch in message_rows(topic, runs, schema, is_permissive=True):
            writer.add(batch)
    return writer.count


def _check_entries(copy: LedgerCopy, written: WrittenEntries, place: str) -> None:
    """Read the file of the entries back. Raises OffloadError."""
    file = EntriesFile(place, copy.planned.ledger_id, copy.planned.entries)
    try:
        found = file.verified()
    finally:
        file.close()
    if found != written:
        raise _differs(place, found, written)


def _check_rows(place: str, written: int) -> None:
    """Read the file of the rows back. Raises OffloadError."""
    found = rows_in(place)
    if found != written:
        raise _differs(place, f"{found} rows", f"{written} rows")


def _differs(place: str, found: object, written: object) -> OffloadFileError:
    return OffloadFileError(
        f"{place} was read back with {found}, and was written with {written}: check the store, and run the job again"
    )
