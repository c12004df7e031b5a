"""What a worker of PySpark does once, so that its next tasks and queries cost less.

PySpark uses a worker again, and has it collect garbage after each task and each query that it has planned. A collection visits every object, and
the modules of a client, of PySpark and of Arrow are some hundred thousand: so it would take longer than to read thousands of entries.
"""

import gc
import os
from functools import cache
from typing import Final

_USED_AGAIN: Final = "SPARK_REUSE_WORKER"
"""PySpark sets it for workers; in any other process, a user's notebook for instance, nothing is done here."""


@cache  # `gc.get_freeze_count` would also say whether it was done, but counts for milliseconds
def leave_modules_out_of_collections() -> None:
    """Leave out what exists now from all collections, once in a worker: after its first work, which has imported what later work needs."""
    if os.environ.get(_USED_AGAIN):
        gc.freeze()
