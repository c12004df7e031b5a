"""What brokers report of their topics, over real HTTP: pages, single topics, and who owns them."""

import asyncio
import time
from typing import Any
from urllib.parse import quote

import pulsar
import pytest
from daybook_broker.admin import known

from daybook.client import broker_topics
from daybook.client.broker_admin import Admin as Http
from daybook.client.broker_admin import AdminError
from daybook.client.topic_reports import Serving, TopicPage
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.metadata.topics import TopicManager
from tests.unit.broker.admin.kit import Admin, admins, new_namespace, owner_of
from tests.unit.broker.kit import with_pulsar

pytestmark = pytest.mark.integration

LIST = "/daybook/v1/topics"
ODD = "a b%2F:ü|?#"
"""The last part of a name, with characters that paths give a meaning."""


async def page_of(admin: Admin, path: str = LIST, **query: str) -> TopicPage:
    return TopicPage.model_validate(await admin.get(path, **query))


async def load(admin: Admin, *names: TopicName) -> None:
    for name in names:
        await admin.broker.ownership.lookup(name, authoritative=True)
        await admin.broker.registry.load(name, create=True)


async def test_a_broker_reports_its_topics_page_by_page_without_asking_anybody(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant, namespace = new_namespace()
    names = [TopicName(tenant, namespace, local) for local in (ODD, "b", "c", "d", "e")]
    async with admins(cluster, 1, load_report_ms=600_000) as (admin,):
        await load(admin, *names)
        asked: list[str] = []
        store = type(admin.broker.client.store)
        for method in ("get", "children", "exists", "sync"):  # the broker writes on its own account meanwhile
            real = getattr(store, method)

            def spy(self: Any, *args: Any, _real: Any = real, _name: str = method, **rest: Any) -> Any:
                asked.append(_name)
                return _real(self, *args, **rest)

            monkeypatch.setattr(store, method, spy)
        first = await page_of(admin, limit="2")
        assert [each.topic for each in first.topics] == [str(names[0]), str(names[1])]
        assert (first.next, first.broker.topics) == (str(names[1]), 5)
        found = await asyncio.to_thread(
            lambda: list(broker_topics.pages(Http([]), admin.broker.admin_url, limit=2))
        )
        assert asked == []
        monkeypatch.undo()
        assert [len(page.topics) for page in found] == [2, 2, 1]
        assert [each.topic for page in found for each in page.topics] == [str(name) for name in names]
        assert all(each.serving is Serving.SERVED for page in found for each in page.topics)
        monkeypatch.setattr(known, "PAGE_BYTES_MAX", 1)
        assert [len(page.topics) for page in (await page_of(admin),)] == [1]
        broker = found[0].broker
        assert broker.broker == admin.broker.settings.broker_id
        assert (broker.is_certain, int(broker.session_id, 16)) == (True, admin.broker.ownership.session_id)
        for limit in ("0", "x", "-1"):
            assert (await admin.refused("GET", LIST, limit=limit))[0] == 400


async def test_a_report_says_what_holds_a_subscription_up(cluster: LocalCluster) -> None:
    name = TopicName(*new_namespace(), "orders")
    loop = asyncio.get_running_loop()
    async with admins(cluster, 1, unacked_consumer_max=3) as (admin,):

        def use(client: pulsar.Client) -> TopicPage:
            consumer = client.subscribe(
                str(name), "s", pulsar.ConsumerType.Shared, receiver_queue_size=1, consumer_name="c"
            )
            producer = client.create_producer(str(name), batching_enabled=False)
            for number in range(10):
                producer.send(b"%d" % number)
            taken = [consumer.receive(20_000) for _ in range(3)]
            consumer.acknowledge(taken[1])
            ended_s = time.monotonic() + 40
            while time.monotonic() < ended_s:  # clients send acknowledgements a little later
                asking = page_of(admin, f"{LIST}/{quote(str(name), safe='')}")
                page = asyncio.run_coroutine_threadsafe(asking, loop).result(40)
                if page.topics[0].subscriptions[0].holes:
                    return page
            raise AssertionError

        page = await with_pulsar(admin.broker, use)
        (topic,) = page.topics
        (subscription,) = topic.subscriptions
        assert (topic.serving, topic.phase, topic.state) == (Serving.SERVED, "OPEN", "LedgerOpened")
        assert (topic.producers, topic.consumers, topic.messages_in, topic.entries) == (1, 1, 10, 10)
        assert (topic.ledgers, topic.bytes) == (1, topic.bytes_in)
        assert (topic.durability, topic.degrade, topic.is_degraded) == ("semi-sync", "to-ack-quorum", False)
        assert topic.open_ledger is not None
        assert topic.last_position == f"{topic.open_ledger.ledger_id}:9"
        assert len(topic.open_ledger.ensemble) == 3
        assert topic.quota.backlog_bytes == topic.bytes
        assert (subscription.kind, subscription.backlog_entries, subscription.holes) == ("Shared", 9, 1)
        assert subscription.oldest_age_s is not None
        assert subscription.oldest_age_s < 60
        assert (subscription.unacked_messages, subscription.blocked_consumers) == (2, 1)
        stored = await admin.broker.topics.read(name)
        assert (topic.list_version, topic.owner_token) == (stored.version, stored.value.owner_token)


async def test_a_list_has_the_largest_backlogs_and_one_topic_all_of_them(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = TopicName(*new_namespace(), ODD)
    async with admins(cluster, 1) as (admin,):
        path = f"{LIST}/{quote(str(name), safe='')}"
        assert (await admin.refused("GET", path))[0] == 404
        await load(admin, name)

        def use(client: pulsar.Client) -> None:
            producer = client.create_producer(str(name), batching_enabled=False)
            for number in range(23):
                client.subscribe(str(name), f"s{number:02}").close()
                producer.send(b"x")

        await with_pulsar(admin.broker, use)
        (topic,) = (await page_of(admin)).topics
        assert (topic.subscription_count, len(topic.subscriptions)) == (23, 20)
        assert [(each.name, each.backlog_entries) for each in topic.subscriptions] == [
            (f"s{number:02}", 23 - number) for number in range(20)
        ]
        monkeypatch.setattr(known, "SUBSCRIPTIONS_MAX", 10)
        http = Http([admin.broker.admin_url])
        _, whole = await asyncio.to_thread(broker_topics.topic, http, name)
        assert [each.name for each in whole.subscriptions] == [f"s{number:02}" for number in range(23)]
        as_decoded = f"{LIST}/{name.tenant}/{name.namespace}/{quote(ODD, safe='')}"
        assert (await page_of(admin, as_decoded)).topics[0].topic == str(name)
        assert (await admin.refused("GET", f"{LIST}/a%2Fb"))[0] == 400


async def test_a_topic_of_another_broker_is_asked_for_there(cluster: LocalCluster) -> None:
    name = TopicName(*new_namespace(), "orders")
    path = broker_topics.topic_path(name)
    async with admins(cluster, 2) as brokers:
        await brokers[0].broker.topics.create(name)
        owner, (other,) = await owner_of(brokers, name)
        for admin in brokers:  # the first request loads the idle topic
            (topic,) = (await page_of(admin, path)).topics
            assert (topic.topic, topic.phase) == (str(name), "IDLE")
        status, found = await other.ask("GET", path, query={"redirect": "false"})
        assert (status, found["broker"], found["adminUrl"], found["isOwner"]) == (
            409,
            owner.broker.settings.broker_id,
            owner.broker.admin_url,
            True,
        )
        assert "owns the topic: ask it" in found["reason"]
        status, location = await other.ask("GET", path, follow=False)
        assert (status, location["broker"]) == (307, owner.broker.settings.broker_id)
        assert str(name) not in [each.topic for each in (await page_of(other)).topics]
        report, topic = await asyncio.to_thread(broker_topics.topic, Http([other.broker.admin_url]), name)
        assert (report.broker, topic.serving) == (owner.broker.settings.broker_id, Serving.SERVED)


async def test_a_topic_that_is_being_taken_over_or_given_up_is_reported_as_that(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = TopicName(*new_namespace(), "orders")
    path = broker_topics.topic_path(name)
    async with admins(cluster, 1) as (admin,):
        broker = admin.broker
        await broker.topics.create(name)
        held, read = asyncio.Event(), TopicManager.read

        async def held_read(*args: Any, **options: Any) -> Any:
            await held.wait()
            return await read(*args, **options)

        monkeypatch.setattr(TopicManager, "read", held_read)
        await broker.ownership.lookup(name, authoritative=True)
        loading = asyncio.create_task(broker.registry.load(name, create=False))
        while broker.registry.known(name) is None:  # noqa: ASYNC110 - a take-over has no event before its end
            await asyncio.sleep(0)
        for asked in (path, LIST):
            (topic,) = (await page_of(admin, asked)).topics
            assert (topic.topic, topic.serving, topic.phase) == (str(name), Serving.TAKING_OVER, "READING")
        held.set()
        await loading
        unload = broker.registry.unload([name])
        await unload.finished()
        (topic,) = (await page_of(admin, path)).topics
        assert topic.serving is Serving.UNLOADING
        assert topic.error is not None
        unload.announce(None)


def test_an_answer_that_is_none_is_an_error_that_says_where() -> None:
    class Other(Http):
        def ask_any(self, method: str, path: str, body: object = None) -> Any:
            return {"broker": {"broker": "b"}, "topics": [{"serving": "served"}]}

    with pytest.raises(AdminError, match=r"topics\.0\.topic: Field required; is the broker of another"):
        broker_topics.topic(Other([]), TopicName("t", "ns", "x"))
