"""An audit of a cluster whose ledgers are deleted, and whose copies are moved, while it reads: what nobody owes any more is no fault."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from daybook_spark.audit import owed
from daybook_spark.audit.job import audit_table, run_audit, summary_of
from daybook_spark.audit.owed import Copy, no_longer_owed
from daybook_spark.options import where_of
from pyspark.sql import SparkSession

from daybook.core.ledger.metadata import Fragment, LedgerState
from daybook.local.cluster import LocalCluster
from daybook.metadata.ledgers import LedgerManager
from tests.fixtures.cluster import connect_to, make_cluster
from tests.fixtures.spark import where
from tests.unit.metadata.harness import LAYOUT, formatted, ledger, memory_opener

ENTRIES = 20


@pytest.mark.parametrize("together", [1, 1000])
async def test_a_copy_is_owed_while_its_fragment_names_the_bookie(
    monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(owed, "READ_TOGETHER", together)
    _, opener = memory_opener()
    store = await opener()
    await formatted(store)
    ledgers = LedgerManager(store, LAYOUT)
    fragments = Fragment(0, 0, ("b1", "b2", "b3")), Fragment(5, 50, ("b1", "b2", "b4"))
    closed: dict[str, Any] = {
        "state": LedgerState.CLOSED,
        "last_entry": 9,
        "length": 100,
        "fragments": fragments,
    }
    kept, gone, unreadable = [
        (await ledgers.create_ledger(partial(ledger, **closed))).value.ledger_id for _ in range(3)
    ]
    await ledgers.delete(gone, (await ledgers.read(gone)).version)
    await store.put(LAYOUT.ledger(unreadable), b"{}", (await ledgers.read(unreadable)).version)
    still = [Copy(kept, 0, "b3"), Copy(kept, 3, "b3"), Copy(kept, 5, "b4"), Copy(unreadable, 0, "b1")]
    moved = [Copy(kept, 5, "b3"), Copy(kept, 9, "b3"), Copy(kept, 0, "b4"), Copy(gone, 0, "b1")]
    assert await no_longer_owed(ledgers, [*still, *moved]) == moved
    await store.close()


async def lacking(cluster: LocalCluster) -> list[int]:
    """Three ledgers that bookie-2 has nothing of."""
    async with connect_to(cluster) as client:
        handles = [await client.create_ledger() for _ in range(3)]
        await asyncio.to_thread(cluster.stop_bookies, "bookie-2")
        for handle in handles:
            await handle.append_many([b"x" * 100] * ENTRIES)
            await handle.close()
        await asyncio.to_thread(cluster.start_bookie, "bookie-2")
        return [handle.id for handle in handles]


async def change(cluster: LocalCluster, trimmed: int, moved: int) -> None:
    """An owner trims one ledger, and a repair moves the copies of another."""
    async with connect_to(cluster) as client:
        await client.delete_ledger(trimmed)
        current = await client.ledgers.read(moved)
        await client.ledgers.cas(current, current.value.with_replica(0, "bookie-2", "bookie-9"))


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_faults_of_ledgers_that_are_deleted_or_moved_during_an_audit_are_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = str(tmp_path / "copies")
    with make_cluster(tmp_path / "cluster", bookies=3) as cluster:
        trimmed, moved, faulty = asyncio.run(lacking(cluster))
        target = where_of(where(cluster))
        copies = audit_table(spark, target).persist()
        assert copies.where("missing > 0").count() == 3, "all copies have been read"
        asyncio.run(change(cluster, trimmed, moved))
        summary = run_audit(copies, target, parquet=table)
        assert [(row["ledger_id"], row["bookie"]) for row in summary.faulty] == [(faulty, "bookie-2")]
        assert (summary.copies.owed, summary.copies.missing) == (7 * ENTRIES, ENTRIES)
        written = spark.read.parquet(table)
        assert written.columns == copies.columns
        assert summary_of(written).record() == summary.record()
