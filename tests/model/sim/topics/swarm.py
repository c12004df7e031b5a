"""Which seeds have topics, and what happens to them."""

from dataclasses import dataclass
from random import Random
from typing import Final

_SHARE: Final = 1 / 10


@dataclass(frozen=True, slots=True)
class TopicSwarm:
    """The topics of one seed."""

    topics: int = 0
    publishes: int = 0
    """Of each owner."""
    rivals: int = 0
    """How many owners take each topic over whether or not there is one."""
    crash: float = 0.0
    """How often an owner dies between two effects of its machine."""
    unload: float = 0.0
    """How often an owner is asked to give the topic up, at each tick."""
    trim: float = 0.0
    """How often it is asked to trim, at each tick."""
    marks: int = 0
    """What trimming waits for: subscriptions, as they are persisted."""
    entries_max: int = 1000
    age_ms_max: int = 10_000
    idle_ms_max: int = 10_000
    recover: int = 0
    """How many times the auditor, or a person, recovers the ledger that is written."""
    unknown: float = 0.0
    """How often the creation or the deletion of a ledger is given up, and may have been carried out."""


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
        marks=rng.choice((1, 2, 2)),
        entries_max=rng.choice((2, 5, 1000)),
        age_ms_max=rng.choice((100, 10_000)),
        idle_ms_max=rng.choice((60, 300, 10_000)),
        recover=rng.choice((0, 1, 3)),
        unknown=rng.choice((0.0, 0.0, 0.3)),
    )
