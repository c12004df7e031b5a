"""ZooKeeper as its wire shows it: a tree of nodes on servers that lag, sessions that live by what their clients send.

The simulator's own processes, its bookies among them, continue to call `MetadataStore`; what they do is done to the
tree as well, and what is done to the tree passes the same judges. A write is carried out at the leader when it arrives
and answered when the client's server has it; a read is answered by that server as it is, so that who has not synced may
read what is old (rule 46). A session's requests are carried out in their order, and none after its end.
"""

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from daybook.core.events import CasOutcome
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.bookies import Cookie, info_to_json
from daybook.metadata.instance import FORMAT_VERSION
from daybook.metadata.layout import Layout, join_id
from daybook.metadata.store.memory_tree import MemoryTree
from daybook.metadata.store.store import Create, Delete, Operation, Put, StoreError, parent_of
from tests.model.sim.audit_checks import LOST_DELAY_MS
from tests.model.sim.checkers import Checkers
from tests.model.sim.metadata_model import SESSION_TIMEOUT_US, MetadataStore, Session, Superseded, place_of
from tests.model.sim.shipped.loop import SCALE
from tests.model.sim.swarm import Swarm
from tests.model.sim.transitions import Party, why_illegal
from tests.model.sim.world import MS, Process, World

if TYPE_CHECKING:
    from tests.model.sim.shipped.connection import Connection

SERVERS: Final = 2
LAYOUT: Final = Layout("sim")
INSTANCE: Final = "the simulated one"
_LAG_US: Final = 700
_LAG_MAX_US: Final = 30 * MS
_CUT_US: Final = SESSION_TIMEOUT_US * 3 // 2

Change: TypeAlias = Callable[[MemoryTree], Any]
Respond: TypeAlias = Callable[[Any], None]


class Server:
    """One server: the tree as far as it has it from the leader, and the watches that clients have left here."""

    def __init__(self, ensemble: "TreeStore") -> None:
        self.tree = MemoryTree(self._changed)
        self.applied = 0
        self._ensemble = ensemble
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._watches: dict[str, dict[ClientSession, None]] = {}

    def catch_up(self, number: int) -> None:
        """Apply the leader's changes up to `number`."""
        log = self._ensemble.log
        while self.applied < number:
            log[self.applied](self.tree)
            self.applied += 1
        while self._waiting and self._waiting[0][0] <= self.applied:
            self._waiting.popleft()[1]()

    def when_applied(self, number: int, call: Callable[[], None]) -> None:
        """Call back once the changes up to `number` are here."""
        if number <= self.applied:
            call()
        else:
            self._waiting.append((number, call))

    def watch(self, path: str, session: "ClientSession") -> None:
        """Notify `session` once, when the node at `path`, or what is below it, changes."""
        self._watches.setdefault(path, {})[session] = None

    def _changed(self, path: str) -> None:
        for session in self._watches.pop(path, ()):
            session.notify(path)


class ClientSession(Session):
    """The session of a client that ships: it lives as long as its client sends something."""

    __slots__ = ("_busy", "_queue", "cut_until_us", "link", "received_us", "server")

    def __init__(self, number: int, owner: Process, server: Server) -> None:
        super().__init__(number, owner)
        self.server = server
        self.link: Connection | None = None
        self.received_us = owner.world.now_us
        self.cut_until_us = 0
        """Until then the client reaches no server."""
        self._queue: deque[Callable[[Callable[[], None]], None]] = deque()
        self._busy = False

    def notify(self, path: str) -> None:
        """A watch fires, if there is a connection left to notify it on."""
        if self.link is not None:
            self.link.down("watch", path)

    def submit(self, work: Callable[[Callable[[], None]], None]) -> None:
        """Carry out `work(done)` after everything that was submitted before is done."""
        self._queue.append(work)
        if not self._busy:
            self._next()

    def forget_requests(self) -> None:
        """The connection that they came on is gone."""
        self._queue.clear()
        self._busy = False

    def _next(self) -> None:
        self._busy = bool(self._queue)
        if self._busy:
            self._queue.popleft()(self._next)


