"""A topic in memory with one subscription: its entries, its consumers, and the machine that delivers.

The world checks at each delivery what must hold whatever happens: permits are not exceeded by more than one batch, what is acknowledged
is not delivered, one consumer at a time is active and receives entries in order (rule 64), no entry of a shared subscription is with two
consumers, and what is due goes before what is new, the lowest position first (rule 65).
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from daybook.core.format.frame import Buffer
from daybook.core.topics.acks import AckState
from daybook.core.topics.dispatch.chunks import Chunk
from daybook.core.topics.dispatch.entries import TopicEntry, messages_left
from daybook.core.topics.dispatch.events import (
    Acked,
    AckedThrough,
    AcksReset,
    ActiveChanged,
    ConsumerAdded,
    ConsumerRemoved,
    Deliver,
    DispatchEffect,
    EndReached,
    EntriesAcked,
    EntriesExpected,
    EntriesRead,
    PermitsGranted,
    ReadAgain,
    ReadEntries,
    ReadFailed,
    RedeliveryRequested,
    SingleEvent,
    StartTimer,
    TimerFired,
)
from daybook.core.topics.dispatch.policy import DispatchPolicy
from daybook.core.topics.dispatch.shared import SharedDispatch
from daybook.core.topics.dispatch.single import SingleDispatch
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import NO_POSITION, LedgerList, ListedLedger, ListState, Position

TOPIC = "persistent://public/default/orders"
FIRST_LEDGER = 7


@dataclass
class Client:
    """A consumer as the world has it."""

    permits: int = 0
    received: list[tuple[Position, int, tuple[int, ...]]] = field(default_factory=list)
    """Position, redelivery count and words of each entry, in the order of delivery."""
    is_active: bool | None = None
    at_end: int = 0
    last: Position = NO_POSITION
    """The last entry that it received since delivery began anew."""
    epochs: list[int | None] = field(default_factory=list)

    @property
    def positions(self) -> list[Position]:
        """What it received."""
        return [position for position, _, _ in self.received]

    @property
    def entry_ids(self) -> list[int]:
        """The ids of what it received, for tests with one ledger."""
        return [position.entry_id for position in self.positions]


class World:
    """One subscription. `kind` is "exclusive", "failover" or "shared"."""

    def __init__(self, kind: str = "exclusive", *, partition: int = -1, **policy: int) -> None:
        self.kind = kind
        self.ledgers: list[list[int]] = [[]]
        """The messages of each entry, by ledger; the last one is open."""
        self.chunks: dict[Position, bytes] = {}
        """The data of entries that are chunks; see `chunk_of`."""
        self.trimmed = 0
        self.is_terminated = False
        self.extent = TopicExtent(self.list())
        self.acks = AckState(self.extent)
        self.partition = partition
        self.policy = DispatchPolicy(**policy)
        self.machine: SingleDispatch | SharedDispatch
        if kind == "shared":
            self.machine = SharedDispatch(self.extent, self.acks, policy=self.policy, chunk_of=chunk_of)
        else:
            self.machine = SingleDispatch(
                TOPIC,
                self.extent,
                self.acks,
                is_failover=kind == "failover",
                partition=partition,
                policy=self.policy,
            )
        assert self.machine.start() == []
        assert self.machine.is_done
        self.clients: dict[int, Client] = {}
        self.reads: deque[ReadEntries | ReadAgain] = deque()
        self.timers: deque[StartTimer] = deque()
        self.holders: dict[Position, int] = {}
        self.due: set[Position] = set()
        self.counts: dict[Position, int] = defaultdict(int)

    # The topic

    def list(self) -> LedgerList:
        *closed, opened = self.ledgers
        ledgers = [
            ListedLedger(FIRST_LEDGER + index, 0, entries=len(ledger), closed_at_ms=1)
            for index, ledger in enumerate(closed)
        ]
        if self.is_terminated:
            state = ListState.TERMINATED
            ledgers.append(ListedLedger(FIRST_LEDGER + len(closed), 0, entries=len(opened), closed_at_ms=1))
        else:
            state = ListState.OPEN
            ledgers.append(ListedLedger(FIRST_LEDGER + len(closed), 0))
        last = max(
            (
                Position(FIRST_LEDGER + index, len(ledger) - 1)
                for index, ledger in enumerate(self.ledgers)
                if ledger
            ),
            default=NO_POSITION,
        )
        return LedgerList(state, tuple(ledgers[self.trimmed :]), last)

    def publish(self, *messages: int) -> None:
        """Entries with so many messages each."""
        for count in messages:
            self.ledgers[-1].append(count)
            self.extent.confirm(Position(FIRST_LEDGER + len(self.ledgers) - 1, len(self.ledgers[-1]) - 1))
        self.step(EntriesExpected())

    def roll(self) -> None:
        """Close the ledger and open another."""
        self.ledgers.append([])
        self.extent.update(self.list())
        self.step(EntriesExpected())

    def trim(self, ledgers: int) -> None:
        """The first ledgers of all are no more."""
        self.trimmed = ledgers
        self.extent.update(self.list())

    def terminate(self) -> None:
        self.is_terminated = True
        self.extent.update(self.list())
        self.step(EntriesExpected())

    def messages(self, position: Position) -> int:
        return self.ledgers[position.ledger_id - FIRST_LEDGER][position.entry_id]

    def publish_chunks(self, *chunks: bytes) -> None:
        """Entries that are chunks: the message, and a full stop behind the last one of it."""
        for chunk in chunks:
            self.chunks[Position(FIRST_LEDGER + len(self.ledgers) - 1, len(self.ledgers[-1]))] = chunk
            self.publish(1)

    # Consumers

    def add(
        self, key: int, name: str = "", *, priority: int = 0, permits: int = 0, epoch: int | None = None
    ) -> Client:
        self.clients[key] = Client()
        self.step(ConsumerAdded(key, name or f"c{key}", priority, epoch))
        if permits:
            self.grant(key, permits)
        return self.clients[key]

    def remove(self, key: int) -> None:
        del self.clients[key]
        self.give_back(key)
        if not self.clients:
            self.due.clear()
            self.counts.clear()
        self.step(ConsumerRemoved(key))

    def grant(self, key: int, permits: int) -> None:
        self.clients[key].permits += permits
        self.step(PermitsGranted(key, permits))

    def ack(self, key: int, *positions: Position | int) -> None:
        whole = [each if isinstance(each, Position) else at(each) for each in positions]
        for position in whole:
            self.settled(position)
        self.step(EntriesAcked(key, [Acked(position) for position in whole]))

    def ack_batch(self, key: int, position: Position, words: Sequence[int]) -> None:
        self.step(EntriesAcked(key, [Acked(position, words, self.messages(position))]))
        if self.acks.is_acked(position):
            self.settled(position)

    def ack_through(self, key: int, position: Position) -> None:
        self.step(AckedThrough(key, Acked(position)))

    def settled(self, position: Position) -> None:
        self.holders.pop(position, None)
        self.due.discard(position)
        self.counts.pop(position, None)

    def redeliver(self, key: int, *positions: Position, epoch: int | None = None) -> None:
        for each in set(positions) or {each for each, holder in self.holders.items() if holder == key}:
            if self.holders.get(each) == key:
                self.counts[each] += 1
        self.give_back(key, positions)
        if self.clients[key].is_active is not False:
            self.clients[key].last = NO_POSITION
        self.step(RedeliveryRequested(key, positions or None, epoch))

    def give_back(self, key: int, positions: Sequence[Position] = ()) -> None:
        back = [
            each
            for each, holder in self.holders.items()
            if holder == key and (not positions or each in positions)
        ]
        for position in back:
            del self.holders[position]
        if self.kind == "shared":
            self.due.update(back)

    def seek(self, mark_delete: Position) -> None:
        self.acks.reset(mark_delete)
        self.holders.clear()
        self.due.clear()
        self.counts.clear()
        for client in self.clients.values():
            client.last = NO_POSITION
        self.step(AcksReset())

    # The machine

    def step(self, event: SingleEvent) -> Sequence[DispatchEffect]:
        machine: Any = self.machine
        effects: Sequence[DispatchEffect] = machine.step(event)
        for effect in effects:
            match effect:
                case ReadEntries() | ReadAgain():
                    self.reads.append(effect)
                case StartTimer():
                    self.timers.append(effect)
                case ActiveChanged():
                    self.active_changed(effect)
                case EndReached():
                    self.clients[effect.key].at_end += 1
                case Deliver():
                    self.delivered(effect)
        assert self.machine.is_done == (not self.clients)
        return effects

    def active_changed(self, effect: ActiveChanged) -> None:
        assert self.kind == "failover"
        client = self.clients[effect.key]
        client.is_active = effect.is_active
        active = [key for key, each in self.clients.items() if each.is_active]
        assert len(active) <= 1, f"{active} are active at once"
        if effect.is_active:
            client.last = NO_POSITION

    def delivered(self, effect: Deliver) -> None:
        client = self.clients[effect.key]
        assert self.kind != "failover" or client.is_active, f"{effect.key} is not active"
        assert effect.entries
        for index, entry in enumerate(effect.entries):
            position = entry.position
            count = effect.redelivery_counts[index] if effect.redelivery_counts else 0
            words = tuple(effect.ack_sets[index]) if effect.ack_sets else ()
            assert client.permits > 0 or position in self.chunks, (
                f"{position} exceeds the permits of {effect.key}"
            )
            assert not self.acks.is_acked(position), f"{position} is acknowledged"
            assert words == self.acks.ack_set(position)
            assert entry.messages == self.messages(position)
            client.permits -= messages_left(words) if words else entry.messages
            if self.kind == "shared":
                assert position not in self.holders, f"{position} is with {self.holders[position]} as well"
                assert count == self.counts.get(position, 0)
                assert position == min(self.due, default=position), f"{min(self.due)} goes before {position}"
                self.due.discard(position)
            else:
                assert position > client.last, f"{position} comes after {client.last}"
                assert count == 0
                client.last = position
            self.holders[position] = effect.key
            client.received.append((position, count, words))
        client.epochs.append(effect.epoch)

    # Answers

    def answer(self, *, entries_max: int = 1_000_000) -> bool:
        """Answer the oldest read, with at most so many entries; False if there is none."""
        if not self.reads:
            return False
        request = self.reads.popleft()
        if isinstance(request, ReadAgain):
            assert list(request.positions) == sorted(set(request.positions))
            positions = [each for each in request.positions if self.extent.contains(each)]
        else:
            positions = []
            run = self.extent.run(request.position, min(request.entries_max, entries_max))
            if run is not None:
                positions = [Position(run[0], entry_id) for entry_id in range(run[1], run[2] + 1)]
        entries = [
            TopicEntry(each, self.chunks.get(each, b"x" * 100), self.messages(each)) for each in positions
        ]
        self.step(EntriesRead(request.request_id, entries))
        return True

    def fail(self) -> bool:
        """Let the oldest read fail."""
        if not self.reads:
            return False
        self.step(ReadFailed(self.reads.popleft().request_id))
        return True

    def fire(self) -> bool:
        """Let the oldest timer fire."""
        if not self.timers:
            return False
        self.step(TimerFired(self.timers.popleft().timer_id))
        return True

    def settle(self) -> None:
        """Answer whatever is asked for, until nothing is."""
        while self.answer() or self.fire():
            pass


def chunk_of(data: Buffer) -> Chunk | None:
    """What an entry of a world says of the message that it is a part of."""
    text = bytes(data)
    return None if text.startswith(b"x") else Chunk(text.rstrip(b"."), text.endswith(b"."))


def at(entry_id: int, ledger: int = 0) -> Position:
    """An entry of the first ledger, or of another one."""
    return Position(FIRST_LEDGER + ledger, entry_id)
