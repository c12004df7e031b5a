"""`daybook demo`: writes real text with real processes, kills some of them, and proves that nothing was lost.

It starts four bookies in three racks. A process writes; half-way the demo kills one bookie, later the writer itself. This
process then recovers the ledger that the writer left open, writes the rest, restores the lost copies, reads everything back
and compares it with the input. The second act, about topics, is in demo_topics, the third, about Spark, in demo_spark.
"""

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

import daybook
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.autorecovery.worker import RepairWorker
from daybook.cli import demo_spark, demo_topics
from daybook.cli.connection import explain_errors
from daybook.cli.demo_input import input_files, lines
from daybook.cli.demo_stage import Stage
from daybook.cli.demo_writer import LineWriter, Written
from daybook.cli.output import out
from daybook.client.verify import verify_ledger
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.runtime.log_output import configure_logs

KILL_BOOKIE_AT: Final = 0.5
KILL_WRITER_AT: Final = 0.8


@dataclass(slots=True)
class Results:
    """The results, for the table at the end."""

    total: int
    first: Written = field(default_factory=Written)
    rest: Written = field(default_factory=Written)
    killed_bookie: str = ""
    recovery_ms: float = 0.0
    recovered: int = 0
    repaired_ledgers: int = 0
    repair_s: float = 0.0
    compared: int = 0
    lost: int = 0
    changed: int = 0
    copies: int = 0
    broken_copies: int = 0

    @property
    def is_good(self) -> bool:
        """Whether every line was read back unchanged, and every copy is complete."""
        return not (self.lost or self.changed or self.broken_copies) and self.compared == self.total


@explain_errors
def demo(
    source: Annotated[
        Path | None,
        typer.Option("--input", help="file or directory to write; default: Python's standard library"),
    ] = None,
    directory: Annotated[Path | None, typer.Option("--dir", help="keep the cluster's data here")] = None,
) -> None:
    """Write real text, kill a bookie, the writer and a broker on the way, and prove that nothing was lost; compact and count with Spark."""
    configure_logs("ERROR")  # the demo reports each kill; warnings about it would only hide the report
    files = input_files(source)
    total = sum(1 for _ in lines(files))
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with tempfile.TemporaryDirectory(prefix="daybook-demo-") as scratch:
        cluster = LocalCluster(directory or Path(scratch), bookies=4, racks=["rack-1", "rack-2", "rack-3"])
        with Progress(*columns, TimeElapsedColumn(), console=out) as progress:
            stage = Stage(progress)
            with stage.step("start ZooKeeper and 4 bookies in 3 racks"):
                cluster.start()
            try:
                results = run_demo(cluster, source, files, total, stage)
                acts = further_acts(cluster, source, total, stage)
            finally:
                with stage.step("stop"):
                    cluster.stop()
    out.print(summary(results))
    for each in acts:
        out.print(each.report)
    if not results.is_good or not all(each.is_good for each in acts):
        raise typer.Exit(1)


class Act(NamedTuple):
    """How an act ended, or what it needs that is not here."""

    report: Panel | Text
    is_good: bool = True


def further_acts(cluster: LocalCluster, source: Path | None, total: int, stage: Stage) -> list[Act]:
    """Topics, and Spark over what they hold: each as far as its libraries are installed."""
    if not demo_topics.can_run():
        return [Act(Text(demo_topics.NEEDS))]
    topics = demo_topics.run_topics(cluster, source, total, stage)
    acts = [Act(demo_topics.topic_summary(topics), topics.is_good)]
    if not demo_spark.can_run():
        return [*acts, Act(Text(demo_spark.NEEDS))]
    counts = demo_spark.run_spark(cluster, demo_topics.TOPIC, source, topics.total, stage)
    return [*acts, Act(demo_spark.spark_summary(counts), counts.is_good)]


def run_demo(
    cluster: LocalCluster, source: Path | None, files: list[Path], total: int, stage: Stage
) -> Results:
    """Run all steps."""
    results = Results(total)
    results.first = write_and_kill(cluster, source, results, stage)
    asyncio.run(bring_back(cluster, files, results, stage))
    return results


def write_and_kill(cluster: LocalCluster, source: Path | None, results: Results, stage: Stage) -> Written:
    """Write in a process of its own; kill a bookie half-way and the writer later. Returns what it had acknowledged."""
    command = [
        *(sys.executable, "-m", "daybook.cli.demo_writer", cluster.zookeeper.connect_string, CLUSTER_NAME),
        *([str(source)] if source else []),
    ]
    written = Written()
    with (
        stage.step("write, E=3 Qw=3 Qa=2", results.total) as task,
        subprocess.Popen(command, stdout=subprocess.PIPE) as writer,  # noqa: S603 - our own program
    ):
        assert writer.stdout is not None
        for line in writer.stdout:
            written = Written.from_line(line)
            stage.at(task, written.entries)
            if not results.killed_bookie and written.entries >= KILL_BOOKIE_AT * results.total:
                results.killed_bookie = asyncio.run(written_to(cluster, written.ledgers[-1]))
                cluster.kill_bookie(results.killed_bookie)
                stage.say(f"[red]SIGKILL[/] {results.killed_bookie}; the writer continues")
            if written.entries >= KILL_WRITER_AT * results.total and writer.poll() is None:
                os.kill(writer.pid, signal.SIGKILL)
                stage.say("[red]SIGKILL[/] the writer")
        if writer.wait() not in {0, -signal.SIGKILL}:
            msg = f"the writing process ended with exit code {writer.returncode}"
            raise daybook.DaybookError(msg)
        stage.at(task, written.entries)
    return written


