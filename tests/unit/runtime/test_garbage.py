"""Collections that are rare: in a process of its own, since they are the interpreter's."""

import subprocess
import sys

_SCRIPT = """
import gc
from daybook.runtime.garbage import THRESHOLDS, collect_rarely
kept = [[] for _ in range(1000)]
collect_rarely()
assert gc.get_threshold() == THRESHOLDS
assert gc.get_freeze_count() > len(kept)
assert not any(each is kept for each in gc.get_objects())
"""


def test_what_a_process_has_at_its_start_is_left_out_and_collections_are_rare() -> None:
    subprocess.run([sys.executable, "-c", _SCRIPT], check=True)
