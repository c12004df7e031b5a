"""The rows of an offloaded ledger: its messages as plain Parquet, for programs without Daybook. Owners and Daybook's readers never read them.

Whoever reads the folder `rows/` of a topic takes every file in it, so a file comes there whole, and once the topic's list names the file
of the ledger's entries. Until then it is beside the entries, under a name that begins with `_`, which readers of Parquet leave out. It has
the name of the entries file that it belongs to, and goes with that one.
"""

from types import TracebackType
from typing import Any, Final, Self

from daybook.core.topics.offload.record import name_of
from daybook.offload.store import file_uri, files_in, make_durable, open_uri, split_uri, store_errors

ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""A row group ends once its columns have so many bytes in memory."""
_FOLDER: Final = "rows"
_WAITING: Final = "_"


def waiting_rows(place: str) -> str:
    """Where the rows of the entries file `place` are until the topic's list names that file."""
    folder, name = split_uri(place)
    return file_uri(folder, _WAITING + name)


def published_rows(place: str) -> str:
    """Where the rows of the entries file `place` are from then on."""
    folder, name = split_uri(place)
    return file_uri(rows_folder(folder), name)


def rows_folder(folder: str) -> str:
    """Where the published rows are, below the folder of a topic."""
    return file_uri(folder, _FOLDER)


def topic_files(folder: str) -> dict[str, str]:
    """All files of a topic's folder, entries and rows, each with the place of the entries file that it is or belongs to. Raises OffloadError."""
    found = (*files_in(folder), *files_in(rows_folder(folder)))
    return {place: file_uri(folder, name_of(place).removeprefix(_WAITING)) for place in found}


class RowsWriter:
    """A context: the file is closed, and durable, where it ends without an error. At no time more than a row group is in memory."""

    def __init__(self, uri: str, schema: Any) -> None:
        """Begin the file `uri`, whose folder exists, with the columns of a `pyarrow.Schema`. Raises OffloadError."""
        self._uri = uri
        self._schema = schema
        self._batches: list[Any] = []
        self._bytes = 0
        self.count = 0
        """The rows so far."""
        opened = open_uri(uri)
        from pyarrow import parquet

        with store_errors(uri):
            self._writer: Any = parquet.ParquetWriter(
                opened.path,
                schema,
                filesystem=opened.filesystem,
                compression="zstd",
                write_page_checksum=True,
            )

    def add(self, batch: Any) -> None:
        """The next rows, a `pyarrow.RecordBatch`. Raises OffloadError."""
        self._batches.append(batch)
        self._bytes += batch.nbytes
        self.count += batch.num_rows
        if self._bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        group = pa.Table.from_batches(self._batches, self._schema)
        with store_errors(self._uri):
            self._writer.write_table(group, row_group_size=group.num_rows)
        self._batches, self._bytes = [], 0

    def __enter__(self) -> Self:
        """The writer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file. After an error it is incomplete, and a later run deletes it."""
        if kind is None and self._batches:
            self._flush()
        with store_errors(self._uri):
            self._writer.close()
        if kind is None:
            make_durable(self._uri)


def rows_in(uri: str) -> int:
    """How many rows a file has. All of it is read, and each page compared with its CRC. Raises OffloadFileError, OffloadError."""
    opened = open_uri(uri)
    from pyarrow import parquet

    with (
        store_errors(uri),
        parquet.ParquetFile(
            opened.path, filesystem=opened.filesystem, pre_buffer=True, page_checksum_verification=True
        ) as file,
    ):
        groups = range(file.metadata.num_row_groups)
        return sum(file.read_row_group(number, use_threads=False).num_rows for number in groups)
