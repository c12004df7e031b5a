"""The work queue: one reconcile for many events, never two of a key at once, back-off, and no event is lost."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from daybook_operator.kube.queue import BackOff, Key, Schedule, WorkQueue
from daybook_operator.metrics import OperatorMetrics
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from daybook.core.errors import DaybookError

A, B, C = (Key("Ledger", "data", name) for name in "abc")


def schedule(first_ms: int = 100, largest_ms: int = 1000) -> Schedule:
    return Schedule(BackOff(first_ms, largest_ms), random.Random(1))


def test_many_events_about_an_object_are_one_reconcile() -> None:
    todo = schedule()
    for _ in range(5):
        todo.add(A)
    assert todo.take(0) == A
    assert todo.take(0) is None


def test_an_event_during_a_reconcile_causes_one_more_afterwards() -> None:
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


def test_objects_are_reconciled_in_the_order_of_their_events() -> None:
    todo = schedule()
    for key in (B, A, C, B):
        todo.add(key)
    assert [todo.take(0) for _ in range(3)] == [B, A, C]


def test_failures_are_retried_after_pauses_that_double_up_to_the_largest() -> None:
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
    assert todo.failed(A, now_ms) <= 100, "a success resets the pauses"


def test_an_event_does_not_wait_for_the_pause() -> None:
    todo = schedule()
    todo.add(A)
    todo.take(0)
    todo.failed(A, 0)
    todo.add(A)
    assert todo.take(0) == A
    todo.done(A, 0, None)
    assert todo.next_ms(0) is None, "the timer of the pause is gone"


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
    """Whatever happens in whatever order: no key is worked on twice at once, and every event leads to a reconcile."""

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
            assert self.wanted <= self.working, "a key that has an event and is idle is taken"
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
                assert self.todo.next_ms(self.now_ms) is not None, "a failure is retried"

    @rule(by_ms=st.integers(1, 10_000))
    def time_passes(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @invariant()
    def the_schedule_knows_who_works(self) -> None:
        assert self.todo._working == self.working


TestScheduleMachine = ScheduleMachine.TestCase


class Reconciles(list[Key]):
    """The keys that were reconciled, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self._another = asyncio.Event()

    def record(self, key: Key) -> int:
        """Record another; return how many of this key there are."""
        self.append(key)
        self._another.set()
        return self.count(key)

    async def until(self, *keys: Key) -> None:
        """Return once these were reconciled, each as often as it is given."""
        while Counter(keys) - Counter(self):
            self._another.clear()
            await self._another.wait()


@asynccontextmanager
async def working(
    reconcile: Callable[[Key], Awaitable[float | None]], *, timeout_s: float = 5
) -> AsyncIterator[WorkQueue]:
    metrics = OperatorMetrics()
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
        yield queue
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_queue_works_on_several_objects_but_on_one_at_a_time() -> None:
    began, ended = Reconciles(), Reconciles()
    gate = asyncio.Event()

    async def reconcile(key: Key) -> None:
        assert began.record(key) == ended.count(key) + 1
        await gate.wait()
        ended.record(key)

    async with working(reconcile) as queue:
        queue.add_all([A, B, C])
        await began.until(A, B, C)
        queue.add(A)
        gate.set()
        await ended.until(A, A)


@pytest.mark.parametrize("error", [DaybookError("not yet"), ZeroDivisionError("a defect")])
async def test_a_reconcile_that_fails_is_tried_again_and_ends_no_other(error: Exception) -> None:
    done = Reconciles()

    async def reconcile(key: Key) -> None:
        if done.record(key) < 3 and key == A:
            raise error

    async with working(reconcile) as queue:
        queue.add_all([A, B])
        await done.until(A, A, A, B)
    assert queue._metrics.reconciles.labels("Ledger", "error")._value.get() == 2


async def test_no_worker_ends_because_what_its_reconcile_awaits_is_cancelled() -> None:
    """There are three workers: each would have ended, without a word, and the queue with them."""
    done = Reconciles()

    async def reconcile(key: Key) -> None:
        if done.record(key) <= 3:
            awaited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            awaited.cancel()
            await awaited

    async with working(reconcile) as queue:
        queue.add(A)
        await done.until(A, A, A, A)
    assert queue._metrics.reconciles.labels("Ledger", "error")._value.get() == 3


async def test_a_queue_that_is_cancelled_ends_in_the_middle_of_a_reconcile() -> None:
    began = Reconciles()

    async def reconcile(key: Key) -> None:
        began.record(key)
        await asyncio.Event().wait()

    async with working(reconcile) as queue:
        queue.add(A)
        await began.until(A)
    assert list(began) == [A]


async def test_a_reconcile_that_hangs_is_ended_and_tried_again() -> None:
    done = Reconciles()

    async def reconcile(key: Key) -> None:
        if done.record(key) == 1:
            await asyncio.Event().wait()

    async with working(reconcile, timeout_s=0.02) as queue:
        queue.add(A)
        await done.until(A, A)


async def test_a_reconcile_may_ask_for_another() -> None:
    done = Reconciles()

    async def reconcile(key: Key) -> float | None:
        return 0.001 if done.record(key) < 4 else None

    async with working(reconcile) as queue:
        queue.add(A)
        await done.until(A, A, A, A)
