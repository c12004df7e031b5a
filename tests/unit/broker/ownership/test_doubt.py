"""Owners in doubt, expired sessions and owners that do not answer: rule 46 and rule 42 of docs/protocol.md."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from daybook_broker.ownership.api import Elsewhere, Mine, NotReady

from daybook.core.errors import MetadataUnavailableError
from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.lookup import BundleOwner
from daybook.local.zookeeper import EmbeddedZooKeeper
from daybook.metadata.brokers import BrokerDirectory
from daybook.metadata.bundles import BundleDirectory
from daybook.metadata.store.memory import MemoryServer
from daybook.metadata.store.zookeeper import ZooKeeperStore
from daybook.runtime.clock import monotonic_s
from tests.fixtures.zookeeper import expire_session
from tests.unit.broker.kit import until
from tests.unit.broker.ownership.kit import BUNDLE, ORDERS, Broker, Cluster, cluster, gained
from tests.unit.metadata.harness import (
    LAYOUT,
    memory_opener,
    soon,
    until_children,
    zookeeper_opener,
)
from tests.unit.runtime.suspension import Suspension


@asynccontextmanager
async def in_memory(
    number: int, session_timeout_s: float = 5.0
) -> AsyncIterator[tuple[MemoryServer, Cluster]]:
    server, opener = memory_opener(session_timeout_s=session_timeout_s)
    async with cluster(opener, number) as brokers:
        yield server, brokers


async def gone(broker: Broker, bundle: Bundle) -> None:
    """Return once the broker sees nobody with the lease of the bundle."""
    watch = broker.store.watch()
    while await BundleDirectory(broker.store, LAYOUT).owner(bundle, watch) is not None:
        await soon(watch.changed())


async def test_rule_46_an_owner_in_doubt_owns_nothing_and_answers_no_lookup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with in_memory(1) as (server, brokers):
        owner = brokers[0]
        assert await owner.ownership.lookup(ORDERS) == Mine()
        suspension = Suspension(monkeypatch)
        server.suspend()
        await asyncio.sleep(0)
        assert owner.ownership.owns(ORDERS), "ZooKeeper may be away for a while"
        assert await owner.ownership.lookup(ORDERS) == Mine()
        suspension.lasts(5.5)
        assert not owner.ownership.is_certain
        assert not owner.ownership.owns(ORDERS)
        assert isinstance(await owner.ownership.lookup(ORDERS, hold_s=0.1), NotReady)
        asking = asyncio.create_task(owner.ownership.lookup(ORDERS))
        await asyncio.sleep(0)
        server.resume()
        assert await soon(asking) == Mine(), "the session turned out to live"
        assert owner.ownership.owns(ORDERS)
        assert owner.news == [("gained", BUNDLE, "")], "nothing was lost"


async def test_rule_42_an_expired_session_loses_every_bundle_and_the_broker_continues() -> None:
    async with in_memory(2) as (server, brokers):
        owner = await brokers.find()
        (other,) = brokers.others(owner)
        before = owner.store.session.session_id
        server.expire(before)
        await owner.until(lambda: ("lost", BUNDLE, "") in owner.news)
        await other.sees(lambda: owner.id not in other.ownership.view.brokers)
        await other.sees(lambda: owner.id in other.ownership.view.brokers)
        assert (await soon(brokers.find(first=1))).ownership.owns(ORDERS)
        assert owner.ownership.is_registered
        assert not [each for each in brokers.brokers if each.ownership.owns(ORDERS)][1:]


async def test_rule_46_a_lease_that_was_asked_for_before_the_session_ended_is_no_lease() -> None:
    async with in_memory(1) as (server, brokers):
        broker = brokers[0]
        held = broker.ownership._held
        taking = asyncio.create_task(held.take(BUNDLE))
        await asyncio.sleep(0)
        server.expire(broker.store.session.session_id)
        await soon(taking)
        assert not gained(broker)
        assert await soon(broker.ownership.lookup(ORDERS)) == Mine()


async def test_a_lookup_is_held_while_the_owner_does_not_answer_and_ends_at_the_next_one() -> None:
    async with in_memory(3) as (server, brokers):
        owner = await brokers.find()
        asked, third = brokers.others(owner)
        brokers.silent.add(owner.id)
        assert await asked.ownership.lookup(ORDERS, hold_s=0.1) == NotReady(
            f"the owner of {BUNDLE} was not found within 0.1 s: the owner {owner.id} does not answer, and its lease has not ended yet; try again"
        )
        finding = asyncio.create_task(brokers.find(first=brokers.brokers.index(asked)))
        await asyncio.sleep(0)
        assert not finding.done()
        server.end_session(owner.store.session.session_id)
        found = await soon(finding)
        assert found in {asked, third}
        assert found.ownership.owns(ORDERS)


async def test_a_lookup_is_answered_when_a_paused_owner_answers_again() -> None:
    async with in_memory(2) as (_, brokers):
        owner = await brokers.find()
        (other,) = brokers.others(owner)
        brokers.silent.add(owner.id)
        asking = asyncio.create_task(other.ownership.lookup(ORDERS))
        await asyncio.sleep(0)
        brokers.silent.clear()
        result = await soon(asking)
        assert isinstance(result, Elsewhere)
        assert result.is_owner


async def test_nobody_is_sent_to_a_leader_or_to_a_chosen_broker_that_does_not_answer() -> None:
    async with in_memory(3) as (_, brokers):
        leader = brokers.leader
        asked, third = brokers.others(leader)
        brokers.silent.add(leader.id)
        result = await asked.ownership.lookup(ORDERS, hold_s=0.1)
        assert isinstance(result, NotReady)
        assert f"the leader {leader.id} does not answer" in result.why
        brokers.silent.clear()
        brokers.silent.update({asked.id, third.id})
        assert await soon(leader.ownership.lookup(ORDERS)) == Mine(), "the only one that answers"


async def test_the_lease_of_a_brokers_former_process_is_waited_for() -> None:
    async with in_memory(2) as (_, brokers):
        first, second = brokers.brokers
        session_id = second.store.session.session_id
        lease = await BundleDirectory(second.store, LAYOUT).take(BUNDLE, first.id, session_id)
        assert lease is not None
        result = await first.ownership.lookup(ORDERS, authoritative=True, hold_s=0.1)
        assert isinstance(result, NotReady)
        assert "an earlier session" in result.why
        asking = asyncio.create_task(first.ownership.lookup(ORDERS, authoritative=True))
        await asyncio.sleep(0)
        await second.store.delete(LAYOUT.bundle(BUNDLE))
        assert await soon(asking) == Mine()


async def test_a_lease_that_somebody_removes_is_lost() -> None:
    async with in_memory(1) as (_, brokers):
        owner = await brokers.find()
        await owner.store.delete(LAYOUT.bundle(BUNDLE))
        await owner.until(lambda: ("lost", BUNDLE, "") in owner.news)
        assert await soon(owner.ownership.lookup(ORDERS)) == Mine(), "and can be taken again"


async def test_a_bundle_that_is_lost_while_it_is_handed_over_is_not_released() -> None:
    async with in_memory(2) as (server, brokers):
        owner = await brokers.find()
        owner.finish.clear()
        unloading = asyncio.create_task(owner.ownership.unload(BUNDLE))
        await owner.until(lambda: ("leaving", BUNDLE, "") in owner.news)
        server.expire(owner.store.session.session_id)
        await owner.until(lambda: ("lost", BUNDLE, "") in owner.news)
        owner.finish.set()
        with pytest.raises(Exception, match="does not own bundle"):
            await soon(unloading)
        assert [what for what, *_ in owner.news] == ["gained", "leaving", "lost"]


async def test_a_released_bundle_whose_next_owner_never_comes_is_taken_by_another() -> None:
    async with in_memory(3) as (_, brokers):
        owner = await brokers.find()
        one, two = sorted(brokers.others(owner), key=lambda each: each is brokers.leader)
        brokers.silent.add(one.id)
        lease = owner.ownership._held._leases[BUNDLE]
        assert await lease.release(one.id)
        await owner.until(lambda: ("lost", BUNDLE, "") in owner.news)
        found = await soon(brokers.find(first=brokers.brokers.index(two)))
        assert found is not one
        assert found.ownership.owns(ORDERS)


async def test_waiting_lookups_end_when_their_broker_stops_or_their_client_leaves() -> None:
    async with in_memory(2) as (_, brokers):
        owner = await brokers.find()
        (other,) = brokers.others(owner)
        brokers.silent.add(owner.id)
        leaving = asyncio.create_task(other.ownership.lookup(ORDERS))
        staying = asyncio.create_task(other.ownership.lookup(ORDERS))
        await asyncio.sleep(0)
        assert other.ownership.lookups_held == 2
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert other.ownership.lookups_held == 1
        await soon(other.ownership.close())
        assert isinstance(await soon(staying), NotReady)
        assert other.ownership.lookups_held == 0


async def test_a_part_that_fails_is_reported() -> None:
    async with in_memory(1) as (_, brokers):
        failing = asyncio.create_task(brokers[0].ownership.failed())
        await asyncio.sleep(0)
        assert not failing.done()
        await brokers[0].store.create(LAYOUT.broker("broker-9"), b'{"formatVersion":9}')
        assert "format 9" in str(await soon(failing))


async def test_a_broker_that_stops_without_zookeeper_gives_up_in_time() -> None:
    server, opener = memory_opener(operation_timeout_s=0.05)
    async with cluster(opener, 1) as brokers:
        await brokers.find()
        server.suspend()
        await soon(brokers[0].ownership.close())
        assert brokers[0].news[-1] == ("lost", BUNDLE, "")
        with pytest.raises(MetadataUnavailableError):
            await BrokerDirectory(brokers[0].store, LAYOUT).register(brokers[0].info, 1)
        server.resume()


@pytest.mark.integration
async def test_rule_46_an_owner_that_zookeeper_leaves_alone_is_in_doubt_and_then_owns_or_lost_all(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    opener = zookeeper_opener(own_zookeeper.connect_string, session_timeout_s=6.0)
    async with cluster(opener, 2) as brokers:
        owner = await brokers.find()
        (other,) = brokers.others(owner)
        alive_until = owner.store.session.alive_until
        own_zookeeper.pause()
        result = await owner.ownership.lookup(ORDERS)
        assert result == Mine(), "what is open goes on for less than a session"
        lease = asyncio.create_task(owner.store.session_may_have_ended(owner.store.session.session_id))
        await soon(lease)
        assert monotonic_s() >= alive_until - 0.01
        assert not owner.ownership.owns(ORDERS)
        asking = [asyncio.create_task(each.ownership.lookup(ORDERS)) for each in brokers.brokers]
        assert isinstance(await owner.ownership.lookup(ORDERS, hold_s=0.2), NotReady)
        assert not any(task.done() for task in asking)
        own_zookeeper.resume()
        await soon(asyncio.gather(*asking), 20)
        found = await soon(brokers.find(), 20)
        assert [each for each in brokers.brokers if each.ownership.owns(ORDERS)] == [found]
        if owner is not found or len(gained(owner)) > 1:
            assert ("lost", BUNDLE, "") in owner.news
        await until(lambda: other.ownership.is_registered)


@pytest.mark.integration
async def test_rule_42_a_session_that_the_server_ends_loses_its_bundles_to_the_next_owner(
    zookeeper: str,
) -> None:
    async with cluster(zookeeper_opener(zookeeper), 2) as brokers:
        owner = await brokers.find()
        (other,) = brokers.others(owner)
        assert isinstance(owner.store, ZooKeeperStore)
        await asyncio.to_thread(expire_session, zookeeper, owner.store)
        await owner.until(lambda: ("lost", BUNDLE, "") in owner.news)
        found = await soon(brokers.find(first=brokers.brokers.index(other)))
        assert found.ownership.owns(ORDERS)
        watch = other.store.watch()
        node = await BundleDirectory(other.store, LAYOUT).owner(BUNDLE, watch)
        assert node is not None
        assert node.value == BundleOwner(found.id)
        watch.close()
        await soon(until_children(other.store, LAYOUT.brokers, 2))
