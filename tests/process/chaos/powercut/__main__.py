"""`python -m tests.process.chaos.powercut --cuts N --seed S`: power cuts of all bookies at once, as many as you like."""

import argparse
import asyncio
import math
import sys
import tempfile
import time
from pathlib import Path

from daybook.runtime.signals import exit_on_sigterm
from tests.process.chaos.powercut.campaign import Campaign
from tests.process.chaos.powercut.shim import NoCompilerError, build
from tests.process.chaos.records import commit, conclude

LINES = 20


def main() -> int:
    """0: nothing was lost; 1: something was, and the directory stays; 2: it cannot be tried here."""
    parser = argparse.ArgumentParser(prog="python -m tests.process.chaos.powercut", description=__doc__)
    parser.add_argument("--cuts", type=int, default=200, help="how many for each seed (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other (default: 1)")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="end each after so long (default: no limit)"
    )
    options = parser.parse_args()
    exit_on_sigterm()
    try:
        library = build()
    except NoCompilerError as error:
        print(error, file=sys.stderr)
        return 2
    seeds = range(options.seed, options.seed + options.seeds)
    return 0 if all(_try(seed, options.cuts, options.minutes, library) for seed in seeds) else 1


def _try(seed: int, cuts: int, minutes: float, library: Path) -> bool:
    directory = Path(tempfile.mkdtemp(prefix="daybook-power-cuts-"))
    campaign = Campaign(directory, library, seed)
    began, made_at = time.monotonic(), commit()
    with campaign.bookies.running():
        asyncio.run(campaign.run(cuts, minutes))
    return conclude(
        "power cuts",
        seed,
        campaign.counts,
        campaign.violations,
        seconds=time.monotonic() - began,
        made_at=made_at,
        directory=directory,
        again=f"python -m tests.process.chaos.powercut --seed {seed} --cuts {cuts}",
        shown_max=LINES,
    )


if __name__ == "__main__":
    sys.exit(main())
