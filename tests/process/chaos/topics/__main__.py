"""`python -m tests.process.chaos.topics --seed N --minutes M`: brokers under drawn faults, judged at the end."""

import argparse
import tempfile
import time
from pathlib import Path

from daybook.runtime.signals import exit_on_sigterm
from tests.process.chaos.records import commit, conclude
from tests.process.chaos.topics.storm import TopicStorm


def main() -> int:
    """0: every seed went well; 1: one did not, and its directory stays."""
    parser = argparse.ArgumentParser(prog="python -m tests.process.chaos.topics", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other (default: 1)")
    parser.add_argument("--minutes", type=float, default=1.0, help="of faults for each (default: 1)")
    options = parser.parse_args()
    exit_on_sigterm()
    return int(not all(_try(options.seed + n, options.minutes) for n in range(options.seeds)))


def _try(seed: int, minutes: float) -> bool:
    directory = Path(tempfile.mkdtemp(prefix="daybook-chaos-topics-"))
    storm = TopicStorm(directory, seed)
    began, made_at = time.monotonic(), commit()
    storm.run(minutes)
    return conclude(
        "chaos of topics",
        seed,
        storm.counts,
        storm.violations,
        seconds=time.monotonic() - began,
        made_at=made_at,
        directory=directory,
        again=f"python -m tests.process.chaos.topics --seed {seed} --minutes {minutes}",
    )


if __name__ == "__main__":
    raise SystemExit(main())
