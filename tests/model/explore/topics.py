"""Every order of what two owners of a topic do, within small bounds: their requests, lost answers, fences, deaths.

A world is the topic in memory of tests/unit/core/topics/world.py with its owners, each of which has the machine that ships. Owners carry
out their effects one by one, so that another owner, an auditor or a death comes between any two of them.
"""

import gc
import pickle
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from daybook.core.errors import MetadataError
from daybook.core.topics.events import Append, CasList, TrimRequested
from daybook.core.topics.ledger_list import NO_POSITION
from daybook.core.topics.open_ledger import ManagedLedgerPolicy
from daybook.core.topics.trimming import Retention
from tests.model.explore.components import freeze
from tests.model.explore.explorer import Found
from tests.model.explore.parts import TopicBounds
from tests.unit.core.topics.world import Owner, StoredLedger, World

_POLICY: Final = ManagedLedgerPolicy(entries_max=1, age_ms_min=0, retry_ms=10)


class Step(NamedTuple):
    """Something that happens to an owner, by its number."""

    what: str
    owner: int = 0


@dataclass(slots=True)
class State:
    """A world, its owners, and what may happen yet."""

    world: World
    owners: list[Owner]
    alive: list[int]
    left: TopicBounds


@dataclass(slots=True)
class TopicReport:
    """What an exploration saw."""

    bounds: TopicBounds
    worlds: int = 0
    steps: int = 0
    is_complete: bool = True
    superseded: int = 0
    rolled: int = 0

    def count(self, state: State) -> None:
        """Another world."""
        self.worlds += 1
        self.superseded += any(owner.machine.is_done for owner in state.owners)
        self.rolled += len(state.world.named) > 1


def explore_topic(bounds: TopicBounds, *, worlds_max: int = 10**9) -> TopicReport:
    """See every world within `bounds`. Raises Found with the shortest way to one in which an invariant does not hold."""
    gc.disable()
    try:
        return _explore(bounds, worlds_max)
    finally:
        gc.enable()


def _explore(bounds: TopicBounds, worlds_max: int) -> TopicReport:
    world = World()
    first = State(world, [Owner(world, "owner-0", _POLICY)], [0], replace(bounds, owners=bounds.owners - 1))
    report = TopicReport(bounds)
    seen = {_key(first)}
    frontier: deque[tuple[bytes, tuple[Step, ...]]] = deque([(pickle.dumps(first), ())])
    while frontier:
        stored, story = frontier.popleft()
        for step in _steps(pickle.loads(stored)):
            report.steps += 1
            state: State = pickle.loads(stored)
            try:
                _take(state, step)
                _check(state)
            except (AssertionError, MetadataError) as error:
                lines = "\n".join(f"{each.what} {each.owner}" for each in (*story, step))
                msg = f"{error}\n{lines}"
                raise Found(msg) from error
            key = _key(state)
            if key in seen:
                continue
            seen.add(key)
            report.count(state)
            frontier.append((pickle.dumps(state), (*story, step)))
        if len(seen) >= worlds_max:
            report.is_complete = False
            break
    return report


def _key(state: State) -> int:
    """Worlds that go on alike; news are for logs."""
    for owner in state.owners:
        owner.news.clear()
    return hash(freeze(state))


def _steps(state: State) -> Iterator[Step]:
    """Everything that may happen next."""
    left = state.left
    if left.owners:
        yield Step("begins")
    for change in range(len(state.world.delayed)):
        yield Step("late change", change)
    for number in state.alive:
        owner = state.owners[number]
        if owner.asked:
            yield Step("carries out", number)
            if left.unknown and not isinstance(owner.asked[0], Append):
                yield Step("no answer", number)
                if isinstance(owner.asked[0], CasList):
                    yield Step("no answer, done", number)
                    yield Step("no answer, late", number)
        if any(ledger.in_flight for ledger in _ledgers_of(owner)):
            yield Step("acknowledged", number)
            yield Step("stored", number)
        if left.messages and owner.machine.refusal is None:
            yield Step("publishes", number)
        if left.fences and any(not ledger.is_closed for ledger in _ledgers_of(owner)):
            yield Step("fenced", number)
        for what in ("ticks", "deaths", "trims"):
            if getattr(left, what) and not owner.machine.is_done:
                yield Step(what, number)


def _ledgers_of(owner: Owner) -> list[StoredLedger]:
    """What the owner has handles of."""
    ledgers = owner.world.ledgers
    return [ledgers[ledger_id] for ledger_id in sorted(owner.handles & ledgers.keys())]


def _take(state: State, step: Step) -> None:
    world = state.world
    match step.what:
        case "begins":
            state.alive.append(len(state.owners))
            state.owners.append(Owner(world, f"owner-{len(state.owners)}", _POLICY))
            _use(state, "owners")
        case "late change":
            world.apply(world.delayed.pop(step.owner))
        case "deaths":
            state.alive.remove(step.owner)
            _use(state, "deaths")
        case _:
            _take_of(state, step.what, state.owners[step.owner])


def _take_of(state: State, what: str, owner: Owner) -> None:
    match what:
        case "carries out":
            owner.carry_out()
        case "acknowledged":
            owner.acknowledge(1)
        case "stored":
            next(ledger for ledger in _ledgers_of(owner) if ledger.in_flight).store()
        case "publishes":
            owner.publish(b"%d" % state.left.messages)
            _use(state, "messages")
        case "fenced":
            ledger_id = min(
                each
                for each in owner.handles
                if each in state.world.ledgers and not state.world.ledgers[each].is_closed
            )
            state.world.ledgers[ledger_id].close()
            owner.fail_handle(ledger_id)
            _use(state, "fences")
        case "ticks":
            owner.tick(_POLICY.retry_ms)
            _use(state, "ticks")
        case "trims":
            owner.step(
                TrimRequested((max((at for at, _ in owner.published), default=NO_POSITION),), Retention())
            )
            _use(state, "trims")
        case _:
            _leave_unanswered(state, what, owner)


def _leave_unanswered(state: State, what: str, owner: Owner) -> None:
    if what == "no answer, late":
        change = owner.asked[0]
        assert isinstance(change, CasList)
        state.world.delayed.append(change)
    owner.fail(applied=what == "no answer, done")
    _use(state, "unknown")


def _use(state: State, name: str) -> None:
    state.left = replace(state.left, **{name: getattr(state.left, name) - 1})


def _check(state: State) -> None:
    """What was acknowledged is in its place, nothing is in the topic twice, and each owner's messages keep their order."""
    for ledger in state.world.ledger_list.ledgers:
        entries = len(state.world.ledgers[ledger.ledger_id].entries)
        assert ledger.is_open or ledger.entries == entries, (
            f"{ledger} is said to be closed, and has {entries}"
        )
    topic = state.world.topic()
    place = {data: at for at, data in topic}
    assert len(place) == len(topic), f"a message is in the topic twice: {topic}"
    for owner in state.owners:
        for at, data in owner.published:
            is_trimmed = at.ledger_id not in state.world.named_now()
            assert place.get(data) == at or is_trimmed, f"{data!r} was acknowledged at {at}, and is not there"
        sent = [data for _, data in owner.published] + owner.failed + list(owner.unanswered)
        order = [place[data] for data in sorted(sent, reverse=True) if data in place]
        assert order == sorted(order), f"messages of one owner changed places: {topic}"
