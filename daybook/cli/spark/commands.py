"""`daybook spark …`: jobs that run on Spark, here or on a cluster of machines.

PySpark is an extra and starts slowly, so it is imported when a job begins. Exit code 1 of an audit means that something is wrong with
what is stored.
"""

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from daybook.cli.audit import Delay, run_with_stop
from daybook.cli.audit_view import print_report
from daybook.cli.connection import (
    Cluster,
    Directory,
    Json,
    ZooKeeper,
    explain_errors,
    find_cluster,
    tls_files,
    with_client,
)
from daybook.cli.output import err, out
from daybook.cli.progress import progress
from daybook.cli.spark.compaction import compaction
from daybook.cli.spark.offload import offload
from daybook.cli.spark.restore import restore
from daybook.cli.spark.retention import retention
from daybook.cli.spark.session import Master, require_spark, spark_session
from daybook.cli.spark.topic_jobs import MS_OF_AN_HOUR, TerminationLog, last_words

if TYPE_CHECKING:
    from daybook_spark.audit.job import AuditSummary

    import daybook
    from daybook.autorecovery.report import AuditReport

app = typer.Typer(no_args_is_help=True, help="Jobs that run on Spark.")
app.command()(retention)
app.command()(compaction)
app.command()(offload)
app.command()(restore)


@app.command()
@explain_errors
def audit(
    master: Master = "local[*]",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="report only: mark nothing for repair")] = False,
    parquet: Annotated[
        str, typer.Option(metavar="DIR", help="write the table of all copies there, as Parquet")
    ] = "",
    mb_per_second: Annotated[
        float, typer.Option(min=0, help="the most that is read from one bookie, in MB/s; 0: no limit")
    ] = 50.0,
    delay: Delay = None,
    termination_log: TerminationLog = None,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Read every copy of every confirmed entry, check and compare them, and mark for repair what needs one.

    Exits with 1 unless every copy is there and intact. It shows what breaks the placement policy, which is no failure.
    """
    with last_words("audit", termination_log):
        where = find_cluster(directory, zookeeper, cluster)
        with spark_session(master, "daybook audit") as spark:
            from daybook_spark.audit.job import audit_table, mark_tasks, run_audit
            from daybook_spark.options import Where

            tls = tls_files()
            target = Where(where.zookeeper, where.cluster, tls.ca, tls.certificate, tls.key)
            table = audit_table(spark, target, bytes_per_second=round(mb_per_second * 1e6))
            with progress("copies", "{task.completed} of {task.total} pieces read") as show:
                summary = run_audit(table, target, parquet=parquet, on_progress=show)
        with err.status("the auditor judges what was found"):
            report = run_with_stop(
                where, lambda client, stop: mark_tasks(client, stop, dry_run=dry_run, lost_delay_s=delay)
            )
    if termination_log is not None:
        from daybook_spark.jobs.audit_words import audit_message
        from daybook_spark.jobs.result import write_termination_log

        write_termination_log(termination_log, audit_message(summary, report))
    _print(summary, report, as_json=as_json)
    if not (summary.is_whole and report.is_fully_replicated):
        raise typer.Exit(1)


@app.command()
@explain_errors
def sweep(
    hours: Annotated[
        float, typer.Option("--older-than", min=0, help="hours since the ledger was created")
    ] = 24.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would be deleted")] = False,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Delete the ledgers that killed jobs left behind: tagged by a job, and named by no manifest.

    A job that still runs after so many hours fails at its end, and loses nothing that was committed.
    """
    require_spark()

    async def work(client: "daybook.Client") -> list[int]:
        from daybook_spark.options import Password
        from daybook_spark.write.sweep import sweep as run

        from daybook.runtime.clock import unix_ms

        older_than_ms = round(hours * MS_OF_AN_HOUR)
        return await run(
            client, Password.read(), now_ms=unix_ms(), older_than_ms=older_than_ms, dry_run=dry_run
        )

    gone = with_client(find_cluster(directory, zookeeper, cluster), work)
    if as_json:
        out.print_json(json.dumps(gone))
        return
    verb = "would be deleted" if dry_run else "deleted"
    out.print(f"{len(gone)} ledgers {verb}" + (f": {', '.join(map(str, gone))}" if gone else ""))


def _print(summary: "AuditSummary", report: "AuditReport", *, as_json: bool) -> None:
    """What was read, and what the auditor made of it."""
    if as_json:
        out.print_json(json.dumps({"copies": summary.record(), "audit": report.record()}))
        return
    table = Table(
        "bookie", "copies owed", "found", "missing", "damaged", "differing", "unread", title="copies read"
    )
    for bookie, counts in summary.by_bookie.items():
        numbers = (counts.owed, counts.found, counts.missing, counts.damaged, counts.differing, counts.unread)
        style = "" if counts.found == counts.owed and not counts.differing else "red"
        table.add_row(bookie, *(f"{number:,}" for number in numbers), style=style)
    out.print(table)
    for row in summary.faulty:
        why = row["error"] and f" ({row['unread']:,} unread: {row['error']})"
        out.print(
            f"[red]ledger {row['ledger_id']}, entries {row['first_entry']} to {row['last_entry']}, {row['bookie']}: "
            f"{row['faults']}{why}[/]"
        )
    for row in summary.misplaced:
        out.print(
            f"[yellow]ledger {row['ledger_id']}, entries {row['first_entry']} to {row['last_entry']}: {row['placement']}[/]"
        )
    print_report(report, as_json=False)
