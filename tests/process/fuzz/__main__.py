"""Coverage-guided fuzzing of every target in turn, for as long as one likes.

Usage: python -m tests.process.fuzz [--minutes N] [--target NAME ...] [--seed S] [--workers N]. An input that crashes a target is
kept beside the results, with the command that runs it again; the exit code is then 1.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from rich.console import Console

from tests.process.chaos.records import records_file, write_record
from tests.process.fuzz.targets import TARGETS

RSS_MB: Final = 1024
ALLOCATION_MB: Final = 64
INPUT_SECONDS_MAX: Final = 10
_EXECUTED: Final = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_CRASHED: Final = re.compile(r"Test unit written to (\S+)")


class Outcome(NamedTuple):
    """What fuzzing one target came to."""

    target: str
    inputs: int
    crash: str
    """The file of the input that crashed it; empty if none did."""
    why: str


def fuzz(target: str, seconds: int, seed: int, kept: Path) -> Outcome:
    """Fuzz one target in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "tests.process.fuzz.guided",
        target,
        f"-max_total_time={seconds}",
        f"-seed={seed or 1}",
        f"-rss_limit_mb={RSS_MB}",
        f"-malloc_limit_mb={ALLOCATION_MB}",
        f"-timeout={INPUT_SECONDS_MAX}",
        "-max_len=4096",
        "-print_final_stats=1",
        f"-artifact_prefix={kept}/{target}-",
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    executed = _EXECUTED.search(done.stderr)
    crashed = _CRASHED.search(done.stderr)
    crash = crashed.group(1) if crashed else "" if done.returncode == 0 else "(none was kept)"
    return Outcome(
        target, int(executed.group(1)) if executed else 0, crash, _reason(done.stdout + done.stderr)
    )


def _reason(output: str) -> str:
    """The Python error in the output of libFuzzer, or the end of it."""
    _, found, traceback = output.partition("=== Uncaught Python exception: ===")
    return traceback.partition("==")[0].strip() if found else output[-1500:]


def run(targets: Sequence[str], minutes: float, seed: int, workers: int, console: Console) -> list[Outcome]:
    """Fuzz all targets, `workers` at a time, for `minutes` together."""
    kept = records_file().parent / "crashes"
    kept.mkdir(parents=True, exist_ok=True)
    seconds = max(5, int(minutes * 60 * workers / len(targets)))
    outcomes = []
    with ThreadPoolExecutor(workers) as pool:
        for future in as_completed([pool.submit(fuzz, target, seconds, seed, kept) for target in targets]):
            outcome = future.result()
            outcomes.append(outcome)
            console.print(
                f"{outcome.target}: {outcome.inputs} inputs, {'CRASHED' if outcome.crash else 'sound'}"
            )
            if outcome.crash:
                console.print(outcome.why, markup=False)
                again = f"python -m tests.process.fuzz.guided {outcome.target} {outcome.crash}"
                console.print(f"again: {again}", markup=False, soft_wrap=True)
    return outcomes


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.process.fuzz")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--target", action="append", choices=sorted(TARGETS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    console = Console()
    began = monotonic()
    outcomes = run(
        arguments.target or list(TARGETS), arguments.minutes, arguments.seed, arguments.workers, console
    )
    counts = {outcome.target: outcome.inputs for outcome in sorted(outcomes)}
    crashes = sum(bool(outcome.crash) for outcome in outcomes)
    path = write_record("fuzz", arguments.seed, counts, violations=crashes, seconds=monotonic() - began)
    console.print(
        f"{sum(counts.values())} inputs, {crashes} targets crashed; written down in {path}", soft_wrap=True
    )
    return 1 if crashes else 0


if __name__ == "__main__":
    sys.exit(main())
