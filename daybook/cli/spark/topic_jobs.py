"""What the jobs for topics have in common: the options that say which topics, the summary, and the last words of a container."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape
from rich.table import Table

from daybook.cli.connection import EXIT_FAILED, Where, share_token_file, tls_files
from daybook.cli.output import out
from daybook.core.errors import DaybookError, PolicyError, TopicNameError
from daybook.core.topics.job_selection import Selection
from daybook.core.topics.name import TopicName, check_entity

if TYPE_CHECKING:
    from daybook_spark.jobs.result import JobSummary
    from daybook_spark.options import Where as SparkWhere

MIB: Final = 2**20
MS_OF_AN_HOUR: Final = 3_600_000

Topics = Annotated[
    list[str] | None, typer.Option("--topic", help="a topic, or all partitions of one; may be repeated")
]
Namespaces = Annotated[
    list[str] | None,
    typer.Option("--namespace", help="tenant/namespace: all of its topics; may be repeated"),
]
Pool = Annotated[str, typer.Option("--pool", help="all topics whose policies name this pool of bookies")]
Schedule = Annotated[
    str, typer.Option("--schedule", help="of the pool's topics those whose policies name this schedule")
]
TerminationLog = Annotated[
    Path | None,
    typer.Option(
        "--termination-log", help="write the summary there as JSON of at most 4096 bytes, for Kubernetes"
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="report only: change nothing")]


def selection_of(
    topics: list[str] | None,
    namespaces: list[str] | None,
    pool: str = "",
    schedule: str = "",
    *,
    with_poolless: bool = False,
) -> Selection:
    """What the options ask for. Raises TopicNameError, PolicyError."""
    return Selection(
        tuple(map(TopicName.parse, topics or ())),
        tuple(map(_namespace, namespaces or ())),
        pool,
        schedule,
        with_poolless,
    )


def named_selection(
    topics: list[str] | None, namespaces: list[str] | None, pool: str, schedule: str, why: str
) -> Selection:
    """What the options ask for, of a job that takes no topic unasked, and `why`. Raises TopicNameError, PolicyError."""
    if not (topics or namespaces or pool):
        msg = f"which topics? Give --topic, --namespace or --pool: {why}"
        raise PolicyError(msg)
    return selection_of(topics, namespaces, pool, schedule)


def _namespace(text: str) -> tuple[str, str]:
    tenant, slash, namespace = text.partition("/")
    if not slash:
        msg = f"{text[:200]!r} is no namespace: use tenant/namespace"
        raise TopicNameError(msg)
    return check_entity(tenant, "tenant"), check_entity(namespace, "namespace")


def spark_where(where: Where) -> "SparkWhere":
    """The cluster as jobs know it, with the TLS files of this process; a token's file that an option names is in the environment, too."""
    from daybook_spark.options import Where as SparkWhere

    share_token_file()
    tls = tls_files()
    return SparkWhere(where.zookeeper, where.cluster, tls.ca, tls.certificate, tls.key)


@contextmanager
def last_words(job: str, termination_log: Path | None) -> Iterator[None]:
    """Leave an error of Daybook or of Spark that ends the whole job in the termination log, too."""
    try:
        yield
    except Exception as error:
        if termination_log is not None and (said := _words_of(error)):
            from daybook_spark.jobs.result import last_message, write_termination_log

            write_termination_log(termination_log, last_message(job, said))
        raise


def _words_of(error: Exception) -> str:
    """What an expected error says; "" for any other, of which Kubernetes keeps the end of the log."""
    from daybook_spark.jobs.spark_errors import spark_words

    return str(error) if isinstance(error, DaybookError) else spark_words(error)


def finish(summary: "JobSummary", termination_log: Path | None, *, as_json: bool) -> None:
    """Show what became of each topic, and leave it in the termination log. Raises typer.Exit with 1 if the part of a topic failed."""
    from daybook_spark.jobs.result import write_termination_log

    if termination_log is not None:
        write_termination_log(termination_log, summary.termination_message())
    if as_json:
        out.print_json(json.dumps(summary.record()))
    else:
        _print(summary)
    if summary.failures:
        raise typer.Exit(EXIT_FAILED)


def _print(summary: "JobSummary") -> None:
    names = list(summary.figures)
    table = Table("topic", "result", *map(_words, names), "message", title=summary.job)
    for each in summary.results:
        figures = (f"{each.figures[name]:,}" if name in each.figures else "" for name in names)
        result, style = ("done", "") if each.succeeded else ("failed", "red")
        table.add_row(escape(each.topic), result, *figures, escape(each.message), style=style)
    out.print(table)
    failed = len(summary.failures)
    sums = ", ".join(f"{_words(name)} {count:,}" for name, count in summary.figures.items())
    out.print(f"{len(summary.results) - failed:,} done, {failed:,} failed" + (f"; {sums}" if sums else ""))


def _words(name: str) -> str:
    """`ledgers trimmed` for `ledgersTrimmed`."""
    return "".join(f" {each.lower()}" if each.isupper() else each for each in name)
