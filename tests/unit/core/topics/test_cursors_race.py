"""Cursors under crashes, lost answers, late writes, seeks and two owners, in any order that a seed draws (rule 38, rule 40)."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from daybook.core.topics.acks import AckState
from daybook.core.topics.cursor_events import (
    CloseRequested,
    CreateCursor,
    CursorPersisted,
    DeleteCursor,
    FlushRequested,
    PutCursor,
    RecordLost,
)
from daybook.core.topics.cursor_pace import CursorPolicy
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.ledger_list import NO_POSITION, Position
from tests.unit.core.topics.cursor_world import CursorWorld, Holder
from tests.unit.core.topics.lists import extent_of

POLICY = CursorPolicy(persist_ms=10, entries_max=4, age_ms_max=100, idle_ms=40, retry_ms=10)
SEEDS = 400
STEPS = 200
ENTRIES = [Position(1, n) for n in range(30)] + [Position(4, n) for n in range(40)]
BEGIN = CursorRecord(Position(1, -1))


class Truth:
    """What clients acknowledged, beside which a cursor that is opened is judged."""

    def __init__(self) -> None:
        self.epochs: list[set[Position]] = [set()]
        """What was acknowledged since each seek, from the newest one that is durable to the last one."""
        self.durable = NO_POSITION
        """What an owner reported as persisted, and the next one must find."""

    def ack(self, acks: AckState) -> None:
        """Record what is acknowledged now."""
        self.epochs[-1] |= {position for position in ENTRIES if acks.is_acked(position)}

    def seek(self, acks: AckState) -> None:
        """What was acknowledged before counts no more, once the seek is durable."""
        self.epochs.append(set())
        self.ack(acks)
        self.durable = min(self.durable, acks.mark_delete)

    def seek_is_durable(self) -> None:
        """Nothing older counts."""
        self.epochs = self.epochs[-1:]

    def judge(self, acks: AckState, *, lost_a_record: bool) -> None:
        """The cursor was opened: it knows nothing that no client said, and all that was persisted."""
        acked = {position for position in ENTRIES if acks.is_acked(position)}
        of = [number for number, epoch in enumerate(self.epochs) if acked <= epoch]
        assert of, f"it passes {min(acked - self.epochs[-1])}, which nobody acknowledged"
        assert lost_a_record or acks.mark_delete >= self.durable, (
            f"{self.durable} was persisted, and {acks.mark_delete} is found"
        )
        self.epochs = [self.epochs[of[-1]]]
        self.durable = acks.mark_delete


class Race:
    """A history that a seed draws."""

    def __init__(self, seed: int, *, loses_ledgers: bool = False) -> None:
        self.rng = random.Random(seed)
        self.loses_ledgers = loses_ledgers
        self.world = CursorWorld(extent=extent_of((1, 30), (2, 0), open_with=(4, 40)))
        self.truth = Truth()
        self.holders: list[Holder] = []
        self.judged: set[int] = set()
        self.seek_version: int | None = None

    def run(self) -> None:
        self.take_over()
        for _ in range(STEPS):
            self.one_step()
        self.settle()

    @property
    def owner(self) -> Holder:
        return self.holders[-1]

    def take_over(self) -> None:
        self.holders.append(Holder(self.world, initial=BEGIN, policy=POLICY))
        self.seek_version = None

    def one_step(self) -> None:
        if self.rng.random() < 0.02 or self.owner.ended:
            self.take_over()
        self.late_write()
        holder = self.rng.choice(self.holders[-2:])
        actions: list[tuple[int, Callable[[], object]]] = [
            (6, self.acknowledge),
            (8, lambda: self.carry_out(holder)),
            (4, lambda: holder.tick(self.rng.choice((1, 5, 50)))),
            (1, lambda: self.owner.write_list(says_so=self.rng.random() < 0.7)),
            (1, self.seek),
            (1, lambda: holder.step(FlushRequested())),
            (1, self.lose_ledger),
        ]
        weights, calls = zip(*actions, strict=True)
        self.rng.choices(calls, weights)[0]()
        if self.rng.random() < 0.01:
            holder.step(CloseRequested())
        self.observe()

    def observe(self) -> None:
        """Judge a cursor when it opens, and note what its owner says is persisted."""
        owner = self.owner
        if not owner.is_open:
            return
        if owner.number not in self.judged:
            self.judged.add(owner.number)
            self.truth.judge(owner.acks, lost_a_record=bool(owner.said(RecordLost)))
        versions = [each.version for each in owner.said(CursorPersisted)]
        if self.seek_version is not None and versions and versions[-1] >= self.seek_version:
            self.truth.seek_is_durable()
            self.seek_version = None
        self.truth.durable = max(self.truth.durable, owner.machine.persisted)

    def acknowledge(self) -> None:
        if self.owner.is_open and not self.owner.ended:
            acks, position = self.owner.acks, self.rng.choice(ENTRIES)
            if self.rng.random() < 0.2:
                acks.ack_through(acks.next_unacked(NO_POSITION))
            elif position < Position(acks.mark_delete.ledger_id, acks.mark_delete.entry_id + 9):
                acks.ack(position)
            self.truth.ack(acks)

    def seek(self) -> None:
        if self.owner.is_open and not self.owner.ended:
            self.owner.acks.reset(self.rng.choice(ENTRIES))
            self.truth.seek(self.owner.acks)
            self.seek_version = self.owner.acks.version

    def carry_out(self, holder: Holder) -> None:
        if not holder.asked:
            return
        effect = holder.asked[0]
        if self.rng.random() < 0.85:
            holder.carry_out()
        elif isinstance(effect, PutCursor) and self.rng.random() < 0.5:
            self.world.delayed.append(effect)
            holder.fail()
        else:
            changes = isinstance(effect, (PutCursor, CreateCursor, DeleteCursor))
            holder.fail(applied=changes and self.rng.random() < 0.5)

    def late_write(self) -> None:
        """A write that has no answer is applied after all, or never."""
        if self.world.delayed and self.rng.random() < 0.3:
            put = self.world.delayed.pop(self.rng.randrange(len(self.world.delayed)))
            if self.rng.random() < 0.7 and self.world.may_apply(put):
                self.world.apply(put)

    def lose_ledger(self) -> None:
        if self.loses_ledgers and self.world.ledgers and self.rng.random() < 0.3:
            del self.world.ledgers[self.rng.choice(sorted(self.world.ledgers))]

    def settle(self) -> None:
        """A last owner takes over, and the former ones learn of it; what remains is what the node names."""
        self.world.delayed.clear()
        self.take_over()
        for holder in reversed(self.holders):
            for _ in range(20):
                holder.run()
                holder.tick(50)
            if holder is self.owner:
                self.observe()
        assert self.owner.is_open
        self.owner.step(CloseRequested())
        self.owner.run()
        assert self.owner.ended == [None]
        assert not self.world.ledgers, "nobody deletes them"
        final = AckState(self.world.extent, self.world.record)
        assert replace(final.record(99), unknown_fields={}) == self.owner.acks.record(99)


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_rule_40_whatever_fails_what_is_persisted_is_found_and_nothing_else_is_passed(first: int) -> None:
    for seed in range(first, first + 50):
        run(seed)


@pytest.mark.parametrize("first", range(0, SEEDS, 100))
def test_rule_40_ledgers_that_are_lost_cost_no_message(first: int) -> None:
    for seed in range(first, first + 100):
        run(seed, loses_ledgers=True)


def run(seed: int, *, loses_ledgers: bool = False) -> None:
    try:
        Race(seed, loses_ledgers=loses_ledgers).run()
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
