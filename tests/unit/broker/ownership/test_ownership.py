"""Brokers find, take and hand over bundles: over memory and real ZooKeeper."""

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest
from daybook_broker.ownership import lookups
from daybook_broker.ownership.api import Elsewhere, Mine, NotReady

from daybook.core.errors import DaybookError, NotOwnerError
from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.bundles import Bundle, bundles_of
from daybook.core.topics.ownership.load import BundleLoad
from daybook.core.topics.ownership.shedding import SheddingPolicy
from tests.unit.broker.kit import until
from tests.unit.broker.ownership.kit import BUNDLE, ORDERS, Broker, cluster, gained
from tests.unit.metadata.harness import LAYOUT, Opener, memory_opener, soon

MANY = [TopicName("public", "default", f"t{n}") for n in range(200)]


async def test_a_client_ends_at_one_owner_whichever_broker_it_asks(opener: Opener) -> None:
    async with cluster(opener, 3) as brokers:
        found = await asyncio.gather(*(brokers.find(ORDERS, first=n % 3) for n in range(9)))
        owner = found[0]
        assert set(found) == {owner}
        assert owner.ownership.owns(ORDERS)
        assert owner.ownership.bundles == (BUNDLE,)
        assert gained(owner) == [BUNDLE]
        for other in brokers.others(owner):
            assert not other.ownership.owns(ORDERS)
            result = await other.ownership.lookup(ORDERS, authoritative=True)
            assert isinstance(result, Elsewhere)
            assert (result.broker.broker, result.is_owner) == (owner.id, True)
            assert await other.ownership.owners("public", "default") == {BUNDLE: owner.id}


async def test_the_bundles_of_a_namespace_spread_over_the_brokers(opener: Opener) -> None:
    async with cluster(opener, 2) as brokers:
        await asyncio.gather(*(brokers.find(name, first=n % 2) for n, name in enumerate(MANY)))
        assert sorted(len(broker.ownership.bundles) for broker in brokers.brokers) == [16, 16]


async def test_a_broker_that_is_told_so_by_a_client_takes_the_lease_once(opener: Opener) -> None:
    async with cluster(opener, 3) as brokers:
        results = await asyncio.gather(
            *(broker.ownership.lookup(ORDERS, authoritative=True) for broker in brokers.brokers)
        )
        assert [type(result) for result in results].count(Mine) == 1
        owners = {result.broker.broker for result in results if isinstance(result, Elsewhere)}
        assert owners == {brokers.brokers[results.index(Mine())].id}


async def test_a_bundle_is_unloaded_to_the_named_broker_after_its_topics_have_finished(
    opener: Opener,
) -> None:
    async with cluster(opener, 3) as brokers:
        owner = await brokers.find()
        target, third = brokers.others(owner)
        owner.finish.clear()
        unloading = asyncio.create_task(owner.ownership.unload(ORDERS, target.id))
        await owner.until(lambda: ("leaving", BUNDLE, "") in owner.news)
        assert not owner.ownership.owns(ORDERS), "nothing new begins"
        asking = asyncio.create_task(owner.ownership.lookup(ORDERS))
        searches = owner.ownership._lookups._searches
        await until(lambda: any("is handing the topic over" in each.why for each in searches.values()))
        assert await owner.ownership.lookup(ORDERS, hold_s=0.05) == NotReady(
            f"the owner of {BUNDLE} was not found within 0.05 s: {owner.id} is handing the topic over; try again"
        )
        assert not asking.done()
        owner.finish.set()
        moved = await soon(unloading)
        assert moved is not None
        assert moved.broker == target.id
        assert owner.news == [("gained", BUNDLE, ""), ("leaving", BUNDLE, ""), ("lost", BUNDLE, target.id)]
        result = await soon(asking)
        assert isinstance(result, Elsewhere)
        assert result.broker.broker == target.id
        await target.until(lambda: gained(target))
        assert target.ownership.owns(ORDERS)
        assert await third.ownership.lookup(ORDERS) == Elsewhere(
            third.ownership.view.brokers[target.id], is_owner=True
        )
        assert await brokers.find() is target


async def test_a_client_that_comes_first_makes_the_new_owner_take_the_bundle(opener: Opener) -> None:
    async with cluster(opener, 2) as brokers:
        owner = await brokers.find()
        (target,) = brokers.others(owner)
        unloading = asyncio.create_task(owner.ownership.unload(BUNDLE, target.id))
        await owner.until(lambda: ("lost", BUNDLE, target.id) in owner.news)
        assert await soon(target.ownership.lookup(ORDERS)) == Mine()
        await soon(unloading)
        assert gained(target) == [BUNDLE]


async def test_a_namespace_is_unloaded_by_all_who_own_a_part_of_it(opener: Opener) -> None:
    async with cluster(opener, 2) as brokers:
        await asyncio.gather(*(brokers.find(name) for name in MANY))
        before = {broker.id: broker.ownership.bundles for broker in brokers.brokers}
        await brokers[0].ownership.unload_namespace("public", "default")
        for broker in brokers.brokers:
            await broker.until(partial(has_lost, broker, before[broker.id]))


