"""`daybook spark offload`: closed ledgers of topics go into files of an object store."""

import uuid
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
    Schedule,
    TerminationLog,
    Topics,
    finish,
    last_words,
    named_selection,
    spark_where,
)
from daybook.core.topics.offload.plan import OffloadLimits


@explain_errors
def offload(
    topic: Topics = None,
    namespace: Namespaces = None,
    pool: Pool = "",
    schedule: Schedule = "",
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URI",
            help="file:///folder or s3://bucket/prefix; else as the topic's policy says",
        ),
    ] = "",
    lag: Annotated[
        float | None,
        typer.Option(
            "--lag", min=0, help="hours that replicas stay behind the files; else as the policy says, or 4"
        ),
    ] = None,
    keep_mib: Annotated[
        int, typer.Option("--keep-mib", min=0, help="the newest ledgers of a topic up to this size stay")
    ] = 0,
    keep_hours: Annotated[
        float, typer.Option("--keep-hours", min=0, help="ledgers that were closed within this time stay")
    ] = 0.0,
    rows: Annotated[
        bool,
        typer.Option(
            "--rows",
            help="also write the messages as plain rows, for any reader of Parquet; else where the topic's policy says so",
        ),
    ] = False,
    restored: Annotated[
        bool,
        typer.Option("--restored", help="also the ledgers that `restore` has brought back; else they stay"),
    ] = False,
    dry_run: DryRun = False,
    termination_log: TerminationLog = None,
    master: Master = "local[*]",
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Copy closed ledgers of topics into files; the owners name these, and give the replicas up after a lag.

    Exits with 1 if the part of a topic failed, or without a broker.
    """
    with last_words("offload", termination_log):
        where = spark_where(find_cluster(directory, zookeeper, cluster))
        why = "the files become the only copies of what is offloaded"
        selection = named_selection(topic, namespace, pool, schedule, why)
        with spark_session(master, "daybook offload") as spark:
            from daybook_spark.jobs.offload import run_offload
            from daybook_spark.jobs.offload_topic import OffloadSettings

            settings = OffloadSettings(
                uuid.uuid4().hex,
                to,
                None if lag is None else round(lag * MS_OF_AN_HOUR),
                OffloadLimits(keep_mib * MIB, round(keep_hours * MS_OF_AN_HOUR), restored),
                dry_run,
                rows,
            )
            with progress("offload", "{task.completed} of {task.total} ledgers copied") as show:
                summary = run_offload(spark, where, selection, settings, on_progress=show)
    finish(summary, termination_log, as_json=as_json)
