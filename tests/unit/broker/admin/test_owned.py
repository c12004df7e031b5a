"""What only the owner of a topic can do, over real HTTP and with Pulsar's own client."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pulsar
import pytest
from daybook_broker.errors import AlreadyRunningError

from daybook.client.broker_admin import Admin as Http
from daybook.client.broker_admin import subscription_path
from daybook.core.errors import NotOwnerError
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from tests.unit.broker.admin.kit import TOPICS, Admin, admins, new_namespace, owner_of
from tests.unit.broker.kit import with_pulsar

pytestmark = pytest.mark.integration

MAX = 2**63 - 1


class Served:
    """A topic with ten messages; requests go to a broker that does not own it."""

    def __init__(self, name: TopicName, owner: Admin, other: Admin) -> None:
        self.name = name
        self.owner = owner
        self.other = other
        self.path = f"{TOPICS}/{name.tenant}/{name.namespace}/{name.local}"

    async def stats(self) -> Any:
        return await self.other.get(f"{self.path}/stats")

    async def backlog(self, subscription: str = "s") -> int:
        return int((await self.stats())["subscriptions"][subscription]["msgBacklog"])

    async def post(self, action: str, body: object = None, subscription: str = "s") -> None:
        await self.other.do("POST", f"{self.path}/subscription/{subscription}/{action}", body)

    async def receive(self, subscription: str = "s") -> bytes:
        """The next message of the subscription, which is not acknowledged."""

        def next_message(client: pulsar.Client) -> bytes:
            consumer = client.subscribe(str(self.name), subscription)
            found: bytes = consumer.receive(20_000).data()
            consumer.close()
            return found

        return await with_pulsar(self.owner.broker, next_message)


@asynccontextmanager
async def served(cluster: LocalCluster) -> AsyncIterator[Served]:
    name = TopicName(*new_namespace(), "orders")
    async with admins(cluster, 2) as brokers:
        path = f"{TOPICS}/{name.tenant}/{name.namespace}/{name.local}"
        await brokers[0].do("PUT", path)
        owner, (other,) = await owner_of(brokers, name)
        found = Served(name, owner, other)
        await other.do("PUT", f"{path}/subscription/s")

        def publish(client: pulsar.Client) -> None:
            producer = client.create_producer(str(name), batching_enabled=False)
            for number in range(10):
                producer.send(b"%d" % number)
            producer.close()

        await with_pulsar(owner.broker, publish)
        yield found


async def test_a_topic_is_compacted_by_its_owner_which_reports_how_that_ended(cluster: LocalCluster) -> None:
    async with served(cluster) as topic:
        path = f"{topic.path}/compaction"
        assert await topic.other.get(path) == {"status": "NOT_RUN", "lastError": ""}
        await topic.other.do("PUT", path)
        found = topic.owner.broker.registry.get(topic.name)
        assert found is not None
        await found.compaction.finished()
        assert await topic.other.get(path) == {"status": "SUCCESS", "lastError": ""}
        internals = await topic.other.get(f"{topic.path}/internalStats")
        assert internals["compactionHorizon"] == internals["lastConfirmedEntry"]
        assert [ledger["entries"] for ledger in internals["compactedLedgers"]] == [10], (
            "keyless messages stay"
        )
        found.compaction.begin()
        with pytest.raises(AlreadyRunningError, match="wait until that has ended"):
            found.compaction.begin()
        await found.compaction.finished()
        await topic.other.do("DELETE", path)
        internals = await topic.other.get(f"{topic.path}/internalStats")
        assert (internals["compactionHorizon"], internals["compactedLedgers"]) == (None, [])


async def test_the_statistics_of_a_topic_show_its_clients_and_backlogs(cluster: LocalCluster) -> None:
    async with served(cluster) as topic:
        loop = asyncio.get_running_loop()

        def ask(work: Coroutine[Any, Any, Any]) -> Any:
            return asyncio.run_coroutine_threadsafe(work, loop).result(40)

        def use(client: pulsar.Client) -> Any:
            producer = client.create_producer(
                str(topic.name), producer_name="p", properties={"app": "till", "": "ü"}
            )
            producer.send(b"x")
            consumer = client.subscribe(
                str(topic.name),
                "s",
                pulsar.ConsumerType.Shared,
                consumer_name="c",
                properties={"app": "ledger"},
            )
            message = consumer.receive(20_000)
            found = ask(topic.stats())
            consumer.acknowledge(message)
            return found

        found = await with_pulsar(topic.owner.broker, use)
        assert found["ownerBroker"] == topic.owner.broker.settings.broker_id
        assert (found["msgInCounter"], found["numberOfEntries"]) == (11, 11)
        assert found["storageSize"] == found["bytesInCounter"] == found["backlogSize"] > 11
        (publisher,) = found["publishers"]
        assert (publisher["producerName"], publisher["accessMode"]) == ("p", "Shared")
        assert publisher["metadata"] == {"app": "till", "": "ü"}
        subscription = found["subscriptions"]["s"]
        assert (subscription["type"], subscription["isDurable"], subscription["msgBacklog"]) == (
            "Shared",
            True,
            11,
        )
        (consumer,) = subscription["consumers"]
        assert (consumer["consumerName"], consumer["metadata"]) == ("c", {"app": "ledger"})
        assert consumer["address"] == publisher["address"]
        assert consumer["clientVersion"] == publisher["clientVersion"]
        assert publisher["clientVersion"].startswith("Pulsar-CPP-v")
        assert subscription["backlogSize"] == found["backlogSize"], "it is the only subscription"
        assert "activeConsumerName" not in subscription
        assert 1 <= consumer["unackedMessages"] <= 11
        assert subscription["unackedMessages"] == consumer["unackedMessages"]
        internals = await topic.other.get(f"{topic.path}/internalStats")
        assert internals["state"] == "LedgerOpened"
        (ledger,) = internals["ledgers"]
        assert internals["lastConfirmedEntry"] == f"{ledger['ledgerId']}:10"
        assert internals["cursors"]["s"]["markDeletePosition"] == f"{ledger['ledgerId']}:0"
        last = await topic.other.get(f"{topic.path}/lastMessageId")
        assert last == {"ledgerId": ledger["ledgerId"], "entryId": 10, "partitionIndex": -1}


async def test_the_statistics_name_the_consumer_that_receives_alone_and_size_each_backlog(
    cluster: LocalCluster,
) -> None:
    async with served(cluster) as topic:
        loop = asyncio.get_running_loop()

        def use(client: pulsar.Client) -> Any:
            kind = pulsar.ConsumerType.Failover
            client.subscribe(str(topic.name), "s", consumer_name="alone")
            former = client.subscribe(str(topic.name), "f", kind, consumer_name="a")
            client.subscribe(str(topic.name), "f", kind, consumer_name="b")
            former.close()
            return asyncio.run_coroutine_threadsafe(topic.stats(), loop).result(40)

        await topic.post("skip/5")
        before = await topic.stats()
        found = await with_pulsar(topic.owner.broker, use)
        assert "activeConsumerName" not in before["subscriptions"]["s"]
        shown = found["subscriptions"]
        assert {name: shown[name]["activeConsumerName"] for name in "sf"} == {"s": "alone", "f": "b"}
        assert {name: shown[name]["backlogSize"] for name in "sf"} == {"s": found["storageSize"] // 2, "f": 0}
        assert found["backlogSize"] == shown["s"]["backlogSize"], "the largest is the topic's"


async def test_the_statistics_say_how_durable_what_is_written_is_and_not_what_the_next_ledger_will_be(
    cluster: LocalCluster,
) -> None:
    def durability(found: dict[str, Any]) -> tuple[Any, ...]:
        return found["durability"], found["degrade"], found["isDegraded"]

    async with served(cluster) as topic:
        internals = await topic.other.get(f"{topic.path}/internalStats")
        assert durability(internals) == ("semi-sync", "to-ack-quorum", False)
        written = internals["openLedger"]
        assert (len(written["ensemble"]), written["writeQuorum"], written["ackQuorum"]) == (3, 3, 2)
        found = topic.owner.broker.registry.get(topic.name)
        assert found is not None
        await topic.other.do("POST", f"{topic.path}/policy", {"durability": "sync", "degrade": "never"})
        assert durability(await topic.stats()) == ("semi-sync", "to-ack-quorum", False)
        await found.read_policy()
        await with_pulsar(
            topic.owner.broker, lambda client: client.create_producer(str(topic.name)).send(b"x")
        )
        assert durability(await topic.stats()) == ("sync", "never", False)
        internals = await topic.other.get(f"{topic.path}/internalStats")
        assert durability(internals) == ("sync", "never", False)
        assert internals["openLedger"]["ackQuorum"] == 3


async def test_a_subscription_skips_and_begins_again_where_it_is_told_to(cluster: LocalCluster) -> None:
    async with served(cluster) as topic:
        assert await topic.backlog() == 10
        await topic.post("skip/3")
        assert await topic.backlog() == 7
        assert await topic.receive() == b"3"
        await topic.post("skip_all")
        assert await topic.backlog() == 0
        internals = await topic.other.get(f"{topic.path}/internalStats")
        ledger_id = internals["ledgers"][0]["ledgerId"]
        await topic.post("resetcursor", {"ledgerId": ledger_id, "entryId": 5})
        assert await topic.receive() == b"5"
        await topic.post("resetcursor/0")
        assert await topic.backlog() == 10
        await topic.post(f"resetcursor/{int(time.time() * 1000) + 60_000}")
        assert await topic.backlog() == 0
        await topic.post("resetcursor", {"ledgerId": -1, "entryId": -1})
        assert await topic.backlog() == 10
        await topic.post("resetcursor", {"ledgerId": MAX, "entryId": MAX})
        assert await topic.backlog() <= 1
        await topic.post("resetcursor/0")
        await topic.post("expireMessages/3600")
        assert await topic.backlog() == 10
        await topic.post("expireMessages/0")
        assert await topic.backlog() == 0


async def test_a_topic_is_terminated_and_can_still_be_read(cluster: LocalCluster) -> None:
    async with served(cluster) as topic:
        status, last = await topic.other.ask("POST", f"{topic.path}/terminate")
        assert (status, last["entryId"]) == (200, 9)
        assert await topic.receive() == b"0"
        assert (await topic.other.get(f"{topic.path}/internalStats"))["state"] == "Terminated"

        def publish(client: pulsar.Client) -> None:
            client.create_producer(str(topic.name)).send(b"x")

        with pytest.raises(pulsar.TopicTerminated):
            await with_pulsar(topic.owner.broker, publish)
        await topic.other.do("DELETE", topic.path, force="true")


async def test_subscriptions_are_created_at_a_place_listed_and_deleted(cluster: LocalCluster) -> None:
    async with served(cluster) as topic:
        internals = await topic.other.get(f"{topic.path}/internalStats")
        position = {"ledgerId": internals["ledgers"][0]["ledgerId"], "entryId": 7}
        for name, body, backlog in (("all", "earliest", 10), ("none", "latest", 0), ("some", position, 3)):
            await topic.other.do("PUT", f"{topic.path}/subscription/{name}", body)
            assert await topic.backlog(name) == backlog
        assert await topic.other.get(f"{topic.path}/subscriptions") == ["all", "none", "s", "some"]
        await topic.other.do("POST", f"{topic.path}/all_subscription/expireMessages/0")
        assert [await topic.backlog(name) for name in ("all", "none", "s", "some")] == [0, 0, 0, 0]
        await topic.other.do("DELETE", f"{topic.path}/subscription/all")
        assert await topic.other.get(f"{topic.path}/subscriptions") == ["none", "s", "some"]
        status, reason = await topic.other.refused("DELETE", topic.path)
        assert (status, reason) == (
            412,
            f"topic {topic.name} has 3 subscriptions: close them first, or delete it by force",
        )
        await topic.other.do("DELETE", topic.path, force="true")
        assert (await topic.other.refused("GET", f"{topic.path}/stats"))[0] == 404


async def test_a_subscription_that_is_stored_and_not_open_is_not_created_again(cluster: LocalCluster) -> None:
    async with served(cluster) as topic:
        found = topic.owner.broker.registry.get(topic.name)
        assert found is not None
        found.subscriptions._cursor_ended("s", NotOwnerError("its cursor ended"))
        assert found.subscriptions.unopened() == ["s"]
        status, reason = await topic.other.refused("PUT", f"{topic.path}/subscription/s", "latest")
        assert (status, reason) == (409, f"topic {topic.name} has a subscription 's' already")
        assert await topic.receive() == b"0", "its place is the same"


async def test_a_subscription_that_is_stored_and_not_open_is_listed_moved_and_deleted(
    cluster: LocalCluster,
) -> None:
    async with served(cluster) as topic:
        found = topic.owner.broker.registry.get(topic.name)
        assert found is not None
        path = f"{topic.path}/subscription/s"
        for request in (("POST", f"{path}/skip/4"), ("DELETE", path)):
            found.subscriptions._cursor_ended("s", NotOwnerError("its cursor ended"))
            assert await topic.other.get(f"{topic.path}/subscriptions") == ["s"]
            await topic.other.do(*request)
        assert await topic.other.get(f"{topic.path}/subscriptions") == []
        assert found.subscriptions.marks() == (), "nothing of it holds the trimming"


async def test_a_subscription_has_any_name_in_the_protocol_in_admin_paths_and_in_the_metadata(
    cluster: LocalCluster,
) -> None:
    name = "team/größe %2F ?x=1"
    encoded = quote(name, safe="")
    async with served(cluster) as topic:

        def read(client: pulsar.Client) -> list[bytes]:
            consumer = client.subscribe(
                str(topic.name), name, initial_position=pulsar.InitialPosition.Earliest
            )
            messages = [consumer.receive(20_000) for _ in range(3)]
            consumer.acknowledge_cumulative(messages[-1])
            consumer.close()
            return [message.data() for message in messages]

        assert await with_pulsar(topic.owner.broker, read) == [b"0", b"1", b"2"]
        assert await topic.other.get(f"{topic.path}/subscriptions") == ["s", name]
        broker = topic.owner.broker
        nodes = await broker.client.store.children(broker.client.layout.cursors(topic.name))
        assert set(nodes) == {"s", encoded}
        await topic.other.do("PUT", f"{topic.path}/unload")
        assert await topic.backlog(name) == 7, "the next owner finds it, and where it was"
        admin = Http([topic.other.broker.admin_url])
        await asyncio.to_thread(admin.ask, "POST", topic.name, subscription_path(name, "skip/2"))
        assert await topic.backlog(name) == 5
        await topic.other.do("POST", f"{topic.path}/subscription/{encoded}/skip_all")
        assert await topic.backlog(name) == 0
        await asyncio.to_thread(admin.ask, "DELETE", topic.name, subscription_path(name))
        assert await topic.other.get(f"{topic.path}/subscriptions") == ["s"]


async def test_a_subscription_with_consumers_is_deleted_by_force_alone(cluster: LocalCluster) -> None:
    async with served(cluster) as topic:
        loop = asyncio.get_running_loop()

        def ask(work: Coroutine[Any, Any, Any]) -> Any:
            return asyncio.run_coroutine_threadsafe(work, loop).result(40)

        def use(client: pulsar.Client) -> Any:
            client.subscribe(str(topic.name), "s")
            return ask(topic.other.refused("DELETE", f"{topic.path}/subscription/s"))

        status, reason = await with_pulsar(topic.owner.broker, use)
        assert (status, "has 1 consumers" in reason) == (412, True)
        await topic.other.do("DELETE", f"{topic.path}/subscription/s", force="true")


@pytest.mark.parametrize(
    ("method", "rest", "body", "status"),
    [
        ("POST", "subscription/no/skip_all", None, 404),
        ("DELETE", "subscription/no", None, 404),
        ("PUT", "subscription/s", None, 409),
        ("PUT", "subscription/%20", None, 400),
        ("PUT", "subscription/new", {"ledgerId": 1}, 400),
        ("PUT", "subscription/new", "first", 400),
        ("POST", "subscription/s/skip/x", None, 400),
        ("POST", "subscription/s/skip/-1", None, 400),
        ("POST", "subscription/s/resetcursor/-1", None, 400),
        ("POST", "subscription/s/resetcursor", {"ledgerId": "1", "entryId": 2}, 400),
        ("POST", "subscription/s/resetcursor", None, 400),
        ("POST", "subscription/s/expireMessages/99999999999999999999", None, 400),
        ("GET", "subscription/s/nothing", None, 404),
    ],
)
async def test_what_cannot_be_done_to_a_subscription_is_refused(
    cluster: LocalCluster, method: str, rest: str, body: object, status: int
) -> None:
    async with admins(cluster, 1) as (admin,):
        tenant, name = new_namespace()
        path = f"{TOPICS}/{tenant}/{name}/orders"
        await admin.do("PUT", path)
        await admin.do("PUT", f"{path}/subscription/s")
        assert (await admin.refused(method, f"{path}/{rest}", body))[0] == status
