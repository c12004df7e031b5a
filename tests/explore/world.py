"""The explored world: a writer, recoverers, bookies, one ledger's metadata, and messages between them.

Everything that may happen next in a world is an action (`Universe.actions`); every action leads to one next world.
Requests travel in any order, but for the frames of one stream, which keep theirs. A request may be given up by its sender while it, or its answer, is still under way; a bookie may lose its disk; the answer
to a compare-and-set may get lost. How often is limited by `Bounds`, so that the worlds can be counted out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypeVar

from daybook.core.bookie import AttachVerdict, BookieLedger, Purpose
from daybook.core.errors import Code, LedgerFencedError
from daybook.core.events import (
    AppendRequested,
    CasAnswered,
    CasMetadata,
    CasOutcome,
    Closed,
    CloseRequested,
    Complete,
    Effect,
    Event,
    FenceAnswered,
    FlushRequested,
    FrameAcked,
    FrameFailed,
    HandleEnded,
    MetadataRead,
    ReadAnswered,
    ReadMetadata,
    Recovered,
    RecoveryFailed,
    SendFence,
    SendFrame,
    SendRead,
    Tick,
)
from daybook.core.frame import Entry, decode_entries, decode_header
from daybook.core.ids import BookieId, EntryId
from daybook.core.metadata import Fragment, LedgerMetadata, check_transition
from daybook.core.placement import BookieInfo
from daybook.core.quorum import check_quorum
from daybook.core.recovery import LedgerRecovery
from daybook.core.writer import LedgerWriter
from tests.core.writer_world import InOrder
from tests.explore.components import Memo, Pool, Shared

LEDGER: Final = 7
KEY: Final = "00$key"
WRITER: Final = 0
NOT_STARTED: Final = -1
ENDED: Final = -2
"""What a client that has ended thinks does not matter any more."""
FAILED: Final = -1


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large the worlds may grow."""

    ensemble: int = 3
    write: int = 3
    ack: int = 2
    spares: int = 1
    entries: int = 1
    recoverers: int = 1
    timeouts: int = 1
    """Requests that their sender gives up; they may still arrive."""
    wipes: int = 0
    unknown_outcomes: int = 0
    ticks: int = 0
    """Recoverers that lose patience and ask other replicas."""
    closes: int = 0
    """Closes by the writer."""
    answers_take_time: bool = False
    """Whether an answer travels apart from its request; else only those of requests that were given up do."""


class NoDice:
    """A random source for worlds in which nothing is left to chance."""

    def random(self) -> float:
        raise AssertionError("the explored world draws nothing")

    def randrange(self, stop: int, /) -> int:
        raise AssertionError("the explored world draws nothing")


class Shelf:
    """A bookie: its ledger and the entries it stores."""

    def __init__(self, name: BookieId) -> None:
        self.name = name
        self.entries: dict[EntryId, bytes] = {}
        self.ledger = BookieLedger(LEDGER, self)

    def contains(self, entry_id: EntryId) -> bool:
        return entry_id in self.entries

    def last(self) -> EntryId:
        return max(self.entries, default=-1)

    def serve(self, client: int, asked: "Asked", metadata: LedgerMetadata | None) -> Event:
        """Carry out a request, durably, and answer."""
        if isinstance(asked, SendFrame):
            code = self._add(client, asked.frame, metadata)
            if code is Code.OK:
                return FrameAcked(self.name, asked.send_id)
            return FrameFailed(self.name, asked.send_id, code)
        if isinstance(asked, SendFence) or asked.fence:
            verdict = self.ledger.fence(KEY)
            assert verdict.verdict is AttachVerdict.OK
            self.ledger.fence_is_durable()
        lac = self.ledger.last_add_confirmed()
        if isinstance(asked, SendFence):
            return FenceAnswered(
                self.name, asked.request_id, Code.OK, lac.last_add_confirmed, lac.length_at_lac, lac.limbo
            )
        found = tuple(
            Entry(i, self.entries[i]) for i in sorted(self.entries) if asked.first <= i <= asked.last
        )
        return ReadAnswered(self.name, asked.request_id, Code.OK, found, (), asked.last, lac.limbo)

    def _add(self, client: int, frame: bytes, metadata: LedgerMetadata | None) -> Code:
        header = decode_header(frame)
        purpose = Purpose.RECOVERY if header.is_recovery else Purpose.WRITE
        verdict = self.ledger.attach(client, KEY, purpose)
        if verdict is AttachVerdict.NEEDS_METADATA:
            verdict = self.ledger.attach_with_metadata(client, KEY, purpose, metadata)
        code = verdict.code
        if code is Code.OK:
            code = self.ledger.accept(client, header)
        if code is Code.OK:
            entries, damaged = decode_entries(frame, header)
            assert not damaged
            for entry_id, data in entries:
                known = self.entries.setdefault(entry_id, data)
                assert known == data, f"{self.name} was given two different entries {entry_id}"
        return code


