"""What goes wrong with the bytes of disks: flipped bits, misdirected writes, lost files, disks without room.

Damage is done while its bookie is down, and only to one that may lose its disk altogether (atlas.py): so whatever follows
is a bug. It is drawn from all that a later group proves to have been durable, or that nobody needs any more. What is
left out is the last synced group: its damage cannot be told apart from a torn tail, which the journal must tolerate (rule 25).
A refused journal is a lost disk: the operator authorises a replacement, and the bookie comes back in limbo (rule 29).
"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from tests.model.sim.atlas import may_lose
from tests.model.sim.bookie_model import SimBookie
from tests.model.sim.disk_damage import flip_journal, flip_store, lose_file, misdirect_write
from tests.model.sim.journalled import JournalledDisk
from tests.model.sim.world import MS

if TYPE_CHECKING:
    from tests.model.sim.cluster import Cluster

Damage = Callable[[JournalledDisk, Random], bool]

_JOURNAL_DAMAGE: Final[dict[str, tuple[str, Damage]]] = {
    "flip journal": ("bit flip", flip_journal),
    "misdirect write": ("misdirected write", misdirect_write),
    "lose file": ("lost file", lose_file),
}
_FULL_MS: Final = 400
_SCRUB_MS: Final = 80
_SCRUB_AGAIN_MS: Final = 20


class DiskFaults:
    """Injects the disk faults of one run."""

    def __init__(self, cluster: "Cluster", crash: Callable[[SimBookie], None]) -> None:
        """`crash` crashes a bookie, and has it started again later."""
        self._cluster = cluster
        self._world = cluster.world
        self._crash = crash
        self._rng = cluster.world.rng("disk faults")

    def schedule(self) -> None:
        """Spread this seed's faults over its window."""
        disks = self._cluster.disks
        if not disks.journalled or not disks.faults:
            return
        kinds, weights = list(disks.fault_weights), list(disks.fault_weights.values())
        for kind in self._rng.choices(kinds, weights, k=disks.faults):
            when = int(self._cluster.swarm.fault_window_us * self._rng.random())
            self._world.at(self._world.now_us + when, None, self._inject_now, kind)

    def _inject_now(self, kind: str) -> None:
        if self._cluster.is_faulty:
            bookie = self._rng.choice(list(self._cluster.bookies.values()))
            if kind in _JOURNAL_DAMAGE:
                self._damage_journal(bookie, *_JOURNAL_DAMAGE[kind])
            elif kind == "flip store":
                self._flip_store(bookie)
            else:
                self._fill(bookie, kind.removeprefix("fill "))

    def _went_down(self, bookie: SimBookie) -> JournalledDisk | None:
        """The disk of the bookie, which is down now and whose loss would be no loss; None if it cannot be."""
        checkers = self._cluster.checkers
        if bookie.replaced or not may_lose(checkers, bookie.name):
            return None
        self._crash(bookie)
        return None if bookie.alive or not may_lose(checkers, bookie.name) else bookie.journalled

    # Damage

    def _damage_journal(self, bookie: SimBookie, name: str, damage: Damage) -> None:
        disk = self._went_down(bookie)
        if disk is None or not damage(disk, self._rng):
            return
        self._world.tally.fault(name)
        bookie.note(f"its journal is damaged: {name}")
        if disk.remount():
            self._world.tally.state("harmless damage")
            return
        self._world.tally.state("journal refused")
        self._cluster.note_wipe(bookie)
        bookie.wipe()
        self._cluster.checkers.disks_changed()

    def _flip_store(self, bookie: SimBookie) -> None:
        """Found by a reader or, at the latest, by the scrubber; repaired by a worker (rule 26)."""
        disk = self._went_down(bookie)
        if disk is None or not flip_store(disk, self._rng):
            return
        self._world.tally.fault("bit flip")
        bookie.note("a block of its store is damaged")
        self._cluster.checkers.disks_changed()
        self._world.at(self._world.now_us + self._some_us(_SCRUB_MS), None, self._scrub, bookie, disk)

    def _scrub(self, bookie: SimBookie, disk: JournalledDisk) -> None:
        """Until the damage is repaired, or the disk is gone."""
        if bookie.alive and bookie.serving:
            bookie.scrub()
        if bookie.journalled is disk and disk.scrubbed():
            self._world.at(self._world.now_us + _SCRUB_AGAIN_MS * MS, None, self._scrub, bookie, disk)
        else:
            self._world.tally.state("damage repaired")

    # Room

    def _some_us(self, most_ms: int) -> int:
        return int((1 + most_ms * self._rng.random()) * MS)

    def _fill(self, bookie: SimBookie, what: str) -> None:
        """The volume of the journal, or of the store, is full for a while."""
        disk = bookie.journalled
        if disk is not None and bookie.alive:
            self._world.tally.fault("ENOSPC")
            bookie.note(f"the volume of its {what} is full")
            setattr(disk, f"{what}_is_full", True)
            self._world.at(self._world.now_us + self._some_us(_FULL_MS), None, disk.make_room)
