"""What is fixed in a seed's swarm where a mutant shows only in situations that are rare otherwise."""

from typing import Any, Final

from daybook.core.quorum import Quorum
from tests.model.sim.disk_swarm import DiskSwarm
from tests.model.sim.shipped.swarm import ShippedSwarm
from tests.model.sim.swarm import FAULT_KINDS

Swarm = dict[str, Any]


def _faults(**weights: float) -> Swarm:
    kinds = {kind: weights.get(kind.replace(" ", "_"), 0.0) for kind in FAULT_KINDS}
    return {"faults": 12, "fault_weights": kinds, "fault_window_us": 1_200_000}


STRIPED: Final[Swarm] = {"quorum": Quorum(6, 2, 1), "bookies": 7, "recoverers": 3}
"""Entries lie on different bookies."""

LOST_DISKS: Final[Swarm] = {
    **_faults(wipe_bookie=1.0, crash_bookie=0.2),
    "quorum": Quorum(3, 3, 2),
    "bookies": 5,
    "deleters": 0,
    "recoverers": 3,
    "writers": 3,
    "wipe_again": 1.0,
    "deferred_sync": False,
}
"""Disks are lost again and again, the same one during its repair as well."""

TWO_PROCESSES: Final[Swarm] = {
    **_faults(crash_bookie=0.5, crash_client=1.0),
    "quorum": Quorum(3, 3, 2),
    "bookies": 4,
    "writers": 3,
    "appends": 24,
    "recoverers": 3,
    "deleters": 0,
    "deferred_sync": False,
    "explicit_ids": False,
    "disks": DiskSwarm(),
    "shipped": ShippedSwarm(),
    "twins": 6,
}
"""Bookies are replaced while their processes live."""

NO_SPARES: Final[Swarm] = {**LOST_DISKS, "bookies": 3, "recoverers": 0, "quorum": Quorum(3, 3, 2)}
"""Disks are lost where no other bookie is."""

RESTARTS: Final[Swarm] = {
    **_faults(crash_bookie=1.0),
    "deferred_sync": True,
    "explicit_ids": False,
    "deleters": 0,
    "recoverers": 0,
    "writers": 3,
    "keep_unsynced": 0.0,
    "fsync_stall": 0.3,
    "restart_at_force": 0.2,
}
"""Bookies restart under writers that force now and then."""

REPAIRS: Final[Swarm] = {
    **_faults(crash_bookie=1.0, wipe_bookie=1.0, crash_client=0.3),
    "quorum": Quorum(3, 3, 2),
    "bookies": 6,
    "writers": 3,
    "appends": 24,
    "deleters": 0,
    "recoverers": 2,
    "workers": 2,
    "zk_slow": 0.4,
    "deferred_sync": False,
    "explicit_ids": False,
}
"""Older fragments are repaired while the ledger is written and recovered."""

BY_HAND: Final[Swarm] = {**REPAIRS, "second_worker": 1.0}
"""Someone repairs by hand what a worker repairs."""

LATE_WORKERS: Final[Swarm] = {
    **REPAIRS,
    **_faults(crash_bookie=1.0, wipe_bookie=0.5),
    "absences_ms": (600, 900),
    "late_worker": 1.0,
}
"""Two workers find each task, and one gets to it when the other has failed."""

LOST_SUCCESSORS: Final[Swarm] = {
    **REPAIRS,
    **_faults(crash_bookie=1.0),
    "wipe_successor": 1.0,
    "absences_ms": (600, 900),
    "fault_window_us": 2_000_000,
    "recoverers": 3,
}
"""Those who got the copies lose them before they are named."""

DELETIONS: Final[Swarm] = {
    **REPAIRS,
    "deleters": 2,
    "delete_at_repair": 0.6,
    "zk_slow_reply": 0.4,
}
"""Ledgers are deleted while they are repaired, and what was read of them is old when it comes."""

CLOSES: Final[Swarm] = {
    **REPAIRS,
    **_faults(crash_bookie=1.0),
    "absences_ms": (600, 900),
    "recoverers": 0,
    "recover_at_naming": 1.0,
}
"""Ledgers are recovered while older fragments of them are repaired."""

EXPIRIES: Final[Swarm] = {**REPAIRS, **_faults(crash_bookie=1.0, wipe_bookie=1.0, expire_client=2.0)}
"""Workers lose their sessions."""

