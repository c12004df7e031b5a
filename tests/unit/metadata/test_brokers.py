"""Brokers in the store: registrations, the leader, leases of bundles and orders: rule 42 and rule 46 of docs/protocol.md."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import pytest

from daybook.core.errors import MetadataError
from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.load import BrokerLoad
from daybook.core.topics.ownership.lookup import BundleOwner
from daybook.metadata.brokers import (
    BrokerDirectory,
    BrokerInfo,
    BrokerRegisteredElsewhereError,
    BrokersView,
    Urls,
)
from daybook.metadata.bundles import BundleDirectory, BundleLease, Order, OrderKind
from daybook.metadata.store.memory import Fault, FaultKind
from daybook.metadata.store.store import MetadataStore, NoNodeError, SessionExpiredError
from tests.unit.metadata.harness import LAYOUT, Opener, formatted, memory_opener, soon, stores

BUNDLE = Bundle("public", "default", 3)
ZERO = BrokerInfo(
    "broker-0",
    "boot-0",
    Urls("pulsar://a:6650", "pulsar+ssl://a:6651"),
    Urls("http://a:8080"),
    {"inner": Urls("pulsar://b:1")},
    BrokerLoad(0.5, 2, 0.25, ((BUNDLE, 0.125), (Bundle("a=b", "..", 31), 0.125))),
    "0.1",
    7,
)
ONE = BrokerInfo("broker-1", "boot-1")


def session_of(store: MetadataStore) -> int:
    return store.session.session_id


async def seen(directory: BrokerDirectory, is_expected: Callable[[BrokersView], bool]) -> BrokersView:
    """The first view that is as expected."""

    async def find() -> BrokersView:
        async with aclosing(directory.watch()) as views:  # type: ignore[type-var]  # it is a generator
            async for view in views:
                if is_expected(view):
                    return view
        raise AssertionError("it watches for ever")

    found: BrokersView = await soon(find())
    return found


async def owner_of(store: MetadataStore, bundle: Bundle = BUNDLE) -> BundleOwner | None:
    await store.sync()
    watch = store.watch()
    found = await BundleDirectory(store, LAYOUT).owner(bundle, watch)
    watch.close()
    return None if found is None else found.value


async def taken(store: MetadataStore, broker: str, over: int | None = None) -> BundleLease | None:
    return await BundleDirectory(store, LAYOUT).take(BUNDLE, broker, session_of(store), over=over)


async def test_a_broker_is_registered_with_all_its_record_until_its_session_ends(opener: Opener) -> None:
    async with stores(opener, 3) as (one, two, three):
        await formatted(one)
        assert await BrokerDirectory(three, LAYOUT).view() == ({}, None)
        await BrokerDirectory(one, LAYOUT).register(ZERO, session_of(one))
        await BrokerDirectory(two, LAYOUT).register(ONE, session_of(two))
        directory = BrokerDirectory(three, LAYOUT)
        view = await seen(directory, lambda view: len(view.brokers) == 2)
        assert view == ({"broker-0": ZERO, "broker-1": ONE}, None)
        gone = asyncio.create_task(seen(directory, lambda view: list(view.brokers) == ["broker-1"]))
        await one.close()
        await soon(gone)
        await BrokerDirectory(two, LAYOUT).deregister("broker-1", session_of(two))
        await seen(directory, lambda view: not view.brokers)
        await BrokerDirectory(two, LAYOUT).deregister("broker-1", session_of(two))


async def test_a_report_replaces_the_record_within_the_session_alone(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        directory = BrokerDirectory(one, LAYOUT)
        await directory.register(ONE, session_of(one))
        changed = BrokerInfo("broker-1", "boot-1", load=BrokerLoad(0.9))
        await directory.report(changed, session_of(one))
        view = await seen(BrokerDirectory(two, LAYOUT), lambda view: view.brokers["broker-1"].load.busy > 0)
        assert view.brokers["broker-1"] == changed
        with pytest.raises(SessionExpiredError):
            await BrokerDirectory(two, LAYOUT).report(ONE, session_of(two) + 999)
        await directory.deregister("broker-1", session_of(one))
        with pytest.raises(NoNodeError):
            await directory.report(changed, session_of(one))


async def test_a_broker_waits_until_its_former_process_is_gone(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        await BrokerDirectory(one, LAYOUT).register(ONE, session_of(one))
        later = BrokerInfo("broker-1", "boot-2")
        directory = BrokerDirectory(two, LAYOUT)
        with pytest.raises(BrokerRegisteredElsewhereError, match="does it run twice"):
            await directory.register(later, session_of(two), wait_s=0.2)
        registering = asyncio.create_task(directory.register(later, session_of(two)))
        await one.close()
        await soon(registering)
        assert (await directory.view()).brokers == {"broker-1": later}


async def test_rule_42_a_registration_whose_reply_was_lost_is_the_brokers_own() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await formatted(store)
        directory = BrokerDirectory(store, LAYOUT)
        server.inject(Fault(FaultKind.DROP_REPLY, "create", LAYOUT.brokers, times=2))
        await soon(directory.register(ONE, session_of(store)))
        await soon(directory.register(ONE, session_of(store)))
        with pytest.raises(SessionExpiredError):
            await directory.register(ONE, session_of(store) + 1)


async def test_a_registration_that_goes_while_it_is_read_is_gone() -> None:
    server, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        await BrokerDirectory(one, LAYOUT).register(ONE, session_of(one))

        def end() -> None:
            server.end_session(session_of(one))

        server.inject(Fault(FaultKind.REFUSE, "get", LAYOUT.brokers, then=end))
        assert (await BrokerDirectory(two, LAYOUT).view()).brokers == {}
        await BrokerDirectory(one, LAYOUT).register(ONE, session_of(one))
        server.inject(Fault(FaultKind.REFUSE, "get", LAYOUT.brokers, then=end))
        later = BrokerInfo("broker-1", "boot-2")
        await soon(BrokerDirectory(two, LAYOUT).register(later, session_of(two)))


async def test_a_registration_that_cannot_be_read_is_an_error() -> None:
    _, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await formatted(store)
        await store.create(LAYOUT.broker("broker-9"), b'{"formatVersion":2}')
        with pytest.raises(MetadataError, match="registration of broker broker-9 has format 2"):
            await BrokerDirectory(store, LAYOUT).view()


async def test_the_view_names_the_leader(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        directory = BrokerDirectory(two, LAYOUT)
        lease = await soon(BrokerDirectory(one, LAYOUT).election("broker-0").campaign())
        await seen(directory, lambda view: view.leader == "broker-0")
        await lease.release()
        await seen(directory, lambda view: view.leader is None)


async def test_a_bundle_has_one_owner_until_that_ones_session_ends(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        assert await owner_of(two) is None
        assert await BundleDirectory(two, LAYOUT).owners("public", "default") == {}
        lease = await taken(one, "broker-0")
        assert lease is not None
        assert await taken(two, "broker-1") is None
        assert await owner_of(two) == BundleOwner("broker-0")
        assert await BundleDirectory(two, LAYOUT).owners("public", "default") == {
            BUNDLE: BundleOwner("broker-0")
        }
        await one.close()
        watch = two.watch()
        while await BundleDirectory(two, LAYOUT).owner(BUNDLE, watch) is not None:
            await soon(watch.changed())
        assert await taken(two, "broker-1") is not None


async def test_a_released_bundle_is_taken_over_by_one_and_the_old_owner_harms_nobody(opener: Opener) -> None:
    async with stores(opener, 3) as (one, two, three):
        await formatted(one)
        old = await taken(one, "broker-0")
        assert old is not None
        assert await old.release("broker-1")
        assert await owner_of(two) == BundleOwner("broker-0", released=True, to="broker-1")
        assert not await old.release("broker-2"), "it has nothing to release any more"
        assert await taken(two, "broker-1") is None, "a released node is replaced, not created"
        results = await asyncio.gather(taken(two, "broker-1", over=1), taken(three, "broker-2", over=1))
        assert [result is None for result in results].count(True) == 1
        winner = await owner_of(one)
        assert winner in {BundleOwner("broker-1"), BundleOwner("broker-2")}
        assert not await old.release()
        await one.close()
        assert await owner_of(two) == winner


async def test_an_owner_learns_that_its_node_is_gone(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        lease = await taken(one, "broker-0")
        assert lease is not None
        gone = asyncio.create_task(lease.gone())
        await two.delete(LAYOUT.bundle(BUNDLE))
        await soon(gone)
        assert not await lease.release()


async def test_rule_42_a_lease_whose_replies_were_lost_is_the_brokers_own() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await formatted(store)
        server.inject(Fault(FaultKind.DROP_REPLY, "create", LAYOUT.bundle(BUNDLE), times=2))
        lease = await soon(taken(store, "broker-0"))
        assert lease is not None
        server.inject(Fault(FaultKind.DROP_REPLY, "multi", LAYOUT.bundle(BUNDLE), times=2))
        assert await soon(lease.release())
        server.inject(Fault(FaultKind.DROP_REPLY, "multi", LAYOUT.bundle(BUNDLE), times=2))
        assert await soon(taken(store, "broker-0", over=1)) is not None


async def test_rule_42_a_release_whose_reply_was_lost_leaves_the_next_owner_alone() -> None:
    server, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        old = await taken(one, "broker-0")
        assert old is not None
        took: list[asyncio.Task[BundleLease | None]] = []

        def take_over() -> None:
            took.append(asyncio.ensure_future(taken(two, "broker-1", over=1)))

        server.inject(
            Fault(FaultKind.DROP_REPLY, "multi", LAYOUT.bundles("public", "default"), then=take_over)
        )
        assert await soon(old.release("broker-1"))
        assert await soon(took[0]) is not None
        assert await owner_of(two) == BundleOwner("broker-1")
        assert list(await two.children(LAYOUT.bundles("public", "default"))) == [BUNDLE.range]


async def test_rule_46_a_lease_of_another_session_is_neither_taken_nor_released() -> None:
    server, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        lease = await taken(one, "broker-0")
        assert lease is not None
        before = session_of(one)
        server.expire(before)
        with pytest.raises(SessionExpiredError):
            await BundleDirectory(one, LAYOUT).take(BUNDLE, "broker-0", before)
        assert await taken(two, "broker-1") is not None
        assert not await lease.release()
        assert await owner_of(two) == BundleOwner("broker-1")


async def test_rule_46_an_outage_of_the_store_ends_no_watch_of_brokers_or_orders() -> None:
    """It may begin between two reads, and last longer than an operation may take."""
    server, opener = memory_opener(operation_timeout_s=0.02)
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        await soon(BrokerDirectory(one, LAYOUT).election("broker-0").campaign())
        order = Order(OrderKind.UNLOAD, BUNDLE, "broker-2")
        await BundleDirectory(one, LAYOUT).send("broker-1", order, session_of(one))
        for path in (LAYOUT.broker_leader, LAYOUT.orders("broker-1")):
            server.inject(Fault(FaultKind.HOLD, "get", path))
        brokers, orders = BrokerDirectory(two, LAYOUT), BundleDirectory(two, LAYOUT)
        view = asyncio.ensure_future(seen(brokers, lambda _: True))
        order_found = asyncio.ensure_future(anext(orders.orders("broker-1")))
        done, _ = await asyncio.wait([view, order_found], timeout=0.1)
        assert not done
        server.release()
        assert await soon(view) == ({}, "broker-0")
        assert await soon(order_found) == (order,)


async def test_an_order_is_found_until_it_is_done_or_its_sender_is_gone(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        leader, broker = BundleDirectory(one, LAYOUT), BundleDirectory(two, LAYOUT)
        unload = Order(OrderKind.UNLOAD, BUNDLE, "broker-2")
        take = Order(OrderKind.TAKE, Bundle("a=b", "..", 0))
        async with aclosing(broker.orders("broker-1")) as listings:  # type: ignore[type-var]  # it is a generator
            assert await soon(anext(listings)) == ()
            await leader.send("broker-1", unload, session_of(one))
            assert await soon(anext(listings)) == (unload,)
            await leader.send("broker-1", Order(OrderKind.TAKE, BUNDLE), session_of(one))
            await leader.send("broker-1", take, session_of(one))
            assert set(await soon(anext(listings))) == {unload, take}, "the first order of a bundle stays"
            await broker.done("broker-1", unload)
            await broker.done("broker-1", unload)
            assert await soon(anext(listings)) == (take,)
            await one.close()
            assert await soon(anext(listings)) == ()
