"""Names, policies, topics and owners over real HTTP."""

import asyncio
from typing import Any

import pulsar
import pytest

from daybook.client.broker_admin import Admin as Http
from daybook.client.broker_admin import AdminError
from daybook.core.errors import NoSuchLedgerError, NoSuchTopicError
from daybook.core.topics.manager import Manager
from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.policy import PolicyLayer
from daybook.local.cluster import LocalCluster
from daybook.metadata.policies import PolicyManager
from tests.unit.broker.admin.kit import NAMESPACE, TOPICS, admins, new_namespace, owner_of
from tests.unit.broker.kit import with_pulsar

pytestmark = pytest.mark.integration


async def test_tenants_and_namespaces_are_created_listed_and_deleted(cluster: LocalCluster) -> None:
    tenant, namespace = new_namespace()
    async with admins(cluster, 1) as (admin,):
        await admin.do("PUT", f"/admin/v2/tenants/{tenant}", {"allowedClusters": ["any"]})
        assert tenant in await admin.get("/admin/v2/tenants")
        assert (await admin.get(f"/admin/v2/tenants/{tenant}"))["adminRoles"] == []
        await admin.do("PUT", f"{NAMESPACE}/{tenant}/{namespace}")
        assert await admin.get(f"{NAMESPACE}/{tenant}") == [f"{tenant}/{namespace}"]
        found = await admin.get(f"{NAMESPACE}/{tenant}/{namespace}/bundles")
        assert (found["numBundles"], len(found["boundaries"])) == (32, 33)
        for method, path, status, text in (
            ("PUT", f"/admin/v2/tenants/{tenant}", 409, "exists already"),
            ("PUT", f"{NAMESPACE}/{tenant}/{namespace}", 409, "exists already"),
            ("DELETE", f"/admin/v2/tenants/{tenant}", 409, "still has namespaces: delete them first"),
            ("GET", f"/admin/v2/tenants/{tenant}x", 404, "does not exist"),
            ("GET", f"{NAMESPACE}/{tenant}x", 404, "does not exist"),
            ("PUT", f"{NAMESPACE}/{tenant}/a%20b", 400, "cannot name a namespace"),
            ("DELETE", f"{NAMESPACE}/{tenant}/other", 404, "does not exist"),
            ("GET", "/admin/v2/nothing", 404, "GET /admin/v2/nothing"),
            ("POST", "/admin/v2/tenants", 405, "Method Not Allowed"),
        ):
            found_status, reason = await admin.refused(method, path)
            assert (found_status, text in reason) == (status, True), (method, path, reason)
        await admin.do("DELETE", f"{NAMESPACE}/{tenant}/{namespace}")
        await admin.do("DELETE", f"/admin/v2/tenants/{tenant}")


RETENTION = {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1}


async def test_what_is_set_for_a_namespace_holds_for_its_topics_until_they_set_their_own(
    cluster: LocalCluster,
) -> None:
    tenant, name = new_namespace()
    async with admins(cluster, 1) as (admin,):
        namespace, topic = f"{NAMESPACE}/{tenant}/{name}", f"{TOPICS}/{tenant}/{name}/orders"
        await admin.do("PUT", namespace)
        await admin.do("PUT", topic)
        assert await admin.get(f"{namespace}/retention") is None
        await admin.do("POST", f"{namespace}/retention", RETENTION)
        await admin.do("POST", f"{namespace}/messageTTL", 60)
        await admin.do("POST", f"{topic}/messageTTL", messageTTL="30")
        await admin.do("POST", f"{topic}/backlogQuota", {"limitSize": 1000, "policy": "producer_exception"})
        await admin.do("POST", f"{topic}/backlogQuota", {"limitTime": 7}, backlogQuotaType="message_age")
        await admin.do("POST", f"{namespace}/inactiveTopicPolicies", {"maxInactiveDurationSeconds": 9})
        assert await admin.get(f"{namespace}/retention") == RETENTION
        assert await admin.get(f"{topic}/messageTTL") == 30
        assert await admin.get(f"{topic}/retention") is None
        assert (await admin.get(f"{namespace}/inactiveTopicPolicies"))["maxInactiveDurationSeconds"] == 9
        assert await admin.get(f"{topic}/backlogQuotaMap") == {
            "destination_storage": {"limit": 1000, "limitSize": 1000, "policy": "producer_exception"},
            "message_age": {"limitTime": 7, "policy": "producer_exception"},
        }
        whole = await admin.get(f"{topic}/policy/applied")
        assert (whole["ttlMs"], whole["retentionMs"], whole["retentionBytes"]) == (30_000, 600_000, -1)
        assert (whole["backlogBytes"], whole["backlogMs"], whole["inactiveMs"]) == (1000, 7000, 9000)
        assert (whole["durability"], whole["warning"]) == ("semi-sync", None)
        await admin.do("DELETE", f"{topic}/messageTTL")
        assert (await admin.get(f"{topic}/policy/applied"))["ttlMs"] == 60_000
        assert (await admin.get(namespace))["message_ttl_in_seconds"] == 60


