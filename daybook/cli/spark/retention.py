"""`daybook spark retention`: what the owners of topics do not see."""

from typing import Annotated

import typer

from daybook.cli.connection import Cluster, Directory, Json, ZooKeeper, explain_errors, find_cluster
from daybook.cli.progress import progress
from daybook.cli.spark.session import Master, spark_session
from daybook.cli.spark.topic_jobs import (
    MS_OF_AN_HOUR,
    DryRun,
    Namespaces,
    TerminationLog,
    Topics,
    finish,
    last_words,
    selection_of,
    spark_where,
)


@explain_errors
def retention(
    topic: Topics = None,
    namespace: Namespaces = None,
    pool: Annotated[
        str,
        typer.Option("--pool", help="all topics whose policies name this pool of bookies, or none"),
    ] = "",
    grace: Annotated[
        float,
        typer.Option(
            "--grace",
            min=0,
            help="hours since a ledger that nothing names was created; compacted ledgers of jobs stay for 24 at least",
        ),
    ] = 24.0,
    topics_per_second: Annotated[
        float, typer.Option(min=0, help="the most topics that are taken up in a second; 0: no limit")
    ] = 20.0,
    files_below: Annotated[
        list[str] | None,
        typer.Option(
            "--files-below",
            metavar="URI",
            help="a place of offloaded ledgers, where files of deleted topics may be; those that topics' lists name are known; may be repeated",
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
    """Have owners drop what is past the retention of idle topics, and delete the ledgers of topics and jobs that nothing names,
    and the files of topics that were deleted.

    All topics of the cluster, unless some are named. Exits with 1 if the part of a topic failed, or without a broker.
    """
    with last_words("retention", termination_log):
        where = spark_where(find_cluster(directory, zookeeper, cluster))
        selection = selection_of(topic, namespace, pool, with_poolless=True)
        with spark_session(master, "daybook retention") as spark:
            from daybook_spark.jobs.retain import RetentionTerms
            from daybook_spark.jobs.retention import run_retention

            terms = RetentionTerms(
                round(grace * MS_OF_AN_HOUR), topics_per_second, dry_run, tuple(files_below or ())
            )
            with progress("topics", "{task.completed} of {task.total} tasks done") as show:
                summary = run_retention(spark, where, selection, terms, on_progress=show)
    finish(summary, termination_log, as_json=as_json)
