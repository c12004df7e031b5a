"""What a task holds in memory does not grow with the ledger that it reads."""

import asyncio
import json
import subprocess
import sys

import pytest

import daybook
from daybook.local.cluster import LocalCluster
from tests.fixtures.spark import where
from tests.paths import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

MIB = 1024 * 1024
SIZES_MIB = (4, 64)
GROWTH_MIB_MAX = 32
"""The reader reads 8 MiB ahead and gives pieces of 2 MiB; the smaller ledger does not fill all of that."""

READS = """
import json, resource, sys
from daybook_spark.options import parse_read
from daybook_spark.plan.batch import plan
from daybook_spark.plan.bounds import bounds_of
from daybook_spark.read.rows import rows_of
from daybook_spark.rows.columns import default_schema

options = json.loads(sys.argv[1])
found = parse_read(options)
(entries,) = plan(found, bounds_of(found))
rows = sum(batch.num_rows for batch in rows_of(found, entries, default_schema(options)))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


async def test_a_task_takes_no_more_memory_for_a_ledger_of_16_times_the_size(
    client: daybook.Client, cluster: LocalCluster
) -> None:
    peaks_mib = []
    for size_mib in SIZES_MIB:
        ledger = await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        for _ in range(size_mib):
            await ledger.append_many([bytes(1024)] * 1024)
        await ledger.close()
        options = {**where(cluster), "ledger": str(ledger.id), "partitionBytes": str(2 * size_mib * MIB)}
        ran = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", READS, json.dumps(options)],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        rows, peak_mib = map(int, ran.stdout.split())
        assert rows == size_mib * 1024
        peaks_mib.append(peak_mib)
    assert peaks_mib[1] - peaks_mib[0] < GROWTH_MIB_MAX, peaks_mib
