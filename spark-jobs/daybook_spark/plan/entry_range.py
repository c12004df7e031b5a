"""What a task is given: a run of entries of one ledger, on bookies or in a file, and all that is needed to read it without ZooKeeper."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from pyspark.sql.datasource import InputPartition

from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import BookieInfo
from daybook.core.topics.ledger_list import ListedLedger
from daybook_spark.plan.ranges import average_bytes


@dataclass(frozen=True)
class EntryRange(InputPartition):
    """Entries `first` to `last` of a ledger, all of them confirmed when the driver asked.

    The stored metadata contains the key that bookies ask for, so it appears in no text form of a range.
    """

    ledger_id: LedgerId
    """As rows name it; the metadata is that of its copy if it was restored (rule 72)."""
    first: EntryId
    last: EntryId
    stored_metadata: bytes = field(repr=False)
    bookies: tuple[BookieInfo, ...] = field(repr=False)
    """Where the bookies of the ledger were."""
    topic: str = ""
    """The topic that has the ledger, without its partition; empty for a ledger by itself."""
    partition: int | None = None

    @cached_property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as the driver read it."""
        return LedgerMetadata.from_json(self.stored_metadata)

    @property
    def entry_bytes(self) -> float:
        """How large an entry is on average, at least 1."""
        return average_bytes(self.metadata, self.metadata.fragment_index(self.first))

    @property
    def addresses(self) -> dict[BookieId, BookieInfo]:
        """The bookies by id."""
        return {info.bookie: info for info in self.bookies}


@dataclass(frozen=True)
class FileRange(InputPartition):
    """Entries `first` to `last` of a topic's ledger whose file is the only copy (rule 70)."""

    ledger_id: LedgerId
    first: EntryId
    last: EntryId
    place: str
    """The file's URI."""
    entries: int
    """How many the ledger has, by the topic's list."""
    entry_bytes: float
    """How large an entry is on average, at least 1."""
    topic: str
    partition: int | None = None

    @classmethod
    def of(
        cls, row: ListedLedger, first: EntryId, last: EntryId, topic: str, partition: int | None
    ) -> "FileRange":
        """Entries of a listed ledger that has no replicas."""
        assert row.offload is not None, "a ledger without replicas has a file"
        entry_bytes = max(1.0, row.size_bytes / row.entries)
        return cls(row.ledger_id, first, last, row.offload.place, row.entries, entry_bytes, topic, partition)


Range: TypeAlias = EntryRange | FileRange
