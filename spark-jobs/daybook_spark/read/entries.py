"""The entries of a range, piece by piece: at no time more of them than the reader's read-ahead, or a file's row group, whatever the ledger's size.

The client asks the next replica where one fails, and verifies every CRC. Where all replicas fail it reads the metadata again, once it
has a session; that also says where restarted bookies are now, so the range continues with what the client has learned.
"""

from collections.abc import Iterator
from contextlib import closing

from daybook.core.errors import NotEnoughReplicasError
from daybook.core.format.frame import Entry
from daybook.offload.reading import EntriesFile
from daybook_spark.options import Where
from daybook_spark.plan.entry_range import EntryRange, FileRange, Range
from daybook_spark.read.process import ProcessClient, client_of


def read_range(where: Where, entries: Range) -> Iterator[tuple[Entry, ...]]:
    """The entries of a range, each exactly once and in order.

    Raises NoSuchLedgerError once the ledger was deleted, NotEnoughReplicasError, CorruptEntryError, and of a file OffloadError.
    """
    return _of_file(entries) if isinstance(entries, FileRange) else _of_bookies(where, entries)


def _of_file(entries: FileRange) -> Iterator[tuple[Entry, ...]]:
    """A row group at a time."""
    with closing(EntriesFile(entries.place, entries.ledger_id, entries.entries)) as file:
        for group in file.read(entries.first, entries.last):
            yield tuple(group)


def _of_bookies(where: Where, entries: EntryRange) -> Iterator[tuple[Entry, ...]]:
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


def _runs(process: ProcessClient, entries: EntryRange, first: int) -> Iterator[tuple[Entry, ...]]:
    """The entries from `first` on, as far as the replicas give them."""
    reader = process.loop.call(lambda: process.client.reader(entries.metadata, entries.last))
    return process.loop.iterate(lambda: reader.read_batches(first, entries.last))
