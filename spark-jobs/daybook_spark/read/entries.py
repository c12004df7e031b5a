"""The entries of a range, piece by piece: at no time more of them than the reader's read-ahead, whatever the ledger's size.

The client asks the next replica where one fails, and verifies every CRC. Where all replicas fail it reads the metadata again, once it
has a session; that also says where restarted bookies are now, so the range continues with what the client has learned.
"""

from collections.abc import Iterator

from daybook.core.errors import NotEnoughReplicasError
from daybook.core.format.frame import Entry
from daybook_spark.options import Where
from daybook_spark.plan.entry_range import EntryRange
from daybook_spark.read.process import ProcessClient, client_of


def read_range(where: Where, entries: EntryRange) -> Iterator[tuple[Entry, ...]]:
    """The entries of a range, each exactly once and in order.

    Raises NoSuchLedgerError once the ledger was deleted, NotEnoughReplicasError, CorruptEntryError.
    """
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
