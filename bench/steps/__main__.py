"""Measures, with PYTHON … by these interpreters in turn, so that what is compared has the same minute: `make bench-steps`."""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
from functools import partial
from typing import Final

import bench.steps
from bench.interpreter import python_build
from bench.steps import LEDGERS
from bench.steps.bookie import bookie_us
from bench.steps.broker import broker_us
from bench.steps.client import client_us

MESSAGE_FRAMES: Final = 64


def measure(entries: int) -> dict[str, float | str]:
    """All figures of this interpreter."""
    asyncio.run(client_us(LEDGERS))  # warms up
    bookie = partial(bookie_us, entries)
    return {
        "python": python_build(),
        "client": asyncio.run(client_us(entries)),
        "broker": asyncio.run(broker_us(entries)),
        "bookie, 64 frames in a message": bookie(MESSAGE_FRAMES),
        "bookie, one frame in a message": bookie(1),
    }


def main() -> None:
    """Measure here, or by each of the interpreters in turn."""
    parser = argparse.ArgumentParser(description=bench.steps.__doc__)
    parser.add_argument("--entries", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    arguments = parser.parse_args()
    if not arguments.pythons:
        print(json.dumps(measure(arguments.entries)))
        return
    found: dict[str, list[dict[str, float | str]]] = {python: [] for python in arguments.pythons}
    for _ in range(arguments.rounds):
        for python, rows in found.items():
            command = [python, "-m", "bench.steps", "--entries", str(arguments.entries)]
            rows.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
    for rows in found.values():
        print(rows[0]["python"])
        for name in rows[0]:
            if name != "python":
                figures = [float(row[name]) for row in rows]
                each = ", ".join(f"{figure:.1f}" for figure in figures)
                print(f"  {name}: {statistics.median(figures):.1f} µs an entry ({each})")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
