"""A broker dies between any two effects of a cursor, and what it had asked for is carried out or not: what does the next one find?"""

from collections.abc import Callable
from itertools import count

import pytest

from daybook.core.topics.cursor_events import (
    AppendRecord,
    CloseRequested,
    CreateCursor,
    CreateCursorLedger,
    CursorOpened,
    DeleteCursor,
    FlushRequested,
    PutCursor,
    RecordLost,
)
from daybook.core.topics.cursor_pace import CursorPolicy
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.ledger_list import Position
from tests.unit.core.topics.cursor_world import CursorWorld, Holder

POLICY = CursorPolicy(entries_max=2)
CHANGES = (AppendRecord, PutCursor, CreateCursor, CreateCursorLedger, DeleteCursor)


def at(entry: int) -> Position:
    return Position(1, entry)


def acknowledge(entry: int) -> Callable[[Holder], None]:
    """A consumer acknowledges an entry, and a second passes."""

    def do(holder: Holder) -> None:
        holder.acks.ack(at(entry))
        holder.tick(POLICY.persist_ms)

    return do


def seek(entry: int) -> Callable[[Holder], None]:
    def do(holder: Holder) -> None:
        holder.acks.reset(at(entry))
        holder.step(FlushRequested())

    return do


LIFE = (
    acknowledge(0),
    acknowledge(1),
    acknowledge(3),
    acknowledge(2),
    lambda holder: holder.tick(POLICY.idle_ms),
    acknowledge(4),
    acknowledge(6),
    seek(1),
    acknowledge(2),
    acknowledge(3),
    lambda holder: holder.step(CloseRequested()),
)
"""A ledger is created, replaced because it is full, dropped because nothing moves, created again, dropped for a seek, and so on."""
ACKED = [{0}, {1}, {3}, {2}, set(), {4}, {6}, {0, 1}, {2}, {3}, set[int]()]
"""What is acknowledged in each step; the seek begins anew."""
SEEK = 7


class Crash:
    """The life of a cursor up to `effects` effects; then its broker dies."""

    def __init__(self, effects: int) -> None:
        self.left = effects
        self.world = CursorWorld()
        self.holder = Holder(self.world, initial=CursorRecord(at(-1)), policy=POLICY)
        self.steps = 0
        """How many steps of the life have begun."""
        self.seek_is_durable = False
        self.run()
        for step in LIFE:
            if not self.left or not self.holder.is_open:
                return
            self.steps += 1
            step(self.holder)
            self.run()
            if self.steps > SEEK and self.left:
                self.seek_is_durable = True

    def run(self) -> None:
        while self.holder.asked and self.left:
            self.left -= 1
            self.holder.carry_out()

    def possible(self) -> list[set[int]]:
        """What may be acknowledged: everything before the seek, or what the seek left and what came after it."""
        before = set[int]().union(*ACKED[: min(self.steps, SEEK)])
        after = set[int]().union(*ACKED[SEEK : self.steps])
        found = [] if self.seek_is_durable else [before]
        return [*found, after] if self.steps > SEEK else found


@pytest.mark.parametrize("carries_out", [False, True])
@pytest.mark.parametrize("loses_ledgers", [False, True])
def test_rule_40_after_a_crash_between_any_two_effects_the_next_broker_finds_what_was_persisted(
    carries_out: bool, loses_ledgers: bool
) -> None:
    for effects in count():
        crash = Crash(effects)
        holder, world = crash.holder, crash.world
        persisted = holder.machine.persisted
        if not holder.asked and crash.left:
            break
        while holder.asked and carries_out and isinstance(holder.asked[0], CHANGES):
            holder.fail(applied=True)
            holder.asked.clear()
        if loses_ledgers:
            world.ledgers.clear()
        again = Holder(world, initial=CursorRecord(at(-1)), policy=POLICY)
        again.run()
        assert CursorOpened() in again.news
        found = {entry for entry in range(20) if again.acks.is_acked(at(entry))}
        assert any(found <= acked for acked in crash.possible()), f"{found} after {effects} effects"
        assert again.acks.mark_delete >= persisted or (loses_ledgers and again.said(RecordLost))
    assert effects > 20, "the whole life was lived"
