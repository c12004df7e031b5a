"""Tasks whose process is killed in the middle: Spark repeats them, and the result is as if nothing had happened.

A source of its own wraps the writers, so that the first process which comes to a certain place kills itself there. The class is made in a function, because the workers of Spark cannot import the tests.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import daybook
from daybook.local.cluster import LocalCluster
from tests.fixtures.spark import where
from tests.unit.spark.test_writing_ledgers import contents, manifest, tagged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

COUNT = 20_000
"""More rows than one batch of Spark's has (10,000), and than a task appends at a time."""


def dying_source(once: Path) -> Any:
    """Daybook's source, of which one process kills itself behind the first batch that it writes; `once` notes that."""
    from daybook_spark.source import DaybookDataSource

    def kill_self_once() -> None:
        import os
        import signal

        try:
            os.close(os.open(once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def behind_the_first(batches: Any) -> Any:
        for batch in batches:
            yield batch
            kill_self_once()

    class DyingSource(DaybookDataSource):
        @classmethod
        def name(cls) -> str:
            return "daybook_dying"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            writer = super().writer(schema, overwrite)
            write = writer.write
            writer.write = lambda iterator: write(behind_the_first(iterator))  # type: ignore[method-assign]  # a test wraps it
            return writer

    return DyingSource


async def test_a_job_whose_task_is_killed_while_it_writes_names_each_row_once_and_leaves_nothing(
    client: daybook.Client, spark: "SparkSession", cluster: LocalCluster, tmp_path: Path
) -> None:
    once = tmp_path / "killed"
    spark.dataSource.register(dying_source(once))

    rows = spark.range(COUNT).coalesce(1).selectExpr("cast(id as string) as value")
    rows.write.format("daybook_dying").options(**where(cluster), manifest="killed").mode("append").save()

    assert once.exists(), "a task was killed"
    assert sorted(await contents(client, "killed")) == sorted(b"%d" % n for n in range(COUNT))
    named = [written.ledger_id for written in await manifest(client, "killed")]
    assert await tagged(client, "killed") == named, "the ledger of the killed task is deleted"