T = TypeVar("T")
Asked: TypeAlias = SendFrame | SendFence | SendRead
Machine: TypeAlias = LedgerWriter | LedgerRecovery


class Request(NamedTuple):
    """A request on its way to a bookie. `given_up`: no one waits for the answer."""

    client: int
    asked: Asked
    given_up: bool = False


class Reply(NamedTuple):
    """An answer on its way to a client."""

    client: int
    event: Event


class MetadataRequest(NamedTuple):
    """A read, or with `proposed` a compare-and-set, that has not reached the metadata store yet."""

    client: int
    request_id: int
    proposed: int | None = None
    expected_version: int = -1


Message: TypeAlias = Request | Reply | MetadataRequest


class Left(NamedTuple):
    """How often each limited thing may still happen; see `Bounds`."""

    entries: int
    timeouts: int
    wipes: int
    unknown_outcomes: int
    ticks: int
    closes: int


class World(NamedTuple):
    """Everything there is, as numbers."""

    clients: tuple[int, ...]
    bookies: tuple[int, ...]
    metadata: int
    version: int
    messages: frozenset[int]
    acked: EntryId
    """The last entry whose append completed."""
    ends: tuple[int | None, ...]
    """What each client believes is the close: a metadata number, FAILED, None while it goes on."""
    wiped: frozenset[int]
    left: Left


class Action(NamedTuple):
    """Something that may happen; `message` is the one it concerns."""

    kind: str
    message: int = -1
    who: int = -1


class InvariantError(AssertionError):
    """An invariant does not hold."""


class Step(NamedTuple):
    """What a machine does with an event: its next state, what it sends, what it tells its user."""

    machine: int
    messages: tuple[Message, ...] = ()
    completed: tuple[tuple[EntryId, EntryId], ...] = ()
    end: int | None = None


