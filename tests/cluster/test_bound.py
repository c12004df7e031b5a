"""What tests start does not outlive them; see `tests.fixtures.bound`."""

import os
import select
import signal
import subprocess
import sys
import threading

from tests.fixtures.bound import bound_to_us

PATIENCE_S = 60.0
SLEEPER = "import os, signal; os.write(1, b'%d\\n' % os.getpid()); signal.pause()"
PARENT = f"""
import signal, subprocess, sys
from tests.fixtures.bound import bound_to_us
child = subprocess.Popen([*bound_to_us(), sys.executable, "-c", {SLEEPER!r}])
print(child.pid, flush=True)
signal.pause()
"""


def test_a_program_ends_when_the_tests_that_started_it_are_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    said = sorted(int(parent.stdout.readline()) for _ in range(2))
    assert said[0] == said[1], "the command runs under the id that its parent knows"
    parent.send_signal(signal.SIGKILL)
    parent.wait(PATIENCE_S)
    ended, _, _ = select.select([parent.stdout], [], [], PATIENCE_S)
    assert ended, "the pipe stays open as long as the program has it"
    assert parent.stdout.read() == b""
    parent.stdout.close()


def test_a_program_whose_parent_is_gone_does_not_begin() -> None:
    *launcher, parent = bound_to_us()
    done = subprocess.run(
        [*launcher, str(int(parent) + 1), "echo", "begun"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "ended before it began" in done.stderr


def test_what_a_thread_starts_is_left_alone() -> None:
    """The kernel would end it with that thread."""
    found: list[tuple[str, ...]] = []
    thread = threading.Thread(target=lambda: found.append(bound_to_us()))
    thread.start()
    thread.join()
    assert found == [()]
    assert bound_to_us()[-1] == str(os.getpid())
