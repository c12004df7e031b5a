"""ZooKeeper as its clients meet it: compare-and-set by version, sessions that expire, answers that get lost.

A session's requests are carried out in the order they were sent, and none after the session has expired; but for a
compare-and-set that its client gave up and that lands later, so that "sync, then read" alone decides no unknown outcome
(rule 46). A request can be lost before it is carried out or after it; the client gets the same either way. Reads that do not sync may be a little old, and a listing may lack some of its
members (rule 28). Every change passes `check_transition` and the checkers.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, TypeAlias

from daybook.core.events import CasOutcome
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState
from daybook.core.ledger.transitions import check_transition
from daybook.core.placement.policy import BookieInfo
from daybook.core.repair.requests import (
    SetTaskAside,
    SetTaskFree,
    TaskDeleted,
    TaskMarked,
    TaskRead,
    TaskWritten,
)
from daybook.core.repair.task import RepairTask
from tests.model.sim.checkers import Checkers
from tests.model.sim.swarm import Swarm
from tests.model.sim.trace import describe_metadata
from tests.model.sim.transitions import Party, why_illegal
from tests.model.sim.world import MS, Process, World

_DELAY_MIN_US: Final = 400
_DELAY_SPREAD_US: Final = 1600
_SLOW_US: Final = 60 * MS
_GIVE_UP_US: Final = 50 * MS
_LATE_US: Final = 80 * MS
_SLOW_REPLY_US: Final = 200 * MS
SESSION_TIMEOUT_US: Final = 250 * MS


class Lost(Enum):
    """What a client gets for an answer when none comes."""

    LOST = "no answer"


LOST: Final = Lost.LOST
Reply: TypeAlias = Callable[[Any], None]


class Stamp(Enum):
    """What comes of the attempt to stamp a bookie's cookie (rule 57)."""

    DONE = "the cookie is the process's own"
    LOST_CLAIM = "the claim is not the one that limbo was listed under"
    REFUSED = "nobody authorises the replacement any more"


class Superseded(Enum):
    """What a process gets that is its bookie no more (rule 57)."""

    SUPERSEDED = "another process is the bookie"


SUPERSEDED: Final = Superseded.SUPERSEDED


def place_of(info: BookieInfo) -> str:
    """Where a registered process is: an address of its own if it is not the first of its bookie."""
    return info.address or info.bookie


class Session:
    """A client's session: what it created ephemerally goes when it expires."""

    __slots__ = ("expired", "last_us", "number", "owner")

    def __init__(self, number: int, owner: Process) -> None:
        self.number = number
        self.owner = owner
        self.expired = False
        self.last_us = 0


Steps: TypeAlias = Generator[tuple[Any, ...], Any, None]
"""Requests one after the other, each a session, an operation and its arguments."""


@dataclass(frozen=True, slots=True)
class Versioned:
    """A ledger's metadata and its version."""

    metadata: LedgerMetadata
    version: int