LATE_CHANGES: Final[Swarm] = {
    **_faults(crash_bookie=1.0),
    "quorum": Quorum(3, 3, 2),
    "bookies": 6,
    "writers": 3,
    "appends": 24,
    "recoverers": 0,
    "deleters": 0,
    "zk_request_loss": 0.4,
    "zk_late": 1.0,
    "deferred_sync": False,
    "explicit_ids": False,
}
"""Changes of metadata that were given up land later."""

MIXED_ANSWERS: Final[Swarm] = {"overlapping": True, "refusal": 0.1, "reorder": 0.4, "fsync_stall": 0.1}
"""Streams with several messages under way, of which some frames are refused."""

EXPLICIT_IDS: Final[Swarm] = {"explicit_ids": True, "deferred_sync": False}
"""Users choose the ids."""

UNEVEN_RACKS: Final[Swarm] = {
    "quorum": Quorum(6, 2, 1),
    "bookies": 6,
    "racks": 3,
    "uneven_racks": True,
    "writers": 3,
}
"""Some racks have more bookies than others, and every seat counts."""

SWITCHED_OFF: Final[Swarm] = {
    **_faults(repair_off=1.0, crash_bookie=1.0),
    "bookies": 6,
    "quorum": Quorum(3, 3, 2),
}
"""Auto-recovery is switched off now and then while bookies are away."""

READ_ONLY: Final[Swarm] = {**_faults(read_only=1.0), "bookies": 6, "quorum": Quorum(3, 3, 2)}
"""Bookies run out of space."""

SIMPLE_DISKS: Final[Swarm] = {"disks": DiskSwarm()}
"""Disks without bytes, so that nothing else goes wrong."""

JOURNALS: Final[Swarm] = {
    **_faults(crash_bookie=1.0),
    "absences_ms": (5, 60),
    "deleters": 0,
    "fsync_stall": 0.3,
    "keep_unsynced": 0.0,
    "deferred_sync": False,
    "disks": DiskSwarm(
        journalled=True,
        file_pages=4,
        crash_before_sync=0.02,
        flush_us=15_000,
        flush_takes_us=20_000,
        store_eio=0.1,
    ),
}
"""Bookies flush all the time, and lose power again and again."""

FAILED_SYNCS: Final[Swarm] = {
    **JOURNALS,
    "disks": DiskSwarm(journalled=True, file_pages=4, flush_us=150_000, journal_eio=0.05, keeps_power=1.0),
}
"""Syncs fail, the bookie starts again on the pages that they left, and then the power goes."""

BROKEN_FLUSHES: Final[Swarm] = {
    **JOURNALS,
    "writers": 3,
    "appends": 24,
    "disks": DiskSwarm(journalled=True, file_pages=4, flush_us=100_000, store_eio=0.5),
}
"""Flushes of several commits, of which one fails."""

DAMAGE: Final[Swarm] = {
    **_faults(crash_bookie=0.2),
    "quorum": Quorum(3, 3, 2),
    "bookies": 6,
    "appends": 24,
    "deleters": 0,
    "readers": 2,
    "deferred_sync": False,
    "disks": DiskSwarm(
        journalled=True,
        file_pages=8,
        flush_us=150_000,
        faults=6,
        fault_weights={"flip journal": 1.0, "misdirect write": 0.3, "flip store": 0.7},
    ),
}
"""Bits flip in journals and stores."""

FULL_JOURNALS: Final[Swarm] = {
    **JOURNALS,
    "disks": DiskSwarm(
        journalled=True,
        file_pages=3,
        flush_us=400_000,
        faults=6,
        fault_weights={"fill journal": 1.0},
    ),
}
"""Journals have no room for a file now and then."""

SHIPPED: Final[Swarm] = {
    "shipped": ShippedSwarm(processes=2, writers=2, appends=24, followers=1, tails=1, recoverers=1)
}
"""The client that ships, in each seed."""

LOST_ANSWERS: Final[Swarm] = {**SHIPPED, "zk_reply_loss": 0.8, "zk_request_loss": 0.2, "recoverers": 3}
"""… whose metadata store loses connections with what was under way on them."""

LEAVING: Final[Swarm] = {
    "shipped": ShippedSwarm(processes=1, writers=2, appends=24, caretakers=1, decommission=True),
    "quorum": Quorum(2, 2, 1),
    "bookies": 4,
    "fsync_stall": 0.2,
    "loss": 0.2,
}
"""A bookie is decommissioned by what ships, while writers are content with one replica."""
