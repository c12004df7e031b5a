"""Reads a file of an offloaded ledger: any of its entries, a row group at a time, and whether the file is whole (rule 70).

Nothing in a file is believed: its index has to cover exactly the entries that the list of the topic names, a row group that claims to be
larger than a writer makes it is not decoded, and each entry has its CRC.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from daybook.core.format.checksums import entry_crcs
from daybook.core.format.entries import Entry
from daybook.core.ids import EntryId, LedgerId
from daybook.offload import format as file_format
from daybook.offload.store import open_uri, size_of, store_errors
from daybook.offload.writing import WrittenEntries, crc_of


class EntriesFile:
    """One file, whose index is read when it is opened. A thread at a time uses it."""

    def __init__(self, uri: str, ledger_id: LedgerId, entries: int) -> None:
        """`entries`: how many the list of the topic names. Raises OffloadFileError, OffloadError, OffloadMissingError."""
        self.uri = uri
        self.ledger_id = ledger_id
        self.entries = entries
        opened = open_uri(uri)
        from pyarrow import parquet

        with store_errors(uri):
            self._file: Any = parquet.ParquetFile(
                opened.path,
                filesystem=opened.filesystem,
                pre_buffer=True,
                page_checksum_verification=True,
            )
            file_format.check_schema(self._file.schema_arrow)
            self._firsts = self._index()

    def _index(self) -> list[EntryId]:
        """The first entry of each row group. Raises ValueError."""
        firsts = []
        end = 0
        for number in range(self._file.metadata.num_row_groups):
            group = self._file.metadata.row_group(number)
            if not 0 < group.num_rows <= file_format.ROW_GROUP_ENTRIES:
                msg = f"row group {number} has {group.num_rows} rows"
                raise ValueError(msg)
            size_bytes = sum(group.column(at).total_uncompressed_size for at in range(group.num_columns))
            if size_bytes > file_format.ROW_GROUP_BYTES_MAX:
                msg = f"row group {number} has {size_bytes} bytes"
                raise ValueError(msg)
            firsts.append(end)
            end += group.num_rows
        if end != self.entries:
            msg = f"it has {end} entries, and the topic's list names {self.entries}"
            raise ValueError(msg)
        return firsts

    def group_of(self, entry_id: EntryId) -> int:
        """The number of the row group with an entry."""
        assert 0 <= entry_id < self.entries
        return bisect_right(self._firsts, entry_id) - 1

    def read_group(self, number: int) -> list[Entry]:
        """The entries of a row group, each verified. Raises OffloadFileError, OffloadError."""
        with store_errors(self.uri):
            ledgers, ids, crcs, payloads = self._columns(number, file_format.COLUMNS)
            self._check_ids(number, ids)
            if any(ledger_id != self.ledger_id for ledger_id in ledgers):
                msg = f"row group {number} has entries of another ledger than {self.ledger_id}"
                raise ValueError(msg)
            if crcs != entry_crcs(self.ledger_id, ids, payloads):
                msg = f"the CRC of an entry of row group {number} is another"
                raise ValueError(msg)
        return [Entry(*pair) for pair in zip(ids, payloads, strict=True)]

    def read(self, first: EntryId, last: EntryId) -> Iterator[list[Entry]]:
        """Entries `first` to `last`, a row group at a time. Raises as `read_group`."""
        while first <= last:
            group = self.read_group(self.group_of(first))
            at = group[0].entry_id
            yield group[first - at : last + 1 - at]
            first = group[-1].entry_id + 1

    def contents(self) -> WrittenEntries:
        """What is in the file by its size, its index and its CRCs; payloads are not read. Raises as `read_group`."""
        crc = 0
        for number in range(len(self._firsts)):
            with store_errors(self.uri):
                ids, crcs = self._columns(number, ("entry", "crc"))
                self._check_ids(number, ids)
                crc = crc_of(crcs, crc)
        return WrittenEntries(size_of(self.uri), self.entries, crc)

    def verified(self) -> WrittenEntries:
        """As `contents`, with all payloads read and compared with their CRCs. Raises as `read_group`."""
        for number in range(len(self._firsts)):
            self.read_group(number)
        return self.contents()

    def close(self) -> None:
        """Let the file go."""
        self._file.close()

    def _columns(self, number: int, names: tuple[str, ...]) -> list[list[Any]]:
        """Columns of a row group, as plain lists."""
        group = self._file.read_row_group(number, columns=list(names), use_threads=False)
        return [group.column(name).to_pylist() for name in names]

    def _check_ids(self, number: int, ids: list[EntryId]) -> None:
        ends = [*self._firsts[number + 1 :][:1], self.entries]
        if ids != list(range(self._firsts[number], ends[0])):
            msg = f"row group {number} has other entries than those from {self._firsts[number]} to {ends[0] - 1}"
            raise ValueError(msg)
