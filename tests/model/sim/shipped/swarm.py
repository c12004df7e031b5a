"""Which seeds run what ships, and what its processes do there."""

from dataclasses import dataclass
from random import Random
from typing import Final

_SHARE: Final = 1 / 8


@dataclass(frozen=True, slots=True)
class ShippedSwarm:
    """The processes of one seed that run what ships; counts are for each process."""

    processes: int = 0
    writers: int = 0
    appends: int = 0
    """Of each writer."""
    followers: int = 0
    tails: int = 0
    recoverers: int = 0
    deleters: int = 0
    caretakers: int = 0
    """Processes with an auditor and a worker, in the place of the simulator's own; 0: those."""
    decommission: bool = False
    lag: float = 0.0
    """How often a change reaches a ZooKeeper server late."""


def draw_shipped(rng: Random) -> ShippedSwarm:
    """Nothing, in most seeds."""
    if rng.random() >= _SHARE:
        return ShippedSwarm()
    return ShippedSwarm(
        processes=rng.choice((1, 1, 2)),
        writers=rng.choice((1, 1, 2)),
        appends=rng.choice((6, 12, 24)),
        followers=rng.choice((0, 1, 1, 2)),
        tails=rng.choice((0, 1, 1)),
        recoverers=rng.choice((0, 0, 1, 2)),
        deleters=rng.choice((0, 0, 0, 1)),
        caretakers=rng.choice((0, 0, 1, 2)),
        decommission=rng.random() < 0.4,
        lag=rng.choice((0.0, 0.1, 0.5)),
    )
