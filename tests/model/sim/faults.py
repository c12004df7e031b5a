"""What goes wrong in a run, and when; drawn from the seed's weights.

The fault atlas: a disk is lost only where fewer than Qa of every entry's bookies are then lost for good (the checkers
know), so that every failure of a run is a bug and never bad luck.
"""

from typing import TYPE_CHECKING

from daybook.core.ids import LedgerId
from tests.model.sim.atlas import may_lose
from tests.model.sim.bookie_model import SimBookie
from tests.model.sim.metadata_model import Session
from tests.model.sim.swarm import FAULT_KINDS
from tests.model.sim.world import MS, Process

if TYPE_CHECKING:
    from tests.model.sim.auditing import WorkerClient
    from tests.model.sim.clients import Driver
    from tests.model.sim.cluster import Cluster


class Faults:
    """Injects the faults of one run into `cluster`."""

    def __init__(self, cluster: "Cluster") -> None:
        self.cluster = cluster
        self.world = cluster.world
        self._rng = cluster.world.rng("faults")
        self._chance = cluster.world.rng("faults at a moment")
        self._inject = {kind: getattr(self, f"_{kind.replace(' ', '_')}") for kind in FAULT_KINDS}

    def schedule(self) -> None:
        """Spread this seed's faults over its window."""
        swarm = self.cluster.swarm
        kinds = list(swarm.fault_weights)
        weights = list(swarm.fault_weights.values())
        for kind in self._rng.choices(kinds, weights, k=swarm.faults):
            when = self.world.now_us + int(swarm.fault_window_us * self._rng.random())
            self.world.at(when, None, self._inject_now, kind)

    def _inject_now(self, kind: str) -> None:
        if self.cluster.is_faulty:
            self._inject[kind]()

    def _some_us(self, most_ms: int) -> int:
        return int((1 + most_ms * self._rng.random()) * MS)

    def _bookie(self) -> SimBookie:
        return self._rng.choice(list(self.cluster.bookies.values()))

    # Processes

    def _crash_bookie(self) -> None:
        self.crash(self._bookie())

    def crash(self, bookie: SimBookie) -> None:
        """Crash it now and start it again later; short and long absences, so that some are taken for lost."""
        if bookie.alive and self.cluster.is_faulty:
            self.world.tally.fault("bookie crash")
            bookie.crash()
            self.cluster.checkers.disks_changed()
            self._restart_later(bookie)

    def _restart_later(self, bookie: SimBookie) -> None:
        delay = self._some_us(self._rng.choice(self.cluster.swarm.absences_ms))
        self.world.at(self.world.now_us + delay, None, self._restart, bookie)

    @staticmethod
    def _restart(bookie: SimBookie) -> None:
        if not bookie.alive:
            bookie.start()

    def _crash_all_bookies(self) -> None:
        """Simultaneous power loss: nothing that was acknowledged may be lost."""
        for bookie in self.cluster.bookies.values():
            self.crash(bookie)

    def _wipe_bookie(self) -> None:
        self.wipe(self._bookie())

    def wipe(self, bookie: SimBookie) -> None:
        """Lose a disk, if the atlas lets it be lost."""
        if not self.cluster.is_faulty:
            return
        self.crash(bookie)
        if not bookie.alive and not bookie.doomed and may_lose(self.cluster.checkers, bookie.name):
            self.cluster.note_wipe(bookie)
            bookie.wipe()
            self.cluster.checkers.disks_changed()

    def repair_started(self, worker: "WorkerClient") -> None:
        """A disk that is being copied back may be lost once more, which is when a stale nonce shows (rule 29)."""
        name = worker.clears_limbo_of
        if worker.successors and self._rng.random() < self.cluster.swarm.wipe_again / 2:
            when = self.world.now_us + self._some_us(16)
            self.world.at(when, None, self.wipe, self.cluster.bookies[self._rng.choice(worker.successors)])
        if name is not None and self._rng.random() < self.cluster.swarm.wipe_again:
            when = self.world.now_us + self._some_us(8)
            self.world.at(when, None, self._wipe_again, worker, self.cluster.bookies[name])

    def naming_successors(self, worker: "WorkerClient") -> None:
        """All is copied, and metadata is about to name who has it: a disk lost now is marked by nobody (rule 29).

        The compare-and-set takes its time, so that the bookie is back, empty, before it is named.
        """
        rng = self._chance
        if not worker.successors or rng.random() >= self.cluster.swarm.wipe_successor:
            return
        bookie = self.cluster.bookies[rng.choice(worker.successors)]
        if self._lose_disk_and_return(bookie, int(3 * MS * rng.random())):
            worker.session.last_us = max(worker.session.last_us, self.world.now_us + 30 * MS)

    def force_ahead(self, writer: "Driver", in_us: int) -> None:
        """Bookies have accepted what no force has synced yet: one that restarts may have lost it (rule 22)."""
        if self._chance.random() < self.cluster.swarm.restart_at_force:
            when = self.world.now_us + int(in_us * (0.3 + 0.6 * self._chance.random()))
            self.world.at(when, None, self._restart_member, writer.ledger_id)

    def _restart_member(self, ledger_id: LedgerId) -> None:
        found = self.cluster.store.ledgers.get(ledger_id)
        if found is not None and self.cluster.is_faulty:
            bookie = self.cluster.bookies[self._chance.choice(found.metadata.last_fragment.bookies)]
            self.crash(bookie)
            delay = int(3 * MS * self._chance.random())
            self.world.at(self.world.now_us + delay, None, self._restart, bookie)

    def _wipe_again(self, worker: "WorkerClient", bookie: SimBookie) -> None:
        """Lose the disk and be back before the worker, which is held up, has noticed anything.

        The operator takes the dead process out of the registry at once, so the new one need not wait for its session.
        """
        if self._rng.random() < 0.5 and worker.alive and bookie.alive:
            if self._lose_disk_and_return(bookie, self._some_us(4)):
                worker.pause(self.world.now_us + self._some_us(60))
        else:
            self.wipe(bookie)

    def _lose_disk_and_return(self, bookie: SimBookie, delay_us: int) -> bool:
        """Whether the disk was lost; then an empty one starts in its place soon, without waiting for the old session."""
        if not bookie.alive:
            return False
        session = bookie.session
        self.wipe(bookie)
        if not bookie.replaced:
            return False
        self.cluster.expire(session)
        self.world.at(self.world.now_us + delay_us, None, self._restart, bookie)
        return True

    def _crash_client(self) -> None:
        clients = self.cluster.live_clients()
        if clients:
            self.world.tally.fault("client crash")
            self._rng.choice(clients).crash()

    def _pause_bookie(self) -> None:
        bookie = self._bookie()
        pause_us = self._pause(bookie)
        if bookie.alive and pause_us > 250 * MS:
            self.world.at(self.world.now_us + 250 * MS, None, self._expire_if_paused, bookie, bookie.session)

    def _expire_if_paused(self, bookie: SimBookie, session: Session) -> None:
        """A pause that the end of the faults cut short was too short for the session's end."""
        if bookie.paused_until_us > self.world.now_us:
            self.cluster.expire(session)

    def _pause_client(self) -> None:
        clients = self.cluster.live_clients()
        if clients:
            self._pause(self._rng.choice(clients))

    def _pause(self, process: Process) -> int:
        self.world.tally.fault("pause")
        pause_us = self._some_us(self._rng.choice((20, 400)))
        process.note(f"pauses for {pause_us // MS} ms")
        process.pause(self.world.now_us + pause_us)
        return pause_us

    def _repair_off(self) -> None:
        """An operator switches auto-recovery off for a while."""
        self.world.note("operator", "switches auto-recovery off")
        self.cluster.store.repair_off_until_us = self.world.now_us + self._some_us(400)

    # Ways

    def _cut_one_way(self) -> None:
        self.world.tally.fault("one-way partition")
        clients = self.cluster.live_clients()
        if not clients:
            return
        ends = [self._bookie().name, self._rng.choice(clients).name]
        self._rng.shuffle(ends)
        self.world.note("network", f"{ends[0]} no longer reaches {ends[1]}")
        self.cluster.network.cut(ends[0], ends[1], self.world.now_us + self._some_us(300))

    def _cut_off(self) -> None:
        """One bookie receives from everyone and reaches no one, or the other way round."""
        self.world.tally.fault("one-way partition")
        bookie, receives = self._bookie().name, self._rng.random() < 0.5
        until = self.world.now_us + self._some_us(300)
        self.world.note(
            "network", f"{bookie} {'receives nothing' if receives else 'reaches no one'} for a while"
        )
        for client in self.cluster.live_clients():
            ends = (client.name, bookie) if receives else (bookie, client.name)
            self.cluster.network.cut(*ends, until)

    # ZooKeeper

    def _zk_outage(self) -> None:
        self.world.tally.fault("ZooKeeper outage")
        until = self.world.now_us + self._some_us(self._rng.choice((30, 300)))
        self.world.note("zookeeper", f"is unavailable until {until // MS} ms")
        self.cluster.store_unavailable(until)

    def _expire_client(self) -> None:
        clients = self.cluster.live_clients()
        if clients:
            self.world.tally.fault("session expiry")
            self.cluster.expire(self._rng.choice(clients).session_now())

    def _expire_bookie(self) -> None:
        bookie = self._bookie()
        if bookie.alive:
            self.world.tally.fault("session expiry")
            self.cluster.expire(bookie.session)

    # Disks

    def _read_only(self) -> None:
        bookie = self._bookie()
        if bookie.alive and not bookie.read_only:
            self.world.tally.fault("read-only")
            bookie.note("has no space")
            bookie.set_read_only(read_only=True)
            self.world.at(self.world.now_us + self._some_us(200), None, self._writable, bookie)

    @staticmethod
    def _writable(bookie: SimBookie) -> None:
        if bookie.alive and bookie.read_only:
            bookie.set_read_only(read_only=False)
