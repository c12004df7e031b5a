"""The audit's table shows copies whose places break the placement policy or the ledger's pool, also where no better place is free."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from daybook_spark.audit.job import summary_of
from daybook_spark.audit.plan import plan_audit
from pyspark.sql import SparkSession

from daybook.core.ledger.metadata import POOL_KEY
from daybook.local.cluster import LocalCluster
from tests.fixtures.cluster import connect_to, make_cluster
from tests.fixtures.spark import RunJob
from tests.unit.spark.test_audit import repair

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ENTRIES = 10


async def misplace(cluster: LocalCluster) -> tuple[int, int]:
    """Two ledgers, and one as it should be: one whose bookies are in one rack, one whose pool has none of its bookies."""
    async with connect_to(cluster) as client:
        ids = []
        for allowed in ({"bookie-0", "bookie-1"}, {"bookie-0", "bookie-3"}, {"bookie-1", "bookie-2"}):
            ledger = await client.create_ledger(
                ensemble_size=2, write_quorum=2, ack_quorum=2, allowed_bookies=allowed
            )
            await ledger.append_many([b"x" * 100] * ENTRIES)
            await ledger.close()
            ids.append(ledger.id)
        _, same_rack, other_pool = ids
        current = await client.ledgers.read(other_pool)
        new = replace(current.value, custom_metadata={POOL_KEY: b"other"})
        await client.store.put(client.layout.ledger(other_pool), new.to_json(), current.version)
        return same_rack, other_pool


async def placements(cluster: LocalCluster) -> list[str]:
    """What a later audit would have in its table, ledger by ledger."""
    async with connect_to(cluster) as client:
        return [each.placement for piece in await plan_audit(client) for each in piece.ranges]


def test_misplaced_copies_are_in_the_table_and_in_the_summary_until_the_auditor_has_them_moved(
    spark: SparkSession, run_job: RunJob, tmp_path: Path
) -> None:
    table = str(tmp_path / "copies")

    with make_cluster(tmp_path / "cluster") as cluster:
        same_rack, other_pool = asyncio.run(misplace(cluster))
        code, found, errors = run_job(cluster, "audit", "--delay", "0", "--parquet", table)
        assert code == 0, (found, errors)
        first, second = found["copies"]["misplaced"]
        assert [first["ledger_id"], second["ledger_id"]] == [same_rack, other_pool]
        assert (first["first_entry"], first["last_entry"]) == (0, ENTRIES - 1)
        assert first["placement"].endswith(": 1 rack(s) known, 2 wanted")
        assert sorted(second["placement"].split("; ")) == [
            "bookie-1 is not of pool other",
            "bookie-2 is not of pool other",
        ]
        assert found["audit"]["by_reason"] == {"misplaced": [same_rack]}, "the other one has no better place"
        copies = spark.read.parquet(table)
        shown = {(row.ledger_id, row.bookie) for row in copies.where("placement <> ''").collect()}
        assert shown == {
            (same_rack, "bookie-0"),
            (same_rack, "bookie-3"),
            (other_pool, "bookie-1"),
            (other_pool, "bookie-2"),
        }
        assert summary_of(copies).record() == found["copies"]

        asyncio.run(repair(cluster))
        assert asyncio.run(placements(cluster)) == ["", "", second["placement"]]
