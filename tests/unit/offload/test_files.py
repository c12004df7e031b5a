"""A ledger comes back from its file byte for byte, and a file that is damaged, cut short or missing is an error (rule 70)."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daybook.core.format.checksums import entry_crcs
from daybook.core.topics.name import TopicName
from daybook.offload import format as file_format
from daybook.offload.errors import OffloadError, OffloadFileError
from daybook.offload.reading import EntriesFile
from daybook.offload.store import delete_file, file_uri, files_in, make_folder, size_of, topic_folder
from daybook.offload.writing import EntriesWriter, crc_of
from tests.unit.offload.kit import entries_of, read_all, write

TOPIC = TopicName.parse("persistent://public/default/orders 100% ü_5")

payload_lists = st.lists(
    st.binary(max_size=40) | st.integers(0, 60_000).map(lambda size: b"x" * size), min_size=1, max_size=60
)


def test_a_ledger_comes_back_byte_for_byte_in_row_groups_that_a_reader_can_hold(store: str) -> None:
    folder = topic_folder(store, "b3f0", TOPIC)
    make_folder(folder)
    uri = file_uri(folder, "7-job.parquet")
    payloads = [b"", b"first", *(bytes([n]) * 1_500_000 for n in range(6)), b"L" * (8 << 20), b"last"]
    written = write(uri, payloads)
    assert read_all(uri, len(payloads)) == payloads
    file = EntriesFile(uri, 7, len(payloads))
    assert [file.group_of(entry_id) for entry_id in range(10)] == [0, 0, 0, 0, 0, 1, 1, 1, 2, 3]
    assert file.contents() == file.verified() == written
    assert written.crc == crc_of(entry_crcs(7, range(10), payloads))
    assert written.size_bytes == size_of(uri)
    assert files_in(folder) == [uri]
    assert files_in(topic_folder(store, "another", TOPIC)) == []
    delete_file(uri)
    delete_file(uri)
    assert files_in(folder) == []
    with pytest.raises(OffloadFileError, match="does not exist: bring it back"):
        size_of(uri)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(payload_lists, st.data())
def test_any_run_of_entries_of_any_ledger_is_read(
    tmp_path: Path, payloads: list[bytes], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_format, "ROW_GROUP_BYTES", data.draw(st.integers(1, 100_000)))
        patch.setattr(file_format, "ROW_GROUP_ENTRIES", data.draw(st.integers(1, 10)))
        uri = f"file://{tmp_path}/any.parquet"
        written = write(uri, payloads, 9)
        file = EntriesFile(uri, 9, len(payloads))
        first = data.draw(st.integers(0, len(payloads) - 1))
        last = data.draw(st.integers(first, len(payloads) - 1))
        found = [entry for group in file.read(first, last) for entry in group]
        assert found == entries_of(payloads)[first : last + 1]
        assert file.contents() == written


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.data())
def test_rule_70_a_flipped_bit_or_a_missing_end_is_an_error_and_never_another_entry(
    tmp_path: Path, data: st.DataObject
) -> None:
    payloads = [bytes([n % 251]) * (n % 37) for n in range(300)]
    path = tmp_path / "damaged.parquet"
    uri = f"file://{path}"
    written = write(uri, payloads)
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    rest = b""
    if data.draw(st.booleans()):
        rest = bytes([whole[at] ^ 1 << data.draw(st.integers(0, 7))]) + whole[at + 1 :]
    path.write_bytes(whole[:at] + rest)
    error = None
    try:
        found = read_all(uri, 300)
        contents = EntriesFile(uri, 7, 300).verified()
    except OffloadError as raised:
        error = str(raised)
    if error is None:
        assert found == payloads, "the bit is in what no reader uses"
        assert contents == written
    else:
        assert "damaged.parquet" in error
        assert "bring it back" in error or "check the place" in error


def test_rule_70_a_file_is_that_of_its_ledger_with_all_its_entries(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/other.parquet"
    write(uri, [b"a", b"b"], 7)
    with pytest.raises(OffloadFileError, match="it has 2 entries, and the topic's list names 3"):
        EntriesFile(uri, 7, 3)
    with pytest.raises(OffloadFileError, match="another ledger than 8"):
        EntriesFile(uri, 8, 2).read_group(0)


def test_a_file_of_something_else_or_of_a_later_release_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    uri = f"file://{tmp_path}/else.parquet"
    parquet.write_table(pa.table({"x": [1]}), tmp_path / "else.parquet")
    with pytest.raises(OffloadFileError, match="it has format None"):
        EntriesFile(uri, 7, 1)
    with_version = pa.table({"x": [1]}).replace_schema_metadata(file_format.schema().metadata)
    parquet.write_table(with_version, tmp_path / "else.parquet")
    with pytest.raises(OffloadFileError, match="it has the columns"):
        EntriesFile(uri, 7, 1)
    write(uri, [b"a"])
    with monkeypatch.context() as later:
        later.setattr(file_format, "FORMAT_VERSION", 2)
        with pytest.raises(OffloadFileError, match="this release reads 2"):
            EntriesFile(uri, 7, 1)
    monkeypatch.setattr(file_format, "ROW_GROUP_BYTES_MAX", 10)
    with pytest.raises(OffloadFileError, match="row group 0 has"):
        EntriesFile(uri, 7, 1)


def test_a_file_whose_writer_failed_is_not_a_ledger(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/half.parquet"
    writer = EntriesWriter(uri, 7)
    writer.add(entries_of([b"a", b"b"]))
    error = RuntimeError("the bookies are gone")
    writer.__exit__(RuntimeError, error, None)
    with pytest.raises(OffloadFileError, match="names 2"):
        EntriesFile(uri, 7, 2)


def test_entries_are_written_in_order_and_without_a_gap(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="follow each other"),
        EntriesWriter(f"file://{tmp_path}/gap", 7) as writer,
    ):
        writer.add(entries_of([b"a", b"b"])[1:])
