"""`python -m tests.chaos.powercut --cuts N --seed S`: power cuts of all bookies at once, as many as you like."""

import argparse
import asyncio
import math
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.powercut.campaign import Campaign
from tests.chaos.powercut.shim import NoCompilerError, build
from tests.chaos.records import write_record

LINES = 20


def main() -> int:
    """0: nothing was lost; 1: something was, and the directory stays; 2: it cannot be tried here."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.powercut", description=__doc__)
    parser.add_argument("--cuts", type=int, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="what is drawn (default: %(default)s)")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="end after so long (default: no limit)"
    )
    options = parser.parse_args()
    try:
        library = build()
    except NoCompilerError as error:
        print(error, file=sys.stderr)
        return 2
    directory = Path(tempfile.mkdtemp(prefix="daybook-power-cuts-"))
    campaign = Campaign(directory, library, options.seed)
    began = time.monotonic()
    with campaign.bookies.running():
        asyncio.run(campaign.run(options.cuts, options.minutes))
    seconds = time.monotonic() - began
    file = write_record("power cuts", options.seed, campaign.counts, len(campaign.violations), seconds)
    print(f"{dict(sorted(campaign.counts.items()))}\nviolations: {len(campaign.violations)}, noted in {file}")
    if not campaign.violations:
        shutil.rmtree(directory)
        return 0
    print("\n".join(campaign.violations[:LINES]))
    print(
        f"again: python -m tests.chaos.powercut --seed {options.seed} --cuts {options.cuts}; all of it is in {directory}"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
