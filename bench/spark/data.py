"""What is read: ledgers and a topic on a cluster of this machine, and the batches that the data source makes of them."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pulsar
import pyarrow as pa
from daybook_spark.options import parse_read
from daybook_spark.plan.batch import plan
from daybook_spark.plan.bounds import bounds_of
from daybook_spark.read.rows import rows_of
from daybook_spark.rows.columns import arrow_schema, default_schema
from pyspark.sql.types import StructType

import daybook
from bench.broker.load import send_all
from bench.sides import WorkloadError
from bench.spark.workloads import LEDGERS, Workload
from daybook.local.cluster import CLUSTER_NAME, LocalCluster

WRITE_BATCH: Final = 1_000
PATIENCE_S: Final = 60


async def write_ledgers(cluster: LocalCluster, size: int, counts: list[int]) -> list[int]:
    """Ledgers of `counts` entries of `size` bytes each; their ids."""
    where = cluster.zookeeper.connect_string
    entries = [os.urandom(size) for _ in range(WRITE_BATCH)]
    ids = []
    async with daybook.connect(where, cluster=CLUSTER_NAME) as client:
        for count in counts:
            async with await client.create_ledger() as ledger:
                for begin in range(0, count, WRITE_BATCH):
                    await ledger.append_many(entries[: min(WRITE_BATCH, count - begin)])
                ids.append(ledger.id)
    return ids


async def options_of(cluster: LocalCluster, work: Workload, name: str) -> dict[str, str]:
    """Write the rows of a workload; the options with which Spark reads them."""
    where = {"zookeeper": cluster.zookeeper.connect_string, "cluster": CLUSTER_NAME}
    if not work.is_topic:
        ids = await write_ledgers(cluster, work.size, [work.rows // LEDGERS] * LEDGERS)
        return {**where, "ledger": ",".join(map(str, ids))}
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn)
    client = pulsar.Client(cluster.file.brokers[0].service_url, logger=quiet)
    send_all(client, name, work.size, work.rows)
    client.close()
    pieces = (
        work.rows * work.size // LEDGERS
    )  # of the only ledger, for about as many tasks as the ledgers have
    return {**where, "topic": f"persistent://public/default/{name}", "partitionBytes": str(pieces)}


@dataclass(frozen=True, slots=True)
class Recorded:
    """The rows of a workload, as the data source makes them."""

    options: Mapping[str, str]
    """With which Spark reads them."""
    directory: Path
    """Files of their batches, one for each range."""
    schema: StructType
    ledgers: tuple[int, ...]
    rows: int


def record(options: Mapping[str, str], rows: int, directory: Path) -> Recorded:
    """Write the batches of each range to a file. Raises WorkloadError where rows are missing.

    A topic's last message is readable a moment after its receipt (rule 48), so this waits for it.
    """
    deadline = time.monotonic() + PATIENCE_S
    while (recorded := _record(options, directory)).rows < rows:
        if time.monotonic() > deadline:
            msg = f"{recorded.rows} of {rows} rows are there"
            raise WorkloadError(msg)
    return recorded


def _record(options: Mapping[str, str], directory: Path) -> Recorded:
    directory.mkdir(exist_ok=True)
    parsed = parse_read(options)
    schema = default_schema(options)
    arrow, bounds = arrow_schema(schema), bounds_of(parsed)
    ranges = plan(parsed, bounds)
    rows = 0
    for number, entries in enumerate(ranges):
        with pa.ipc.new_file(str(directory / f"{number:05}.arrow"), arrow) as file:
            for batch in rows_of(parsed, entries, schema, bounds.times):
                file.write_batch(batch)
                rows += batch.num_rows
    ledgers = tuple(dict.fromkeys(each.ledger_id for each in ranges))
    return Recorded(options, directory, schema, ledgers, rows)
