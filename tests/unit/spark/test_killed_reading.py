"""A reading task whose process is killed in the middle: Spark repeats it, and the result has each entry once.

A source of its own wraps the reader, so that the first process which comes to a certain place kills itself there; the second one notes what a
task must not do: open a session in ZooKeeper, or be forked from a process that has gRPC. The class is made in a function, because the
workers of Spark cannot import the tests.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import daybook
from daybook.local.cluster import LocalCluster
from tests.fixtures.spark import where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

COUNT = 20_000
"""Entries of 100 bytes: more than one piece of a reader's."""


def dying_source(once: Path, seen: Path) -> Any:
    """Daybook's source, of which one process kills itself behind the first batch that it reads.

    `once` says how many rows it had given to Spark, `seen` what the process was like that read all of them.
    """
    from daybook_spark.source import DaybookDataSource

    def has_grpc(pid: object) -> bool:
        return "cygrpc" in Path(f"/proc/{pid}/maps").read_text()

    def kill_self_once(rows: int) -> None:
        import os
        import signal

        try:
            file = os.open(once, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return
        os.write(file, str(rows).encode())
        os.kill(os.getpid(), signal.SIGKILL)

    def watched(batches: Any) -> Any:
        import os

        from daybook.metadata.store.zookeeper import ZooKeeperStore

        rows, opened = 0, ZooKeeperStore.open
        ZooKeeperStore.open = None  # type: ignore[assignment,method-assign]  # a session would be an error of the task
        try:
            for batch in batches:
                yield batch
                rows += batch.num_rows
                kill_self_once(rows)
        finally:
            ZooKeeperStore.open = opened  # type: ignore[method-assign]  # as it was
        found = {"rows": rows, "reader": has_grpc("self"), "its parent": has_grpc(os.getppid())}
        seen.write_text(json.dumps(found))

    class DyingSource(DaybookDataSource):
        @classmethod
        def name(cls) -> str:
            return "daybook_dying_reader"

        def reader(self, schema: Any) -> Any:
            reader = super().reader(schema)
            read = reader.read
            reader.read = lambda partition: watched(read(partition))  # type: ignore[method-assign]  # a test wraps it
            return reader

    return DyingSource


async def test_a_query_whose_task_is_killed_while_it_reads_has_each_entry_once(
    client: daybook.Client, spark: "SparkSession", cluster: LocalCluster, tmp_path: Path
) -> None:
    ledger = await client.create_ledger()
    await ledger.append_many([b"%0100d" % number for number in range(COUNT)])
    await ledger.close()
    once, seen = tmp_path / "killed", tmp_path / "seen"
    spark.dataSource.register(dying_source(once, seen))

    frame = spark.read.format("daybook_dying_reader").options(**where(cluster), ledger=ledger.id).load()
    rows = frame.collect()

    assert 0 < int(once.read_text()) < COUNT, "a task was killed in the middle"
    assert [(row.entry_id, bytes(row.value)) for row in rows] == [(n, b"%0100d" % n) for n in range(COUNT)]
    assert json.loads(seen.read_text()) == {"rows": COUNT, "reader": True, "its parent": False}
