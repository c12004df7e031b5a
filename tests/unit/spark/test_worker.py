"""What a worker of PySpark leaves out of its collections, which no other process does, and how it allocates memory."""

import os
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from daybook.runtime.allocator import ALLOCATOR

WORK = """
import gc
from daybook_spark.worker import leave_modules_out_of_collections as leave
leave()
once = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
leave()
print(once > 1000, gc.get_freeze_count() - once)
"""


@pytest.mark.parametrize(("given", "expected"), [({"SPARK_REUSE_WORKER": "1"}, "True 0"), ({}, "False 0")])
def test_a_worker_that_is_used_again_leaves_its_modules_out_of_collections_once(
    given: dict[str, str], expected: str
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REUSE_WORKER"}
    done = subprocess.run(
        [sys.executable, "-c", WORK],
        env={**environment, **given},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == expected


@pytest.mark.integration
def test_workers_of_a_local_session_keep_the_memory_that_they_freed(spark: SparkSession) -> None:
    names = list(ALLOCATOR)
    rows = spark.sparkContext.parallelize([0], 1).map(lambda _: [os.environ.get(name) for name in names])
    assert rows.collect() == [[os.environ.get(name, ALLOCATOR[name]) for name in names]]
