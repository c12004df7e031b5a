"""A cursor under two owners in every order of their requests, with a lost answer anywhere (rule 38, rule 40).

The first owner moves and seeks while a second one takes over, at any moment, and both carry on. One answer may be lost, whether its
request was carried out, never, or late. Whatever the order, a third owner finds all that was reported as persisted and nothing that
nobody acknowledged, and no ledger is left that no node names.
"""

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import Final, TypeAlias

import pytest

from daybook.core.topics.cursor_events import CloseRequested, FlushRequested, PutCursor
from daybook.core.topics.cursor_pace import CursorPolicy
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.ledger_list import NO_POSITION, Position
from tests.model.mutants.catalog import cursors as mutants
from tests.unit.core.topics.cursor_world import CursorWorld, Holder
from tests.unit.core.topics.lists import extent_of

POLICY: Final = CursorPolicy(entries_max=1)
LOSSES: Final = 1
"""Answers that are lost; two take ten times as long, and found nothing more."""
BEGIN: Final = CursorRecord(Position(1, -1))

Step: TypeAlias = Callable[[Holder], None]


def at(entry: int) -> Position:
    return Position(1, entry)


def moves(entry: int, holder: Holder) -> None:
    """An entry is acknowledged, and a second passes."""
    holder.acks.ack(at(entry))
    holder.tick(POLICY.persist_ms)


def seeks(entry: int, holder: Holder) -> None:
    """A consumer seeks, and waits until that is durable."""
    holder.acks.reset(at(entry))
    holder.step(FlushRequested())


def rests(holder: Holder) -> None:
    """Nothing moves for a long time."""
    holder.tick(POLICY.idle_ms)


LIVES: Final[dict[str, tuple[tuple[Step, ...], tuple[Step, ...]]]] = {
    "both move": ((partial(moves, 0), partial(moves, 1)), (partial(moves, 2),)),
    "the first rests": ((partial(moves, 0), rests), (partial(moves, 1),)),
    "the first seeks": ((partial(moves, 3), partial(seeks, -1)), (partial(moves, 0),)),
}


class History:
    """One order of events, replayed from its choices."""

    def __init__(self, lives: tuple[tuple[Step, ...], tuple[Step, ...]]) -> None:
        self.world = CursorWorld(extent=extent_of((1, 8)))
        self.first = Holder(self.world, initial=BEGIN, policy=POLICY)
        self.first.run()
        self.second: Holder | None = None
        self.lives = list(map(list, lives))
        self.losses = LOSSES
        self.durable = NO_POSITION
        self.acked = {-1}
        self.seeks = 0

    def choices(self) -> Iterator[Callable[[], object]]:
        """What may happen next."""
        for number, holder in enumerate(self._holders()):
            if holder.asked:
                yield holder.carry_out
                if self.losses:
                    yield partial(self._lose, holder, applied=False)
                    if isinstance(holder.asked[0], PutCursor):
                        yield partial(self._lose, holder, applied=True)
                        yield partial(self._delay, holder)
            elif holder.is_open and not holder.ended and self.lives[number]:
                yield partial(self._live, number, holder)
        if self.second is None:
            yield self._take_over
        if self.world.delayed:
            yield self._apply_late

    def _holders(self) -> list[Holder]:
        return [self.first] if self.second is None else [self.first, self.second]

    def _live(self, number: int, holder: Holder) -> None:
        self.lives[number].pop(0)(holder)

    def _lose(self, holder: Holder, *, applied: bool) -> None:
        self.losses -= 1
        holder.fail(applied=applied)

    def _delay(self, holder: Holder) -> None:
        put = holder.asked[0]
        assert isinstance(put, PutCursor)
        self.losses -= 1
        self.world.delayed.append(put)
        holder.fail()

    def _apply_late(self) -> None:
        self.world.apply(self.world.delayed.pop())

    def _take_over(self) -> None:
        self.second = Holder(self.world, initial=BEGIN, policy=POLICY)

    def observe(self) -> None:
        """What the owner reports as persisted must be found; a seek takes it back."""
        owner = self.second or self.first
        if not owner.is_open:
            return
        if owner.acks.resets and not self.seeks:
            self.seeks, self.durable = 1, NO_POSITION
        self.durable = max(self.durable, owner.machine.persisted)

    def settle(self) -> None:
        """A third owner takes over; what was under way is answered, and nobody is left behind."""
        self.world.delayed.clear()
        third = Holder(self.world, initial=BEGIN, policy=POLICY)
        for _ in range(3):
            for holder in (third, self.first, *self._holders()[1:]):
                holder.run()
                holder.tick(POLICY.retry_ms)
        assert third.is_open
        acks = third.acks
        assert acks.mark_delete >= self.durable, f"{self.durable} was persisted, found is {acks.mark_delete}"
        assert not acks.is_acked(at(4)), "nobody acknowledged it"
        third.step(CloseRequested())
        third.run()
        assert third.ended == [None]
        assert not self.world.ledgers, "a ledger is left that no node names"


FORGOTTEN: Final = frozenset(
    {"_extent", "_ids", "_name", "_request_id", "extent", "news", "request_id", "rng", "world"}
)
"""What two histories may differ in without a difference in what follows."""


def freeze(thing: object) -> object:
    """The whole state of `thing` as a value."""
    if thing is None or isinstance(thing, (int, str, bytes, Enum)):
        return thing
    if isinstance(thing, (list, deque, tuple)):
        return tuple(map(freeze, thing))
    if isinstance(thing, dict):
        return tuple((freeze(key), freeze(value)) for key, value in sorted(thing.items()))
    if isinstance(thing, (set, frozenset)):
        return tuple(sorted(thing))
    if callable(thing):
        return repr(thing)
    names = getattr(type(thing), "__slots__", None) or vars(thing)
    return (
        type(thing).__name__,
        *(freeze(getattr(thing, name)) for name in sorted(set(names) - FORGOTTEN)),
    )


def explore(name: str) -> int:
    """Try every order; how many states there are. Raises AssertionError with the choices that lead to it."""
    seen, path = set[object](), list[int]()
    while True:
        history, widths = History(LIVES[name]), list[int]()
        try:
            for depth in range(100):
                history.observe()
                choices = list(history.choices())
                if depth == len(path):
                    state = freeze((history, history.world))
                    if state in seen:
                        break
                    seen.add(state)
                    if choices:
                        path.append(0)
                if not choices:
                    history.settle()
                    break
                widths.append(len(choices))
                choices[path[depth]]()
        except AssertionError as error:
            error.add_note(f"{name}: {path}")
            raise
        while path and path[-1] + 1 == widths[len(path) - 1]:
            path.pop()
        if not path:
            return len(seen)
        path[-1] += 1


@pytest.mark.parametrize("name", LIVES)
def test_rule_40_in_every_order_of_two_owners_nothing_persisted_is_lost(name: str) -> None:
    states = explore(name)
    print(name, states)
    assert states > 500


@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        (mutants.what_is_sent_counts_as_persisted, "both move"),
        (mutants.a_cursors_ledger_is_deleted_that_the_next_owner_finds, "both move"),
        (mutants.whoever_asks_owns_the_topic, "both move"),
        (mutants.a_ledger_is_named_before_it_has_a_record, "both move"),
    ],
)
def test_a_rule_that_is_taken_out_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        explore(name)
