"""The simulator's processes beside a workload: the same load for both sides, of a machine that is not quiet.

`make sim` keeps every core busy with Python that neither waits nor writes. What it shows here is not noted: it simulates the same seeds
each time.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from bench.environment import ROOT
from bench.many import cpu_seconds, stat_fields
from bench.sides import WorkloadError
from tests.process.chaos.records import VARIABLE

SEEDS: Final = "0..999999999"
"""More than any workload leaves time for."""
BUSY_S: Final = 1.0
"""Of CPU: when its workers have used so much, they simulate."""
START_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.1
_SESSION: Final = 3
"""Where a line of /proc/PID/stat has the session, counted behind the name."""


@contextmanager
def simulator() -> Iterator[int]:
    """Simulate from before the block until after it, in a session whose number it gives. Raises WorkloadError if that ends early."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.model.sim", "--seeds", SEEDS],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=ROOT,
            start_new_session=True,
            env={**os.environ, VARIABLE: os.devnull},
        )
        try:
            _await_load(process, errors)
            yield process.pid
            _check(process, errors)
        finally:
            _end(process)


def members(session: int) -> list[int]:
    """The processes of a session."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if int(stat_fields(int(each.name))[_SESSION]) == session:
                found.append(int(each.name))
        except OSError:
            continue  # the process ended meanwhile
    return found


def _await_load(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    deadline = time.perf_counter() + START_TIMEOUT_S
    while _workers_cpu_s(process.pid) < BUSY_S:
        _check(process, errors)
        if time.perf_counter() > deadline:
            msg = f"the simulator used less than {BUSY_S} s of CPU in {START_TIMEOUT_S} s"
            raise WorkloadError(msg)
        time.sleep(_POLL_S)


def _workers_cpu_s(session: int) -> float:
    used = 0.0
    for pid in members(session):
        if pid != session:
            try:
                used += cpu_seconds(pid)
            except OSError:
                continue  # the process ended meanwhile
    return used


def _check(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    if process.poll() is not None:
        errors.seek(0)
        said = errors.read().decode(errors="replace")[-2000:]
        msg = f"the simulator ended with exit code {process.returncode} beside a workload: {said}"
        raise WorkloadError(msg)


def _end(process: subprocess.Popen[bytes]) -> None:
    """With its workers, at once: on SIGTERM they would first finish their seeds, which takes a minute, and nothing of them is noted."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
