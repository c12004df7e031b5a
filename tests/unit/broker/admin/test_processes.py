"""The ownership and the admin port of real broker processes that are killed and paused: rule 46 of docs/protocol.md."""

import asyncio
import time

import aiohttp
import pytest

from daybook.core.topics.name import TopicName
from tests.fixtures.brokers import Brokers
from tests.unit.broker.admin.kit import new_namespace

pytestmark = pytest.mark.integration


async def lookup(brokers: Brokers, broker: str, name: TopicName) -> str:
    """The service URL of the owner, as one broker says it."""
    path = f"/lookup/v2/topic/persistent/{name.tenant}/{name.namespace}/{name.local}"
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(40)) as session,
        session.get(brokers.entry(broker).admin_url + path) as answer,
    ):
        found = await answer.json()
        assert answer.status == 200, found
        return str(found["brokerUrl"])


async def owned(brokers: Brokers) -> tuple[TopicName, str, str]:
    """A topic, its owner and the other broker."""
    name = TopicName(*new_namespace(), "orders")
    url = await lookup(brokers, brokers.ids[0], name)
    (owner,) = [each for each in brokers.ids if brokers.entry(each).service_url == url]
    (other,) = [each for each in brokers.ids if each != owner]
    return name, owner, other


async def held(brokers: Brokers, broker: str, name: TopicName) -> asyncio.Task[str]:
    """A lookup that waits; a few before it may still get the answer of a moment ago."""
    while True:
        asking = asyncio.create_task(lookup(brokers, broker, name))
        await asyncio.wait([asking], timeout=0.6)
        if not asking.done():
            return asking


async def test_a_lookup_is_held_from_the_owners_death_until_the_next_one_has_the_topic(
    brokers: Brokers,
) -> None:
    name, owner, other = await owned(brokers)
    await asyncio.to_thread(brokers.kill, owner)
    began = time.perf_counter()
    asking = await held(brokers, other, name)
    assert await asking == brokers.entry(other).service_url
    assert time.perf_counter() - began < 15, (
        "the session of the dead owner, which is 2.5 s, and a little more"
    )


async def test_rule_46_a_paused_owner_that_returns_after_its_session_is_no_owner(brokers: Brokers) -> None:
    name, owner, other = await owned(brokers)
    brokers.pause(owner)
    try:
        assert await (await held(brokers, other, name)) == brokers.entry(other).service_url
    finally:
        brokers.resume(owner)
    assert await lookup(brokers, owner, name) == brokers.entry(other).service_url


async def test_a_lookup_waits_for_an_owner_that_was_paused_for_a_moment(brokers: Brokers) -> None:
    name, owner, other = await owned(brokers)
    brokers.pause(owner)
    try:
        asking = await held(brokers, other, name)
    finally:
        brokers.resume(owner)
    assert await asking == brokers.entry(owner).service_url


async def test_a_broker_that_is_stopped_leaves_its_topics_to_the_other_at_once(brokers: Brokers) -> None:
    name, owner, other = await owned(brokers)
    await asyncio.to_thread(brokers.stop, owner)
    began = time.perf_counter()
    assert await lookup(brokers, other, name) == brokers.entry(other).service_url
    assert time.perf_counter() - began < 2
