"""A partitioned topic whose partitions belong to several brokers, over real HTTP: it is unloaded, and its statistics are read."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pulsar
import pytest
from daybook_broker.admin import partitioned
from daybook_broker.admin.partitioned import _merged_topics
from daybook_broker.broker import Broker
from daybook_broker.ownership.api import Elsewhere, LookupResult, NotReady
from daybook_broker.ownership.held import HeldBundles

from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.bundles import Bundle
from daybook.local.cluster import LocalCluster
from daybook.metadata.brokers import Urls
from daybook.metadata.partitions import partition
from tests.unit.broker.admin.kit import TOPICS, Admin, admins, new_namespace, owner_of
from tests.unit.broker.kit import LIMIT_S, with_pulsar
from tests.unit.broker.test_tls import CA, secure_brokers, settings_of, trusting

PARTITIONS = 8


def path_of(name: TopicName) -> str:
    return f"{TOPICS}/{name.tenant}/{name.namespace}/{name.local}"


def one_of_each_bundle(name: TopicName) -> dict[Bundle, TopicName]:
    """A partition of each bundle that the topic has partitions in."""
    parts = (partition(name, index) for index in range(PARTITIONS))
    return {Bundle.of(part): part for part in parts}


def moves(name: TopicName, brokers: Sequence[Broker]) -> list[str]:
    """The requests that give each of two brokers every other bundle of the topic."""
    parts = [part for _, part in sorted(one_of_each_bundle(name).items())]
    assert len(parts) > 1, "the names of the partitions have different hashes"
    ids = [broker.settings.broker_id for broker in brokers]
    return [
        f"{path_of(part)}/unload?destinationBroker={ids[number % 2]}" for number, part in enumerate(parts)
    ]


class Spread:
    """A topic with partitions; each of two brokers owns every other one of their bundles."""

    def __init__(self, brokers: Sequence[Admin], name: TopicName) -> None:
        self.brokers = brokers
        self.name = name
        self.path = path_of(name)
        self.parts = [partition(name, index) for index in range(PARTITIONS)]
        self.one_of = one_of_each_bundle(name)

    async def owner(self, bundle: Bundle) -> Admin:
        return (await owner_of(self.brokers, self.one_of[bundle]))[0]

    async def owners(self) -> dict[Bundle, Admin]:
        return {bundle: await self.owner(bundle) for bundle in sorted(self.one_of)}


@asynccontextmanager
async def spread(cluster: LocalCluster) -> AsyncIterator[Spread]:
    async with admins(cluster, 2) as brokers:
        found = Spread(brokers, TopicName(*new_namespace(), "orders"))
        await brokers[0].do("PUT", f"{found.path}/partitions", PARTITIONS)
        for move in moves(found.name, [admin.broker for admin in brokers]):
            await brokers[0].do("PUT", move)
        assert list((await found.owners()).values())[:2] == [*brokers]
        yield found


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> list[Bundle]:
    """Every bundle that a broker of this process has handed over."""
    found: list[Bundle] = []
    leave = HeldBundles.leave

    async def noted(held: Any, bundle: Bundle, target: Any) -> bool:
        found.append(bundle)
        return await leave(held, bundle, target)

    monkeypatch.setattr(HeldBundles, "leave", noted)
    return found


# Unloads


@pytest.mark.integration
@pytest.mark.parametrize("asked", [0, 1])
async def test_each_bundle_of_a_partitioned_topic_is_handed_over_once_whoever_is_asked(
    cluster: LocalCluster, unloaded: list[Bundle], asked: int
) -> None:
    async with spread(cluster) as topic:
        before = await topic.owners()
        unloaded.clear()
        await topic.brokers[asked].do("PUT", f"{topic.path}/unload")
        assert sorted(unloaded) == sorted(before)
        after = await topic.owners()
        assert all(after[bundle] is not owner for bundle, owner in before.items())


@pytest.mark.integration
async def test_all_partitions_are_handed_over_to_the_named_broker(
    cluster: LocalCluster, unloaded: list[Bundle]
) -> None:
    async with spread(cluster) as topic:
        target = topic.brokers[0]
        others = [bundle for bundle, owner in (await topic.owners()).items() if owner is not target]
        unloaded.clear()
        await target.do("PUT", f"{topic.path}/unload", destinationBroker=target.broker.settings.broker_id)
        assert sorted(unloaded) == others
        assert {*(await topic.owners()).values()} == {target}


@pytest.mark.integration
async def test_a_request_that_follows_no_redirect_unloads_nothing_of_a_topic_with_several_owners(
    cluster: LocalCluster, unloaded: list[Bundle]
) -> None:
    async with spread(cluster) as topic:
        unloaded.clear()
        status, reason = await topic.brokers[0].refused("PUT", f"{topic.path}/unload", redirect="false")
        text = f"unload the partitions by name, {topic.parts[0]} to {topic.parts[-1]}"
        assert (status, text in reason) == (412, True), reason
        assert unloaded == []


@pytest.mark.integration
async def test_an_owner_that_has_gone_is_not_redirected_to(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with spread(cluster) as topic:
        bundle = max(topic.one_of)

        async def owners(*_: str) -> dict[Bundle, str]:
            return {bundle: "nobody"}

        monkeypatch.setattr(topic.brokers[0].broker.ownership, "owners", owners)
        status, reason = await topic.brokers[0].refused("PUT", f"{topic.path}/unload")
        assert (status, "broker nobody, which owns some of the partitions" in reason) == (503, True)


@pytest.mark.integration
async def test_a_topic_that_does_not_exist_is_not_unloaded(
    cluster: LocalCluster, unloaded: list[Bundle]
) -> None:
    name = TopicName(*new_namespace(), "orders")
    path = f"{TOPICS}/{name.tenant}/{name.namespace}"
    async with admins(cluster, 1) as (admin,):
        await admin.do("PUT", f"{path}/parts/partitions", 2)
        for missing in ("orders", "parts-partition-2"):
            status, reason = await admin.refused("PUT", f"{path}/{missing}/unload")
            assert (status, "does not exist" in reason) == (404, True), reason
        assert unloaded == []
        await admin.do("PUT", f"{path}/parts/unload")  # nobody has taken them: there is nothing to hand over
        assert unloaded == []


# Statistics


@pytest.mark.integration
async def test_the_statistics_of_all_partitions_are_summed_whoever_is_asked(cluster: LocalCluster) -> None:
    async with spread(cluster) as topic:
        loop = asyncio.get_running_loop()
        found: list[dict[str, Any]] = []

        async def ask() -> None:
            for admin in topic.brokers:
                found.append(await admin.get(f"{topic.path}/partitioned-stats"))
                found.append(await admin.get(f"{topic.path}/partitioned-stats", perPartition="false"))

        def use(client: pulsar.Client) -> None:
            consumer = client.subscribe(str(topic.name), "s")
            producer = client.create_producer(
                str(topic.name),
                batching_enabled=False,
                message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
            )
            for number in range(2 * PARTITIONS):
                producer.send(b"%02d" % number)
            for _ in range(2 * PARTITIONS):
                consumer.acknowledge(consumer.receive(20_000))
            consumer.close()
            reader = client.subscribe(str(topic.name), "s")
            for number in range(2 * PARTITIONS):
                producer.send(b"%02d" % number)
            asyncio.run_coroutine_threadsafe(ask(), loop).result(LIMIT_S)
            reader.close()

        await with_pulsar(topic.brokers[0].broker, use)
        for whole in found[0], found[2]:
            parts = whole["partitions"]
            assert list(parts) == [str(part) for part in topic.parts]
            owners = {str(part): (await topic.owner(Bundle.of(part))) for part in topic.parts}
            assert {name: each["ownerBroker"] for name, each in parts.items()} == {
                name: owner.broker.settings.broker_id for name, owner in owners.items()
            }
            assert (whole["msgInCounter"], whole["averageMsgSize"]) == (
                4 * PARTITIONS,
                whole["bytesInCounter"] / (4 * PARTITIONS),
            )
            for counter in ("bytesInCounter", "storageSize", "backlogSize", "msgRateIn"):
                assert whole[counter] == sum(each[counter] for each in parts.values()), counter
            subscription = whole["subscriptions"]["s"]
            assert subscription["msgBacklog"] == 2 * PARTITIONS
            assert subscription["lastAckedTimestamp"] == max(
                each["subscriptions"]["s"]["lastAckedTimestamp"] for each in parts.values()
            )
            assert (subscription["type"], subscription["isDurable"]) == ("Exclusive", True)
            assert (len(subscription["consumers"]), len(whole["publishers"])) == (PARTITIONS, PARTITIONS)
            assert whole["metadata"] == {"partitions": PARTITIONS, "deleted": False}
            assert {"ownerBroker", "markDeletePosition"}.isdisjoint(whole.keys() | subscription.keys())
        for whole in found[1], found[3]:
            assert (whole["partitions"], whole["msgInCounter"]) == ({}, 4 * PARTITIONS)


@pytest.mark.integration
async def test_a_partition_that_was_not_created_yet_has_no_statistics(cluster: LocalCluster) -> None:
    async with spread(cluster) as topic:
        by_owner: dict[Admin, TopicName] = {
            owner: topic.one_of[b] for b, owner in (await topic.owners()).items()
        }
        missing = set(by_owner.values())
        for part in missing:
            await topic.brokers[0].do("DELETE", path_of(part))
        whole = await topic.brokers[0].get(f"{topic.path}/partitioned-stats")
        assert list(whole["partitions"]) == [str(part) for part in topic.parts if part not in missing]
        assert (whole["msgInCounter"], whole["averageMsgSize"]) == (0, 0.0)


@pytest.mark.integration
async def test_only_a_partitioned_topic_has_partitioned_statistics(cluster: LocalCluster) -> None:
    path = "/".join((TOPICS, *new_namespace()))
    async with admins(cluster, 1) as (admin,):
        await admin.do("PUT", f"{path}/single")
        for name, text in (
            ("single", "is no partitioned topic: ask for …/stats"),
            ("none", "does not exist"),
        ):
            status, reason = await admin.refused("GET", f"{path}/{name}/partitioned-stats")
            assert (status, text in reason) == (404, True), reason


@pytest.mark.integration
async def test_an_owner_that_does_not_answer_is_named(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/".join((TOPICS, *new_namespace(), "orders"))
    async with admins(cluster, 1) as (admin,):
        await admin.do("PUT", f"{path}/partitions", 2)
        gone = replace(admin.broker._info(), broker="gone", admin_urls=Urls("http://127.0.0.1:1"))
        answers: list[tuple[LookupResult, str]] = [
            (Elsewhere(gone), "broker gone, which is to have "),
            (NotReady("nobody owns it"), "nobody owns it"),
        ]
        for answer, text in answers:

            async def lookup(*_: Any, found: LookupResult = answer, **__: Any) -> LookupResult:
                return found

            monkeypatch.setattr(admin.broker.ownership, "lookup", lookup)
            status, reason = await admin.refused("GET", f"{path}/partitioned-stats")
            assert (status, text in reason) == (503, True), reason


@pytest.mark.integration
@pytest.mark.parametrize("header", ["Authorization", "X-Daybook-Token"])
async def test_other_brokers_are_asked_with_the_token_of_whoever_asks(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * 32)
    token = jwt.encode({"sub": "root"}, b"s" * 32, "HS256")
    headers = {header: f"Bearer {token}" if header == "Authorization" else token}
    redirected = {"X-Daybook-Token": token}
    """aiohttp leaves `Authorization` out of a redirected request."""
    name = TopicName(*new_namespace(), "orders")
    changes = {"authentication": ("token",), "token_secret_file": secret, "superuser_roles": ("root",)}
    async with admins(cluster, 2, **changes) as brokers:
        urls = [admin.broker.admin_url + path_of(name) for admin in brokers]
        session = brokers[0]._session
        async with session.put(f"{urls[0]}/partitions", json=PARTITIONS, headers=headers) as answer:
            assert answer.status == 204
        for move in moves(name, [admin.broker for admin in brokers]):
            async with session.put(brokers[0].broker.admin_url + move, headers=redirected) as answer:
                assert answer.status == 204

        async def ask(url: str) -> tuple[int, Any]:
            async with session.get(f"{url}/partitioned-stats", headers=headers) as answer:
                return answer.status, await answer.json()

        for url in urls:
            status, found = await ask(url)
            assert (status, len(found["partitions"])) == (200, PARTITIONS)
        assert len({each["ownerBroker"] for each in found["partitions"].values()}) == 2
        monkeypatch.setattr(partitioned, "_token", lambda _: {})
        status, found = await ask(urls[0])
        assert (status, "refused the statistics" in found["reason"]) == (412, True)


@pytest.mark.integration
async def test_brokers_that_serve_https_alone_ask_each_other_with_tls(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    server, root = (CA.issue(tmp_path, name) for name in ("localhost", "root"))
    changes = {**settings_of(server), "authentication": ("tls",), "superuser_roles": ("root", "localhost")}
    name = TopicName(*new_namespace(), "orders")
    async with secure_brokers(cluster, 2, **changes) as brokers, aiohttp.ClientSession() as session:
        tls, path = trusting(CA, root), path_of(name)
        for asked, body in (
            (f"{path}/partitions", PARTITIONS),
            *((move, None) for move in moves(name, brokers)),
        ):
            async with session.put(brokers[0].admin_tls_url + asked, json=body, ssl=tls) as answer:
                assert answer.status == 204
        for broker in brokers:
            async with session.get(f"{broker.admin_tls_url}{path}/partitioned-stats", ssl=tls) as answer:
                found = await answer.json()
                assert (answer.status, len(found["partitions"])) == (200, PARTITIONS)
        assert len({each["ownerBroker"] for each in found["partitions"].values()}) == 2


def test_what_differs_between_partitions_is_left_out() -> None:
    def part(durability: str, kind: str | None, **more: Any) -> dict[str, Any]:
        subscription = {"type": kind, "subscriptionProperties": more, "msgBacklog": 1}
        return {"durability": durability, "isDegraded": bool(more), "subscriptions": {"s": subscription}}

    found = _merged_topics([part("sync", None), part("async", "Shared", a="b")])
    assert found == {
        "isDegraded": True,
        "subscriptions": {"s": {"type": "Shared", "subscriptionProperties": {"a": "b"}, "msgBacklog": 2}},
    }
    assert _merged_topics([]) == {"subscriptions": {}}
