"""`python -m tests.process.chaos --seed N --minutes M`: real processes under drawn faults, judged at the end."""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from daybook.runtime.signals import exit_on_sigterm
from tests.process.chaos import network
from tests.process.chaos.powercut.shim import NoCompilerError, build
from tests.process.chaos.records import commit, conclude
from tests.process.chaos.storm import Storm


def main() -> int:
    """0: every seed went well; 1: one did not, and its directory stays; 2: it cannot be tried here."""
    parser = argparse.ArgumentParser(prog="python -m tests.process.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: %(default)s)")
    parser.add_argument(
        "--seeds", type=int, default=1, help="how many, one after the other (default: %(default)s)"
    )
    parser.add_argument(
        "--minutes", type=float, default=1.0, help="of faults for each (default: %(default)s)"
    )
    options = parser.parse_args()
    exit_on_sigterm()
    try:
        library = build()
    except NoCompilerError as error:
        print(error, file=sys.stderr)
        return 2
    reason = network.enter()
    if reason:
        print(f"no partitions in this run: {reason}")
    for seed in range(options.seed, options.seed + options.seeds):
        if not _try(seed, options.minutes, library, can_partition=not reason):
            return 1
    return 0


def _try(seed: int, minutes: float, library: Path, *, can_partition: bool) -> bool:
    directory = Path(tempfile.mkdtemp(prefix="daybook-chaos-"))
    storm = Storm(directory, library, seed, can_partition=can_partition)
    began, made_at = time.monotonic(), commit()
    with storm.bookies.running():
        asyncio.run(storm.run(minutes))
    return conclude(
        "chaos",
        seed,
        storm.counts,
        storm.violations,
        seconds=time.monotonic() - began,
        made_at=made_at,
        directory=directory,
        again=f"python -m tests.process.chaos --seed {seed} --minutes {minutes}",
    )


if __name__ == "__main__":
    sys.exit(main())
