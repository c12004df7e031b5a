"""The entries of a range, piece by piece: at no time more of them than the reader's read-ahead, or a file's row group, whatever the ledger's size.

The client asks the next replica where one fails, and verifies every CRC. Where all replicas fail it reads the metadata again, once it
has a session; that also says where restarted bookies are now, so the range continues with what the client has learned. Where the ledger or its
file is gone, the topic's list says whether the entries are elsewhere, and the range continues there (rule 70, rule 72).
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from daybook.core.errors import DaybookError, NoSuchLedgerError, NotEnoughReplicasError
from daybook.core.format.entries import Entry
from daybook.core.topics.name import TopicName
from daybook.metadata.partitions import partition
from daybook.offload.errors import OffloadFileError
from daybook.offload.reading import EntriesFile
from daybook.runtime.logs import get_logger
from daybook_spark.options import Where
from daybook_spark.plan.entry_range import EntryRange, FileRange, Range
from daybook_spark.plan.moved import other_place
from daybook_spark.read.process import ProcessClient, client_of
from daybook_spark.worker import leave_modules_out_of_collections

log = get_logger(__name__)


def read_range(where: Where, entries: Range) -> Iterator[Sequence[Entry]]:
    """The entries of a range, each exactly once and in order.

    Raises NoSuchLedgerError once the ledger was deleted, NotEnoughReplicasError, CorruptEntryError, and of a file OffloadError.
    """
    following = entries.first
    while following <= entries.last:
        try:
            for run in _of_file(entries) if isinstance(entries, FileRange) else _of_bookies(where, entries):
                following = run[-1].entry_id + 1
                yield run
        except (NoSuchLedgerError, OffloadFileError) as error:
            found = _elsewhere(where, entries)
            if found is None:
                raise
            log.warning(
                "entries have moved since the query was planned", ledger_id=entries.ledger_id, why=str(error)
            )
            entries = replace(found, first=following)
    leave_modules_out_of_collections()


def _elsewhere(where: Where, entries: Range) -> Range | None:
    """The same entries where the topic's list names them now; None: nowhere else. It is read in a session, as rarely as ledgers vanish."""
    if not entries.topic:
        return None
    name = TopicName.parse(entries.topic)
    name = name if entries.partition is None else partition(name, entries.partition)
    process = client_of(where)

    async def look() -> Range | None:
        try:
            place = other_place(entries, await process.client.topic(name))
            if place is None or isinstance(place, FileRange):
                return place
            metadata = (await process.client.ledgers.read(place)).value
        except DaybookError as error:
            log.warning("the topic's list says of no other place", topic=entries.topic, why=str(error))
            return None  # what the task has met is the error of the query
        spot = entries.topic, entries.partition
        return EntryRange(entries.ledger_id, entries.first, entries.last, metadata.to_json(), (), *spot)

    return process.loop.run(look())


def _of_file(entries: FileRange) -> Iterator[Sequence[Entry]]:
    """A row group at a time."""
    with closing(EntriesFile(entries.place, entries.ledger_id, entries.entries)) as file:
        for group in file.read(entries.first, entries.last):
            yield tuple(group)


def _of_bookies(where: Where, entries: EntryRange) -> Iterator[Sequence[Entry]]:
    """As far as each try reads, and the next try from there on."""
    process = client_of(where)
    process.loop.call(lambda: process.client.learn(entries.addresses))
    following = entries.first
    while following <= entries.last:
        known = process.client.bookies()
        begun_at = following
        try:
            for run in _runs(process, entries, following):
                following = run[-1].entry_id + 1
                yield run
        except NotEnoughReplicasError:
            if following == begun_at and process.client.bookies() is known:
                raise


def _runs(process: ProcessClient, entries: EntryRange, first: int) -> Iterator[Sequence[Entry]]:
    """The entries from `first` on, as far as the replicas give them."""
    reader = process.loop.call(lambda: process.client.reader(entries.metadata, entries.last))
    return process.loop.iterate(lambda: reader.read_batches(first, entries.last))
