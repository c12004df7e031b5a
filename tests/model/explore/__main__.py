"""`make explore BOUNDS=name`: count out the worlds within bounds, print how many there are, and leave a record."""

import argparse
import sys
import time
from collections import Counter

from tests.model.explore.bounds import BOUNDS, TOPIC_BOUNDS
from tests.model.explore.explorer import Found, Report, explore
from tests.model.explore.parts import Bounds, TopicBounds
from tests.model.explore.topics import TopicReport, explore_topic
from tests.process.chaos.records import commit, write_record


def main(arguments: list[str]) -> int:
    """0 if every invariant holds everywhere."""
    parser = argparse.ArgumentParser(prog="python -m tests.model.explore", description=__doc__)
    parser.add_argument("--bounds", choices=sorted(BOUNDS), default="small")
    parser.add_argument(
        "--worlds-max", type=int, default=10**9, help="stop each exploration at this many worlds"
    )
    options = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    violations = 0
    began, made_at = time.monotonic(), commit()
    chosen: list[Bounds | TopicBounds] = [*BOUNDS[options.bounds], *TOPIC_BOUNDS[options.bounds]]
    for bounds in chosen:
        started = time.monotonic()
        try:
            report = _explore(bounds, options.worlds_max)
        except Found as found:
            print(f"{bounds}\n{found}")
            violations = 1
            break
        counts.update(worlds=report.worlds, steps=report.steps, complete=report.is_complete, explorations=1)
        print(f"{report}; {time.monotonic() - started:.1f} s", flush=True)
    seconds = time.monotonic() - began
    kind = f"explorer: {options.bounds}"
    file = write_record(kind, 0, counts, violations, seconds, made_at=made_at)
    verdict = "an invariant does not hold" if violations else "every invariant holds"
    print(f"{counts['worlds']} worlds, {verdict}; noted in {file}")
    return violations


def _explore(bounds: Bounds | TopicBounds, worlds_max: int) -> Report | TopicReport:
    if isinstance(bounds, TopicBounds):
        return explore_topic(bounds, worlds_max=worlds_max)
    return explore(bounds, worlds_max=worlds_max)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
