"""One simulated cluster: the world, the wire, the metadata service, the bookies and whoever is a client now."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from daybook.core.ids import BookieId, LedgerId
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.repair.task import DueTimes
from tests.model.sim.audit_checks import RETRY_MAX_MS
from tests.model.sim.auditing import WorkerClient
from tests.model.sim.bookie_model import SimBookie
from tests.model.sim.checkers import Checkers
from tests.model.sim.client_process import ClientProcess
from tests.model.sim.clients import Driver
from tests.model.sim.disk_swarm import draw_disks
from tests.model.sim.metadata_model import SESSION_TIMEOUT_US, MetadataStore, Session
from tests.model.sim.network import Network, Stream
from tests.model.sim.shipped.swarm import draw_shipped
from tests.model.sim.shipped.zookeeper import TreeStore
from tests.model.sim.swarm import Swarm, draw
from tests.model.sim.topics.swarm import TopicSwarm, draw_topics
from tests.model.sim.twins import Twins
from tests.model.sim.world import MS, World

KEY: Final = "key"
"""What clients present of ledgers that a machine alone writes: passwords are not what is tested here."""
_OLDER: Final = 0.15
_BOOT_US: Final = 20 * MS


class Cluster:
    """Everything of one run. `is_faulty` is true until the faults stop."""

    def __init__(self, seed: int, *, tracing: bool = False, swarm: Swarm | None = None) -> None:
        self.world = World(seed, tracing=tracing)
        self.rng = self.world.rng("cluster")
        self.swarm = swarm or draw(self.world.rng("swarm"))
        self.disks = self.swarm.disks or draw_disks(self.world.rng("disk swarm"))
        self.is_faulty = True
        self.checkers = Checkers(self.world)
        self.shipped = self.swarm.shipped or draw_shipped(self.world.rng("whole processes"))
        self.topics = self.swarm.topics or draw_topics(self.world.rng("owned topics"))
        if self.shipped.processes:
            self.topics = TopicSwarm()
        self.ships = bool(self.shipped.processes or self.topics.topics)
        """Whether some of its clients are what ships."""
        if self.ships:  # from outside a writer nobody knows which ids are free again
            self.swarm = replace(self.swarm, refusal=0.0)
            self.checkers.replaced_max = self.swarm.quorum.ack_quorum - 1
        if (
            self.topics.topics
        ):  # owners let the ledger assign ids, and wait for acknowledgements of what is synced
            self.swarm = replace(self.swarm, explicit_ids=False, deferred_sync=False)
        self.network = Network(self.world, self.swarm)
        self.store = self._make_store()
        self.store.watchers.append(self._bookies_changed)
        self.placement = make_policy()
        self.due_times = DueTimes(RETRY_MAX_MS)
        self.fully_replicated = False
        """What the last complete audit said."""
        self.healed_us = 0
        """When the faults stopped."""
        self.crash_bookie: Callable[[SimBookie], None] = lambda _bookie: None
        self.repair_started: Callable[[WorkerClient], None] = lambda _worker: None
        self.naming_successors: Callable[[WorkerClient], None] = lambda _worker: None
        self.force_ahead: Callable[[Driver, int], None] = lambda _writer, _in_us: None
        self.clients: dict[str, ClientProcess] = {}
        self.bookies: dict[BookieId, SimBookie] = {}
        racks = self.world.rng("racks")
        for i in range(self.swarm.bookies):
            rack = racks.randrange(self.swarm.racks) if self.swarm.uneven_racks else i % self.swarm.racks
            info = BookieInfo(f"b{i}", rack=f"r{rack}", capacity_bytes=1, free_bytes=1)
            self.bookies[info.bookie] = SimBookie(self, info.bookie, info)
        self.checkers.bookies = self.bookies
        releases = self.world.rng("releases")
        self.older = frozenset(name for name in self.bookies if releases.random() < _OLDER)
        """The bookies of a release that takes no tables of LACs, for the client that ships."""
        self.twins = Twins(self)

    def _make_store(self) -> MetadataStore:
        if not self.ships:
            return MetadataStore(self.world, self.swarm, self.checkers)
        names = [f"b{number}" for number in range(self.swarm.bookies)]
        return TreeStore(self.world, self.swarm, self.checkers, names, self.shipped.lag or self.topics.lag)

    def boot(self) -> None:
        """Start the bookies and let them register; only then may things go wrong."""
        self.set_faulty(is_faulty=False)
        for bookie in self.bookies.values():
            bookie.start()
        self.world.run(_BOOT_US)
        self.set_faulty(is_faulty=True)

    # Clients

    def add_client(self, client: ClientProcess) -> None:
        """A client process started."""
        assert client.name not in self.clients, client.name
        self.clients[client.name] = client

    def key_of(self, ledger_id: LedgerId) -> str:
        """What the bookies of the ledger want to see."""
        oracle = self.checkers.oracles.get(ledger_id)
        return KEY if oracle is None else oracle.metadata.password_hash

    def client_of(self, stream: Stream) -> ClientProcess:
        """The client's end of a stream."""
        return self.clients[stream.client.name]

    def live_clients(self) -> list[ClientProcess]:
        """The clients that still do something."""
        return [client for client in self.clients.values() if client.alive and not client.done]

    def stream_broke(self, stream: Stream) -> None:
        """A message of `stream` was lost: both ends learn of it, some time or other."""
        now = self.world.now_us
        delay = (1 + int(40 * self.rng.random())) * MS
        client = self.clients[stream.client.name]
        self.world.at(now + delay, client, client.stream_lost, stream)
        bookie = stream.bookie
        assert isinstance(bookie, SimBookie)
        if bookie.alive:
            self.world.at(now + delay, bookie, bookie.stream_lost, stream)

    def is_taken_out(self, bookie: BookieId) -> bool:
        """Whether an operator has stopped the bookie and deleted its cookie; a replacement may continue under its id."""
        assert isinstance(self.store, TreeStore)
        return self.bookies[bookie].gone and not self.store.has_cookie(bookie)

    # Sessions

    def expire_later(self, session: Session) -> None:
        """The owner of `session` died without a word: it expires after its time-out."""
        self.world.at(self.world.now_us + SESSION_TIMEOUT_US, None, self.expire, session)

    def close_session(self, session: Session) -> None:
        """The owner ended in order."""
        session.expired = True
        self.store.locks = {name: owner for name, owner in self.store.locks.items() if owner is not session}

    def expire(self, session: Session) -> None:
        """End a session; a living owner learns of it at ZooKeeper's next answer."""
        if session.expired:
            return
        self.store.expire(session)
        owner = session.owner
        if owner.alive:
            self.world.at(self.world.now_us + 5 * MS, owner, owner.session_expired)

    def _bookies_changed(self) -> None:
        """Watches fire: each client is notified some time later, and reads the list as it is then."""
        for client in self.live_clients():
            delay = (1 + int(8 * self.rng.random())) * MS + self.twins.delay_us()
            self.world.at(self.world.now_us + delay, client, self._bookies_read, client)

    def _bookies_read(self, client: ClientProcess) -> None:
        if self.store.is_unavailable:
            self.world.at(self.store.unavailable_until_us, client, self._bookies_read, client)
            return
        client.registered_changed(self.store.bookies())

    def store_unavailable(self, until_us: int) -> None:
        """ZooKeeper does not answer until then; clients that care are notified, a little later."""
        self.store.unavailable_until_us = until_us
        for client in self.live_clients():
            now = self.world.now_us
            self.world.at(now + 10 * MS, client, partial(client.metadata_connection, connected=False))
            self.world.at(
                max(until_us, now + 10 * MS), client, partial(client.metadata_connection, connected=True)
            )

    def note_wipe(self, bookie: SimBookie) -> None:
        """A disk is about to be lost: is someone copying it back just now?"""
        for client in self.live_clients():
            if isinstance(client, WorkerClient) and client.clears_limbo_of == bookie.name:
                self.world.tally.state("second wipe during repair")

    # Faults start and stop

    def set_faulty(self, *, is_faulty: bool) -> None:
        """Whether messages, requests, syncs and reads may go wrong."""
        self.is_faulty = self.network.is_faulty = self.store.is_faulty = is_faulty

    def heal(self) -> None:
        """From now on everything works; the operator and the machines themselves repair what is broken."""
        self.healed_us = self.world.now_us
        self.set_faulty(is_faulty=False)
        self.network.repair()
        self.store.unavailable_until_us = self.store.repair_off_until_us = 0
        for old in self.twins.old:
            self.twins.end(old)
        for bookie in self.bookies.values():
            bookie.resume(early=True)
            if bookie.journalled is not None:
                bookie.journalled.make_room()
            if bookie.read_only:
                bookie.set_read_only(read_only=False)
            if not bookie.alive:
                bookie.start()
        for client in self.clients.values():
            client.resume(early=True)