async def written_to(cluster: LocalCluster, ledger: int) -> str:
    """A bookie of the ensemble that the writer uses now."""
    async with daybook.connect(cluster.zookeeper.connect_string, cluster=CLUSTER_NAME) as client:
        return (await client.ledgers.read(ledger)).value.last_fragment.bookies[0]


async def bring_back(cluster: LocalCluster, files: list[Path], results: Results, stage: Stage) -> None:
    """Recover, write the rest, restore copies, read back, compare."""
    async with daybook.connect(cluster.zookeeper.connect_string, cluster=CLUSTER_NAME) as client:
        with stage.step("recover and close what the writer left open"):
            await recover(client, results)
        stage.say(
            f"recovered {results.recovered:,} entries, {results.first.entries:,} of them known to be acknowledged"
        )
        with stage.step("write the rest", results.total - results.recovered) as task:
            writer = LineWriter(client, lambda written: stage.at(task, written.entries))
            results.rest = await writer.write(islice(lines(files), results.recovered, None))
        ledgers = [found.value.ledger_id async for found in client.list_ledgers()]
        with stage.step("wait until the killed bookie's session is over"):
            await wait_until_gone(client, results.killed_bookie)
        with stage.step("restore the copies that it held"):
            await repair(client, ledgers, results)
        with stage.step("read back and compare", results.total) as task:
            await compare(client, ledgers, files, results, stage, task)
        with stage.step("check every copy", len(ledgers)) as task:
            for number, ledger in enumerate(ledgers):
                report = await verify_ledger(client, ledger)
                results.copies += sum(copy.found for copy in report.copies)
                results.broken_copies += sum(not copy.is_whole for copy in report.copies)
                stage.at(task, number + 1)


async def recover(client: daybook.Client, results: Results) -> None:
    """Open every ledger, which recovers those that are not closed."""
    begin = time.perf_counter()
    async for found in client.list_ledgers():
        reader = await client.open_ledger(found.value.ledger_id)
        results.recovered += reader.last_add_confirmed + 1
    results.recovery_ms = 1e3 * (time.perf_counter() - begin)
    results.lost = max(0, results.first.entries - results.recovered)


async def wait_until_gone(client: daybook.Client, bookie: str) -> None:
    """Return once `bookie` is not registered any more: until then repair would consider it available."""
    async for bookies in client.directory.watch_bookies():
        if bookie not in bookies:
            return


async def repair(client: daybook.Client, ledgers: list[int], results: Results) -> None:
    """Copy the killed bookie's entries to another bookie."""
    begin = time.perf_counter()
    worker = RepairWorker(client, AutoRecoverySettings(bytes_per_second=0), name="demo")
    report = await worker.repair(ledgers, lost_delay_s=0)
    results.repair_s = time.perf_counter() - begin
    results.repaired_ledgers = sum(result.plans > 0 for result in report.results.values())


async def compare(
    client: daybook.Client,
    ledgers: list[int],
    files: list[Path],
    results: Results,
    stage: Stage,
    task: TaskID,
) -> None:
    """Read every ledger in order and compare it with the input, byte by byte."""
    wanted = lines(files)
    ours, theirs = hashlib.sha256(), hashlib.sha256()
    for ledger in ledgers:
        async for batch in (await client.open_ledger(ledger)).read_batches():
            for entry in batch:
                line = next(wanted, None)
                if line is not None:
                    theirs.update(line)
                ours.update(entry.data)
                results.changed += entry.data != line
            results.compared += len(batch)
            stage.at(task, results.compared)
    results.changed += sum(1 for _ in wanted)
    assert (ours.digest() == theirs.digest()) is not bool(results.changed)


def summary(results: Results) -> Panel:
    """The table at the end."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    first = results.first
    rows = (
        ("entries", f"{results.total:,}"),
        ("written before the kill", f"{first.entries:,} entries, {first.payload_bytes / 1e6:,.1f} MB"),
        (
            "rate",
            f"{_rate(first.entries, first):,.0f} entries/s, {_rate(first.payload_bytes, first) / 1e6:,.1f} MB/s",
        ),
        ("write p50 / p99", f"{first.p50_ms:.1f} ms / {first.p99_ms:.1f} ms (batches of lines)"),
        ("ensemble changes", f"{first.ensemble_changes + results.rest.ensemble_changes}"),
        ("recovery", f"{results.recovery_ms:,.0f} ms"),
        ("copies restored", f"{results.repaired_ledgers} ledgers in {results.repair_s:.1f} s"),
        ("copies checked", f"{results.copies:,}, {results.broken_copies} bookies with a gap"),
        ("compared with the input", f"{results.compared:,} entries, {results.changed} different"),
        ("acknowledged entries lost", f"[bold {'red' if results.lost else 'green'}]{results.lost}[/]"),
    )
    for row in rows:
        table.add_row(*row)
    verdict = "[green]nothing lost, nothing changed[/]" if results.is_good else "[red]DATA DIFFERS[/]"
    return Panel(table, title=verdict, expand=False)


def _rate(amount: int, written: Written) -> float:
    return amount / written.seconds if written.seconds else 0.0
