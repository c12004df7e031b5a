"""The blocking client: the same, for code without an event loop."""

import threading
from itertools import islice

import pytest

import daybook
from daybook.client.blocking import connect_blocking
from daybook.local.cluster import CLUSTER_NAME, LocalCluster

pytestmark = pytest.mark.integration


def test_a_script_writes_reads_and_deletes(cluster: LocalCluster) -> None:
    with connect_blocking(cluster.zookeeper.connect_string, cluster=CLUSTER_NAME) as client:
        assert len(client.bookies()) == 4
        with client.create_ledger(password=b"secret") as ledger:
            assert ledger.append(b"a") == 0
            assert ledger.append_many([b"b", b"c"]) == (1, 2)
            assert ledger.last_add_confirmed == 2
        with pytest.raises(daybook.UnauthorizedError):
            client.open_ledger(ledger.id)
        reader = client.open_ledger(ledger.id, password=b"secret")
        assert [entry.data for entry in reader.read(0, 2)] == [b"a", b"b", b"c"]
        assert [len(batch) for batch in reader.read_batches(1, 2)] == [2]
        assert [entry.data for entry in islice(reader.tail(2), 1)] == [b"c"]
        assert ledger.id in [found.ledger_id for found in client.list_ledgers()]
        client.delete_ledger(ledger.id, password=b"secret")
        with pytest.raises(daybook.NoSuchLedgerError):
            client.open_ledger(ledger.id, password=b"secret")


def test_a_script_reads_what_fits_and_through_the_handle_that_writes(cluster: LocalCluster) -> None:
    with connect_blocking(cluster.zookeeper.connect_string, cluster=CLUSTER_NAME) as client:
        with client.create_ledger() as ledger:
            reader = ledger.reader()
            assert (reader.id, reader.last_add_confirmed) == (ledger.id, -1)
            assert list(reader.read()) == []
            ledger.append_many([b"a", b"b", b"c"])
            assert [entry.data for entry in reader.read_batch(0)] == [b"a", b"b", b"c"]
            assert [entry.data for entry in reader.read_batch(1, entries_max=1)] == [b"b"]
            assert [entry.data for entry in reader.read(1)] == [b"b", b"c"]
            with pytest.raises(daybook.NoSuchEntryError):
                reader.read_batch(3)
            with pytest.raises(ValueError, match="must be at least 1"):
                reader.read_batch(0, bytes_max=0)
            other = client.open_ledger(ledger.id, recover=False)
            ledger.append(b"d")
            assert reader.last_add_confirmed == 3
        assert other.refresh(lenient=False) == 3
        assert reader.metadata.is_closed
        assert [entry.entry_id for entry in other.read_batch(2, 3, bytes_max=1)] == [2]


def test_a_failed_connection_leaves_no_thread(cluster: LocalCluster) -> None:
    before = set(threading.enumerate())
    with (
        pytest.raises(daybook.DaybookError),
        connect_blocking(cluster.zookeeper.connect_string, cluster="other"),
    ):
        pass
    assert "daybook-client" not in [thread.name for thread in set(threading.enumerate()) - before]
