"""What processes of Spark import: a query waits for it, and the process from which tasks are forked must not have gRPC."""

import subprocess
import sys

import pytest

import daybook
from daybook.local.cluster import CLUSTER_NAME, LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

FORMS_AND_CHECKS = {"structlog", "rich", "pydantic", "prometheus_client"}
"""They take 0.35 s to import, and are for processes that form lines of logs, read settings, or serve metrics."""


def imported(script: str, names: set[str], *arguments: str) -> str:
    """Which of the modules a fresh interpreter has once it has run the script."""
    show = f"\nimport sys\nprint(sorted({names!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script + show, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_who_looks_for_data_sources_imports_neither_grpc_nor_kazoo() -> None:
    """The process from which PySpark forks its tasks does, and so does every session of any program."""
    reads = "import pyspark_daybook, daybook_spark.read.batch, daybook_spark.rows.columns"
    assert imported(reads, {"grpc", "kazoo", *FORMS_AND_CHECKS}) == "[]"


async def test_planning_and_reading_import_nothing_for_lines_of_logs_settings_and_metrics(
    client: daybook.Client, cluster: LocalCluster
) -> None:
    ledger = await client.create_ledger()
    await ledger.append_many([b"a", b"b"])
    await ledger.close()
    script = """
import sys
import pyspark_daybook
from daybook_spark.rows.columns import default_schema
options = {"zookeeper": sys.argv[1], "cluster": sys.argv[2], "ledger": sys.argv[3]}
reader = pyspark_daybook.DefaultSource(options).reader(default_schema(options))
rows = [row for each in reader.partitions() for batch in reader.read(each) for row in batch.to_pylist()]
assert [row["value"] for row in rows] == [b"a", b"b"], rows
"""
    where = cluster.zookeeper.connect_string, CLUSTER_NAME, str(ledger.id)
    assert imported(script, FORMS_AND_CHECKS, *where) == "[]"
    assert imported(script, {"pandas"}, *where) == "[]", "Arrow imports it to make columns of lists"
    assert imported(script, {"grpc", "kazoo"}, *where) == "['grpc', 'kazoo']", "the script does work"
