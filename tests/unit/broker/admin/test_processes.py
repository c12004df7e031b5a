"""The ownership and the admin port of real broker processes that are killed and paused: rule 46 of docs/protocol.md."""

import asyncio
from http import HTTPStatus

import aiohttp
import pytest

import daybook
from daybook.client import broker_topics
from daybook.client.broker_admin import Admin as Http
from daybook.client.topic_reports import Serving
from daybook.core.topics.name import TopicName
from daybook.metadata.store.store import NoNodeError
from tests.fixtures.brokers import Brokers
from tests.unit.broker.admin.kit import new_namespace

pytestmark = pytest.mark.integration


async def lookup(brokers: Brokers, broker: str, name: TopicName) -> str:
    """The service URL of the owner, as one broker says it; asked again while there is none for longer than a lookup is held."""
    path = f"/lookup/v2/topic/persistent/{name.tenant}/{name.namespace}/{name.local}"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session:
        while True:
            async with session.get(brokers.entry(broker).admin_url + path) as answer:
                found = await answer.json()
            if answer.status != HTTPStatus.SERVICE_UNAVAILABLE:
                assert answer.status == HTTPStatus.OK, found
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


async def next_owner(brokers: Brokers, former: str, broker: str, name: TopicName) -> str:
    """The service URL of who owns the topic after `former`, from a lookup that waited for it.

    On a slow machine the answer of a moment ago comes late, and looks as if it had waited.
    """
    while True:
        url = await (await held(brokers, broker, name))
        if url != brokers.entry(former).service_url:
            return url


async def test_a_lookup_is_held_from_the_owners_death_until_the_next_one_has_the_topic(
    brokers: Brokers,
) -> None:
    name, owner, other = await owned(brokers)
    await asyncio.to_thread(brokers.kill, owner)
    assert await next_owner(brokers, owner, other, name) == brokers.entry(other).service_url


async def test_rule_46_a_paused_owner_that_returns_after_its_session_is_no_owner(brokers: Brokers) -> None:
    name, owner, other = await owned(brokers)
    brokers.pause(owner)
    try:
        assert await next_owner(brokers, owner, other, name) == brokers.entry(other).service_url
    finally:
        brokers.resume(owner)
    assert await lookup(brokers, owner, name) == brokers.entry(other).service_url


async def test_a_lookup_waits_for_an_owner_that_was_paused_for_a_moment(patient_brokers: Brokers) -> None:
    name, owner, other = await owned(patient_brokers)
    patient_brokers.pause(owner)
    try:
        asking = await held(patient_brokers, other, name)
    finally:
        patient_brokers.resume(owner)
    assert await asking == patient_brokers.entry(owner).service_url


async def test_a_broker_that_is_stopped_leaves_its_topics_to_the_other_at_once(
    patient_brokers: Brokers, client: daybook.Client
) -> None:
    """Nothing of its session is left to run out."""
    name, owner, other = await owned(patient_brokers)
    await asyncio.to_thread(patient_brokers.stop, owner)
    with pytest.raises(NoNodeError):
        await client.store.get(client.layout.broker(owner))
    assert await lookup(patient_brokers, other, name) == patient_brokers.entry(other).service_url


async def test_every_broker_reports_its_topics_and_the_survivor_those_of_a_killed_one(
    patient_brokers: Brokers,
) -> None:
    brokers = patient_brokers
    name, owner, other = await owned(brokers)

    def reported() -> dict[str, set[str]]:
        """The topics of each broker that runs."""
        return {
            page.broker.broker: {topic.topic for topic in page.topics}
            for each in running
            for page in broker_topics.pages(Http([]), urls[each])
        }

    urls = {each: brokers.entry(each).admin_url for each in brokers.ids}
    http, running = Http(list(urls.values())), [owner, other]
    await asyncio.to_thread(http.ask, "PUT", name)
    report, topic = await asyncio.to_thread(broker_topics.topic, http, name)
    assert (report.broker, report.is_certain, topic.serving) == (owner, True, Serving.SERVED)
    found = await asyncio.to_thread(reported)
    assert (str(name) in found[owner], str(name) in found[other]) == (True, False)
    await asyncio.to_thread(brokers.kill, owner)
    running.remove(owner)
    await next_owner(brokers, owner, other, name)
    after, _ = await asyncio.to_thread(broker_topics.topic, Http([urls[other]]), name)
    assert (after.broker, after.session_id != report.session_id) == (other, True)
    assert str(name) in (await asyncio.to_thread(reported))[other]
