"""Writes one ledger into one file. A file counts once it was closed, read back, and named by the list of its topic (rule 70)."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from crc32c import crc32c

from daybook.core.format.checksums import entry_crcs
from daybook.core.format.entries import Entry
from daybook.core.ids import LedgerId
from daybook.offload import format as file_format
from daybook.offload.store import make_durable, open_uri, size_of, store_errors


class WrittenEntries(NamedTuple):
    """What is in a file: what the list of its topic says, and what a reader compares."""

    size_bytes: int
    """Of the file."""
    entries: int
    crc: int
    """CRC32C over the CRCs of all entries in order, each as four bytes, little-endian."""


def crc_of(crcs: Sequence[int], crc: int = 0) -> int:
    """The CRC of a ledger's CRCs, continued from that of those before."""
    return crc32c(b"".join(each.to_bytes(4, "little") for each in crcs), crc)


class EntriesWriter:
    """A context: the file is closed, and durable, where it ends without an error."""

    def __init__(self, uri: str, ledger_id: LedgerId) -> None:
        """Begin the file `uri`, whose folder exists. Raises OffloadError."""
        self._uri = uri
        self._ledger_id = ledger_id
        self._entries: list[Entry] = []
        self._bytes = 0
        self._count = 0
        self._crc = 0
        opened = open_uri(uri)
        from pyarrow import parquet

        with store_errors(uri):
            self._writer: Any = parquet.ParquetWriter(
                opened.path,
                file_format.schema(),
                filesystem=opened.filesystem,
                compression="zstd",
                use_dictionary=False,
                write_statistics=["entry"],
                write_page_checksum=True,
            )

    def add(self, entries: Sequence[Entry]) -> None:
        """The ledger's next entries. Raises OffloadError."""
        for entry in entries:
            assert entry.entry_id == self._count + len(self._entries), "entries follow each other from 0 on"
            self._entries.append(entry)
            self._bytes += len(entry.data)
            if (
                self._bytes >= file_format.ROW_GROUP_BYTES
                or len(self._entries) == file_format.ROW_GROUP_ENTRIES
            ):
                self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        ids = [entry.entry_id for entry in self._entries]
        payloads = [entry.data for entry in self._entries]
        crcs = entry_crcs(self._ledger_id, ids, payloads)
        rows = [[self._ledger_id] * len(ids), ids, crcs, payloads]
        group = pa.table(rows, schema=file_format.schema())
        with store_errors(self._uri):
            self._writer.write_table(group, row_group_size=len(ids))
        self._crc = crc_of(crcs, self._crc)
        self._count += len(ids)
        self._entries, self._bytes = [], 0

    def __enter__(self) -> Self:
        """The writer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file. After an error it is incomplete, nobody names it, and a later run deletes it."""
        if kind is None and self._entries:
            self._flush()
        with store_errors(self._uri):
            self._writer.close()
        if kind is None:
            make_durable(self._uri)

    def written(self) -> WrittenEntries:
        """What is in the file, once it is closed. Raises OffloadError."""
        return WrittenEntries(size_of(self._uri), self._count, self._crc)