async def test_one_quota_is_unset_and_the_other_one_stays_with_its_action(cluster: LocalCluster) -> None:
    tenant, name = new_namespace()
    async with admins(cluster, 1) as (admin,):
        namespace = f"{NAMESPACE}/{tenant}/{name}"
        quota, quotas = f"{namespace}/backlogQuota", f"{namespace}/backlogQuotaMap"
        await admin.do("PUT", namespace)
        for unset, left in (
            (
                "message_age",
                {"destination_storage": {"limit": 9, "limitSize": 9, "policy": "producer_exception"}},
            ),
            ("destination_storage", {"message_age": {"limitTime": 7, "policy": "producer_exception"}}),
        ):
            await admin.do("POST", quota, {"limitSize": 9, "policy": "producer_exception"})
            await admin.do("POST", quota, {"limitTime": 7}, backlogQuotaType="message_age")
            await admin.do("DELETE", quota, backlogQuotaType=unset)
            assert await admin.get(quotas) == left
        await admin.do("POST", quota, {"limitSize": 9})
        await admin.do("DELETE", quota)
        assert list(await admin.get(quotas)) == ["message_age"], "by size, if none is named, as with POST"
        await admin.do("DELETE", quota, backlogQuotaType="message_age")
        assert "backlogAction" not in await admin.get(f"{namespace}/policy")
        for method in ("POST", "DELETE"):
            status, reason = await admin.refused(method, f"{quota}?backlogQuotaType=age", {"limitTime": 7})
            assert (status, "use destination_storage or message_age" in reason) == (400, True), reason


async def test_durability_is_set_where_it_can_be_and_warns_where_it_is_weak(cluster: LocalCluster) -> None:
    tenant, name = new_namespace()
    async with admins(cluster, 1) as (admin,):
        namespace = f"{NAMESPACE}/{tenant}/{name}"
        await admin.do("PUT", namespace)
        await admin.do("POST", f"{namespace}/policy", {"durability": "async", "degrade": "never"})
        assert await admin.get(f"{namespace}/policy") == {
            "formatVersion": 1,
            "durability": "async",
            "degrade": "never",
        }
        assert "losing 1 bookies loses it" in (await admin.get(f"{namespace}/policy/applied"))["warning"]
        for body, text in (
            ({"durability": "sync"}, "set degrade=never"),
            ({"durability": "most"}, "use sync or semi-sync or async"),
            ({"ensembleSize": 2}, "write quorum"),
            ({"durabilty": "sync"}, "'durabilty' is no setting: use any of"),
            ([1], "JSON object"),
            (None, "JSON object"),
        ):
            status, reason = await admin.refused("POST", f"{namespace}/policy", body)
            assert (status, text in reason) == (400, True), reason


