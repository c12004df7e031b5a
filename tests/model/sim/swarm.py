"""Swarm: every seed draws which faults it has and how often, because a mix of everything finds less than many mixes.

A run where every message may be lost never gets deep; a run without losses never meets a retry. So each ratio is zero
in about half of the seeds and drawn anew in the others (Groce et al., "Swarm Testing", 2012).
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from daybook.core.quorum import Quorum, check_quorum
from tests.model.sim.disk_swarm import DiskSwarm
from tests.model.sim.shipped.swarm import ShippedSwarm
from tests.model.sim.topics.swarm import TopicSwarm
from tests.model.sim.world import MS

_QUORUMS: Final = (
    (3, 3, 2),
    (3, 3, 2),
    (3, 3, 2),
    (3, 2, 2),
    (4, 3, 2),
    (5, 3, 2),
    (3, 3, 3),
    (2, 2, 2),
    (2, 2, 1),
    (6, 2, 1),
    (3, 3, 1),
)


@dataclass(frozen=True, slots=True)
class Swarm:
    """What one seed is made of. Ratios are per message or request; counts are for the whole run."""

    quorum: Quorum
    bookies: int
    racks: int
    writers: int
    appends: int
    readers: int
    tails: int
    recoverers: int
    deleters: int
    workers: int
    explicit_ids: bool
    deferred_sync: bool

    loss: float
    fence_loss: float
    duplicate: float
    reorder: float
    slow: float
    zk_request_loss: float
    zk_reply_loss: float
    zk_slow: float
    fsync_stall: float
    crash_in_sync: float
    read_error: float
    short_listing: float
    refusal: float
    overlapping: bool
    """Whether streams have several messages under way at a time."""
    keep_unsynced: float
    wipe_again: float
    delete_at_repair: float

    faults: int
    fault_weights: dict[str, float]
    fault_window_us: int

    zk_late: float
    """How many of the lost compare-and-sets arrive all the same, much later."""
    zk_slow_reply: float
    restart_at_force: float
    wipe_successor: float
    recover_at_naming: float
    second_worker: float
    """How many repairs someone does by hand at the same time, without the lock."""
    late_worker: float
    """How many tasks a second worker has found as well, and gets to a while later."""
    uneven_racks: bool
    absences_ms: tuple[int, ...]
    """How long at most a bookie that crashed is unavailable: one of these; beyond 120 ms it is taken for lost."""
    disks: DiskSwarm | None = None
    """What the disks are; None: drawn by themselves."""
    twins: int | None = None
    """How many bookies are replaced beside their living processes; None: drawn by itself."""
    shipped: ShippedSwarm | None = None
    """The processes of what ships; None: drawn by themselves."""
    topics: TopicSwarm | None = None
    """The topics and their owners; None: drawn by themselves."""


FAULT_KINDS: Final = (
    "crash bookie",
    "wipe bookie",
    "crash client",
    "pause bookie",
    "pause client",
    "cut one way",
    "cut off",
    "zk outage",
    "expire client",
    "expire bookie",
    "read only",
    "crash all bookies",
    "repair off",
)


def draw(rng: Random) -> Swarm:
    """The swarm of one seed."""

    def ratio(most: float, chance: float = 0.45) -> float:
        return most * rng.random() ** 2 if rng.random() < chance else 0.0

    quorum = check_quorum(*rng.choice(_QUORUMS))
    spare = rng.choice((0, 0, 1, 1, 2, 3))
    weights = {kind: rng.random() ** 2 if rng.random() < 0.5 else 0.0 for kind in FAULT_KINDS}
    weights["wipe bookie"] *= 5  # the atlas forbids most of them
    if not any(weights.values()):
        weights[rng.choice(FAULT_KINDS)] = 1.0
    deferred_sync = rng.random() < 0.12
    return Swarm(
        quorum=quorum,
        bookies=quorum.ensemble_size + spare,
        racks=rng.choice((1, 1, 2, 3)),
        writers=rng.choice((1, 1, 2, 3)),
        appends=rng.choice((4, 8, 16, 24)),
        readers=rng.choice((0, 1, 1, 2)),
        tails=rng.choice((0, 0, 1, 1, 2)),
        recoverers=rng.choice((0, 1, 1, 2, 3)),
        deleters=rng.choice((0, 0, 0, 1, 2)),
        workers=rng.choice((1, 1, 2)),
        explicit_ids=not deferred_sync and rng.random() < 0.08,
        deferred_sync=deferred_sync,
        loss=ratio(0.4),
        fence_loss=ratio(0.9, 0.3),
        duplicate=ratio(0.3),
        reorder=ratio(0.5),
        slow=ratio(0.08),
        zk_request_loss=ratio(0.2),
        zk_reply_loss=ratio(0.3),
        zk_slow=ratio(0.2),
        fsync_stall=ratio(0.1),
        crash_in_sync=ratio(0.15, 0.3),
        read_error=ratio(0.2),
        short_listing=ratio(0.5),
        refusal=ratio(0.1, 0.25),
        overlapping=rng.random() < 0.3,
        keep_unsynced=rng.choice((0.0, 0.2, 0.5, 0.8, 1.0)),
        wipe_again=rng.choice((0.0, 0.8, 1.0)),
        delete_at_repair=rng.choice((0.0, 0.0, 0.2, 0.6)),
        faults=rng.choice((0, 1, 2, 4, 8, 12)),
        fault_weights=weights,
        fault_window_us=rng.choice((400, 800, 1200)) * MS,
        zk_late=rng.choice((0.0, 0.0, 0.5)),
        zk_slow_reply=ratio(0.2, 0.25),
        restart_at_force=rng.choice((0.0, 0.0, 0.2)),
        wipe_successor=rng.choice((0.0, 0.0, 0.5)),
        second_worker=rng.choice((0.0, 0.0, 0.3, 1.0)),
        uneven_racks=rng.random() < 0.3,
        absences_ms=rng.choice(((5, 60, 600), (5, 60, 600), (600, 900))),
        recover_at_naming=rng.choice((0.0, 0.0, 0.5)),
        late_worker=rng.choice((0.0, 0.0, 0.5)),
    )
