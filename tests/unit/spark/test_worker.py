"""What a worker of PySpark leaves out of its collections, and that no other process does."""

import os
import subprocess
import sys

import pytest

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
