"""Which seeds have topics, and what happens to them. Times are those of the owners, whose clocks run faster (shipped/loop.py)."""

from dataclasses import dataclass
from random import Random
from typing import Final

_SHARE: Final = 1 / 12


@dataclass(frozen=True, slots=True)
class TopicSwarm:
    """The topics of one seed."""

    topics: int = 0
    publishes: int = 0
    """Of each owner."""
    rivals: int = 0
    """How many owners take each topic over whether or not there is one."""
    crash: float = 0.0
    """How often an owner dies between two effects of its machines."""
    unload: float = 0.0
    """How often an owner is asked to give the topic up, at each tick."""
    trim: float = 0.0
    """How often it is asked to trim, at each tick."""
    subscriptions: int = 0
    seek: float = 0.0
    """How often a consumer goes back, at each tick."""
    entries_max: int = 1000
    age_ms_max: int = 200_000
    idle_ms_max: int = 200_000
    recover: int = 0
    """How many times the auditor, or a person, recovers a ledger that is written."""
    persist_ms: int = 1_000
    cursor_entries_max: int = 1000
    cursor_idle_ms: int = 60_000
    lag: float = 0.0
    """How often a change reaches a ZooKeeper server late."""


def draw_topics(rng: Random) -> TopicSwarm:
    """None, in most seeds."""
    if rng.random() >= _SHARE:
        return TopicSwarm()
    return TopicSwarm(
        topics=rng.choice((1, 1, 2)),
        publishes=rng.choice((4, 8, 16)),
        rivals=rng.choice((0, 1, 2, 3)),
        crash=rng.choice((0.0, 0.0, 0.02, 0.1)),
        unload=rng.choice((0.0, 0.0, 0.05)),
        trim=rng.choice((0.0, 0.05, 0.2)),
        subscriptions=rng.choice((1, 1, 2)),
        seek=rng.choice((0.0, 0.0, 0.05)),
        entries_max=rng.choice((2, 5, 1000)),
        age_ms_max=rng.choice((2_000, 200_000)),
        idle_ms_max=rng.choice((1_200, 6_000, 200_000)),
        recover=rng.choice((0, 1, 3)),
        persist_ms=rng.choice((400, 1_000)),
        cursor_entries_max=rng.choice((2, 5, 1000)),
        cursor_idle_ms=rng.choice((1_000, 4_000, 60_000)),
        lag=rng.choice((0.0, 0.0, 0.1, 0.5)),
    )
