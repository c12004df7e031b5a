"""A topic in memory: its list, its ledgers, and owners that write to it, each with its machine.

A test carries out the effects of an owner one by one, in order, with or without a fault. The world checks at each step what must hold
whatever happens: an entry is written only to a ledger that the list names, and a ledger that it names is never deleted.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from daybook.core.errors import DaybookError, NoSuchLedgerError, NotOwnerError
from daybook.core.events import CasAnswered, CasOutcome, MetadataUnreadable
from daybook.core.topics.events import (
    Append,
    Appended,
    CasList,
    CloseLedger,
    CreateLedger,
    DeleteLedger,
    HandleFailed,
    LedgerCreated,
    LedgerDeleted,
    LedgerEnded,
    LedgerRequestFailed,
    ListKnown,
    ListRead,
    ManagedLedgerEffect,
    ManagedLedgerEvent,
    Published,
    PublishFailed,
    PublishRequested,
    ReadList,
    RecoverLedger,
    Retrying,
    TopicEnded,
    TopicTick,
)
from daybook.core.topics.ledger_list import LedgerList, Position, check_list_change
from daybook.core.topics.managed_ledger import ManagedLedger
from daybook.core.topics.open_ledger import ManagedLedgerPolicy

TOPIC = "persistent://public/default/orders"
TIME_OUT = DaybookError("no answer came in time")
UNIX_MS = 1_000_000


@dataclass
class StoredLedger:
    """A ledger: what is in it, and what its writer has sent and nobody has stored yet."""

    entries: list[bytes] = field(default_factory=list)
    in_flight: deque[bytes] = field(default_factory=deque)
    is_closed: bool = False

    def store(self) -> bool:
        """Store the oldest entry in flight; False if there is none, or the ledger takes no more."""
        if self.is_closed or not self.in_flight:
            return False
        self.entries.append(self.in_flight.popleft())
        return True

    def close(self) -> LedgerEnded:
        """Close it where it ends; the answer is for the request 0."""
        self.is_closed = True
        return LedgerEnded(0, len(self.entries), sum(map(len, self.entries)))


class World:
    """What all owners see."""

    def __init__(self, first: LedgerList | None = None) -> None:
        self.ledger_list = first or LedgerList()
        self.version = 0
        self.ledgers: dict[int, StoredLedger] = {}
        self.next_id = 0
        self.named: set[int] = set()
        """The ledgers that the list names, or named."""
        self.delayed: list[CasList] = []
        """Changes without an answer that may still be applied."""

    def create(self) -> int:
        """A ledger with the next id."""
        ledger_id, self.next_id = self.next_id, self.next_id + 1
        self.ledgers[ledger_id] = StoredLedger()
        return ledger_id

    def apply(self, change: CasList) -> bool:
        """Whether the change was made."""
        if change.expected_version != self.version:
            return False
        check_list_change(self.ledger_list, change.ledger_list)
        self.ledger_list, self.version = change.ledger_list, self.version + 1
        self.named |= change.ledger_list.ids
        assert self.named_now() <= self.ledgers.keys(), "a ledger in the list does not exist"
        return True

    def named_now(self) -> set[int]:
        """The ledgers that the list names."""
        return set(self.ledger_list.named_ids)

    def delete(self, ledger_id: int) -> None:
        """Delete a ledger, which no list names and none will."""
        assert ledger_id not in self.named_now(), f"ledger {ledger_id} is in the list, and was deleted"
        self.ledgers.pop(ledger_id, None)
        assert all(
            ledger_id not in change.ledger_list.named_ids
            for change in self.delayed
            if change.expected_version == self.version
        ), f"ledger {ledger_id} may still be named, and was deleted"

    def topic(self) -> list[tuple[Position, bytes]]:
        """Every entry of the topic, in order."""
        return [
            (Position(ledger.ledger_id, entry_id), data)
            for ledger in self.ledger_list.ledgers
            for entry_id, data in enumerate(self.ledgers[ledger.replicas_id].entries)
        ]


class Owner:
    """A broker that owns the topic, or believes so."""

    def __init__(self, world: World, token: str = "one", policy: ManagedLedgerPolicy | None = None) -> None:
        self.world = world
        self.machine = ManagedLedger(TOPIC, token, policy=policy, unix_ms=UNIX_MS)
        self.now_ms = 0
        self.asked: deque[ManagedLedgerEffect] = deque()
        self.unanswered: deque[bytes] = deque()
        self.published: list[tuple[Position, bytes]] = []
        self.failed: list[bytes] = []
        self.news: list[ManagedLedgerEffect] = []
        self.handles: set[int] = set()
        self._take(self.machine.start())

    @property
    def ended(self) -> list[DaybookError | None]:
        """Why the topic is not served any more, if so."""
        return [effect.error for effect in self.news if isinstance(effect, TopicEnded)]

    def step(self, event: ManagedLedgerEvent) -> None:
        """Hand an event to the machine."""
        self._take(self.machine.step(event))

    def publish(self, *payloads: bytes) -> None:
        """Publish messages."""
        self.unanswered += payloads
        self.step(PublishRequested(payloads))

    def tick(self, ms: int) -> None:
        """Let time pass."""
        self.now_ms += ms
        self.step(TopicTick(self.now_ms, UNIX_MS + self.now_ms))

    def _take(self, effects: Sequence[ManagedLedgerEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Published):
                for offset in range(effect.count):
                    position = Position(effect.ledger_id, effect.first_entry + offset)
                    self.published.append((position, self.unanswered.popleft()))
            elif isinstance(effect, PublishFailed):
                self.failed += [self.unanswered.popleft() for _ in range(effect.count)]
            elif isinstance(effect, (ListKnown, Retrying, TopicEnded)):
                self.news.append(effect)
            else:
                self.asked.append(effect)

    # The oldest effect that was not carried out, without a fault and with one.

    def carry_out(self) -> ManagedLedgerEffect:
        """Carry it out and hand the answer back."""
        effect = self.asked.popleft()
        answer = self._answer(effect)
        if answer is not None:
            self.step(answer)
        return effect

    def run(self, most: int = 100) -> None:
        """Carry out everything, and acknowledge what is sent, until nothing is left."""
        for _ in range(most):
            if self.asked:
                self.carry_out()
            elif not self.acknowledge():
                return
        raise AssertionError(f"this never ends: {self.asked}")

    def fail(self, *, applied: bool = False) -> ManagedLedgerEffect:
        """No answer comes; `applied`: the effect was carried out all the same."""
        effect = self.asked.popleft()
        if applied:
            self._answer(effect)
        if isinstance(effect, ReadList):
            self.step(MetadataUnreadable(effect.request_id))
        elif isinstance(effect, CasList):
            self.step(CasAnswered(effect.request_id, CasOutcome.UNKNOWN))
        elif isinstance(effect, Append):
            self.fail_handle(effect.ledger_id)
        else:
            assert isinstance(effect, (CreateLedger, CloseLedger, RecoverLedger, DeleteLedger))
            self.step(LedgerRequestFailed(effect.request_id, TIME_OUT))
        return effect

    def acknowledge(self, count: int | None = None) -> bool:
        """Store and acknowledge `count` entries that are sent, or all; False if there are none."""
        for ledger_id in sorted(self.handles & self.world.ledgers.keys()):
            ledger = self.world.ledgers[ledger_id]
            stored = 0
            while stored != count and ledger.store():
                stored += 1
            if stored:
                self.step(Appended(ledger_id, len(ledger.entries) - 1))
                return True
        return False

    def fail_handle(self, ledger_id: int) -> None:
        """The handle of a ledger takes no more."""
        self.handles.discard(ledger_id)
        self.step(HandleFailed(ledger_id, TIME_OUT))

    def _answer(self, effect: Any) -> ManagedLedgerEvent | None:
        world = self.world
        match effect:
            case ReadList():
                return ListRead(effect.request_id, world.ledger_list, world.version)
            case CasList():
                outcome = CasOutcome.DONE if world.apply(effect) else CasOutcome.CONFLICT
                return CasAnswered(effect.request_id, outcome, world.version)
            case CreateLedger():
                ledger_id = world.create()
                self.handles.add(ledger_id)
                return LedgerCreated(effect.request_id, ledger_id)
            case DeleteLedger():
                world.delete(effect.ledger_id)
                return LedgerDeleted(effect.request_id)
            case Append():
                assert effect.ledger_id in world.named, "written before the list named it"
                ledger = world.ledgers.get(effect.ledger_id)
                if ledger is None or ledger.is_closed or effect.ledger_id not in self.handles:
                    self.handles.discard(effect.ledger_id)
                    return HandleFailed(effect.ledger_id, TIME_OUT)
                ledger.in_flight += [bytes(payload) for payload in effect.payloads]
                return None
            case CloseLedger() | RecoverLedger():
                return self._close(effect)
        raise AssertionError(effect)

    def _close(self, effect: CloseLedger | RecoverLedger) -> ManagedLedgerEvent:
        ledger = self.world.ledgers.get(effect.ledger_id)
        if ledger is None:
            return LedgerRequestFailed(effect.request_id, NoSuchLedgerError("the ledger is gone"))
        if isinstance(effect, CloseLedger) and (ledger.is_closed or effect.ledger_id not in self.handles):
            return LedgerRequestFailed(effect.request_id, NotOwnerError("fenced"))
        ended = ledger.close()
        return LedgerEnded(effect.request_id, ended.entries, ended.size_bytes)


def serving(world: World, token: str = "one", policy: ManagedLedgerPolicy | None = None) -> Owner:
    """An owner that has taken the topic over."""
    owner = Owner(world, token, policy)
    owner.run()
    assert isinstance(owner.news[-1], ListKnown)
    return owner


def writing(world: World, *payloads: bytes, token: str = "one") -> Owner:
    """An owner that has published these messages."""
    owner = serving(world, token)
    owner.publish(*payloads)
    owner.run()
    return owner


def kinds(owner: Owner) -> list[type]:
    """What the owner carries out until nothing is left."""
    done = []
    while owner.asked:
        done.append(type(owner.carry_out()))
    return done
