"""The explored world: a writer, recoverers, bookies, one ledger's metadata, and messages between them.

Everything that may happen next in a world is an action (`Universe.actions`); every action leads to one next world.
Requests travel in any order, but for the frames of one stream, which keep theirs. A request may be given up by its
sender while it, or its answer, is still under way; a bookie may lose its disk, and a repair end its limbo; the answer to
a compare-and-set may get lost. How often is limited by `Bounds`, so that the worlds can be counted out.
"""

from collections.abc import Iterator

from daybook.core.bookie.ledger import Purpose
from daybook.core.effects import (
    CasMetadata,
    Closed,
    Complete,
    Effect,
    HandleEnded,
    ReadMetadata,
    Recovered,
    RecoveryFailed,
    SendFence,
    SendFrame,
    SendRead,
)
from daybook.core.errors import Code, LedgerFencedError
from daybook.core.events import (
    AppendRequested,
    CasAnswered,
    CasOutcome,
    CloseRequested,
    Event,
    FlushRequested,
    FrameAcked,
    FrameFailed,
    MetadataRead,
    Tick,
)
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.ledger.transitions import check_transition
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import check_quorum
from daybook.core.recovery.recovery import LedgerRecovery
from daybook.core.writer.writer import LedgerWriter
from tests.fixtures.memory_bookie import failed
from tests.fixtures.sends import one_by_one
from tests.model.explore.components import Memo, Pool, Shared
from tests.model.explore.parts import (
    ENDED,
    FAILED,
    NOT_STARTED,
    WRITER,
    Action,
    Asked,
    Bounds,
    InvariantError,
    Left,
    Machine,
    Message,
    MetadataRequest,
    NoDice,
    Reply,
    Request,
    Step,
    T,
    World,
    payload,
)
from tests.model.explore.repairing import REPAIRER, repaired
from tests.unit.core.in_order import InOrder
from tests.unit.core.one_ledger import KEY, LEDGER, LedgerBookie


class Universe:
    """Makes worlds and their successors; holds what worlds are made of."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.quorum = check_quorum(bounds.ensemble, bounds.write, bounds.ack)
        self.names = [f"b{i + 1}" for i in range(bounds.ensemble + bounds.spares)]
        self.infos = {name: BookieInfo(name) for name in self.names}
        self.machines: Pool[Machine] = Pool()
        self.bookies: Pool[LedgerBookie] = Pool()
        self.metadata: Pool[LedgerMetadata] = Pool()
        self.messages: Shared[Message] = Shared()
        self.meta_of = Memo(self.metadata.copy)
        self.bookie_of = Memo(self.bookies.copy)
        self._serve = Memo(self._served)
        self._step = Memo(self._stepped)
        self._start = Memo(self._started)
        self._repair = Memo(self._repaired)

    def first_world(self) -> World:
        """A ledger that was just created, its writer attached everywhere."""
        metadata = LedgerMetadata(
            LEDGER,
            self.quorum,
            (Fragment(0, 0, tuple(self.names[: self.bounds.ensemble])),),
            password_hash=KEY,
            writer_token="w",
        )
        bookies = [LedgerBookie(name) for name in self.names]
        for bookie in bookies[: self.bounds.ensemble]:
            bookie.attach(WRITER, LEDGER, KEY, Purpose.WRITE, metadata)
        writer = LedgerWriter(metadata, 1, placement=InOrder(), rng=NoDice(), bookies=self.infos)
        return World(
            (self.machines.number(writer), *[NOT_STARTED] * self.bounds.recoverers),
            tuple(map(self.bookies.number, bookies)),
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
        for bookie in sorted(world.wiped) if world.left.repairs else ():
            if self._repair((world.metadata, world.bookies, bookie)) is not None:
                yield Action("repair", who=bookie)

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
            if isinstance(message, Request) and self._is_awaited(world, message) and world.left.timeouts:
                yield Action("give up", number)

    def _is_awaited(self, world: World, request: Request) -> bool:
        """Whether someone waits for the answer."""
        return not (request.given_up or self._has_ended(world, request.client))

    @staticmethod
    def _has_ended(world: World, client: int) -> bool:
        """Whether no answer means anything to the client any more."""
        return client == REPAIRER or world.ends[client] is not None

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
            case "repair":
                found = self._repair((world.metadata, world.bookies, action.who))
                assert found is not None, "it is an action only where limbo may end"
                bookies, request = found
                world = world._replace(bookies=bookies, left=_one_less(world.left, "repairs"))
                return self._send(world, (request,))
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
        bookie, reply = self._serve((world.bookies[position], message.client, message.asked, world.metadata))
        world = world._replace(bookies=_with(world.bookies, position, bookie))
        late_ack = isinstance(reply, FrameAcked)  # what a client must not be fooled by (rule 18)
        is_awaited = self._is_awaited(world, message)
        if not (is_awaited or late_ack):
            return world
        if is_awaited and not self.bounds.answers_take_time:
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
        return self._feed(world, message.client, failed(message.asked, Code.TIMEOUT))

    def _wipe(self, world: World, position: int) -> World:
        bookie = LedgerBookie(self.names[position])
        if self.names[position] in self.meta_of(world.metadata).bookies():
            bookie.machine.mark_limbo(LEDGER, f"nonce {world.left.wipes}")
        return world._replace(
            bookies=_with(world.bookies, position, self.bookies.number(bookie)),
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
        ended = self._has_ended(world, message.client)
        if isinstance(message, Reply):
            machine = world.clients[message.client]
            return not ended and self._step((message.client, machine, message.event)) != Step(machine)
        if isinstance(message, MetadataRequest) or not (ended or message.given_up):
            return not ended
        if ended and self.meta_of(world.metadata).is_closed:
            return False
        bookie = world.bookies[self.names.index(message.asked.bookie)]
        served, _ = self._serve((bookie, message.client, message.asked, world.metadata))
        return served != bookie or world.left.wipes > 0

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
        effects = one_by_one(machine.step(event))  # type: ignore[arg-type]  # keys hold events, or a read's numbers
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

    def _repaired(self, key: tuple[int, tuple[int, ...], int]) -> tuple[tuple[int, ...], Request] | None:
        """The bookies when one of them has everything that it owes, and the request that ends its limbo; None if it must not."""
        metadata, numbers, position = key
        bookies = [self.bookies.copy(number) for number in numbers]
        request = repaired(self.meta_of(metadata), bookies, position)
        if request is None:
            return None
        return tuple(map(self.bookies.number, bookies)), Request(REPAIRER, request)

    def _served(self, key: tuple[int, int, Asked, int]) -> tuple[int, Event]:
        number, client, asked, metadata = key
        bookie = self.bookies.copy(number)
        reply: Event = bookie.serve(LEDGER, KEY, asked, self.meta_of(metadata), client)
        return self.bookies.number(bookie), reply

    def describe(self, action: Action) -> str:
        """The action in words, for a trace."""
        if action.message < 0:
            return f"{action.kind} {action.who}"
        return f"{action.kind}: {self.messages[action.message]}"


def _one_less(left: Left, name: str) -> Left:
    return left._replace(**{name: getattr(left, name) - 1})


def _with(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    return (*items[:index], item, *items[index + 1 :])
