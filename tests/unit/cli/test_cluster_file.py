"""`cluster.json`: its content, and that simultaneous changes do not undo each other."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from daybook.local.cluster_file import BookieEntry, ClusterError, ClusterFile


def entry(number: int, pid: int = 1) -> BookieEntry:
    """A bookie."""
    return BookieEntry(f"bookie-{number}", "127.0.0.1:1", pid, "r", "/d", "127.0.0.1:2", "127.0.0.1:3")


def test_bookies_that_start_at_once_are_all_recorded(tmp_path: Path) -> None:
    ClusterFile("127.0.0.1:1", "local", tuple(entry(number) for number in range(32))).write(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: ClusterFile.note(tmp_path, entry(number, pid=7)), range(32)))
    assert [bookie["pid"] for bookie in json.loads((tmp_path / "cluster.json").read_text())["bookies"]] == [
        7
    ] * 32


def test_the_error_about_an_unknown_bookie_lists_the_known_ones(tmp_path: Path) -> None:
    file = ClusterFile("127.0.0.1:1", "local", (entry(0), entry(1)))
    with pytest.raises(
        ClusterError, match=r"no bookie 'x' in this cluster \(there are: bookie-0, bookie-1\)"
    ):
        file.bookie("x")
