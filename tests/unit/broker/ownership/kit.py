"""Brokers that own bundles and serve nothing, in one process, each with a session of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from daybook_broker.ownership.api import Elsewhere, Mine, OwnershipOptions
from daybook_broker.ownership.ownership import Ownership

from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.load import BundleLoad
from daybook.metadata.brokers import BrokerInfo, Urls
from daybook.metadata.store.store import MetadataStore
from daybook.runtime.clock import monotonic_s
from tests.unit.metadata.harness import LAYOUT, Opener, formatted

OPTIONS = OwnershipOptions(
    hold_s=10.0, recheck_s=0.02, leave_s=5.0, report_s=60.0, shed_s=3600.0, taken_s=5.0
)
ORDERS = TopicName("public", "default", "orders")
BUNDLE = Bundle.of(ORDERS)


class Broker:
    """One broker; it records what happens to its bundles, and finishes topics when `finish` is set."""

    def __init__(
        self, number: int, store: MetadataStore, silent: set[str], options: OwnershipOptions
    ) -> None:
        self.id = f"broker-{number}"
        self.store = store
        self.news: list[tuple[str, Bundle, str]] = []
        self.finish = asyncio.Event()
        self.finish.set()
        self.loads: Mapping[Bundle, BundleLoad] = {}
        self.busy = 0.0
        """The share of a core that the broker seems to use."""
        self._used = (monotonic_s(), 0.0)
        self._silent = silent
        self._event = asyncio.Event()
        urls = Urls(f"pulsar://127.0.0.1:{6650 + number}")
        self.info = BrokerInfo(self.id, f"boot-{number}", urls, Urls(f"http://127.0.0.1:{8080 + number}"))
        self.ownership = Ownership(
            store,
            LAYOUT,
            self.info,
            self,
            lambda: self.loads,
            options=options,
            answers=self._answers,
            cpu_s=self._cpu_s,
        )

    async def _answers(self, info: BrokerInfo) -> bool:
        return info.broker not in self._silent

    def _cpu_s(self) -> float:
        before, used = self._used
        self._used = (monotonic_s(), used + self.busy * (monotonic_s() - before))
        return self._used[1]

    def gained(self, bundle: Bundle) -> None:
        self._note("gained", bundle)

    async def leaving(self, bundle: Bundle) -> None:
        self._note("leaving", bundle)
        await self.finish.wait()

    def lost(self, bundle: Bundle, to: BrokerInfo | None) -> None:
        self._note("lost", bundle, "" if to is None else to.broker)

    def _note(self, what: str, bundle: Bundle, to: str = "") -> None:
        self.news.append((what, bundle, to))
        self._event.set()
        self._event = asyncio.Event()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until something that happened to a bundle made `condition` true."""
        async with asyncio.timeout(40):
            while not condition():
                await self._event.wait()

    async def sees(self, condition: Callable[[], object]) -> None:
        """Wait until its view of the brokers makes `condition` true."""
        async with asyncio.timeout(40):
            while not condition():
                await self.ownership._members.changed()


class Cluster:
    """Brokers by number. Those in `silent` do not answer."""

    def __init__(self, brokers: list[Broker], silent: set[str]) -> None:
        self.brokers = brokers
        self.silent = silent

    def __getitem__(self, number: int) -> Broker:
        return self.brokers[number]

    async def find(self, topic: TopicName = ORDERS, *, first: int = 0) -> Broker:
        """The broker that a client ends at, which asks the broker `first` first."""
        asked, authoritative = self.brokers[first], False
        for _ in range(10):
            match await asked.ownership.lookup(topic, authoritative=authoritative):
                case Mine():
                    return asked
                case Elsewhere(info, is_owner, authoritative):
                    asked = next(each for each in self.brokers if each.id == info.broker)
                    if is_owner:
                        return asked
                case other:
                    raise AssertionError(other)
        raise AssertionError("a client is sent in circles")

    def others(self, broker: Broker) -> list[Broker]:
        return [each for each in self.brokers if each is not broker]

    @property
    def leader(self) -> Broker:
        return next(each for each in self.brokers if each.ownership._leader.leads)


@asynccontextmanager
async def cluster(opener: Opener, number: int, **changes: object) -> AsyncIterator[Cluster]:
    """Brokers that are registered and know each other and the leader."""
    options = replace(OPTIONS, **changes)  # type: ignore[arg-type]  # its own fields
    silent: set[str] = set()
    async with AsyncExitStack() as stack:
        made = []
        for index in range(number):
            store = await opener()
            stack.push_async_callback(store.close)
            if not index:
                await formatted(store)
            broker = Broker(index, store, silent, options)
            await broker.ownership.start()
            stack.push_async_callback(broker.ownership.close)
            made.append(broker)
        for broker in made:
            await broker.sees(partial(_knows, broker, number))
        yield Cluster(made, silent)
        for broker in made:
            broker.finish.set()


def _knows(broker: Broker, number: int) -> bool:
    view = broker.ownership.view
    return len(view.brokers) == number and view.leader is not None


def gained(broker: Broker) -> list[Bundle]:
    return [bundle for what, bundle, _ in broker.news if what == "gained"]
