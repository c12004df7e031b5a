"""Two processes of one bookie id: an old one that ZooKeeper has given up and that lives, and its replacement (rule 57).

The replacement boots on an empty disk as the server does: it claims the id, lists what it may have lost, marks that
durably, stamps its cookie under the same claim, registers. Meanwhile the old process serves whoever reaches it,
until it learns that it is the bookie no more, or dies. Which of the two a client means is where its own list of bookies
says that the bookie is, and the lists of clients may be old.
"""

from collections.abc import Container
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.placement.policy import BookieInfo
from tests.model.sim.atlas import may_lose
from tests.model.sim.bookie_model import SimBookie
from tests.model.sim.metadata_model import place_of
from tests.model.sim.world import MS

if TYPE_CHECKING:
    from tests.model.sim.bookie_calls import BookieCalls
    from tests.model.sim.cluster import Cluster

_CHANCE: Final = 0.15


class Twins:
    """The bookies of which there are two processes, or were."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._rng = cluster.world.rng("twins")
        self._places: dict[str, SimBookie] = {}
        """Every process of such a bookie by where it is."""
        self.old: list[SimBookie] = []
        """Those that were replaced."""
        self.split: set[BookieId] = set()
        """The bookies that may be meant in two ways."""
        share = cluster.swarm.twins
        self._faults = self._rng.choice((1, 1, 2, 3)) if self._rng.random() < _CHANCE else 0
        if share is not None:
            self._faults = share

    # Which process is meant

    def meant(self, bookie: BookieId, view: dict[BookieId, BookieInfo]) -> SimBookie:
        """The process that `bookie` is for a client with this list of bookies."""
        if bookie not in self.split or bookie not in view:
            return self._cluster.bookies[bookie]
        return self.at(place_of(view[bookie]))

    def at(self, place: str) -> SimBookie:
        """The process at an address."""
        return self._places.get(place) or self._cluster.bookies[place]

    def is_meant(self, process: SimBookie, view: dict[BookieId, BookieInfo]) -> bool:
        """Whether `process` is the one that the list of bookies names; of most bookies there is but one."""
        known = view.get(process.name)
        return process.name not in self.split or known is None or known.boot_id == process.boot_id

    # What is testified

    def testifies(
        self, process: "BookieCalls", ledger_id: LedgerId, held: Container[EntryId], *, limbo: bool
    ) -> None:
        """`process` answers a fence: it must not report absent what its bookie has acknowledged to a writer."""
        oracle = self._cluster.checkers.oracles.get(ledger_id)
        if (
            process.name not in self.split
            or limbo
            or oracle is None
            or oracle.deleted
            or oracle.end is not None
        ):
            return
        denied = sorted(entry for entry in oracle.counted.get(process.name, ()) if entry not in held)
        if denied:
            what = f"{process.place} lacks {denied} of ledger {ledger_id}, and vouches for it (rule 57)"
            self._cluster.checkers.fail("what a bookie acknowledged is not denied", what)

    # The fault

    def schedule(self) -> None:
        """Spread this seed's over its window."""
        for _ in range(self._faults):
            when = self._world.now_us + int(self._cluster.swarm.fault_window_us * 0.7 * self._rng.random())
            self._world.at(when, None, self._begin)

    def delay_us(self) -> int:
        """How much later than usual a client learns who is registered, where that matters."""
        return int(self._rng.choice((0, 0, 60, 200)) * MS * self._rng.random()) if self.split else 0

    def _begin(self) -> None:
        """An operator takes a bookie for dead that is only cut off, and has it replaced."""
        cluster, rng = self._cluster, self._rng
        old = cluster.bookies[rng.choice(sorted(cluster.bookies))]
        if not cluster.is_faulty or old.name in self.split or not old.serving or old.replaced:
            return
        if not may_lose(cluster.checkers, old.name):
            return
        self._world.tally.fault("cut off from ZooKeeper")
        old.note("is cut off from ZooKeeper, and taken for dead")
        old.doomed = True
        cluster.store.cut_until_us[old] = self._world.now_us + int(
            rng.choice((15, 60, 400)) * MS * rng.random()
        )
        cluster.expire(old.session)
        cluster.store.leaves.add(old.name)
        self.split.add(old.name)
        new = SimBookie(cluster, old.name, replace(old.info, address=f"{old.name}'"))
        self._places |= {old.place: old, new.place: new}
        new.replaced = True
        new.alive = False
        starts_us = self._world.now_us + int(rng.choice((20, 20, 250)) * MS * rng.random())
        self._world.at(starts_us, None, new.start)
        dies_us = self._world.now_us + int(rng.choice((40, 150, 600)) * MS * rng.random())
        self._world.at(dies_us, None, self._dies, old)

    def _dies(self, old: SimBookie) -> None:
        if self._cluster.is_faulty and old.was_replaced:
            self.end(old)

    def end(self, old: SimBookie) -> None:
        """The old process is no more."""
        if old.alive:
            old.note("ends for good")
            old.crash()

    # What becomes of it

    def stamped(self, new: SimBookie) -> None:
        """The cookie is the new one's."""
        old = self._cluster.bookies[new.name]
        old.doomed, old.was_replaced = False, True
        self.old.append(old)
        self._cluster.bookies[new.name] = new
        self._world.tally.state("replaced beside its process")
        self._cluster.checkers.disks_changed()

    def refused(self, new: SimBookie) -> None:
        """The old one has registered again, which ended the leave to replace it."""
        self._world.tally.state("a leave that ended")
        new.note("may not start: the bookie lives")
        new.stop()
        self._cluster.bookies[new.name].doomed = False
