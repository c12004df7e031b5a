"""A load at a rate: how long it takes, and whether the rate was reached; the same for ledgers and for brokers.

A side that falls behind has latencies that grow with the length of the run, so its row measures no load of that rate: it failed.
"""

from typing import Final

PART_OF_RATE_MIN: Final = 0.99
"""What must be reached of a rate for the row to count."""
PACED_S_MIN: Final = 5.0
"""The rate reached counts until the last answer, so a row must be long beside the latency of one entry."""


def is_reached(part_of_rate: float) -> bool:
    """Whether so much of a rate counts as the rate."""
    return part_of_rate >= PART_OF_RATE_MIN


def failure(what: str, reached_per_s: float, rate_per_s: int) -> str:
    """A sentence about a row that did not reach its rate."""
    return (
        f"failed: {what}: it reached {reached_per_s:,.0f}/s of {rate_per_s:,}/s, "
        f"and below {PART_OF_RATE_MIN:.0%} its latencies are not those of this rate"
    )


def paced(rate_per_s: int, seconds: float, scale: float) -> int:
    """How many entries a row with a rate has: `seconds` of them at scale 1."""
    return int(rate_per_s * max(PACED_S_MIN, seconds * scale))
