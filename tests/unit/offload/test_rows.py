"""The files of rows: written group by group, read back, and moved to where other programs read them."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from daybook.core.topics.name import TopicName
from daybook.offload import rows as rows_files
from daybook.offload.errors import OffloadError, OffloadFileError
from daybook.offload.rows import (
    RowsWriter,
    published_rows,
    rows_folder,
    rows_in,
    topic_files,
    waiting_rows,
)
from daybook.offload.store import delete_file, file_uri, make_folder, move_file, open_uri, topic_folder

SCHEMA = pa.schema([("entry_id", pa.int64()), ("value", pa.binary())])


def batch(first: int, count: int) -> pa.RecordBatch:
    ids = range(first, first + count)
    return pa.record_batch([pa.array(ids), [b"%02d" % number * 50 for number in ids]], schema=SCHEMA)


def write_rows(uri: str, *batches: pa.RecordBatch) -> int:
    writer = RowsWriter(uri, SCHEMA)
    with writer:
        for each in batches:
            writer.add(each)
    return writer.count


def test_rows_wait_beside_their_entries_and_are_whole_where_others_read_them(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_files, "ROW_GROUP_BYTES", 2_000)
    folder = topic_folder(store, "b3f0", TopicName("public", "default", "rows"))
    make_folder(rows_folder(folder))
    entries = file_uri(folder, "7-job-0.parquet")
    waiting, published = waiting_rows(entries), published_rows(entries)
    assert write_rows(waiting, *(batch(first, 10) for first in range(0, 60, 10))) == 60
    assert rows_in(waiting) == 60
    assert topic_files(folder) == {waiting: entries}

    move_file(waiting, published)
    move_file(waiting, published)
    assert topic_files(folder) == {published: entries}
    filesystem, path = open_uri(rows_folder(folder))
    found = parquet.read_table(path, filesystem=filesystem)
    assert found.equals(pa.Table.from_batches([batch(0, 60)]))
    with filesystem.open_input_file(open_uri(published).path) as file:
        groups = parquet.ParquetFile(file).metadata
        assert [groups.row_group(at).num_rows for at in range(groups.num_row_groups)] == [20, 20, 20]
    delete_file(published)
    assert topic_files(folder) == {}


def test_a_file_of_no_rows_is_one(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/none.parquet"
    assert (write_rows(uri), rows_in(uri)) == (0, 0)


def test_rows_whose_pages_are_damaged_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    write_rows(f"file://{path}", batch(0, 1_000))
    whole = path.read_bytes()
    path.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    with pytest.raises(OffloadError, match="damaged"):
        rows_in(f"file://{path}")
    path.write_bytes(whole[:-1])
    with pytest.raises(OffloadFileError, match="is damaged"):
        rows_in(f"file://{path}")


def test_a_file_that_cannot_be_moved_stays(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/a.parquet"
    write_rows(uri, batch(0, 1))
    with pytest.raises(OffloadError):
        move_file(uri, f"file://{tmp_path}/no such folder/a.parquet")
    assert rows_in(uri) == 1