async def test_a_policy_is_set_again_as_it_was_read(cluster: LocalCluster) -> None:
    tenant, name = new_namespace()
    async with admins(cluster, 1) as (admin,):
        namespace, topic = f"{NAMESPACE}/{tenant}/{name}", f"{TOPICS}/{tenant}/{name}/orders"
        await admin.do("PUT", namespace)
        await admin.do("PUT", topic)
        policies = PolicyManager(admin.broker.client.store, admin.broker.client.layout)
        token = (await policies.namespace(tenant, name)).value.unknown_fields
        assert token, "what marks the creation is stored beside the settings"
        for path in (namespace, topic):
            await admin.do("POST", f"{path}/policy", {"ttlMs": 7000, "durability": "async"})
            found = await admin.get(f"{path}/policy")
            assert found == {"formatVersion": 1, "ttlMs": 7000, "durability": "async"}
            await admin.do("POST", f"{path}/policy", {**found, "ttlMs": 9000})
            assert await admin.get(f"{path}/policy") == {**found, "ttlMs": 9000}
        assert (await policies.namespace(tenant, name)).value.unknown_fields == token


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("retention", {"retentionTimeInMinutes": "x"}),
        ("retention", {"retentionTimeInMinutes": -5}),
        ("retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": 2**63 - 1}),
        ("backlogQuota", {"limitSize": 2**63}),
        ("inactiveTopicPolicies", {"maxInactiveDurationSeconds": 2**62}),
        ("messageTTL", "x"),
        ("messageTTL", True),
        ("messageTTL", -1),
        ("messageTTL", 2**62),
        ("backlogQuota", {"policy": "drop"}),
        ("backlogQuota", {"limit": 1.5}),
    ],
)
async def test_a_setting_that_cannot_be_is_refused(cluster: LocalCluster, path: str, body: Any) -> None:
    tenant, name = new_namespace()
    async with admins(cluster, 1) as (admin,):
        await admin.do("PUT", f"{NAMESPACE}/{tenant}/{name}")
        assert (await admin.refused("POST", f"{NAMESPACE}/{tenant}/{name}/{path}", body))[0] == 400
        assert await admin.get(f"{NAMESPACE}/{tenant}/{name}/retention") is None, "it can be read"


async def test_topics_and_partitions_are_created_listed_grown_and_deleted(cluster: LocalCluster) -> None:
    tenant, name = new_namespace()
    async with admins(cluster, 2) as (admin, other):
        root = f"{TOPICS}/{tenant}/{name}"
        await admin.do("PUT", f"{root}/single")
        await admin.do("PUT", f"{root}/many/partitions", 3)
        await other.do("POST", f"{root}/many/partitions", 5)
        assert await other.get(f"{root}/many/partitions") == {"partitions": 5, "deleted": False}
        assert await admin.get(f"{root}/single/partitions") == {"partitions": 0, "deleted": False}
        expected = [f"persistent://{tenant}/{name}/many-partition-{n}" for n in range(5)]
        expected.append(f"persistent://{tenant}/{name}/single")
        assert await admin.get(root) == expected
        assert await admin.get(f"{NAMESPACE}/{tenant}/{name}/topics") == expected
        assert await admin.get(f"{NAMESPACE}/{tenant}/{name}/topics", mode="NON_PERSISTENT") == []
        assert await admin.get(f"{root}/partitioned") == [f"persistent://{tenant}/{name}/many"]
        for method, path, body, status, text in (
            ("PUT", "single", None, 409, "exists already"),
            ("PUT", "many", None, 409, "exists already"),
            ("PUT", "single/partitions", 2, 409, "without partitions"),
            ("PUT", "many/partitions", 2, 409, "exists already"),
            ("PUT", "other/partitions", 0, 400, "use 1 to"),
            ("PUT", "other/partitions", "2", 400, "whole number"),
            ("PUT", "other-partition-3", None, 412, "which has none"),
            ("POST", "many/partitions", 5, 400, "can only grow"),
            ("DELETE", "many", None, 412, "partitioned topic"),
            ("DELETE", "none", None, 404, "does not exist"),
            ("DELETE", "none/partitions", None, 404, "does not exist"),
        ):
            found_status, reason = await admin.refused(method, f"{root}/{path}", body)
            assert (found_status, text in reason) == (status, True), (method, path, reason)
        await admin.do("DELETE", f"{root}/single")
        await admin.do("DELETE", f"{root}/many/partitions")
        assert await admin.get(root) == []
        await admin.do("DELETE", f"{NAMESPACE}/{tenant}/{name}")


