"""The topics of this broker: each is loaded once, by whoever asks first, and everybody else waits for that, with a bound.

A client that is refused comes back after a pause that grows; one whose request is held continues at once. So requests wait while
their topic is taken over, created or unloaded, and are refused only when that takes too long.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from daybook.core.errors import DaybookError, NoSuchTopicError, NotOwnerError
from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.load import BundleLoad
from daybook.metadata.partitions import partition_of
from daybook.runtime.clock import monotonic_ms, monotonic_s
from daybook.runtime.logs import get_logger
from daybook.runtime.shielded import shielded
from daybook_broker.errors import NotReadyError, TooManyError
from daybook_broker.topics.peer import BrokerUrls
from daybook_broker.topics.services import TopicServices
from daybook_broker.topics.tasks import Tasks
from daybook_broker.topics.topic import Topic

log = get_logger(__name__)

TICK_S: Final = 0.05
_SLICES: Final = 20
"""Each tick reaches this share of the topics, so that every topic has one tick a second; one that is being taken over has each."""
UNLOAD_S: Final = 10.0
"""An unload that takes longer becomes a stop: the next owner recovers what is open."""


class Unload:
    """Topics that are given up. Their clients wait, and requests for them are held, until `announce` says who serves them now."""

    def __init__(self) -> None:
        self.topics: dict[Topic, asyncio.Task[None]] = {}
        """Each with the task that unloads it."""
        self.urls: BrokerUrls | None = None
        self.announced = asyncio.Event()

    async def finished(self) -> None:
        """Wait until all topics are unloaded, or are to be recovered by their next owner."""
        if self.topics:
            await asyncio.wait(self.topics.values())

    def announce(self, urls: BrokerUrls | None) -> None:
        """Send the clients to the broker at `urls`, or let them look the topics up again. What has not finished is stopped before."""
        self.urls = urls
        self.announced.set()


class TopicRegistry:
    """The topics that this broker serves."""

    def __init__(
        self,
        services: TopicServices,
        own: Callable[[TopicName], Awaitable[None]],
        create: Callable[[TopicName], Awaitable[None]],
    ) -> None:
        """`own` returns once this broker owns the topic. It raises NotOwnerError if another one does, NotReadyError if nobody can say.

        `create` returns once the topic exists, and refuses names that cannot be ones of new topics, as of partitions that no record counts.
        """
        self.services = services
        self._settings = services.settings
        self._own = own
        self._create = create
        self._topics: dict[TopicName, Topic] = {}
        self._loading: dict[TopicName, asyncio.Task[Topic]] = {}
        self._opening: dict[TopicName, Topic] = {}
        self._wanted: set[TopicName] = set()
        """Those that are to be created if they do not exist."""
        self._ending: dict[TopicName, asyncio.Task[None]] = {}
        self._tasks = Tasks(_ended_badly)
        self._turns = asyncio.Semaphore(services.settings.takeovers_max)
        self._to_tick: list[Topic] = []
        self._slice = 1
        self._measured_ms = monotonic_ms()

    # Finding

    def get(self, name: TopicName) -> Topic | None:
        """The topic if it is served now."""
        topic = self._topics.get(name)
        return None if topic is None or topic.is_closing else topic

    def served(self) -> list[Topic]:
        """All topics that are served now."""
        return [topic for topic in self._topics.values() if not topic.is_closing]

    def known(self, name: TopicName) -> Topic | None:
        """The topic, also while it is being taken over or given up; None also while the broker waits for the right to take it over."""
        return self._topics.get(name) or self._opening.get(name)

    def __contains__(self, name: TopicName) -> bool:
        """Whether the topic is one of `names`."""
        return name in self._topics or name in self._loading

    def names(self) -> list[TopicName]:
        """All topics that are served, or are being taken over."""
        return [*self._topics, *(name for name in self._loading if name not in self._topics)]

    async def load(self, name: TopicName, *, create: bool) -> Topic:
        """The topic, taken over if need be; with `create` also a new one, where the settings allow it, and a partition that is missing.

        Raises NoSuchTopicError, NotOwnerError, NotReadyError (it takes too long, or nobody can say who owns it), TooManyError.
        """
        topic = self.get(name)
        if topic is not None:
            return topic
        may_create = self._settings.auto_create or partition_of(name) is not None
        wait_ms = self._settings.lookup_wait_ms
        try:
            async with asyncio.timeout(wait_ms / 1000):
                return await self._load(name, create=create and may_create)
        except TimeoutError:
            msg = f"topic {name} is not served yet after {wait_ms} ms: try again; the broker's log says what its take-over waits for"
            raise NotReadyError(msg) from None

    async def _load(self, name: TopicName, *, create: bool) -> Topic:
        has_tried = False
        while (topic := self.get(name)) is None:
            if (ending := self._ending.get(name)) is not None:
                await asyncio.wait([ending])
                continue
            if create:
                self._wanted.add(name)
            try:
                return await shielded(self._loading.get(name) or self._begin(name))
            except NoSuchTopicError:
                if has_tried or not create:
                    raise
                has_tried = True  # it may have been too late for the take-over that somebody else began
        return topic

    def _begin(self, name: TopicName) -> asyncio.Task[Topic]:
        if len(self._topics) + len(self._loading) >= self._settings.topics_max:
            msg = f"this broker serves {self._settings.topics_max} topics: add a broker, or raise topics_max"
            raise TooManyError(msg)
        task = asyncio.create_task(self._take_over(name), name=f"load {name}")
        self._loading[name] = task
        task.add_done_callback(self._loaded)
        return task

    @staticmethod
    def _loaded(task: asyncio.Task[Topic]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, DaybookError):
            log.error("a topic cannot be loaded after an error of the broker", exc_info=error)

    # Taking over

    async def _take_over(self, name: TopicName) -> Topic:
        metrics, began_s, outcome = self.services.metrics, monotonic_s(), "failed"
        try:
            await self._own(name)
            async with self._turns:
                topic = await self._open(name)
            self._topics[name] = topic
            outcome = "served"
            metrics.take_over_seconds.observe(monotonic_s() - began_s)
            return topic
        finally:
            metrics.take_overs.labels(outcome).inc()
            self._wanted.discard(name)
            del self._loading[name]

    async def _open(self, name: TopicName) -> Topic:
        try:
            return await self._try_to_open(name)
        except NoSuchTopicError:
            if name not in self._wanted:
                raise
        await self._create(name)
        return await self._try_to_open(name)

    async def _try_to_open(self, name: TopicName) -> Topic:
        """Ask for the right to the topic again: while the load had no topic yet, no `unload` and no `lose` reached it."""
        await self._own(name)
        topic = Topic(name, self.services, self._ended)
        self._opening[name] = topic
        try:
            await topic.open()
            if topic.error is not None:
                raise topic.error
        except BaseException:
            await topic.stop(NotReadyError(f"topic {name} could not be taken over"))
            raise
        finally:
            del self._opening[name]
        return topic

    # Giving up

    def unload(self, names: Collection[TopicName]) -> Unload:
        """Begin to give topics up in order: answer what was sent, close what is open. Call `announce` of the result in any case."""
        unload = Unload()
        for name in names:
            if (opening := self._opening.get(name)) is not None:
                self._stop(opening, _lost(name))
            if (topic := self.get(name)) is not None:
                topic.is_closing = True
                unload.topics[topic] = self._tasks.begin(self._unload(topic))
                self._ending[name] = self._tasks.begin(self._until_announced(topic, unload))
        return unload

    async def _unload(self, topic: Topic) -> None:
        began_s = monotonic_s()
        try:
            async with asyncio.timeout(UNLOAD_S):
                await topic.unload()
        except TimeoutError:
            log.warning(
                "a topic could not be unloaded in time; the next owner recovers it", topic=str(topic.name)
            )
            await topic.stop(_lost(topic.name))
        finally:
            self.services.metrics.unload_seconds.observe(monotonic_s() - began_s)

    async def _until_announced(self, topic: Topic, unload: Unload) -> None:
        """Keep the topic until somebody else may serve it. If it is not unloaded by then, or not in order, it is stopped."""
        try:
            await unload.announced.wait()
            unloading = unload.topics[topic]
            if not unloading.done():
                unloading.cancel()
                await asyncio.wait([unloading])
            if unloading.cancelled() or unloading.exception() is not None:
                await topic.stop(_lost(topic.name))
        finally:
            self._forget(topic)
            topic.announce(unload.urls)

    def lose(self, names: Collection[TopicName], urls: BrokerUrls | None) -> None:
        """Somebody else may own these topics from now on: end them at once, and send their clients to `urls` if that is known."""
        for name in names:
            for topic in (self._topics.get(name), self._opening.get(name)):
                if topic is not None and topic.error is None:
                    self._stop(topic, _lost(name), urls)

    def _ended(self, topic: Topic) -> None:
        """A topic has ended by itself: its list is another owner's, or something of it failed."""
        if self._topics.get(topic.name) is topic:
            assert topic.error is not None
            self.services.metrics.topics_ended.labels(_why(topic.error)).inc()
            self._stop(topic, topic.error)

    def _stop(self, topic: Topic, error: DaybookError, urls: BrokerUrls | None = None) -> None:
        if topic.name not in self._ending:
            self._ending[topic.name] = self._tasks.begin(self._stopped(topic, error, urls))

    async def _stopped(self, topic: Topic, error: DaybookError, urls: BrokerUrls | None) -> None:
        try:
            await topic.stop(error)
        finally:
            self._forget(topic)
            topic.announce(urls)

    def _forget(self, topic: Topic) -> None:
        self._ending.pop(topic.name, None)
        if self._topics.get(topic.name) is topic:
            del self._topics[topic.name]

    async def close(self) -> None:
        """Stop everything at once."""
        for task in self._loading.values():
            task.cancel()
        topics = list(self._topics.values())
        await self._tasks.stop()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)
        for topic in dict.fromkeys([*topics, *self._topics.values()]):
            await topic.stop(_lost(topic.name))
        self._topics.clear()

    def loads(self) -> dict[Bundle, BundleLoad]:
        """What happens in each bundle, since the last call."""
        found: dict[Bundle, BundleLoad] = {}
        now_ms = monotonic_ms()
        seconds = max(now_ms - self._measured_ms, 1) / 1000
        self._measured_ms = now_ms
        for topic in self.served():
            bundle = Bundle.of(topic.name)
            entries, size_bytes = topic.take_load()
            before = found.get(bundle, BundleLoad())
            found[bundle] = BundleLoad(
                before.topics + 1,
                before.entries_per_s + entries / seconds,
                before.bytes_per_s + size_bytes / seconds,
            )
        return found

    # Time

    async def run(self) -> None:
        """Let time pass, until the broker ends."""
        while True:
            await asyncio.sleep(TICK_S)
            self._tick()

    def _tick(self) -> None:
        for topic in list(self._opening.values()):
            topic.tick()
        holding = self.services.holding
        holding -= {each for each in holding if each.release_receipts()}
        if not self._to_tick:
            self._to_tick = list(self._topics.values())
            self._slice = 1 + len(self._to_tick) // _SLICES
        for topic in self._to_tick[-self._slice :]:
            topic.tick()
        del self._to_tick[-self._slice :]


def _lost(name: TopicName) -> NotOwnerError:
    return NotOwnerError(f"topic {name} moves to another broker: look it up again")


def _why(error: DaybookError) -> str:
    """What made a topic end by itself, for the metrics."""
    match error:
        case NotOwnerError():
            return "taken"
        case NoSuchTopicError():
            return "deleted"
        case _:
            return "failed"


def _ended_badly(error: BaseException) -> None:
    log.error("the end of a topic failed", exc_info=error)
