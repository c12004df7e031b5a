"""`daybook spark restore`: offloaded ledgers of topics come back to the bookies."""

from typing import Annotated

import typer

from daybook.cli.connection import Cluster, Directory, Json, ZooKeeper, explain_errors, find_cluster
from daybook.cli.progress import progress
from daybook.cli.spark.session import Master, spark_session
from daybook.cli.spark.topic_jobs import (
    MIB,
    MS_OF_AN_HOUR,
    DryRun,
    Namespaces,
    Pool,
    TerminationLog,
    Topics,
    finish,
    last_words,
    named_selection,
    spark_where,
)
from daybook.core.topics.offload.restore import RestoreLimits


@explain_errors
def restore(
    topic: Topics = None,
    namespace: Namespaces = None,
    pool: Pool = "",
    newest_mib: Annotated[
        int,
        typer.Option(
            "--newest-mib", min=0, help="only the newest ledgers of a topic up to this size; 0: any size"
        ),
    ] = 0,
    newest_hours: Annotated[
        float,
        typer.Option(
            "--newest-hours", min=0, help="only ledgers that were closed within this time; 0: at any time"
        ),
    ] = 0.0,
    ledger: Annotated[
        list[int] | None, typer.Option("--ledger", help="only this ledger; may be repeated")
    ] = None,
    lag: Annotated[
        float, typer.Option("--lag", min=0, help="hours that the files stay behind the copies")
    ] = 24.0,
    dry_run: DryRun = False,
    termination_log: TerminationLog = None,
    master: Master = "local[*]",
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Copy offloaded ledgers of topics from their files to the bookies; the owners name the copies, and message ids stay.

    Exits with 1 if the part of a topic failed, or without a broker.
    """
    with last_words("restore", termination_log):
        where = spark_where(find_cluster(directory, zookeeper, cluster))
        selection = named_selection(topic, namespace, pool, "", "the bookies need room for what is restored")
        with spark_session(master, "daybook restore") as spark:
            from daybook_spark.jobs.restore import run_restore
            from daybook_spark.jobs.restore_topic import RestoreSettings

            limits = RestoreLimits(
                newest_mib * MIB, round(newest_hours * MS_OF_AN_HOUR), frozenset(ledger or ())
            )
            settings = RestoreSettings(round(lag * MS_OF_AN_HOUR), limits, dry_run)
            with progress("restore", "{task.completed} of {task.total} ledgers copied") as show:
                summary = run_restore(spark, where, selection, settings, on_progress=show)
    finish(summary, termination_log, as_json=as_json)
