"""Who owns which topics, for one broker: it registers, takes and gives up bundles, answers lookups, and is a candidate for the leader.

Rule 46: from the instant at which its session may have ended, by its own clock, a broker owns nothing: `owns` is False and `is_certain`
is False, so receipts stop and lookups are held. If the session turns out to live, all is as it was; if it ended, every bundle is
reported as lost, and the broker registers again in the next session.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Final

from daybook.core.errors import DaybookError, MetadataUnavailableError, NotOwnerError
from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.assignment import least_loaded
from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.load import BrokerId, BrokerLoad, check_broker_id
from daybook.metadata.brokers import BrokerDirectory, BrokerInfo, BrokersView
from daybook.metadata.bundles import BundleDirectory, Order, OrderKind
from daybook.metadata.layout import Layout
from daybook.metadata.lease import first_of
from daybook.metadata.store.store import (
    MetadataStore,
    NoNodeError,
    SessionExpiredError,
    StoreClosedError,
)
from daybook.runtime.logs import get_logger
from daybook_broker.ownership.api import Answers, BundleEvents, LookupResult, Measure, OwnershipOptions
from daybook_broker.ownership.held import HeldBundles
from daybook_broker.ownership.leading import Leader
from daybook_broker.ownership.lookups import Lookups
from daybook_broker.ownership.members import Members
from daybook_broker.ownership.probe import Prober
from daybook_broker.ownership.reports import Reports
from daybook_broker.ownership.session import OwnSession

log = get_logger(__name__)

LEAVES_AT_ONCE: Final = 8
"""Bundles that a stopping broker hands over at the same time."""


class Ownership:
    """The bundles of one broker. `start` registers it; `close` hands everything over and removes it."""

    def __init__(
        self,
        store: MetadataStore,
        layout: Layout,
        info: BrokerInfo,
        events: BundleEvents,
        measure: Measure,
        *,
        options: OwnershipOptions | None = None,
        answers: Answers | None = None,
        cpu_s: Callable[[], float] = time.process_time,
    ) -> None:
        """No I/O yet. `info` has the addresses that clients use; tests pass `answers` and `cpu_s`."""
        check_broker_id(info.broker)
        self._options = options or OwnershipOptions()
        self._store = store
        self._events = events
        self._info = info
        self._brokers = BrokerDirectory(store, layout)
        self._bundles = BundleDirectory(store, layout)
        self._session = OwnSession(store)
        self._members = Members(self._brokers)
        self._held = HeldBundles(
            self._bundles, self._session, info.broker, events, leave_s=self._options.leave_s
        )
        self._leader = Leader(
            self._brokers,
            self._bundles,
            self._session,
            self._members,
            info.broker,
            shedding=self._options.shedding,
            shed_s=self._options.shed_s,
        )
        self._lookups = Lookups(
            store,
            self._bundles,
            self._session,
            self._members,
            self._held,
            self._leader,
            info.broker,
            answers or Prober(),
            recheck_s=self._options.recheck_s,
        )
        self._reports = Reports(measure, self._report, self._options.report_s, cpu_s)
        self._follows: list[asyncio.Task[None]] = []
        """What keeps up with the store."""
        self._duties: list[asyncio.Task[None]] = []
        """What a registered broker does."""
        self._orders: dict[Bundle, asyncio.Task[None]] = {}

    # What others ask

    @property
    def info(self) -> BrokerInfo:
        """This broker, as it is registered."""
        return self._info

    @property
    def view(self) -> BrokersView:
        """The registered brokers and the leader, as they were last read."""
        return self._members.view

    @property
    def session_id(self) -> int:
        """Of the session in which this broker is registered; 0 while it is not."""
        return self._session.session_id

    @property
    def is_registered(self) -> bool:
        """Whether this broker is registered, as far as it knows."""
        return self._session.session_id != 0

    @property
    def is_certain(self) -> bool:
        """Whether this broker certainly owns what it has: no receipt leaves while it does not (rule 46)."""
        return self._session.is_certain

    async def out_of_touch(self, for_s: float) -> None:
        """Return once there is no connection to ZooKeeper, and the session may have been over for `for_s` seconds."""
        await self._session.out_of_touch(for_s)

    async def in_touch(self) -> None:
        """Return once there is a connection to ZooKeeper."""
        await self._session.in_touch()

    @property
    def bundles(self) -> tuple[Bundle, ...]:
        """The bundles that this broker has a lease of, in order."""
        return tuple(self._held)

    @property
    def lookups_held(self) -> int:
        """How many lookups wait now."""
        return self._lookups.held

    def owns(self, topic: TopicName) -> bool:
        """Whether this broker certainly owns the topic, and is not about to hand it over."""
        return self._held.owns(Bundle.of(topic))

    async def lookup(
        self, topic: TopicName, *, authoritative: bool = False, hold_s: float | None = None
    ) -> LookupResult:
        """Who owns a topic; this broker takes it if it is to. Held for up to `hold_s` while nobody knows.

        Raises MetadataError for metadata that cannot be read.
        """
        hold_s = self._options.hold_s if hold_s is None else hold_s
        return await self._lookups.find(Bundle.of(topic), authoritative=authoritative, hold_s=hold_s)

    async def owners(self, tenant: str, namespace: str) -> dict[Bundle, BrokerId]:
        """The owners of a namespace's bundles, of those that have one."""
        found = await self._bundles.owners(tenant, namespace)
        return {bundle: owner.broker for bundle, owner in found.items() if not owner.released}

    async def unload(self, what: Bundle | TopicName, to: BrokerId | None = None) -> BrokerInfo | None:
        """Finish the topics of a bundle, and hand it over: to the broker `to`, or to the least loaded other one.

        Returns the new owner; None if there is no other broker: then any broker takes the bundle at the next lookup. Raises
        NotOwnerError if this broker does not own the bundle, DaybookError if `to` is not a registered broker.
        """
        bundle = Bundle.of(what) if isinstance(what, TopicName) else what
        target = self._target(bundle, to)
        if self._info.broker == (target and target.broker):
            return target
        if not await self._held.leave(bundle, target):
            msg = f"broker {self._info.broker} does not own bundle {bundle}: ask its owner"
            raise NotOwnerError(msg)
        if target is not None:
            try:
                await self._bundles.send(
                    target.broker, Order(OrderKind.TAKE, bundle), self._session.session_id
                )
            except MetadataUnavailableError as error:  # it takes the bundle when a client comes
                log.warning("the new owner was not notified", bundle=str(bundle), why=str(error))
        return target

    async def unload_namespace(self, tenant: str, namespace: str) -> None:
        """Hand over the bundles of a namespace: this broker's own now, and those of others as soon as their owners have read the order."""
        for bundle, owner in (await self.owners(tenant, namespace)).items():
            if owner != self._info.broker:
                await self._bundles.send(owner, Order(OrderKind.UNLOAD, bundle), self._session.session_id)
        mine = [bundle for bundle in self._held if (bundle.tenant, bundle.namespace) == (tenant, namespace)]
        results = await asyncio.gather(*map(self.unload, mine), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, NotOwnerError):
                raise result

    def _target(self, bundle: Bundle, to: BrokerId | None) -> BrokerInfo | None:
        brokers = self._members.view.brokers
        if to is None:
            others = {name: info.load for name, info in brokers.items() if name != self._info.broker}
            to = least_loaded(bundle, others, {})
            return None if to is None else brokers[to]
        if to not in brokers:
            msg = f"broker {to} is not registered: choose one of {', '.join(brokers) or 'none'}"
            raise DaybookError(msg)
        return brokers[to]

    # The broker's life

    async def start(self) -> None:
        """Register, and be ready for lookups. Raises BrokerRegisteredElsewhereError, MetadataUnavailableError, MetadataError."""
        session = self._store.session
        await self._brokers.register(self._info, session.session_id)
        self._session.begin(session.session_id)
        self._follows = [asyncio.create_task(self._members.follow())]
        while self._info.broker not in self._members.view.brokers:
            await self._wait_unless_failed(self._members.changed())
        self._follows.append(asyncio.create_task(self._follow_session()))
        self._duties = [
            asyncio.create_task(self._leader.campaign()),
            asyncio.create_task(self._leader.shed()),
            asyncio.create_task(self._carry_out_orders()),
            asyncio.create_task(self._reports.run(self._held.count_changed)),
        ]

    async def _wait_unless_failed(self, event: Coroutine[Any, Any, None]) -> None:
        waiting = asyncio.create_task(event)
        try:
            done, _ = await asyncio.wait([waiting, *self._follows], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            waiting.cancel()

    async def failed(self) -> BaseException:
        """Return why a part of the ownership ended; never returns while all is well. The process must stop then."""
        done, _ = await asyncio.wait([*self._follows, *self._duties], return_when=asyncio.FIRST_COMPLETED)
        ended = next(iter(done))
        return ended.exception() or StoreClosedError("the metadata store was closed")

    async def close(self) -> None:
        """Deregister, and hand every bundle over. What cannot be handed over in time ends with the session.

        A broker that stops is registered no more from the beginning on, so nobody chooses it, and no client is sent to it.
        """
        self._lookups.close()
        await _cancelled(*self._duties, *self._orders.values())
        try:
            await self._brokers.deregister(self._info.broker, self._session.session_id)
            async with asyncio.timeout(self._options.leave_s + self._options.taken_s):
                await self._hand_all_over()
        except TimeoutError:
            log.warning("some bundles were not handed over in time", bundles=len(self._held))
        except MetadataUnavailableError as error:
            log.warning("the bundles were not handed over: they end with the session", why=str(error))
        await _cancelled(*self._follows)
        await self._held.close()
        self._session.end()
        self._held.lose_all()

    async def _hand_all_over(self) -> None:
        slots = asyncio.Semaphore(LEAVES_AT_ONCE)
        targets: dict[Bundle, BrokerId] = {}

        async def hand_over(bundle: Bundle) -> None:
            async with slots:
                try:
                    target = await self.unload(bundle)
                    if target is not None:
                        targets[bundle] = target.broker
                except NotOwnerError as error:
                    log.info("a bundle was lost before it was handed over", why=str(error))

        await asyncio.gather(*map(hand_over, self._held))
        watch = self._store.watch()
        try:  # the released leases of this broker end with its session, and then anybody could be chosen
            async with asyncio.timeout(self._options.taken_s):
                for bundle, target in targets.items():
                    while (
                        target in self._members.view.brokers
                        and (found := await self._bundles.owner(bundle, watch)) is not None
                        and found.value.broker == self._info.broker
                    ):
                        await first_of(watch.changed(), self._members.changed())
        except TimeoutError:
            log.warning("some bundles were not taken in time by their next owners")
        finally:
            watch.close()

    async def _follow_session(self) -> None:
        """Register again in each new session; all bundles are lost with the old one."""
        while True:
            await self._session.over()
            self._session.end()
            log.warning("the session has ended: all bundles are lost", bundles=len(self._held))
            self._held.lose_all()
            while not self.is_registered:
                session = self._store.session
                if not session.connected:
                    await self._store.session_changed(session)
                    continue
                try:
                    await self._brokers.register(self._info, session.session_id)
                except SessionExpiredError:
                    continue
                except MetadataUnavailableError as error:
                    log.warning("the broker is not registered yet; trying again", why=str(error))
                    continue
                self._session.begin(session.session_id)
                log.info("the broker is registered again", broker=self._info.broker)

    async def _report(self, load: BrokerLoad) -> None:
        self._info = replace(self._info, load=load)
        if self.is_registered:
            await self._brokers.report(self._info, self._session.session_id)

    # Orders

    async def _carry_out_orders(self) -> None:
        async with aclosing(self._bundles.orders(self._info.broker)) as listings:  # type: ignore[type-var]  # it is a generator
            async for orders in listings:
                for order in orders:
                    if order.bundle not in self._orders:
                        task = asyncio.create_task(self._carry_out(order))
                        self._orders[order.bundle] = task
                        task.add_done_callback(partial(self._carried_out, order.bundle))

    def _carried_out(self, bundle: Bundle, _: asyncio.Task[None]) -> None:
        del self._orders[bundle]

    async def _carry_out(self, order: Order) -> None:
        try:
            if order.kind is OrderKind.UNLOAD:
                await self.unload(order.bundle, order.to or None)
            else:
                await self._take_released(order.bundle)
        except (DaybookError, NoNodeError) as error:
            log.warning(
                "an order was not carried out",
                order=order.kind.value,
                bundle=str(order.bundle),
                why=str(error),
            )
        await self._bundles.done(self._info.broker, order)

    async def _take_released(self, bundle: Bundle) -> None:
        watch = self._store.watch()
        try:
            found = await self._bundles.owner(bundle, watch)
        finally:
            watch.close()
        if found is not None and found.value.released and found.value.to == self._info.broker:
            await self._held.take(bundle, over=found.version)


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
