"""What goes wrong with the writes of a journalled disk: errors, what they leave behind, volumes without room.

Drawn apart from what the disk does with it (`journalled.py`), each in the order of its own source, so that a new fault
shifts no other.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from random import Random
from typing import Final

from daybook_bookie.store.storage import Storage

from tests.model.sim.disk import Disk
from tests.model.sim.disk_errors import failing_writes
from tests.model.sim.disk_swarm import DiskSwarm
from tests.unit.bookie.sim_disk import Fate, SimDisk
from tests.unit.bookie.store.store_model import ENDLESS, StoreModel

_WRITTEN_ALL_THE_SAME: Final = 0.3
"""How many sectors a failed sync wrote."""


class FailingDisk(Disk):
    """A journal's disk and a store that fail as their swarm has it."""

    journal_disk: SimDisk
    store: StoreModel
    storage: Storage

    def __init__(
        self, swarm: DiskSwarm, rng: Random, is_faulty: Callable[[], bool], failures: Random
    ) -> None:
        """`is_faulty`: whether writes may fail now; `failures` draws what a failure leaves."""
        super().__init__()
        self._swarm = swarm
        self._rng = rng
        self._is_faulty = is_faulty
        self._failures = failures
        self.journal_is_full = False
        self.keeps_power = False
        """Whether the next crash is one of the process alone."""

    def draws_crash(self) -> bool:
        """Whether the power goes before the next sync has ended."""
        return self._is_faulty() and self._rng.random() < self._swarm.crash_before_sync

    def fate_of_failed(self) -> Fate:
        """What a failed sync makes of a sector."""
        if self._failures.random() < _WRITTEN_ALL_THE_SAME:
            return Fate.WRITTEN
        return Fate.DROPPED if self._swarm.drops_failed else Fate.CLEAN

    def draw_spare(self) -> None:
        """Whether the next journal file is made ahead of time; without room it is not."""
        if self._failures.random() < self._swarm.spares:
            with self._failing(), suppress(OSError):
                self.storage.journal.make_spare()

    def draws_power_loss(self) -> None:
        """The process stops because its disk failed: whether the machine keeps running."""
        self.keeps_power = self._failures.random() < self._swarm.keeps_power

    def has_room(self) -> bool:
        """Whether the journal could continue, and no flush would wait."""
        with self._failing():
            return self.storage.journal.has_room() and not self.store_is_full

    def make_room(self) -> None:
        """The volumes were grown."""
        self.journal_is_full = self.store_is_full = False

    @property
    def store_is_full(self) -> bool:
        """Whether the store takes nothing but deletions."""
        return self.store.room_bytes == 0

    @store_is_full.setter
    def store_is_full(self, full: bool) -> None:
        self.store.room_bytes = 0 if full else ENDLESS

    def _failing(self, *operations: str) -> AbstractContextManager[None]:
        ratio = self._swarm.journal_eio if self._is_faulty() else 0.0
        return failing_writes(self.journal_disk, self._rng, ratio, operations, is_full=self.journal_is_full)
