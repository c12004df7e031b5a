"""`cluster.json`: its content, and that simultaneous changes do not undo each other."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from daybook.local.cluster_file import BookieEntry, BrokerEntry, ClusterError, ClusterFile


def entry(number: int, pid: int = 1) -> BookieEntry:
    """A bookie."""
    return BookieEntry(f"bookie-{number}", "127.0.0.1:1", pid, "r", "/d", "127.0.0.1:2", "127.0.0.1:3")


def broker(number: int, pid: int = 1) -> BrokerEntry:
    """A broker."""
    urls = ("pulsar://127.0.0.1:4", "http://127.0.0.1:5")
    return BrokerEntry(f"broker-{number}", *urls, pid, "127.0.0.1:6", "127.0.0.1:7")


def test_bookies_that_start_at_once_are_all_recorded(tmp_path: Path) -> None:
    ClusterFile("127.0.0.1:1", "local", tuple(entry(number) for number in range(32))).write(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: ClusterFile.note(tmp_path, entry(number, pid=7)), range(32)))
    assert [bookie["pid"] for bookie in json.loads((tmp_path / "cluster.json").read_text())["bookies"]] == [
        7
    ] * 32


def test_a_broker_that_starts_again_replaces_itself_alone_and_the_file_has_the_fixed_form(
    tmp_path: Path,
) -> None:
    ClusterFile("127.0.0.1:1", "local", (entry(0),), (broker(0), broker(1))).write(tmp_path)
    ClusterFile.note(tmp_path, broker(1, pid=7))
    ClusterFile.note(tmp_path, broker(2))
    found = ClusterFile.read(tmp_path)
    assert [each.pid for each in found.brokers] == [1, 7, 1]
    assert found.bookies == (entry(0),)
    assert found.broker("broker-1").pid == 7
    with pytest.raises(ClusterError, match="there is no broker 'x'"):
        found.broker("x")
    record = json.loads((tmp_path / "cluster.json").read_text())
    assert record["brokers"][0] == {
        "id": "broker-0",
        "service_url": "pulsar://127.0.0.1:4",
        "admin_url": "http://127.0.0.1:5",
        "pid": 1,
        "health_address": "127.0.0.1:6",
        "metrics_address": "127.0.0.1:7",
    }


def test_the_error_about_an_unknown_bookie_lists_the_known_ones(tmp_path: Path) -> None:
    file = ClusterFile("127.0.0.1:1", "local", (entry(0), entry(1)))
    with pytest.raises(
        ClusterError, match=r"no bookie 'x' in this cluster \(there are: bookie-0, bookie-1\)"
    ):
        file.bookie("x")