class Universe:
    """Makes worlds and their successors; holds what worlds are made of."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.quorum = check_quorum(bounds.ensemble, bounds.write, bounds.ack)
        self.names = [f"b{i + 1}" for i in range(bounds.ensemble + bounds.spares)]
        self.infos = {name: BookieInfo(name) for name in self.names}
        self.machines: Pool[Machine] = Pool()
        self.shelves: Pool[Shelf] = Pool()
        self.metadata: Pool[LedgerMetadata] = Pool()
        self.messages: Shared[Message] = Shared()
        self.meta_of = Memo(self.metadata.copy)
        self.shelf_of = Memo(self.shelves.copy)
        self._serve = Memo(self._served)
        self._step = Memo(self._stepped)
        self._start = Memo(self._started)

    def first_world(self) -> World:
        """A ledger that was just created, its writer attached everywhere."""
        metadata = LedgerMetadata(
            LEDGER,
            self.quorum,
            (Fragment(0, 0, tuple(self.names[: self.bounds.ensemble])),),
            password_hash=KEY,
            writer_token="w",
        )
        shelves = [Shelf(name) for name in self.names]
        for shelf in shelves[: self.bounds.ensemble]:
            shelf.ledger.attach_with_metadata(WRITER, KEY, Purpose.WRITE, metadata)
        writer = LedgerWriter(metadata, 1, placement=InOrder(), rng=NoDice(), bookies=self.infos)
        return World(
            (self.machines.number(writer), *[NOT_STARTED] * self.bounds.recoverers),
            tuple(map(self.shelves.number, shelves)),
            self.metadata.number(metadata),
            1,
            frozenset(),
            -1,
            (None,) * (1 + self.bounds.recoverers),
            frozenset(),
            Left(*(getattr(self.bounds, name) for name in Left._fields)),
        )

    # What may happen

    def actions(self, world: World) -> Iterator[Action]:
        """Everything that may happen next."""
        yield from self._message_actions(world)
        if world.ends[WRITER] is None and world.left.entries:
            yield Action("append", who=WRITER)
        if world.ends[WRITER] is None and world.left.closes:
            yield Action("close", who=WRITER)
        waiting = [c for c, machine in enumerate(world.clients) if machine == NOT_STARTED]
        if waiting:  # recoverers are alike: the first that has not started starts
            yield Action("start", who=waiting[0])
        for client in range(1, len(world.clients)) if world.left.ticks else ():
            if world.clients[client] != NOT_STARTED and world.ends[client] is None:
                yield Action("tick", who=client)
        for bookie in range(len(world.bookies)) if world.left.wipes else ():
            yield Action("wipe", who=bookie)

    def _message_actions(self, world: World) -> Iterator[Action]:
        """What may happen to the messages under way."""
        heads = self._heads(world)
        for number in sorted(world.messages):
            message = self.messages[number]
            if isinstance(message, MetadataRequest):
                yield Action("metadata", number)
                if message.proposed is not None and world.left.unknown_outcomes:
                    yield Action("metadata applied, answer lost", number)
                    yield Action("metadata request lost", number)
            elif number in heads:
                yield Action("deliver", number)
            if isinstance(message, Request) and not message.given_up and world.left.timeouts:
                yield Action("give up", number)

    def _heads(self, world: World) -> set[int]:
        """The messages that can be delivered: of the frames and acks of a stream only the oldest."""
        oldest: dict[tuple[object, ...], tuple[int, int]] = {}
        heads: set[int] = set()
        for number in world.messages:
            message = self.messages[number]
            content = message.asked if isinstance(message, Request) else getattr(message, "event", None)
            if isinstance(content, (SendFrame, FrameAcked, FrameFailed)):
                stream = (type(message), message.client, content.bookie)
                found = (content.send_id, number)
                oldest[stream] = min(oldest.get(stream, found), found)
            elif not isinstance(message, MetadataRequest):
                heads.add(number)
        return heads | {number for _, number in oldest.values()}

    def after(self, world: World, action: Action) -> World:
        """The world in which `action` has happened. Raises InvariantError, or AssertionError from a machine."""
        return self._pruned(self._after(world, action))

    def _after(self, world: World, action: Action) -> World:
        match action.kind:
            case "deliver":
                return self._deliver(world, action.message)
            case "give up":
                return self._give_up(world, action.message)
            case "append":
                return self._append(world)
            case "close":
                world = world._replace(left=_one_less(world.left, "closes"))
                return self._feed(world, WRITER, CloseRequested(99))
            case "start":
                machine, messages = self._start(action.who)
                clients = _with(world.clients, action.who, machine)
                return self._send(world._replace(clients=clients), messages)
            case "tick":
                world = world._replace(left=_one_less(world.left, "ticks"))
                return self._feed(world, action.who, Tick(10_000))
            case "wipe":
                return self._wipe(world, action.who)
            case _:
                return self._store(world, action)

    def _append(self, world: World) -> World:
        entry_id = self.bounds.entries - world.left.entries
        world = world._replace(left=_one_less(world.left, "entries"))
        world = self._feed(world, WRITER, AppendRequested(entry_id, (payload(entry_id),)))
        return self._feed(world, WRITER, FlushRequested())

    def _deliver(self, world: World, number: int) -> World:
        message = self.messages[number]
        world = world._replace(messages=world.messages - {number})
        if isinstance(message, Reply):
            return self._feed(world, message.client, message.event)
        assert isinstance(message, Request)
        position = self.names.index(message.asked.bookie)
        shelf, reply = self._serve((world.bookies[position], message.client, message.asked, world.metadata))
        world = world._replace(bookies=_with(world.bookies, position, shelf))
        late_ack = isinstance(reply, FrameAcked)  # what a client must not be fooled by (rule 18)
        if message.given_up and not late_ack:
            return world
        if not (message.given_up or self.bounds.answers_take_time):
            return self._feed(world, message.client, reply)
        return self._send(world, (Reply(message.client, reply),))

    def _give_up(self, world: World, number: int) -> World:
        message = self.messages[number]
        assert isinstance(message, Request)
        still_there = self.messages.number(message._replace(given_up=True))
        world = world._replace(
            messages=world.messages - {number} | {still_there},
            left=_one_less(world.left, "timeouts"),
        )
        return self._feed(world, message.client, timed_out(message.asked))

    def _wipe(self, world: World, position: int) -> World:
        shelf = Shelf(self.names[position])
        if self.names[position] in self.meta_of(world.metadata).bookies():
            shelf.ledger.enter_limbo(f"nonce {world.left.wipes}")
        return world._replace(
            bookies=_with(world.bookies, position, self.shelves.number(shelf)),
            wiped=world.wiped | {position},
            left=_one_less(world.left, "wipes"),
        )

    def _store(self, world: World, action: Action) -> World:
        """The metadata store carries out a read or a compare-and-set."""
        message = self.messages[action.message]
        assert isinstance(message, MetadataRequest)
        world = world._replace(messages=world.messages - {action.message})
        if message.proposed is None:
            return self._feed(
                world, message.client, ("read", message.request_id, world.metadata, world.version)
            )
        outcome = CasOutcome.DONE
        if action.kind != "metadata":
            world = world._replace(left=_one_less(world.left, "unknown_outcomes"))
            outcome = CasOutcome.UNKNOWN
        if message.expected_version != world.version:
            outcome = CasOutcome.CONFLICT if outcome is CasOutcome.DONE else outcome
        elif action.kind != "metadata request lost":
            check_transition(self.meta_of(world.metadata), self.meta_of(message.proposed))
            world = world._replace(metadata=message.proposed, version=world.version + 1)
        return self._feed(world, message.client, CasAnswered(message.request_id, outcome, world.version))

    # Machines

    def _feed(self, world: World, client: int, event: object) -> World:
        step = self._step((client, world.clients[client], event))
        acked = world.acked
        for first, last in step.completed:
            if first != acked + 1:
                raise InvariantError(f"NoOutOfOrderEntries: {first}..{last} completes after {acked}")
            acked = last
        machine = step.machine
        if step.end is not None:
            world = world._replace(ends=_with(world.ends, client, step.end))
            machine = ENDED
        world = world._replace(clients=_with(world.clients, client, machine), acked=acked)
        return self._send(world, step.messages)

    def _send(self, world: World, messages: tuple[Message, ...]) -> World:
        return world._replace(
            messages=world.messages | {self.messages.number(message) for message in messages}
        )

    def _pruned(self, world: World) -> World:
        """Without the messages that can change nothing any more."""
        kept = frozenset(number for number in world.messages if self._matters(world, self.messages[number]))
        return world if len(kept) == len(world.messages) else world._replace(messages=kept)

    def _matters(self, world: World, message: Message) -> bool:
        """Whether the message can still change something.

        An answer that changes nothing now is one that no one waits for, and no one ever will. A request whose answer no
        one waits for and that changes nothing now (an add that a fence refuses, a second fence) never will, but on a
        bookie that loses its disk.
        """
        ended = world.ends[message.client] is not None
        if isinstance(message, Reply):
            machine = world.clients[message.client]
            return not ended and self._step((message.client, machine, message.event)) != Step(machine)
        if isinstance(message, MetadataRequest) or not (ended or message.given_up):
            return not ended
        if ended and self.meta_of(world.metadata).is_closed:
            return False
        shelf = world.bookies[self.names.index(message.asked.bookie)]
        served, _ = self._serve((shelf, message.client, message.asked, world.metadata))
        return served != shelf or world.left.wipes > 0

    def _started(self, client: int) -> tuple[int, tuple[Message, ...]]:
        machine = LedgerRecovery(LEDGER, placement=InOrder(), rng=NoDice(), bookies=self.infos)
        messages = tuple(self._message(client, effect) for effect in machine.start())
        return self.machines.number(machine), tuple(m for m in messages if m is not None)

    def _stepped(self, key: tuple[int, int, object]) -> Step:
        client, number, event = key
        if isinstance(event, tuple) and event[0] == "read":
            _, request_id, metadata, version = event
            event = MetadataRead(request_id, self.meta_of(metadata), version)
        machine = self.machines.copy(number)
        effects = machine.step(event)  # type: ignore[arg-type]  # keys hold events, or a read's numbers
        completed = tuple((e.first, e.last) for e in effects if isinstance(e, Complete))
        end = None
        for effect in effects:
            if isinstance(effect, (Recovered, Closed)):
                end = self.metadata.number(effect.metadata)
            elif isinstance(effect, RecoveryFailed) or (
                isinstance(effect, HandleEnded) and isinstance(effect.error, LedgerFencedError)
            ):
                end = FAILED
        messages = tuple(m for e in effects if (m := self._message(client, e)) is not None)
        return Step(self.machines.number(machine), messages, completed, end)

    def _message(self, client: int, effect: Effect) -> Message | None:
        if isinstance(effect, (SendFrame, SendFence, SendRead)):
            return Request(client, effect)
        if isinstance(effect, ReadMetadata):
            return MetadataRequest(client, effect.request_id)
        if isinstance(effect, CasMetadata):
            proposed = self.metadata.number(effect.metadata)
            return MetadataRequest(client, effect.request_id, proposed, effect.expected_version)
        return None

    def _served(self, key: tuple[int, int, Asked, int]) -> tuple[int, Event]:
        number, client, asked, metadata = key
        shelf = self.shelves.copy(number)
        reply = shelf.serve(client, asked, self.meta_of(metadata))
        return self.shelves.number(shelf), reply

    def describe(self, action: Action) -> str:
        """The action in words, for a trace."""
        if action.message < 0:
            return f"{action.kind} {action.who}"
        return f"{action.kind}: {self.messages[action.message]}"


def payload(entry_id: EntryId) -> bytes:
    """What the writer writes as `entry_id`."""
    return f"entry {entry_id}".encode()


def timed_out(asked: Asked) -> Event:
    """What a client takes for the answer when none came."""
    if isinstance(asked, SendFrame):
        return FrameFailed(asked.bookie, asked.send_id, Code.TIMEOUT)
    if isinstance(asked, SendFence):
        return FenceAnswered(asked.bookie, asked.request_id, Code.TIMEOUT)
    return ReadAnswered(asked.bookie, asked.request_id, Code.TIMEOUT)


def _one_less(left: Left, name: str) -> Left:
    return left._replace(**{name: getattr(left, name) - 1})


def _with(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    return (*items[:index], item, *items[index + 1 :])
