"""The work queue: which key is reconciled, when, and never twice at once.

Level-triggered: an event only enqueues a key, so that any number of events about an object lead to one reconcile, and
events that come during a reconcile lead to one more. Failures are retried after a pause that doubles. Everything is
enqueued at each resync, so that a lost event costs minutes and not correctness. The schedule is pure, with time as an
argument; the queue runs it.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from daybook.core.errors import DaybookError
from daybook.core.placement.policy import RandomSource
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.log_output import bound_contextvars
from daybook.runtime.logs import get_logger
from daybook_operator.kube.part import must_not_end, was_cancelled
from daybook_operator.metrics import OperatorMetrics

_LOG: Final = get_logger(__name__)


class Key(NamedTuple):
    """What to reconcile: an object of Kubernetes, or "Recovery" or "Jobs" with a pool's name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """`Ledger data/orders`."""
        return f"{self.kind} {self.namespace}/{self.name}"


BOOKIE_POOL: Final = "BookiePool"
LEDGER: Final = "Ledger"
TOPIC: Final = "Topic"
RECOVERY: Final = "Recovery"
"""The repair of the cluster that a pool belongs to, under the pool's name."""
JOBS: Final = "Jobs"
"""The jobs on Spark of a pool, under its name."""


@dataclass(frozen=True, slots=True)
class BackOff:
    """The pauses after failures, in milliseconds: they double from the first to the largest; each is drawn from its upper half."""

    first_ms: int = 500
    largest_ms: int = 120_000

    def pause_ms(self, failures: int, rng: RandomSource) -> int:
        """The pause after so many failures in a row."""
        assert failures >= 1
        full = min(self.largest_ms, self.first_ms << min(failures - 1, 32))
        return max(1, round(full * (0.5 + rng.random() / 2)))


class Schedule:
    """Which key is next. Every key is at most once ready, and never handed out while it is being worked on."""

    def __init__(self, back_off: BackOff, rng: RandomSource) -> None:
        """Nothing to do."""
        self._back_off = back_off
        self._rng = rng
        self._ready: dict[Key, None] = {}
        self._working: set[Key] = set()
        self._again: set[Key] = set()
        self._timers: list[tuple[int, Key]] = []
        self._due_ms: dict[Key, int] = {}
        self._failures: dict[Key, int] = {}

    @property
    def depth(self) -> int:
        """How many keys wait for a worker."""
        return len(self._ready)

    def failures(self, key: Key) -> int:
        """How often in a row the key's work has failed."""
        return self._failures.get(key, 0)

    def add(self, key: Key) -> None:
        """Have the key reconciled soon; once more after the present reconcile, if there is one."""
        self._due_ms.pop(key, None)
        if key in self._working:
            self._again.add(key)
        else:
            self._ready[key] = None

    def add_at(self, key: Key, at_ms: int) -> None:
        """Have the key reconciled then, unless it is before."""
        if key in self._ready or key in self._again:
            return
        if key not in self._due_ms or at_ms < self._due_ms[key]:
            self._due_ms[key] = at_ms
            heapq.heappush(self._timers, (at_ms, key))

    def take(self, now_ms: int) -> Key | None:
        """The key that waits for longest; it is being worked on from here on. None: nothing is ready."""
        self._wake(now_ms)
        key = next(iter(self._ready), None)
        if key is not None:
            del self._ready[key]
            self._working.add(key)
        return key

    def done(self, key: Key, now_ms: int, again_after_s: float | None) -> None:
        """The work on the key went well."""
        self._failures.pop(key, None)
        self._end(key)
        if again_after_s is not None:
            self.add_at(key, now_ms + round(again_after_s * 1000))

    def failed(self, key: Key, now_ms: int) -> int:
        """The work on the key failed; it comes again after the pause that is returned, in ms, or by an event."""
        self._failures[key] = self._failures.get(key, 0) + 1
        pause_ms = self._back_off.pause_ms(self._failures[key], self._rng)
        self._end(key)
        self.add_at(key, now_ms + pause_ms)
        return pause_ms

    def next_ms(self, now_ms: int) -> int | None:
        """When the next key is ready; now, if one is; None if none will be without an event."""
        self._wake(now_ms)
        if self._ready:
            return now_ms
        return self._timers[0][0] if self._timers else None

    def _wake(self, now_ms: int) -> None:
        while self._timers and (
            self._timers[0][0] <= now_ms or self._due_ms.get(self._timers[0][1]) != self._timers[0][0]
        ):
            at_ms, key = heapq.heappop(self._timers)
            if self._due_ms.get(key) == at_ms:
                self.add(key)

    def _end(self, key: Key) -> None:
        self._working.remove(key)
        if key in self._again:
            self._again.remove(key)
            self._ready[key] = None


