"""`daybook spark compaction`: of each key of a topic the last message stays, for readers that ask for that."""

from typing import Annotated

import typer

from daybook.cli.connection import Cluster, Directory, Json, ZooKeeper, explain_errors, find_cluster
from daybook.cli.progress import progress
from daybook.cli.spark.session import Master, spark_session
from daybook.cli.spark.topic_jobs import (
    MIB,
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


@explain_errors
def compaction(
    topic: Topics = None,
    namespace: Namespaces = None,
    pool: Pool = "",
    schedule: Schedule = "",
    part_mib: Annotated[
        int, typer.Option("--part-mib", min=1, help="what one task reads; what is left of it is one ledger")
    ] = 64,
    keyless: Annotated[
        bool | None,
        typer.Option(
            "--keep-keyless/--drop-keyless",
            help="whether messages without a key stay; otherwise the topic's policy says so",
        ),
    ] = None,
    dry_run: DryRun = False,
    termination_log: TerminationLog = None,
    master: Master = "local[*]",
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Compact topics up to their last messages; their owners name the result.

    Exits with 1 if the part of a topic failed, or without a broker.
    """
    with last_words("compaction", termination_log):
        where = spark_where(find_cluster(directory, zookeeper, cluster))
        why = "a compaction removes messages from what some readers see"
        selection = named_selection(topic, namespace, pool, schedule, why)
        with spark_session(master, "daybook compaction") as spark:
            from daybook_spark.compact.job import CompactionSettings
            from daybook_spark.jobs.compaction import run_compaction

            settings = CompactionSettings(keyless, part_mib * MIB, dry_run)
            with progress("compaction", "{task.completed} of {task.total} tasks done") as show:
                summary = run_compaction(spark, where, selection, settings, on_progress=show)
    finish(summary, termination_log, as_json=as_json)
