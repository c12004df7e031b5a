"""`python -m bench.spark`: read the same rows with Spark from each source in turn, then print and write the report."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from bench.broker.report import conditions
from bench.sides import run_client
from bench.spark.costs import java_of, worker_peaks_mib
from bench.spark.data import Recorded, options_of, record, write_ledgers
from bench.spark.job_rows import compaction_rows, retention_row
from bench.spark.jobs import TASKS as JOB_TASKS
from bench.spark.jobs import measure_compaction, measure_retention
from bench.spark.report import Memory, write_report
from bench.spark.tables import read_all, session, table, write_parquet
from bench.spark.workloads import SOURCES, TASKS, Row, Workload, memory_sizes, workloads
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.runtime.signals import exit_on_sigterm

MEMORY_ENTRY_BYTES: Final = 1024
WIDTH: Final = 140
"""Of tables in a file: the usual 80 columns cut figures off."""
BYTES_PER_MIB: Final = 1 << 20
WARM_UPS: Final = 3
"""Of each source: Spark may give one worker two tasks of a query and another one none, and one query leaves such workers cold."""


def main(
    rounds: Annotated[int, typer.Option(min=1, help="how often every query is repeated")] = 3,
    scale: Annotated[float, typer.Option(min=0.001, help="how much of the full sizes to read")] = 1.0,
    only: Annotated[str, typer.Option(help="only workloads whose name contains this")] = "",
    out: Annotated[Path, typer.Option(help="where the report goes")] = Path("bench/out"),
    data: Annotated[
        Path | None, typer.Option(help="where the data goes; default: a temporary folder")
    ] = None,
) -> None:
    """Read ledgers and a topic with Spark, beside Parquet, a null source and plain Python, on this machine."""
    exit_on_sigterm()
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    before = conditions()
    with tempfile.TemporaryDirectory(dir=data, prefix="daybook-bench-") as name:
        scratch = Path(name)
        with LocalCluster(scratch / "cluster", brokers=1) as cluster:
            recorded = {}
            for number, work in enumerate(each for each in workloads(scale) if only in each.name):
                console.print(f"writing {work.rows:,} rows: {work.name}")
                options = asyncio.run(options_of(cluster, work, f"bench-{number}"))
                recorded[work] = record(options, work.rows, scratch / f"recorded-{number}")
            plain = {
                work.name: work.rows / _read_plain(cluster, each.ledgers) for work, each in recorded.items()
            }
            rows = [
                row
                for tasks in TASKS
                if recorded
                for row in _measure(cluster, scratch, recorded, tasks, rounds, console)
            ]
            rows.sort(key=lambda row: list(recorded).index(row.workload))
            memory = [_memory(cluster, scratch, size) for size in memory_sizes(scale) if recorded]
            compactions = [
                measure_compaction(cluster, scratch, row, rounds, console)
                for row in compaction_rows(scale, JOB_TASKS)
                if only in row.name
            ]
            retentions = [
                measure_retention(cluster, scratch, row, rounds, console)
                for row in [retention_row(scale, JOB_TASKS)]
                if only in "retention"
            ]
    write_report(rows, plain, memory, [*compactions, *retentions], out, scale, before, console)


def _measure(
    cluster: LocalCluster,
    scratch: Path,
    recorded: Mapping[Workload, Recorded],
    tasks: int,
    rounds: int,
    console: Console,
) -> Sequence[Row]:
    """All queries with one number of tasks; the first of each source, which warm Java and the workers up, are not counted."""
    rows = [Row(work, tasks, {source: [] for source in SOURCES}) for work in recorded]
    bookies = [bookie.pid for bookie in cluster.bookies]
    with session(scratch / "spark", tasks) as spark:
        if tasks == TASKS[0]:
            for each in recorded.values():
                write_parquet(spark, each)
        for number in range(-WARM_UPS, rounds):
            console.print(f"{tasks} tasks, {'warming up' if number < 0 else f'round {number + 1}'}")
            for row in rows:
                for source in SOURCES:
                    run = read_all(table(spark, source, recorded[row.workload]), bookies)
                    if number >= 0:
                        row.rounds[source].append(run)
    return rows


def _read_plain(cluster: LocalCluster, ledgers: Sequence[int]) -> float:
    """Seconds of the reader without Spark."""
    where = {"zookeeper": cluster.zookeeper.connect_string, "cluster": CLUSTER_NAME, "ledgers": ledgers}
    found = run_client([sys.executable, "-m", "bench.spark.plain", json.dumps(where)])
    return float(found["seconds"])


def _memory(cluster: LocalCluster, scratch: Path, size: int) -> Memory:
    """Of new workers, with one task for the whole ledger."""
    (ledger,) = asyncio.run(write_ledgers(cluster, MEMORY_ENTRY_BYTES, [size // MEMORY_ENTRY_BYTES]))
    where = {"zookeeper": cluster.zookeeper.connect_string, "cluster": CLUSTER_NAME}
    with session(scratch / "spark", 1) as spark:
        frame = spark.read.format("daybook").options(
            **where, ledger=str(ledger), partitionBytes=str(2 * size)
        )
        read_all(frame.load(), ())
        peak_mib, own_mib = worker_peaks_mib(java_of(os.getpid()))
    return Memory(size / BYTES_PER_MIB, peak_mib, own_mib)


if __name__ == "__main__":
    typer.run(main)
