"""What a seed's disks are made of: in one seed of four the real journal on a simulated disk, in the others a short cut.

Drawn from a stream of its own, so that nothing else of a seed depends on it. The short cut (`Disk`) is a fifth cheaper,
and knows nothing of bytes; the real journal is where torn, lost, misdirected and flipped ones are met.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.model.sim.world import MS

_SHARE: Final = 0.25

DISK_FAULTS: Final = (
    "flip journal",
    "misdirect write",
    "lose file",
    "flip store",
    "fill journal",
    "fill store",
)


@dataclass(frozen=True, slots=True)
class DiskSwarm:
    """Ratios are per write, sync or commit; counts are for the whole run."""

    journalled: bool = False
    """Whether the real journal, write cache and flush are run; if not, nothing below matters."""
    file_pages: int = 16
    """The size of a journal file."""
    sector_bytes: int = 512
    """What a power cut keeps or loses as a whole; smaller than any disk's, so that small groups are torn as well."""
    crash_before_sync: float = 0.0
    """How often the power goes between the write of a group and its sync."""
    flush_us: int = 60 * MS
    flush_takes_us: int = 2 * MS
    journal_eio: float = 0.0
    store_eio: float = 0.0
    keeps_power: float = 0.0
    """How often only the process stops when its disk fails, so that the next one reads what was never written."""
    drops_failed: bool = False
    """What a failed sync leaves unwritten can no longer be read, as with Btrfs; otherwise until the power goes, as with ext4."""
    spares: float = 0.0
    """How often the next journal file is made ahead of time."""
    slow_bookies: int = 0
    """How many have a disk that takes ten times as long."""
    faults: int = 0
    fault_weights: dict[str, float] = field(default_factory=dict)


def draw_disks(rng: Random, *, journalled: bool | None = None) -> DiskSwarm:
    """The disks of one seed; `journalled` decides what is drawn otherwise."""
    is_journalled = rng.random() < _SHARE
    weights = {kind: rng.random() ** 2 if rng.random() < 0.6 else 0.0 for kind in DISK_FAULTS}
    if not any(weights.values()):
        weights[rng.choice(DISK_FAULTS)] = 1.0
    return DiskSwarm(
        journalled=is_journalled if journalled is None else journalled,
        file_pages=rng.choice((3, 4, 8, 16)),
        sector_bytes=rng.choice((64, 512)),
        crash_before_sync=_ratio(rng, 0.1),
        flush_us=rng.choice((15, 50, 150, 400)) * MS,
        flush_takes_us=rng.choice((0, 2, 20)) * MS,
        journal_eio=_ratio(rng, 0.05),
        store_eio=_ratio(rng, 0.05),
        slow_bookies=rng.choice((0, 0, 0, 1, 2)),
        faults=rng.choice((0, 1, 2, 4, 6)),
        fault_weights=weights,
        keeps_power=rng.choice((0.0, 0.5, 1.0)),
        drops_failed=rng.random() < 0.3,
        spares=rng.choice((0.0, 0.1, 1.0)),
    )


def _ratio(rng: Random, most: float) -> float:
    return most * rng.random() ** 2 if rng.random() < 0.3 else 0.0
