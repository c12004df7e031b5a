"""The file of an export is whole, or it is an error that names the place."""

import gzip
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from daybook.metadata.backup.file import (
    BackupFileError,
    ExportedNode,
    Header,
    create,
    open_export,
)

HEADER = Header("test", "an-instance", 1_700_000_000_000)
NODES = [
    ExportedNode("", b""),
    ExportedNode("/a", b'{"text":"\xc3\xa4\\n"}'),
    ExportedNode("/a/b", bytes(range(256))),
    ExportedNode("/a/c", b"plain"),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "export.gz"
    with create(path) as writer:
        writer.begin(HEADER)
        for node in NODES:
            writer.write(node)
        writer.end()
    return path


def read(path: Path) -> list[ExportedNode]:
    """All nodes of the file."""
    with open_export(path) as export:
        assert export.header == HEADER
        return list(export.nodes())


def test_what_was_written_is_read_and_only_its_owner_may(file: Path) -> None:
    assert read(file) == NODES
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_that_is_cut_short_anywhere_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(BackupFileError, match=r"damaged at line|no export of metadata"):
            read(file)


def test_a_flipped_bit_anywhere_gives_other_nodes_never(file: Path) -> None:
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        try:
            assert read(file) == NODES, "a bit of gzip's header that says nothing"
        except BackupFileError:
            continue


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda lines: lines[:2] + lines[3:], "line 3: its checksum"),
        (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], "line 3: its checksum"),
        (lambda lines: lines[:-1], "line 6: the file ends early"),
        (lambda lines: [*lines, lines[-1]], "line 7: something follows"),
        (lambda lines: [lines[0], lines[1].replace(b'"path":""', b'"path":"/x"'), *lines[2:]], "line 2: its"),
        (lambda lines: [b"what is this?\n"], "no export of metadata"),
        (lambda lines: [], "no export of metadata"),
    ],
)
def test_lines_that_are_missing_moved_changed_or_added_are_refused(
    file: Path, change: Callable[[list[bytes]], list[bytes]], why: str
) -> None:
    """Also where gzip's own checksum, which anybody can make anew, is right."""
    lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    file.write_bytes(gzip.compress(b"".join(change(lines))))
    with pytest.raises(BackupFileError, match=why):
        read(file)


def test_a_file_of_something_else_and_one_of_a_later_release_say_so(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("daybook.metadata.backup.file.FORMAT_VERSION", 2)
    with pytest.raises(BackupFileError, match="has format 1, this release reads 2"):
        read(file)
    other = tmp_path / "other"
    other.write_text("hello\n", encoding="utf-8")
    with pytest.raises(BackupFileError, match="no export of metadata"):
        read(other)


def test_an_export_that_fails_leaves_no_file_and_one_that_exists_stays(tmp_path: Path, file: Path) -> None:
    def write_half(path: Path) -> None:
        with create(path) as writer:
            writer.begin(HEADER)
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_half(tmp_path / "half.gz")
    assert sorted(tmp_path.iterdir()) == [file]
    with pytest.raises(BackupFileError, match="choose another name"):
        write_half(file)
    assert read(file) == NODES
