"""A Spark for one command: on this machine, without a JDK and without files that stay, or on a cluster."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daybook.cli.output import err
from daybook.core.errors import DaybookError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[
    str, typer.Option("--master", help="where Spark runs: local[*], local[N], spark://…, k8s://…")
]


@contextmanager
def spark_session(master: str, name: str) -> Iterator["SparkSession"]:
    """A session for one job, which Spark shows by its name. Raises DaybookError where the extra is missing."""
    require_spark()
    from daybook_spark.session import local_session
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory(prefix="daybook-spark-", ignore_cleanup_errors=True) as scratch:
        with err.status("Spark starts"):
            if master.startswith("local"):
                session = local_session(Path(scratch), master=master, name=name)
            else:
                session = SparkSession.builder.master(master).appName(name).getOrCreate()
        try:
            yield session
        finally:
            session.stop()


def require_spark() -> None:
    """Raise DaybookError where the extra is missing."""
    try:
        import daybook_spark
        import pyspark
    except ModuleNotFoundError as error:
        msg = f"{error.name} is not installed: install Daybook with its extra `spark`: `uv sync --inexact --extra spark` in a checkout"
        raise DaybookError(msg) from error
    del daybook_spark, pyspark