class MetadataStore:
    """The one metadata service of a run."""

    def __init__(self, world: World, swarm: Swarm, checkers: Checkers) -> None:
        self.world = world
        self.swarm = swarm
        self.checkers = checkers
        self.is_faulty = True
        self.unavailable_until_us = 0
        self.repair_off_until_us = 0
        """Until then an operator has switched auto-recovery off."""
        self.ledgers: dict[LedgerId, Versioned] = {}
        self.deleted: set[LedgerId] = set()
        self.registered: dict[BookieId, tuple[BookieInfo, Session]] = {}
        self.cookies: dict[BookieId, str] = {}
        """Whose the cookie is, by place; not listed: the first process's."""
        self.claims: dict[BookieId, Session] = {}
        self.leaves: set[BookieId] = set()
        """The bookies that may start once on empty disks."""
        self.cut_until_us: dict[Process, int] = {}
        """The processes that reach no server until then."""
        self.locks: dict[str, Session] = {}
        self.tasks: dict[LedgerId, tuple[bytes, int]] = {}
        """The queue of repairs, as it is stored, with versions."""
        self.watchers: list[Callable[[], None]] = []
        self.deletion_watchers: list[Callable[[LedgerId], None]] = []
        self.compare_and_sets: list[Callable[..., Any]] = [self.cas]
        """What may arrive late: its compare is what makes that harmless."""
        self._rng = world.rng("metadata")
        self._chance = world.rng("late metadata")
        self._sessions = 0
        self._next_ledger = 0

    # Sessions

    def connect(self, owner: Process) -> Session:
        """A new session."""
        self._sessions += 1
        return Session(self._sessions, owner)

    def expire(self, session: Session) -> None:
        """End a session: its ephemeral nodes go, and its requests that were not carried out yet never will be."""
        if session.expired:
            return
        session.expired = True
        self.world.tally.state("session expired")
        self.world.note("zookeeper", f"session of {session.owner.name} expired")
        self.locks = {name: owner for name, owner in self.locks.items() if owner is not session}
        self.claims = {name: owner for name, owner in self.claims.items() if owner is not session}
        gone = [bookie for bookie, (_, owner) in self.registered.items() if owner is session]
        for bookie in gone:
            del self.registered[bookie]
            self.checkers.audits.unregistered(bookie, self.world.now_ms)
        if gone:
            self._notify_watchers()

    @property
    def is_unavailable(self) -> bool:
        """Whether nothing is answered now."""
        return self.unavailable_until_us > self.world.now_us

    # Requests

    def request(self, session: Session, reply: Reply, operation: Callable[..., Any], *args: Any) -> None:
        """Carry out `operation(*args)` in the session's order, and give what it returns, or LOST, to `reply`."""
        world, rng, swarm = self.world, self._rng, self.swarm
        now = world.now_us
        delay = _DELAY_MIN_US + int(_DELAY_SPREAD_US * rng.random())
        if self.is_faulty:
            is_cut = self.cut_until_us.get(session.owner, 0) > now
            if (
                self.is_unavailable
                or is_cut
                or (swarm.zk_request_loss and rng.random() < swarm.zk_request_loss)
            ):
                world.tally.fault("ZooKeeper request lost")
                world.at(now + _GIVE_UP_US, session.owner, reply, LOST)
                self._may_arrive_late(session, operation, args)
                return
            if swarm.zk_slow and rng.random() < swarm.zk_slow:
                delay += int(_SLOW_US * rng.random())
        arrival = max(now + delay, session.last_us)
        session.last_us = arrival
        world.at(arrival, None, self._carry_out, session, session.owner.incarnation, reply, operation, args)

    def converse(self, steps: Steps) -> None:
        """Carry out the requests that `steps` yields, one after the other; it receives each answer, or LOST."""
        self._continue(steps, None)

    def _continue(self, steps: Steps, answer: object) -> None:
        try:
            session, operation, *args = steps.send(answer)
        except StopIteration:
            return
        self.request(session, partial(self._continue, steps), operation, *args)

    def _carry_out(
        self,
        session: Session,
        incarnation: int,
        reply: Reply,
        operation: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> None:
        """The request has arrived. It counts even if its client has died since."""
        answer: Any = LOST if session.expired else operation(*args)
        if session.owner.incarnation != incarnation:
            return
        now, rng = self.world.now_us, self._rng
        delay = _DELAY_MIN_US + int(_DELAY_SPREAD_US * rng.random())
        lost = self.is_faulty and (
            self.is_unavailable or (self.swarm.zk_reply_loss and rng.random() < self.swarm.zk_reply_loss)
        )
        if lost:
            self.world.tally.fault("ZooKeeper reply lost")
            answer, delay = LOST, _GIVE_UP_US
        elif self.is_faulty and self.swarm.zk_slow_reply and self._chance.random() < self.swarm.zk_slow_reply:
            self.world.tally.fault("ZooKeeper reply slow")
            delay += int(_SLOW_REPLY_US * self._chance.random())
        self.world.at(now + delay, session.owner, reply, answer)

    def _may_arrive_late(
        self, session: Session, operation: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        """A compare-and-set that was given up may only be slow: it lands when nobody expects it any more (rule 46)."""
        late, rng = self.swarm.zk_late, self._chance
        if late and operation in self.compare_and_sets and rng.random() < late:
            self.world.tally.fault("ZooKeeper request late")
            when = self.world.now_us + _GIVE_UP_US + int(_LATE_US * rng.random())
            self.world.at(when, None, self._arrived_late, session, operation, args)

    @staticmethod
    def _arrived_late(session: Session, operation: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if not session.expired:
            operation(*args)

    # Operations; each runs at one instant, when its request arrives.

    def new_ledger_id(self) -> LedgerId:
        """The next id of the counter; part of `create`, which is one transaction."""
        self._next_ledger += 1
        return self._next_ledger - 1

    @property
    def next_ledger_id(self) -> LedgerId:
        """The id that the next ledger gets."""
        return max(self._next_ledger, 1 + max(self.ledgers.keys() | self.deleted, default=-1))

    def create(self, metadata: LedgerMetadata) -> int:
        """Create a ledger."""
        assert metadata.ledger_id not in self.ledgers
        self.ledgers[metadata.ledger_id] = Versioned(metadata, 0)
        self.checkers.ledger_created(metadata)
        return 0

    def read(self, ledger_id: LedgerId) -> Versioned | None:
        """A ledger's metadata after a sync; None if it is deleted."""
        return self.ledgers.get(ledger_id)

    def cas(
        self, metadata: LedgerMetadata, expected_version: int, party: Party | None = None
    ) -> tuple[CasOutcome, int]:
        """Compare-and-set; the judges of transitions check every change that would be made."""
        current = self.ledgers.get(metadata.ledger_id)
        if current is None or not self.version_matches(current.version, expected_version):
            self.world.tally.state("cas conflict")
            return CasOutcome.CONFLICT, -1
        check_transition(current.metadata, metadata)
        why = why_illegal(party, current.metadata, metadata) if party else None
        if why:
            self.checkers.fail(
                "metadata changes only along legal transitions", f"ledger {metadata.ledger_id}: {why}"
            )
        if self.world.tracing:
            self.world.note("zookeeper", f"ledger {metadata.ledger_id} is {describe_metadata(metadata)}")
        version = current.version + 1
        self.ledgers[metadata.ledger_id] = Versioned(metadata, version)
        self.checkers.metadata_changed(current.metadata, metadata)
        return CasOutcome.DONE, version

    def delete(self, ledger_id: LedgerId, expected_version: int) -> CasOutcome:
        """Delete a ledger at a version."""
        current = self.ledgers.get(ledger_id)
        if current is None:
            return CasOutcome.DONE
        if not self.version_matches(current.version, expected_version):
            self.world.tally.state("cas conflict")
            return CasOutcome.CONFLICT
        if current.metadata.state is not LedgerState.CLOSED:
            what = f"ledger {ledger_id} is {current.metadata.state.value} (rule 20)"
            self.checkers.fail("only closed ledgers are deleted", what)
        del self.ledgers[ledger_id]
        self.deleted.add(ledger_id)
        self.checkers.ledger_deleted(ledger_id)
        for learn in self.deletion_watchers:
            learn(ledger_id)
        return CasOutcome.DONE

    @staticmethod
    def version_matches(actual: int, expected: int) -> bool:
        """The compare of compare-and-set."""
        return actual == expected

    def list_ledgers(self) -> dict[LedgerId, Versioned]:
        """All ledgers, as a listing without sync shows them: some may be missing (rule 28)."""
        short = self.swarm.short_listing if self.is_faulty else 0.0
        if not short or self._rng.random() >= short:
            return dict(self.ledgers)
        self.world.tally.fault("short listing")
        return {name: found for name, found in self.ledgers.items() if self._rng.random() < 0.7}

    def register(self, session: Session, info: BookieInfo) -> bool | Superseded:
        """Register a bookie ephemerally; False while an earlier session of it still stands, or another claim (rule 57)."""
        if self.was_replaced(info.bookie, place_of(info)):
            return SUPERSEDED
        standing = self.registered.get(info.bookie)
        if standing is not None and standing[1] is not session:
            return False
        if self._is_claimed_elsewhere(session, info.bookie):
            return False
        self.claims[info.bookie] = session
        self.leaves.discard(info.bookie)
        self.registered[info.bookie] = (info, session)
        self.checkers.audits.registered(info.bookie, self.world.now_ms)
        self._notify_watchers()
        return True

    # One process at a time (rule 57)

    def _is_incarnation(self, bookie: BookieId, place: str) -> bool:
        return self.cookies.get(bookie, bookie) == place

    def was_replaced(self, bookie: BookieId, place: str) -> bool:
        """What a process finds that compares incarnations."""
        return not self._is_incarnation(bookie, place)

    def _is_claimed_elsewhere(self, session: Session, bookie: BookieId) -> bool:
        return self.claims.get(bookie, session) is not session

    def claim(self, session: Session, bookie: BookieId, place: str) -> Stamp:
        """Keep every other process of the bookie from registering; not while there is one."""
        if bookie not in self.leaves and not self._is_incarnation(bookie, place):
            return Stamp.REFUSED
        standing = self.registered.get(bookie)
        if (standing is not None and standing[1] is not session) or self._is_claimed_elsewhere(
            session, bookie
        ):
            return Stamp.LOST_CLAIM
        self.claims[bookie] = session
        return Stamp.DONE

    def stamp(self, session: Session, bookie: BookieId, place: str) -> Stamp:
        """Make the cookie that of the process at `place`, under its claim."""
        if not self._has_claim(session, bookie):
            return Stamp.LOST_CLAIM
        if bookie not in self.leaves and not self._is_incarnation(bookie, place):
            return Stamp.REFUSED
        self.cookies[bookie] = place
        self.leaves.discard(bookie)
        return Stamp.DONE

    def _has_claim(self, session: Session, bookie: BookieId) -> bool:
        return self.claims.get(bookie) is session

    def read_as(
        self, session: Session, bookie: BookieId, place: str, ledger_id: LedgerId
    ) -> Versioned | Superseded | None:
        """As `read`, by a process that has to be the bookie still."""
        is_other = self._is_claimed_elsewhere(session, bookie) or self.was_replaced(bookie, place)
        return SUPERSEDED if is_other else self.read(ledger_id)

    def registration(self, bookie: BookieId) -> BookieInfo | None:
        """Which process is the bookie."""
        standing = self.registered.get(bookie)
        return standing and standing[0]

    def bookies(self) -> dict[BookieId, BookieInfo]:
        """The registered bookies."""
        return {bookie: info for bookie, (info, _) in sorted(self.registered.items())}

    def lock(self, session: Session, name: str) -> bool:
        """Take an ephemeral lock."""
        return self.locks.setdefault(name, session) is session

    def unlock(self, session: Session, name: str) -> None:
        """Give a lock back."""
        if self.locks.get(name) is session:
            del self.locks[name]

    # The queue of repairs

    def task_ids(self) -> frozenset[LedgerId]:
        """The ledgers that have a task."""
        return frozenset(self.tasks)

    def read_task(self, ledger_id: LedgerId) -> TaskRead:
        """A ledger's task and its version."""
        if ledger_id not in self.tasks:
            return TaskRead(None)
        data, version = self.tasks[ledger_id]
        return TaskRead(RepairTask.from_json(ledger_id, data), version)

    def mark_task(self, wanted: RepairTask) -> TaskMarked:
        """Make a task, or add to the one there is."""
        standing = self.read_task(wanted.ledger_id)
        task = wanted if standing.task is None else standing.task.marked(wanted)
        if task == standing.task:
            return TaskMarked(task, standing.version)
        if not task.not_before_ms:
            self.checkers.audits.due(task.ledger_id)
        return self._write_task(task, standing.version)

    def delete_task(self, ledger_id: LedgerId, version: int) -> TaskDeleted:
        """Take a task away, at its version."""
        if ledger_id in self.tasks and not self._is_at(ledger_id, version):
            return TaskDeleted(deleted=False)
        self.tasks.pop(ledger_id, None)
        self.checkers.audits.due(ledger_id)
        return TaskDeleted(deleted=True)

    def set_task_aside(self, request: SetTaskAside, failed_ms: int) -> TaskWritten:
        """Keep workers from a task whose repair failed at `failed_ms`, at its version."""
        ledger_id, until_ms = request.task.ledger_id, failed_ms + request.pause_ms
        if self._is_at(ledger_id, request.version):
            self.checkers.audits.failed(ledger_id, failed_ms)
            self._write_task(request.task.set_aside(until_ms=until_ms, why=request.why), request.version)
        return TaskWritten()

    def set_task_free(self, request: SetTaskFree) -> TaskWritten:
        """Make a task due, at its version."""
        if self._is_at(request.task.ledger_id, request.version):
            self.checkers.audits.due(request.task.ledger_id)
            self._write_task(request.task.set_free(), request.version)
        return TaskWritten()

    def _is_at(self, ledger_id: LedgerId, version: int) -> bool:
        return ledger_id in self.tasks and self.tasks[ledger_id][1] == version

    def _write_task(self, task: RepairTask, version: int) -> TaskMarked:
        self.tasks[task.ledger_id] = task.to_json(), version + 1
        return TaskMarked(task, version + 1)

    def _notify_watchers(self) -> None:
        for notify in self.watchers:
            notify()