async def test_a_lookup_over_http_ends_at_the_owner_whichever_broker_is_asked(cluster: LocalCluster) -> None:
    name = TopicName(*new_namespace(), "orders")
    path = f"/lookup/v2/topic/persistent/{name.tenant}/{name.namespace}/orders"
    async with admins(cluster, 3, listeners=("inner:pulsar://10.0.0.1:6650",)) as brokers:
        found = await asyncio.gather(*(admin.get(path) for admin in brokers))
        assert len({each["brokerUrl"] for each in found}) == 1
        owner, others = await owner_of(brokers, name)
        assert owner.broker.ownership.owns(name)
        assert found[0]["httpUrl"] == owner.broker.admin_url
        inner = await others[0].get(path, listenerName="inner")
        assert inner["brokerUrl"] == "pulsar://10.0.0.1:6650"
        status, reason = await others[0].refused("GET", path, listenerName="outer")
        assert (status, "use one of inner" in reason) == (412, True)
        assert (await brokers[0].refused("GET", path, authoritative="yes"))[0] == 400
        assert await brokers[0].get(f"{path}/bundle") == Bundle.of(name).range
        bundles = await others[0].get(f"{NAMESPACE}/{name.tenant}/{name.namespace}/owners")
        assert bundles == {Bundle.of(name).range: owner.broker.settings.broker_id}


async def test_a_client_whose_service_url_is_http_finds_a_partitioned_topic(cluster: LocalCluster) -> None:
    name = TopicName(*new_namespace(), "orders")
    async with admins(cluster, 2) as brokers:
        path = f"{TOPICS}/{name.tenant}/{name.namespace}/{name.local}"
        await brokers[0].do("PUT", f"{path}/partitions", 4)

        def use() -> list[bytes]:
            client = pulsar.Client(brokers[0].broker.admin_url, operation_timeout_seconds=40)
            consumer = client.subscribe(str(name), "s")
            producer = client.create_producer(str(name))
            for number in range(8):
                producer.send(b"%d" % number)
            found = sorted(consumer.receive(20_000).data() for _ in range(8))
            client.close()
            return found

        assert await asyncio.to_thread(use) == [b"%d" % number for number in range(8)]
        owned = [len(each.broker.registry.served()) for each in brokers]
        assert sum(owned) == 4


async def test_a_topic_and_a_bundle_are_unloaded_to_the_named_broker_whoever_is_asked(
    cluster: LocalCluster,
) -> None:
    name = TopicName(*new_namespace(), "orders")
    async with admins(cluster, 2) as brokers:
        topic = f"{TOPICS}/{name.tenant}/{name.namespace}/orders"
        await brokers[0].do("PUT", topic)
        owner, (other,) = await owner_of(brokers, name)
        target = other.broker.settings.broker_id
        await other.do("PUT", f"{topic}/unload", destinationBroker=target)
        assert (await owner_of(brokers, name))[0] is other
        bundle = f"{NAMESPACE}/{name.tenant}/{name.namespace}/{Bundle.of(name).range}/unload"
        status, redirect = await owner.ask("PUT", bundle, follow=False)
        assert (status, redirect["adminUrl"]) == (307, other.broker.admin_url)
        await owner.do("PUT", bundle, destinationBroker=owner.broker.settings.broker_id)
        assert (await owner_of(brokers, name))[0] is owner
        await owner.do("PUT", f"{NAMESPACE}/{name.tenant}/{name.namespace}/unload")
        assert not owner.broker.ownership.owns(name)
        status, reason = await owner.refused("PUT", f"{topic}/unload", destinationBroker="nobody")
        assert (status, "nobody is not registered" in reason) == (500, True)
        await brokers[0].do("PUT", bundle.replace(Bundle.of(name).range, Bundle(*name_of(name), 0).range))
        assert (await brokers[0].refused("PUT", bundle.replace("0x", "0y")))[0] == 400


def name_of(name: TopicName) -> tuple[str, str]:
    return name.tenant, name.namespace


async def test_a_topic_is_deleted_with_its_ledgers_and_not_while_it_is_used(cluster: LocalCluster) -> None:
    name = TopicName(*new_namespace(), "orders")
    async with admins(cluster, 2) as brokers:
        topic = f"{TOPICS}/{name.tenant}/{name.namespace}/orders"
        await brokers[0].do("PUT", topic)
        owner, (other,) = await owner_of(brokers, name)
        refused: list[tuple[int, str]] = []
        loop = asyncio.get_running_loop()

        def publish(client: Any) -> None:
            producer = client.create_producer(str(name))
            producer.send(b"1")
            asyncio.run_coroutine_threadsafe(refuse(), loop).result(40)
            producer.close()

        async def refuse() -> None:
            refused.append(await other.refused("DELETE", topic))

        await with_pulsar(owner.broker, publish)
        assert refused == [(412, f"topic {name} has 1 producers: close them first, or delete it by force")]
        manager = owner.broker.topics
        ledgers = [ledger.ledger_id for ledger in (await manager.read(name)).value.ledgers]
        assert len(ledgers) == 1
        await other.do("DELETE", topic)
        assert (await other.refused("DELETE", topic))[0] == 404
        for ledger_id in ledgers:
            with pytest.raises(NoSuchLedgerError):
                await owner.broker.client.ledgers.read(ledger_id)


