"""What was measured of Spark, for people: tables and a JSON file."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.broker.report import conditions
from bench.interpreter import python_build
from bench.spark.job_rows import AIM, CompactionRow, RetentionRow
from bench.spark.workloads import PLAIN, SOURCES, Row


@dataclass(frozen=True, slots=True)
class Memory:
    """What the worker in Python took that read one ledger alone."""

    ledger_mib: float
    peak_mib: float
    """Resident at most, with the files that are mapped."""
    own_mib: float
    """Anonymous, after the reading."""


def write_report(
    rows: Sequence[Row],
    plain: Mapping[str, float],
    memory: Sequence[Memory],
    jobs: Sequence[CompactionRow | RetentionRow],
    directory: Path,
    scale: float,
    before: Mapping[str, Any],
    console: Console,
) -> None:
    """Write `spark.json` into `directory`, and print the tables. `plain`: rows a second of the reader without Spark, by workload."""
    directory.mkdir(parents=True, exist_ok=True)
    record = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": python_build(),
        "pyspark": version("pyspark"),
        "pyarrow": version("pyarrow"),
        "scale": scale,
        "machine before": dict(before),
        "machine after": conditions(),
        "rows": [_record(row, plain) for row in rows],
        "memory of a worker": [asdict(each) for each in memory],
        "compaction": [each.record() for each in jobs if isinstance(each, CompactionRow)],
        "retention": [each.record() for each in jobs if isinstance(each, RetentionRow)],
    }
    (directory / "spark.json").write_text(json.dumps(record, indent=2) + "\n")
    console.print(_rates(rows, plain))
    console.print(_cpu(rows))
    console.print(_memory(memory))
    console.print(_compaction([each for each in jobs if isinstance(each, CompactionRow)]))
    console.print(_retention([each for each in jobs if isinstance(each, RetentionRow)]))
    console.print(f"{python_build()}; before: {before}, after: {record['machine after']}")
    console.print(f"written: {directory / 'spark.json'}")


def _record(row: Row, plain: Mapping[str, float]) -> dict[str, Any]:
    rates = {source: row.rows_per_s(source) for source in SOURCES} | {PLAIN: plain.get(row.workload.name)}
    return {
        "workload": row.workload.name,
        "tasks": row.tasks,
        "rows": row.workload.rows,
        "rows per s": rates,
        "MB per s": {source: rate and rate * row.workload.size / 1e6 for source, rate in rates.items()},
        "part of null": row.part_of_null,
        "aim": row.workload.part_of_null,
        "is_met": row.is_met,
        "CPU us per row": {source: row.cpu_us(source) for source in row.rounds},
        "seconds": {source: [run.seconds for run in runs] for source, runs in row.rounds.items()},
    }


def _rates(rows: Sequence[Row], plain: Mapping[str, float]) -> Table:
    table = Table("workload", "tasks", title="Rows a second (MB/s of payload), medians of all rounds")
    for name in (*SOURCES, PLAIN, "÷ null", "aim", "met"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        rates = [*(row.rows_per_s(source) for source in SOURCES), plain.get(row.workload.name)]
        cells = [
            "" if rate is None else f"{rate:,.0f} ({rate * row.workload.size / 1e6:,.0f})" for rate in rates
        ]
        part = "" if row.part_of_null is None else f"{row.part_of_null:.2f}"
        met = {None: "", True: "yes", False: "[red]no[/]"}[row.is_met]
        aim = f"≥ {row.workload.part_of_null:.2f}"
        table.add_row(row.workload.name, str(row.tasks), *cells, part, aim, met)
    return table


def _cpu(rows: Sequence[Row]) -> Table:
    table = Table("workload", "tasks", "source", title="CPU for a row, µs")
    costs = [(row, source, row.cpu_us(source)) for row in rows for source in row.rounds]
    for who in costs[0][2] if costs else ():
        table.add_column(who, justify="right")
    for row, source, used in costs:
        shown = (f"{microseconds:.2f}" for microseconds in used.values())
        table.add_row(row.workload.name, str(row.tasks), source, *shown)
    return table


def _memory(memory: Sequence[Memory]) -> Table:
    table = Table(title="Memory of a worker in Python that reads one ledger, MiB")
    for name in ("ledger", "resident at most", "of its own"):
        table.add_column(name, justify="right")
    for each in memory:
        table.add_row(f"{each.ledger_mib:,.0f}", f"{each.peak_mib:,.0f}", f"{each.own_mib:,.0f}")
    return table


def _compaction(rows: Sequence[CompactionRow]) -> Table:
    table = Table(title="Compaction of topics: messages a second, and CPU for a message, µs")
    for name in ("messages", "keys", "tasks", "data source", "compaction", "÷ data source", "aim", "met"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("CPU")
    table.add_column("a worker's peak and own, MiB", justify="right")
    for row in rows:
        rates = [f"{row.rows_per_s(runs):,.0f}" for runs in (row.reads, row.jobs)]
        cpu = ", ".join(f"{who} {used:.1f}" for who, used in row.cpu_us(row.jobs).items())
        table.add_row(
            *(f"{row.messages:,}", f"{row.keys:,}", str(row.tasks), *rates),
            *(f"{row.part_of_source:.2f}", f"≥ {AIM:.2f}", "yes" if row.is_met else "[red]no[/]", cpu),
            f"{row.peak_mib:,.0f}, {row.own_mib:,.0f}",
        )
    return table


def _retention(rows: Sequence[RetentionRow]) -> Table:
    table = Table(title="Retention reads metadata and no rows: ledgers a second")
    for name in ("topics", "ledgers", "tasks", "judged", "trimmed by owners"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            *(f"{row.topics:,}", f"{row.ledgers:,}", str(row.tasks)),
            *(f"{row.judged_per_s:,.0f}", f"{row.trimmed_per_s:,.0f}"),
        )
    return table
