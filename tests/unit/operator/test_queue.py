"""The work queue: one look for many events, never two at once, back-off, and nothing is ever forgotten."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from daybook_operator.kube.queue import BackOff, Key, Schedule, WorkQueue
from daybook_operator.metrics import OperatorMetrics
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from daybook.core.errors import DaybookError

A, B, C = (Key("Ledger", "data", name) for name in "abc")


def schedule(first_ms: int = 100, largest_ms: int = 1000) -> Schedule:
    return Schedule(BackOff(first_ms, largest_ms), random.Random(1))


def test_many_events_about_an_object_are_one_look() -> None:
    todo = schedule()
    for _ in range(5):
        todo.add(A)
    assert todo.take(0) == A
    assert todo.take(0) is None


def test_an_event_during_a_look_is_one_more_look_afterwards() -> None:
    todo = schedule()
    todo.add(A)
    todo.take(0)
    todo.add(A)
    todo.add(A)
    assert todo.take(0) is None, "never two at once"
    todo.done(A, 0, None)
    assert todo.take(0) == A
    todo.done(A, 0, None)
    assert todo.take(0) is None


def test_objects_are_looked_at_in_the_order_of_their_events() -> None:
    todo = schedule()
    for key in (B, A, C, B):
        todo.add(key)
    assert [todo.take(0) for _ in range(3)] == [B, A, C]


def test_failures_come_again_after_pauses_that_double_up_to_the_largest() -> None:
    todo = schedule()
    pauses, now_ms = [], 0
    for _ in range(8):
        todo.add(A)
        assert todo.take(now_ms) == A
        pauses.append(todo.failed(A, now_ms))
    for pause, full in zip(pauses, (100, 200, 400, 800, 1000, 1000, 1000, 1000), strict=True):
        assert full / 2 <= pause <= full
    assert todo.take(now_ms + pauses[-1] - 1) is None
    assert todo.take(now_ms + pauses[-1]) == A
    todo.done(A, now_ms, None)
    todo.add(A)
    todo.take(now_ms)
    assert todo.failed(A, now_ms) <= 100, "a success begins the pauses anew"


def test_an_event_does_not_wait_for_the_pause() -> None:
    todo = schedule()
    todo.add(A)
    todo.take(0)
    todo.failed(A, 0)
    todo.add(A)
    assert todo.take(0) == A
    todo.done(A, 0, None)
    assert todo.next_ms(0) is None, "the timer of the pause went with it"


def test_of_two_times_the_earlier_one_counts() -> None:
    todo = schedule()
    todo.add_at(A, 500)
    todo.add_at(A, 200)
    todo.add_at(A, 900)
    assert todo.next_ms(0) == 200
    assert todo.take(200) == A
    todo.done(A, 200, None)
    assert todo.next_ms(200) is None


class ScheduleMachine(RuleBasedStateMachine):
    """Whatever happens in whatever order: no key is worked on twice at once, and every wish is fulfilled."""

    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.todo = schedule()
        self.now_ms = 0
        self.working: set[Key] = set()
        self.wanted: set[Key] = set()

    @rule(target=keys, name=st.sampled_from("abcde"))
    def known(self, name: str) -> Key:
        return Key("Ledger", "data", name)

    @rule(key=keys)
    def event(self, key: Key) -> None:
        self.todo.add(key)
        self.wanted.add(key)

    @rule(key=keys, in_ms=st.integers(0, 5000))
    def timer(self, key: Key, in_ms: int) -> None:
        self.todo.add_at(key, self.now_ms + in_ms)

    @rule()
    def take(self) -> None:
        key = self.todo.take(self.now_ms)
        if key is None:
            assert self.wanted <= self.working, "what is wanted and idle is handed out"
        else:
            assert key not in self.working
            self.working.add(key)
            self.wanted.discard(key)

    @rule(data=st.data(), is_good=st.booleans(), again_s=st.none() | st.floats(0, 3))
    def end(self, data: st.DataObject, is_good: bool, again_s: float | None) -> None:
        if self.working:
            key = data.draw(st.sampled_from(sorted(self.working)))
            self.working.remove(key)
            if is_good:
                self.todo.done(key, self.now_ms, again_s)
            else:
                self.todo.failed(key, self.now_ms)
                assert self.todo.next_ms(self.now_ms) is not None, "a failure comes again"

    @rule(by_ms=st.integers(1, 10_000))
    def time_passes(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @invariant()
    def the_schedule_knows_who_works(self) -> None:
        assert self.todo._working == self.working


TestScheduleMachine = ScheduleMachine.TestCase


async def settle(condition: Callable[[], bool]) -> None:
    never = asyncio.Event()
    for _ in range(2000):
        if condition():
            return
        await asyncio.wait({asyncio.ensure_future(never.wait())}, timeout=0.005)
    raise AssertionError("it never came to hold")


def run_queue(
    reconcile: Callable[[Key], Awaitable[float | None]],
    scenario: Callable[[WorkQueue], Awaitable[None]],
    *,
    timeout_s: float = 5,
) -> OperatorMetrics:
    metrics = OperatorMetrics()

    async def work() -> None:
        queue = WorkQueue(
            reconcile,
            workers=3,
            timeout_s=timeout_s,
            rng=random.Random(1),
            metrics=metrics,
            back_off=BackOff(1, 5),
        )
        running = asyncio.create_task(queue.run())
        try:
            await scenario(queue)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(work())
    return metrics


def test_the_queue_works_on_several_objects_but_on_one_at_a_time() -> None:
    under_way: dict[Key, int] = {}
    most = [0]
    looks: list[Key] = []
    gate = asyncio.Event()

    async def reconcile(key: Key) -> float | None:
        under_way[key] = under_way.get(key, 0) + 1
        assert under_way[key] == 1
        most[0] = max(most[0], sum(under_way.values()))
        await gate.wait()
        under_way[key] -= 1
        looks.append(key)
        return None

    async def scenario(queue: WorkQueue) -> None:
        queue.add_all([A, B, C])
        await settle(lambda: sum(under_way.values()) == 3)
        queue.add(A)
        gate.set()
        await settle(lambda: looks.count(A) == 2)

    run_queue(reconcile, scenario)
    assert most[0] == 3


@pytest.mark.parametrize("error", [DaybookError("not yet"), ZeroDivisionError("a defect")])
def test_a_look_that_fails_is_tried_again_and_ends_no_other(error: Exception) -> None:
    looks: list[Key] = []

    async def reconcile(key: Key) -> float | None:
        looks.append(key)
        if key == A and looks.count(A) < 3:
            raise error
        return None

    async def scenario(queue: WorkQueue) -> None:
        queue.add_all([A, B])
        await settle(lambda: looks.count(A) == 3 and looks.count(B) == 1)

    metrics = run_queue(reconcile, scenario)
    assert metrics.reconciles.labels("Ledger", "error")._value.get() == 2


def test_a_look_that_hangs_is_given_up_and_tried_again() -> None:
    looks: list[Key] = []

    async def reconcile(key: Key) -> float | None:
        looks.append(key)
        if len(looks) == 1:
            await asyncio.Event().wait()
        return None

    async def scenario(queue: WorkQueue) -> None:
        queue.add(A)
        await settle(lambda: len(looks) == 2)

    run_queue(reconcile, scenario, timeout_s=0.02)


def test_a_look_may_ask_to_be_made_again() -> None:
    looks: list[Key] = []

    async def reconcile(key: Key) -> float | None:
        looks.append(key)
        return 0.001 if len(looks) < 4 else None

    async def scenario(queue: WorkQueue) -> None:
        queue.add(A)
        await settle(lambda: len(looks) == 4)

    run_queue(reconcile, scenario)