Reconcile = Callable[[Key], Awaitable[float | None]]
"""Reconciles a key; returns after how many seconds to reconcile it again, unless an event comes before; None: never."""


class WorkQueue:
    """Runs `reconcile` for the keys that are added, several at once, one at a time for each key."""

    def __init__(
        self,
        reconcile: Reconcile,
        *,
        workers: int,
        timeout_s: float,
        rng: RandomSource,
        metrics: OperatorMetrics,
        back_off: BackOff | None = None,
    ) -> None:
        """`timeout_s`: a reconcile that takes longer is cancelled, as a failure."""
        self.schedule = Schedule(back_off or BackOff(), rng)
        self._reconcile = reconcile
        self._workers = workers
        self._timeout_s = timeout_s
        self._metrics = metrics
        self._news = asyncio.Event()

    def add(self, key: Key) -> None:
        """Have the key reconciled soon. From the event loop only."""
        self.schedule.add(key)
        self._changed()

    def add_all(self, keys: Iterable[Key]) -> None:
        """Have all of them reconciled soon."""
        for key in keys:
            self.schedule.add(key)
        self._changed()

    async def run(self) -> None:
        """Work until cancelled. Raises PartEndedError, in a group, if a worker ends for another reason."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(must_not_end("a worker of the queue", self._work()))

    async def _work(self) -> None:
        while True:
            key = await self._next()
            with bound_contextvars(key=str(key)):
                await self._run_one(key)
            self._changed()

    async def _next(self) -> Key:
        while True:
            now_ms = monotonic_ms()
            if (key := self.schedule.take(now_ms)) is not None:
                self._metrics.queue_depth.set(self.schedule.depth)
                return key
            self._news.clear()
            next_ms = self.schedule.next_ms(now_ms)
            try:
                async with asyncio.timeout(None if next_ms is None else max(0, next_ms - now_ms) / 1000):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _run_one(self, key: Key) -> None:
        started_ms = monotonic_ms()
        result = "error"
        try:
            async with asyncio.timeout(self._timeout_s):
                again_after_s = await self._reconcile(key)
        except DaybookError as error:
            pause_ms = self.schedule.failed(key, monotonic_ms())
            _LOG.warning(
                "a reconcile failed",
                why=str(error),
                failures=self.schedule.failures(key),
                again_in_ms=pause_ms,
            )
        except TimeoutError:
            self.schedule.failed(key, monotonic_ms())
            _LOG.error("a reconcile took too long and was cancelled", timeout_s=self._timeout_s)
        except Exception:  # noqa: BLE001 - a defect in one object's plan must not end the work on all others
            self.schedule.failed(key, monotonic_ms())
            _LOG.exception("a reconcile failed for an unforeseen reason")
        except asyncio.CancelledError:
            self.schedule.failed(key, monotonic_ms())
            if was_cancelled():
                raise
            _LOG.warning("a reconcile failed: what it waited for was cancelled, as by a link that was closed")
        except BaseException:
            self.schedule.failed(key, monotonic_ms())
            raise
        else:
            result = "ok"
            self.schedule.done(key, monotonic_ms(), again_after_s)
        finally:
            self._metrics.reconciles.labels(key.kind, result).inc()
            self._metrics.reconcile_seconds.labels(key.kind).observe((monotonic_ms() - started_ms) / 1000)

    def _changed(self) -> None:
        self._metrics.queue_depth.set(self.schedule.depth)
        self._news.set()
