"""Any history of consumers, acknowledgements, failures and seeks: the world checks each delivery, and in the end nothing is missing.

In the end all consumers leave and a new one acknowledges what it receives: it receives exactly what is not acknowledged, in order (rule 65).
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from daybook.core.topics.dispatch.events import AcksAdvanced, ConsumerPaused, ConsumerResumed
from daybook.core.topics.ledger_list import Position
from tests.unit.core.topics.dispatch.world import FIRST_LEDGER, World

HISTORIES = 150
KINDS = ("exclusive", "failover", "shared")
CONSUMERS = 4
WEIGHTS = {
    "publish": 2,
    "batch": 1,
    "roll": 1,
    "add": 2,
    "remove": 1,
    "grant": 2,
    "answer": 3,
    "partly": 1,
    "empty": 1,
    "fail": 1,
    "fire": 1,
    "ack": 3,
    "part": 1,
    "through": 1,
    "redeliver": 1,
    "nack": 1,
    "advance": 1,
    "seek": 1,
    "terminate": 1,
    "pause": 1,
    "resume": 2,
}
NAMES = [name for name, weight in WEIGHTS.items() for _ in range(weight)]
STEPS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 1_000), st.integers(0, 1_000)), max_size=60)
POLICIES = st.fixed_dictionaries(
    {
        "read_entries_max": st.integers(1, 5),
        "turn_entries_max": st.integers(1, 3),
        "unacked_per_consumer_max": st.integers(1, 30),
        "unacked_per_subscription_max": st.integers(1, 60),
    }
)


class History:
    """One history: each step is a name and two numbers that choose from what there is."""

    def __init__(self, kind: str, policy: dict[str, int]) -> None:
        self.world = World(kind, partition=1, **policy)
        self.added = 0

    def run(self, steps: list[tuple[str, int, int]]) -> None:
        for name, one, other in steps:
            getattr(self, name)(one, other)
        self.ends_well()

    def ends_well(self) -> None:
        world = self.world
        for key in list(world.clients):
            world.remove(key)
        unacked = [position for position in self.positions() if not world.acks.is_acked(position)]
        assert len(unacked) == world.acks.unacked_entries()
        client = world.add(99, permits=10**6)
        world.settle()
        for position in unacked:
            assert position in client.positions or world.kind == "shared"
            world.ack(99, position)
            world.settle()
        assert client.positions == unacked
        assert world.acks.unacked_entries() == 0
        assert client.at_end == (1 if world.is_terminated else 0)

    # What there is

    def positions(self) -> list[Position]:
        return [
            Position(FIRST_LEDGER + index, entry_id)
            for index, ledger in enumerate(self.world.ledgers)
            for entry_id in range(len(ledger))
        ]

    def consumer(self, number: int) -> int | None:
        keys = sorted(self.world.clients)
        return keys[number % len(keys)] if keys else None

    def held(self, key: int, number: int) -> Position | None:
        positions = sorted(self.world.clients[key].positions)
        return positions[number % len(positions)] if positions else None

    # Steps

    def publish(self, one: int, _other: int) -> None:
        if not self.world.is_terminated:
            self.world.publish(*[1] * (one % 4 + 1))

    def batch(self, one: int, _other: int) -> None:
        if not self.world.is_terminated:
            self.world.publish(one % 12 + 1)

    def roll(self, _one: int, _other: int) -> None:
        if not self.world.is_terminated:
            self.world.roll()

    def terminate(self, one: int, _other: int) -> None:
        if one % 4 == 0 and not self.world.is_terminated:
            self.world.terminate()

    def add(self, one: int, other: int) -> None:
        if len(self.world.clients) < (1 if self.world.kind == "exclusive" else CONSUMERS):
            self.added += 1
            self.world.add(self.added, "abc"[one % 3], priority=other % 2, permits=other % 30)

    def remove(self, one: int, _other: int) -> None:
        if (key := self.consumer(one)) is not None:
            self.world.remove(key)

    def grant(self, one: int, other: int) -> None:
        if (key := self.consumer(one)) is not None:
            self.world.grant(key, other % 20 + 1)

    def pause(self, one: int, _other: int) -> None:
        if (key := self.consumer(one)) is not None:
            self.world.step(ConsumerPaused(key))

    def resume(self, one: int, _other: int) -> None:
        if (key := self.consumer(one)) is not None:
            self.world.step(ConsumerResumed(key))

    def answer(self, _one: int, _other: int) -> None:
        self.world.answer()

    def partly(self, one: int, _other: int) -> None:
        self.world.answer(entries_max=one % 3 + 1)

    def empty(self, _one: int, _other: int) -> None:
        self.world.answer(entries_max=0)

    def fail(self, _one: int, _other: int) -> None:
        self.world.fail()

    def fire(self, _one: int, _other: int) -> None:
        self.world.fire()

    def ack(self, one: int, other: int) -> None:
        key = self.consumer(one)
        if key is not None and (position := self.held(key, other)) is not None:
            self.world.ack(key, position)

    def part(self, one: int, other: int) -> None:
        key = self.consumer(one)
        if key is not None and (position := self.held(key, other)) is not None:
            left = ((1 << self.world.messages(position)) - 1) & (one * 7919)
            self.world.ack_batch(key, position, [left])

    def through(self, one: int, other: int) -> None:
        key = self.consumer(one)
        if self.world.kind != "shared" and key is not None and (position := self.held(key, other)):
            self.world.ack_through(key, position)

    def redeliver(self, one: int, other: int) -> None:
        if (key := self.consumer(one)) is not None:
            self.world.redeliver(key, epoch=other if other % 2 else None)

    def nack(self, one: int, other: int) -> None:
        key = self.consumer(one)
        if key is not None and (position := self.held(key, other)) is not None:
            self.world.redeliver(key, position)

    def advance(self, one: int, _other: int) -> None:
        """Messages are skipped: their time was over."""
        world = self.world
        if one % 3 == 0:
            world.acks.ack_through(world.acks.nth_unacked(one % 5))
            for position in [*world.holders, *world.due]:
                if world.acks.is_acked(position):
                    world.settled(position)
            world.step(AcksAdvanced())

    def seek(self, one: int, other: int) -> None:
        positions = self.positions()
        if one % 4 == 0 and positions:
            self.world.seek(positions[other % len(positions)])


@settings(max_examples=HISTORIES)
@given(policy=POLICIES, steps=STEPS)
def test_rule_65_whatever_happens_a_shared_subscription_forgets_nothing(
    policy: dict[str, int], steps: list[tuple[str, int, int]]
) -> None:
    History("shared", policy).run(steps)


@settings(max_examples=HISTORIES)
@given(policy=POLICIES, steps=STEPS)
def test_rule_64_whatever_happens_one_consumer_of_a_failover_subscription_is_active(
    policy: dict[str, int], steps: list[tuple[str, int, int]]
) -> None:
    History("failover", policy).run(steps)


@settings(max_examples=HISTORIES)
@given(policy=POLICIES, steps=STEPS)
def test_rule_65_whatever_happens_an_exclusive_subscription_forgets_nothing(
    policy: dict[str, int], steps: list[tuple[str, int, int]]
) -> None:
    History("exclusive", policy).run(steps)
