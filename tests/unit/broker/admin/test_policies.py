"""Namespaces that are created with Pulsar's Policies, and numbers in bodies, over real HTTP."""

from typing import Any

import pytest
from daybook_broker.admin.policies import layer_of

from daybook.core.topics.policy import PolicyLayer
from daybook.local.cluster import LocalCluster
from tests.unit.broker.admin.kit import NAMESPACE, admins, new_namespace

QUOTA = {"policy": "producer_exception"}

POLICIES: dict[str, Any] = {
    "auth_policies": {"namespace_auth": {"app": ["consume", "produce"]}},
    "retention_policies": {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1},
    "message_ttl_in_seconds": 60,
    "backlog_quota_map": {
        "destination_storage": {"limit": 9, "limitSize": 9, **QUOTA},
        "message_age": {"limitTime": 7, **QUOTA},
    },
    "inactive_topic_policies": {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 5,
        "deleteWhileInactive": True,
    },
}

OF_JAVA: dict[str, Any] = {
    "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
    "replication_clusters": [],
    "bundles": None,
    "backlog_quota_map": {},
    "clusterDispatchRate": {},
    "topicDispatchRate": {},
    "subscriptionDispatchRate": {},
    "replicatorDispatchRate": {},
    "clusterSubscribeRate": {},
    "persistence": None,
    "deduplicationEnabled": None,
    "autoTopicCreationOverride": None,
    "autoSubscriptionCreationOverride": None,
    "publishMaxMessageRate": {},
    "latency_stats_sample_rate": {},
    "message_ttl_in_seconds": None,
    "subscription_expiration_time_minutes": None,
    "retention_policies": None,
    "deleted": False,
    "encryption_required": False,
    "delayed_delivery_policies": None,
    "inactive_topic_policies": None,
    "subscription_auth_mode": "None",
    "max_producers_per_topic": None,
    "max_consumers_per_topic": None,
    "max_consumers_per_subscription": None,
    "max_unacked_messages_per_consumer": None,
    "max_unacked_messages_per_subscription": None,
    "max_subscriptions_per_topic": None,
    "compaction_threshold": None,
    "offload_threshold": -1,
    "offload_deletion_lag_ms": None,
    "max_topics_per_namespace": None,
    "schema_auto_update_compatibility_strategy": "Full",
    "schema_compatibility_strategy": "UNDEFINED",
    "is_allow_auto_update_schema": None,
    "schema_validation_enforced": False,
    "offload_policies": None,
    "deduplicationSnapshotIntervalSeconds": None,
    "subscription_types_enabled": [],
    "properties": {},
    "resource_group_name": None,
}
"""What `createNamespace` of Java's admin client sends where its caller sets nothing (Policies.java of Pulsar); Go's client sends fewer fields."""


@pytest.mark.integration
async def test_a_namespace_has_the_policies_that_it_was_created_with(cluster: LocalCluster) -> None:
    tenant, name = new_namespace()
    async with admins(cluster, 1) as (admin,):
        first, second = f"{NAMESPACE}/{tenant}/{name}", f"{NAMESPACE}/{tenant}/copy"
        ignored = {"replication_clusters": ["any"], "bundles": {"numBundles": 4}}
        await admin.do("PUT", first, {**OF_JAVA, **POLICIES, **ignored})
        found = await admin.get(first)
        assert {key: found[key] for key in POLICIES} == POLICIES
        assert found["bundles"] == {"numBundles": 32}
        assert found["replication_clusters"] == [admin.broker.settings.cluster]
        assert await admin.get(f"{first}/policy") == {
            "formatVersion": 1,
            "retentionMs": 600_000,
            "retentionBytes": -1,
            "ttlMs": 60_000,
            "backlogBytes": 9,
            "backlogMs": 7_000,
            "backlogAction": "producer_exception",
            "inactiveMs": 5_000,
        }
        await admin.do("PUT", second, found)
        assert await admin.get(second) == found, "what GET returns creates another namespace like it"


@pytest.mark.parametrize("body", [None, "", {}, OF_JAVA])
def test_a_body_that_asks_for_nothing_sets_nothing(body: Any) -> None:
    assert layer_of(body) == PolicyLayer()


@pytest.mark.integration
async def test_policies_that_cannot_be_create_nothing(cluster: LocalCluster) -> None:
    tenant, name = new_namespace()
    both = {"destination_storage": {"policy": "producer_exception"}, "message_age": {"policy": "x"}}
    async with admins(cluster, 1) as (admin,):
        for change, text in (
            (
                {"persistence": {"bookkeeperEnsemble": 2}, "deduplicationEnabled": False},
                "no such policies of a namespace: deduplicationEnabled, persistence; leave them out. It has retention",
            ),
            ({"encryption_required": True}, "encryption_required; leave them out"),
            ({"max_producers_per_topic": 0}, "max_producers_per_topic; leave them out"),
            ({"retention_policies": [1]}, "retention_policies is to be a JSON object"),
            ({"retention_policies": {"retentionTimeInMinutes": -5}}, "retentionTimeInMinutes='-5'"),
            ({"message_ttl_in_seconds": "soon"}, "message_ttl_in_seconds='soon'"),
            ({"message_ttl_in_seconds": -1}, "ttlMs=-1000"),
            ({"backlog_quota_map": {"age": {}}}, "use destination_storage or message_age"),
            ({"backlog_quota_map": {"message_age": 1}}, "backlog_quota_map.message_age is to be"),
            ({"backlog_quota_map": both}, "producer_exception and x"),
            ({"inactive_topic_policies": {"maxInactiveDurationSeconds": 2**62}}, "64 bits"),
            ({"auth_policies": {"namespace_auth": {"app": ["fly"]}}}, "are no actions"),
            ({"auth_policies": {"subscription_auth_roles": {"s": ["app"]}}}, "has subscription_auth_roles"),
        ):
            status, reason = await admin.refused(
                "PUT", f"{NAMESPACE}/{tenant}/{name}", {**POLICIES, **change}
            )
            assert (status, text in reason) == (400, True), reason
        status, reason = await admin.refused("PUT", f"{NAMESPACE}/{tenant}/{name}", [1])
        assert (status, "the body is to be a JSON object" in reason) == (400, True)
        assert tenant not in await admin.get("/admin/v2/tenants")


@pytest.mark.integration
async def test_a_number_of_a_setting_may_be_text_as_for_pulsar(cluster: LocalCluster) -> None:
    tenant, name = new_namespace()
    namespace = f"{NAMESPACE}/{tenant}/{name}"
    async with admins(cluster, 1) as (admin,):
        await admin.do("PUT", namespace)
        await admin.do("POST", f"{namespace}/backlogQuota", {"limit": "10240"})
        assert (await admin.get(f"{namespace}/backlogQuotaMap"))["destination_storage"]["limit"] == 10_240
        await admin.do("POST", f"{namespace}/backlogQuota", {"limitSize": "-1"})
        assert await admin.get(f"{namespace}/backlogQuotaMap") == {}
        for text in ("-2", "1.5", "", " 1", "1_0", "٣", str(2**63), "9" * 5000):
            for quota in ({"limit": text}, {"limitSize": text}):
                status, _ = await admin.refused("POST", f"{namespace}/backlogQuota", quota)
                assert status == 400, text
        assert (await admin.refused("POST", f"{namespace}/messageTTL?messageTTL={'9' * 5000}"))[0] == 400
        assert await admin.get(f"{namespace}/backlogQuotaMap") == {}