def has_lost(broker: Broker, bundles: Sequence[Bundle]) -> bool:
    return set(bundles) <= {bundle for what, bundle, _ in broker.news if what == "lost"}


async def test_an_unload_that_cannot_be_is_refused(opener: Opener) -> None:
    async with cluster(opener, 2) as brokers:
        owner = await brokers.find()
        (other,) = brokers.others(owner)
        with pytest.raises(NotOwnerError, match="ask its owner"):
            await other.ownership.unload(ORDERS, owner.id)
        with pytest.raises(
            DaybookError, match="broker-9 is not registered: choose one of broker-0, broker-1"
        ):
            await owner.ownership.unload(ORDERS, "broker-9")
        assert (await owner.ownership.unload(ORDERS, owner.id)) == owner.ownership.view.brokers[owner.id]
        assert owner.ownership.owns(ORDERS)


async def test_a_lone_broker_gives_a_bundle_up_and_takes_it_again(opener: Opener) -> None:
    async with cluster(opener, 1) as brokers:
        assert await brokers.find() is brokers[0]
        assert await brokers[0].ownership.unload(ORDERS) is None
        assert brokers[0].news[-1] == ("lost", BUNDLE, "")
        assert await brokers.find() is brokers[0]
        assert brokers[0].ownership.owns(ORDERS)


async def test_topics_that_do_not_finish_in_time_are_handed_over_all_the_same() -> None:
    _, opener = memory_opener()
    async with cluster(opener, 2, leave_s=0.05) as brokers:
        owner = await brokers.find()
        owner.finish.clear()
        assert await soon(owner.ownership.unload(ORDERS)) is not None
        owner.finish.set()
        assert not owner.ownership.owns(ORDERS)


async def test_a_bundle_that_is_lost_before_it_begins_to_leave_is_not_owned() -> None:
    _, opener = memory_opener()
    async with cluster(opener, 1) as brokers:
        owner = await brokers.find()
        held = owner.ownership._held
        leaving = asyncio.create_task(held.leave(BUNDLE, None))
        await asyncio.sleep(0)
        held.lose_all()
        assert await leaving is False
        assert owner.news == [("gained", BUNDLE, ""), ("lost", BUNDLE, "")]


async def test_a_broker_that_stops_hands_all_over(opener: Opener) -> None:
    async with cluster(opener, 2) as brokers:
        await asyncio.gather(*(brokers.find(name) for name in MANY))
        first, second = brokers.brokers
        mine = first.ownership.bundles
        asking = asyncio.create_task(first.ownership.lookup(ORDERS))
        await asking
        await soon(first.ownership.close())
        assert {(what, to) for what, _, to in first.news} == {
            ("gained", ""),
            ("leaving", ""),
            ("lost", second.id),
        }
        every = set(bundles_of("public", "default"))
        assert every >= set(mine)
        await second.until(lambda: set(second.ownership.bundles) == every)
        assert not first.ownership.is_certain
        assert isinstance(await first.ownership.lookup(ORDERS), NotReady)
        await second.sees(lambda: list(second.ownership.view.brokers) == [second.id])


async def test_the_leader_moves_bundles_off_a_busy_broker(opener: Opener) -> None:
    shedding = SheddingPolicy(
        cycles_min=1, history=0.0, busy_min=0.0, threshold=0.02, margin=0.01, moves_max=2
    )
    async with cluster(opener, 2, report_s=0.2, shed_s=0.3, shedding=shedding) as brokers:
        await asyncio.gather(*(brokers.find(name) for name in MANY))
        busy = brokers.others(brokers.leader)[0]
        busy.loads = {bundle: BundleLoad(1, 100.0, 0.0) for bundle in busy.ownership.bundles}
        before = len(busy.ownership.bundles)
        busy.busy = 0.9
        await busy.until(lambda: len([1 for what, *_ in busy.news if what == "lost"]) >= 2)
        assert len(busy.ownership.bundles) <= before - 2
        (other,) = brokers.others(busy)
        await other.until(lambda: len(gained(other)) >= 18)


async def test_the_lookups_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    _, opener = memory_opener()
    async with cluster(opener, 1) as brokers:
        monkeypatch.setattr(lookups, "LOOKUPS_HELD_MAX", 0)
        result = await brokers[0].ownership.lookup(ORDERS)
        assert isinstance(result, NotReady)
        assert "try again later" in result.why


async def test_a_node_that_cannot_be_read_is_an_error() -> None:
    _, opener = memory_opener()
    async with cluster(opener, 1) as brokers:
        await brokers[0].store.create(LAYOUT.bundle(BUNDLE), b"{}", parents=True)
        with pytest.raises(DaybookError, match="lease of bundle"):
            await brokers[0].ownership.lookup(ORDERS)