async def test_the_brokers_their_leader_health_and_metrics_are_shown(cluster: LocalCluster) -> None:
    async with admins(cluster, 2) as brokers:
        admin = brokers[0]
        urls = {each.broker.admin_url for each in brokers}
        assert {f"http://{each}" for each in await admin.get("/admin/v2/brokers")} >= urls
        assert await admin.get("/admin/v2/clusters") == [admin.broker.settings.cluster]
        leader = await admin.get("/admin/v2/brokers/leaderBroker")
        assert leader["brokerId"] == admin.broker.ownership.view.leader
        loads = await admin.get("/admin/v2/brokers/load")
        assert loads[admin.broker.settings.broker_id]["serviceUrl"] == admin.broker.service_url
        for path in ("/health", "/admin/v2/brokers/health", "/admin/v2/brokers/ready"):
            assert await admin.get(path) == "ok"
        assert "daybook_broker_messages_in_total" in await admin.get("/metrics")


async def test_what_is_too_large_or_no_json_is_refused(cluster: LocalCluster) -> None:
    tenant, name = new_namespace()
    async with admins(cluster, 1) as (admin,):
        await admin.do("PUT", f"{NAMESPACE}/{tenant}/{name}")
        path = f"{NAMESPACE}/{tenant}/{name}/policy"
        assert (await admin.refused("POST", path, {"x": "y" * 300_000}))[0] == 413
        session = admin._session
        for data in (b"{", b"\xff", b"[" * 100_000):
            async with session.post(admin.broker.admin_url + path, data=data) as answer:
                assert answer.status == 400
                assert "JSON" in (await answer.json())["reason"]


async def test_what_a_topic_resource_manages_only_its_operator_changes(cluster: LocalCluster) -> None:
    tenant, name = new_namespace()
    manager = Manager("data", "orders", "uid-1")
    async with admins(cluster, 1) as (admin,):
        topic, parts = f"{TOPICS}/{tenant}/{name}/orders", f"{TOPICS}/{tenant}/{name}/parts"
        await admin.do("PUT", topic)
        await admin.do("PUT", f"{parts}/partitions", 2)
        policies = PolicyManager(admin.broker.client.store, admin.broker.client.layout)
        managed_name = TopicName(tenant, name, "orders")
        for managed in (managed_name, TopicName(tenant, name, "parts-partition-0")):
            await policies.set_topic(managed, await policies.topic(managed), PolicyLayer(managed_by=manager))
        for method, path, body in (
            ("DELETE", topic, None),
            ("POST", f"{topic}/messageTTL", 60),
            ("DELETE", f"{topic}/policy", None),
            ("POST", f"{topic}/terminate", None),
            ("POST", f"{parts}-partition-0/terminate", None),
            ("POST", f"{parts}/partitions", 3),
            ("DELETE", f"{parts}/partitions", None),
        ):
            status, reason = await admin.refused(method, path, body)
            assert (status, reason) == (
                409,
                "Topic data/orders manages this topic: change that resource instead",
            )
        operator = Http([admin.broker.admin_url], manager_uid="uid-1")
        await asyncio.to_thread(operator.ask, "POST", managed_name, "messageTTL", 60)
        assert (await admin.get(f"{topic}/policy"))["managedBy"] == manager.to_record()
        changed = {"ttlMs": 1, "managedBy": {**manager.to_record(), "uid": "mine"}}
        with pytest.raises(AdminError, match="managedBy is no setting"):
            await asyncio.to_thread(operator.ask, "POST", managed_name, "policy", changed)
        await asyncio.to_thread(operator.ask, "POST", managed_name, "terminate")
        await asyncio.to_thread(operator.ask, "DELETE", managed_name)
        with pytest.raises(NoSuchTopicError):
            await policies.topic(managed_name)
