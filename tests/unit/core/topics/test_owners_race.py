"""Two live owners, lost answers, late changes of the list, fenced ledgers, in any order that a seed draws (rule 38, rule 50)."""

import random
from collections.abc import Callable

import pytest

from daybook.core.topics.events import Append, CasList, TrimRequested, UnloadRequested
from daybook.core.topics.open_ledger import ManagedLedgerPolicy
from daybook.core.topics.trimming import Retention
from tests.unit.core.topics.world import Owner, World

POLICY = ManagedLedgerPolicy(entries_max=4, age_ms_min=0, age_ms_max=50, idle_ms_max=200, retry_ms=10)
SEEDS = 400
STEPS = 150


class Race:
    """A history that a seed draws."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World()
        self.owners: list[Owner] = []
        self.messages = 0

    def run(self) -> None:
        self.new_owner()
        for _ in range(STEPS):
            self.one_step()
        self.settle()

    def one_step(self) -> None:
        if self.rng.random() < 0.02 or all(owner.machine.is_done for owner in self.owners[-2:]):
            self.new_owner()
        self.late_change()
        owner = self.rng.choice(self.owners[-2:])
        actions: list[tuple[int, Callable[[], object]]] = [
            (3, lambda: self.publish(owner)),
            (6, lambda: self.carry_out(owner)),
            (3, lambda: owner.acknowledge(self.rng.randint(1, 3))),
            (2, lambda: owner.tick(self.rng.choice((1, 20)))),
            (1, lambda: self.fence(owner)),
            (1, lambda: self.store_unacknowledged(owner)),
        ]
        weights, calls = zip(*actions, strict=True)
        self.rng.choices(calls, weights)[0]()
        if self.rng.random() < 0.01:
            owner.step(UnloadRequested())
        assert self.world.ledger_list.last_confirmed >= max(
            (each.last_position for each in self.world.ledger_list.ledgers if each.entries), default=(-1, -1)
        )

    def new_owner(self) -> None:
        self.owners.append(Owner(self.world, f"owner-{len(self.owners)}", POLICY))

    def publish(self, owner: Owner) -> None:
        if owner.machine.refusal is None:
            count = self.rng.randint(1, 3)
            owner.publish(*(b"%d" % number for number in range(self.messages, self.messages + count)))
            self.messages += count

    def carry_out(self, owner: Owner) -> None:
        if not owner.asked:
            return
        effect = owner.asked[0]
        if isinstance(effect, Append) or self.rng.random() < 0.85:
            owner.carry_out()
        elif isinstance(effect, CasList) and self.rng.random() < 0.5:
            self.world.delayed.append(effect)
            owner.fail()
        else:
            owner.fail(applied=self.rng.random() < 0.5 and isinstance(effect, CasList))

    def late_change(self) -> None:
        """A change that has no answer is applied after all, or never."""
        if self.world.delayed and self.rng.random() < 0.3:
            change = self.world.delayed.pop(self.rng.randrange(len(self.world.delayed)))
            if self.rng.random() < 0.7:
                self.world.apply(change)

    def fence(self, owner: Owner) -> None:
        """The auditor closes a ledger, or its writer gives up."""
        for ledger_id in sorted(owner.handles & self.world.named & self.world.ledgers.keys()):
            if self.rng.random() < 0.5:
                self.world.ledgers[ledger_id].close()
            owner.fail_handle(ledger_id)

    def store_unacknowledged(self, owner: Owner) -> None:
        """An entry is in the ledger, and its writer does not know."""
        for ledger_id in owner.handles & self.world.ledgers.keys():
            self.world.ledgers[ledger_id].store()

    def settle(self) -> None:
        """A last owner takes over, and the former ones learn of it."""
        self.world.delayed.clear()
        last = Owner(self.world, "last", POLICY)
        last.run()
        last.publish(b"last")
        last.run()
        assert last.published[-1][1] == b"last"
        for owner in self.owners:
            for _ in range(20):
                while owner.asked:
                    owner.carry_out()
                owner.tick(20)
            owner.machine.step(UnloadRequested())
        self.check()

    def check(self) -> None:
        topic = self.world.topic()
        at = dict(topic)
        place = {data: position for position, data in topic}
        assert len(place) == len(topic), "a message is there twice"
        for owner in self.owners:
            for position, data in owner.published:
                assert at[position] == data, f"{data!r} was acknowledged at {position}"
            positions = [position for position, _ in owner.published]
            assert positions == sorted(positions), "acknowledged out of order"
        written = [int(data) for _, data in topic if data != b"last"]
        for owner in self.owners:
            numbers = {int(data) for _, data in owner.published} | set(map(int, owner.failed))
            mine = [number for number in written if number in numbers]
            assert mine == sorted(mine), "stored out of order"


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_rule_38_whatever_two_live_owners_do_nothing_acknowledged_is_lost_reordered_or_doubled(
    first: int,
) -> None:
    for seed in range(first, first + 50):
        try:
            Race(seed).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_rule_51_ledgers_are_trimmed_while_owners_race() -> None:
    for seed in range(50):
        race = Race(seed)
        race.new_owner()
        for _ in range(STEPS):
            race.one_step()
            owner = race.owners[-1]
            if owner.published:
                marks = (race.rng.choice(owner.published)[0],)
                owner.step(TrimRequested(marks, Retention()))
            if race.world.ledger_list.ledgers and owner.published:
                assert race.world.named_now() <= race.world.ledgers.keys()