class TreeStore(MetadataStore):
    """The metadata service of a run with clients that ship."""

    def __init__(
        self, world: World, swarm: Swarm, checkers: Checkers, bookies: Sequence[BookieId], lag: float
    ) -> None:
        """`lag`: how often a change reaches a server late."""
        super().__init__(world, swarm, checkers)
        self.tree = MemoryTree()
        """The leader's."""
        self.log: list[Change] = []
        self.servers = [Server(self) for _ in range(SERVERS)]
        self.created_by: dict[LedgerId, Process] = {}
        """Whose request made the ledger, of those that ship."""
        self.leaving: set[BookieId] = set()
        """The bookies that an operator takes out of the cluster."""
        self.on_write: list[Callable[[Operation, Process], None]] = []
        """Called with each change of a client that ships, once it is carried out."""
        self._lag = lag
        self._chance = world.rng("zookeeper's servers")
        self._format(bookies)

    def _format(self, bookies: Sequence[BookieId]) -> None:
        """As `daybook.metadata.instance.format_cluster` does."""
        nodes: dict[str, bytes] = {}

        def make(path: str, data: bytes = b"") -> None:
            names = path.split("/")
            for index in range(2, len(names)):
                nodes.setdefault("/".join(names[:index]), b"")
            nodes[path] = data

        for directory in LAYOUT.directories():
            make(directory)
        make(LAYOUT.idgen, b'{"next":0}')
        make(LAYOUT.lost_bookie_delay, repr(LOST_DELAY_MS * SCALE / 1000).encode())
        record = {"formatVersion": FORMAT_VERSION, "instanceId": INSTANCE, "createdAtMs": 0}
        make(LAYOUT.instance, json.dumps(record).encode())
        for bookie in bookies:
            make(LAYOUT.cookie(bookie), Cookie(bookie, INSTANCE, "the first", ("disk",)).to_json())
        operations = [Create(path, data) for path, data in nodes.items()]
        self.commit(lambda tree: tree.apply(operations, 0))
        for server in self.servers:
            server.catch_up(len(self.log))

    # Changes

    def commit(self, change: Change) -> Any:
        """Carry out `change` at the leader; the others get it. Raises StoreError, and nothing is changed."""
        result = change(self.tree)
        self.log.append(change)
        for server in self.servers:
            delay_us = int(_LAG_US * self._chance.random())
            if self.is_faulty and self._chance.random() < self._lag:
                delay_us += int(_LAG_MAX_US * self._chance.random())
            self.world.at(self.world.now_us + delay_us, None, server.catch_up, len(self.log))
        return result

    def write(self, operations: Sequence[Operation], session: ClientSession) -> int:
        """All `operations` of a client or none; the version that the first one, if it is a put, made."""
        number = session.number

        def change(tree: MemoryTree) -> int:
            tree.apply(operations, number)
            first = operations[0]
            return tree.read(first.path).version if isinstance(first, Put) else 0

        version: int = self.commit(change)
        for operation in operations:
            self._learn(operation, session.owner)
            for judge in self.on_write:
                judge(operation, session.owner)
        return version

    def create_sequence(self, path: str, data: bytes, *, ephemeral: bool, session: ClientSession) -> str:
        """Create a node whose name the server ends; returns its path."""
        number = session.number

        def change(tree: MemoryTree) -> str:
            name = tree.next_sequence(path)
            tree.apply([Create(name, data, ephemeral)], number)
            return name

        name: str = self.commit(change)
        return name

    def _learn(self, operation: Operation, owner: Process) -> None:
        """What a client did to a ledger's node, it did to the ledger."""
        if not operation.path.startswith(f"{LAYOUT.ledgers}/"):
            return
        try:
            ledger_id = join_id(operation.path.removeprefix(f"{LAYOUT.ledgers}/"))
        except ValueError:
            return  # a directory
        match operation:
            case Create(_, data):
                self._next_ledger = ledger_id + 1
                self.created_by[ledger_id] = owner
                super().create(LedgerMetadata.from_json(data))
            case Put(_, data):
                self._changed(LedgerMetadata.from_json(data))
            case Delete():
                outcome = super().delete(ledger_id, self.ledgers[ledger_id].version)
                assert outcome is CasOutcome.DONE

    def _changed(self, metadata: LedgerMetadata) -> None:
        """Who asks is not said on this wire: the change has to be one that somebody may make."""
        current = self.ledgers[metadata.ledger_id]
        reasons = [why_illegal(party, current.metadata, metadata) for party in Party]
        if all(reasons):
            what = f"ledger {metadata.ledger_id}: {'; '.join(reason for reason in reasons if reason)}"
            self.checkers.fail("metadata changes only along legal transitions", what)
        if why_illegal(Party.REPAIR, current.metadata, metadata) is None:
            self._repaired(current.metadata, metadata)
        outcome, _ = super().cas(metadata, current.version)
        assert outcome is CasOutcome.DONE

    def _repaired(self, old: LedgerMetadata, new: LedgerMetadata) -> None:
        """Other bookies in a fragment that nobody writes to: is each in the place of one that may be replaced?"""
        replaced = [
            before
            for left, right in zip(old.fragments, new.fragments, strict=True)
            for before, after in zip(left.bookies, right.bookies, strict=True)
            if before != after
        ]
        if replaced:
            self.world.tally.state("repaired as it ships")
            staying = [name for name in replaced if name not in self.leaving]
            self.checkers.audits.replaced(old, staying, self.bookies(), self.world.now_ms)

    # What the simulator's own processes do

    def create(self, metadata: LedgerMetadata) -> int:
        """Create a ledger."""
        path = LAYOUT.ledger(metadata.ledger_id)
        above: list[str] = []
        directory = parent_of(path)
        while directory != LAYOUT.ledgers:
            above.insert(0, directory)
            directory = parent_of(directory)
        missing = [name for name in above if not self.has_node(name)]
        counter = json.dumps({"next": metadata.ledger_id + 1}).encode()
        operations: list[Operation] = [Create(name) for name in missing]
        operations += [Create(path, metadata.to_json()), Put(LAYOUT.idgen, counter, None)]
        self.commit(lambda tree: tree.apply(operations, 0))
        return super().create(metadata)

    def cas(
        self, metadata: LedgerMetadata, expected_version: int, party: Party | None = None
    ) -> tuple[CasOutcome, int]:
        """Compare-and-set."""
        outcome, version = super().cas(metadata, expected_version, party)
        if outcome is CasOutcome.DONE:
            put = Put(LAYOUT.ledger(metadata.ledger_id), metadata.to_json(), version - 1)
            self.commit(lambda tree: tree.apply([put], 0))
        return outcome, version

    def delete(self, ledger_id: LedgerId, expected_version: int) -> CasOutcome:
        """Delete a ledger at a version."""
        was_there = ledger_id in self.ledgers
        outcome = super().delete(ledger_id, expected_version)
        if was_there and outcome is CasOutcome.DONE:
            gone = Delete(LAYOUT.ledger(ledger_id), expected_version)
            self.commit(lambda tree: tree.apply([gone], 0))
        return outcome

    def register(self, session: Session, info: BookieInfo) -> bool | Superseded:
        """Register a bookie."""
        outcome = super().register(session, info)
        if outcome is not True:
            return outcome
        paths = [LAYOUT.registration(info.bookie, writable=writable) for writable in (True, False)]
        operations: list[Operation] = [Delete(path, None) for path in paths if self.has_node(path)]
        data = info_to_json(replace(info, address=place_of(info)))
        operations.append(Create(paths[not info.writable], data, ephemeral=True))
        self.commit(lambda tree: tree.apply(operations, session.number))
        return True

    def has_cookie(self, bookie: BookieId) -> bool:
        """Whether the bookie belongs to the cluster: it was not decommissioned."""
        return self.has_node(LAYOUT.cookie(bookie))

    def has_node(self, path: str) -> bool:
        """Whether the leader has the node."""
        try:
            self.tree.read(path)
        except StoreError:
            return False
        return True

    # Sessions

    def open_session(self, owner: Process) -> ClientSession:
        """A new session of a client that ships."""
        self._sessions += 1
        session = ClientSession(self._sessions, owner, self._chance.choice(self.servers))
        self._watch_over(session)
        return session

    def _watch_over(self, session: ClientSession) -> None:
        """End it when nothing was received from it for as long as was agreed; while no leader is there, no time passes."""
        if session.expired:
            return
        ends_us = max(session.received_us, self.unavailable_until_us) + SESSION_TIMEOUT_US
        if self.world.now_us >= ends_us:
            self.end(session)
        else:
            self.world.at(ends_us, None, self._watch_over, session)

    def end(self, session: ClientSession) -> None:
        """The session is over, and its client is notified if it is there."""
        super().expire(session)
        self.commit(lambda tree: tree.end_session(session.number))
        if session.link is not None:
            session.link.lose()

    def expire(self, session: Session) -> None:
        """Let a session end. That of a client that ships ends by silence: it is cut off for longer than it lives."""
        if isinstance(session, ClientSession):
            session.cut_until_us = self.world.now_us + _CUT_US
            if session.link is not None:
                session.link.lose()
        elif not session.expired:
            super().expire(session)
            self.commit(lambda tree: tree.end_session(session.number))
