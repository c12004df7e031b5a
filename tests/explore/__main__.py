"""`python -m tests.explore`: count out the worlds within bounds and print how many there are."""

import argparse
import sys
import time

from tests.explore.bounds import BOUNDS
from tests.explore.explorer import Found, explore


def main(arguments: list[str]) -> int:
    """0 if every invariant holds everywhere."""
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__)
    parser.add_argument("--bounds", choices=sorted(BOUNDS), default="small")
    parser.add_argument(
        "--worlds-max", type=int, default=10**9, help="stop each exploration at this many worlds"
    )
    options = parser.parse_args(arguments)
    total = 0
    for bounds in BOUNDS[options.bounds]:
        started = time.monotonic()
        try:
            report = explore(bounds, worlds_max=options.worlds_max)
        except Found as found:
            print(f"{bounds}\n{found}")
            return 1
        total += report.worlds
        print(f"{report}; {time.monotonic() - started:.1f} s", flush=True)
    print(f"{total} worlds, every invariant holds")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
