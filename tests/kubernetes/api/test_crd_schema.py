"""What the API server makes of Daybook's resources: defaults, columns, subresources, unknown fields, conditions."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from daybook.metadata.partitions import PARTITIONS_MAX
from daybook.metadata.tasks import LOST_BOOKIE_DELAY_S
from tests.cluster.control_plane import ControlPlane
from tests.kubernetes.api.crd_rules import CRDS, merged
from tests.kubernetes.api.rest import PLURALS, Object, RefusedError, Resources, ledger, pool, topic

CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "AllReady",
    "message": "3 of 3 bookies are ready.",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


@pytest.fixture
def resources(control_plane: ControlPlane, namespace: str) -> Resources:
    """Resources of the test's own namespace."""
    return Resources(control_plane, namespace)


def _crd(kind: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CRDS / f"{PLURALS[kind]}.yaml").read_text(encoding="utf-8"))
    return loaded


def _fields(place: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield place, schema
    for name, child in schema.get("properties", {}).items():
        yield from _fields(f"{place}.{name}", child)
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), Mapping):
            yield from _fields(f"{place}[]", schema[word])


def _schema(kind: str) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = _crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def test_there_is_one_file_for_each_resource() -> None:
    assert sorted(path.name for path in CRDS.iterdir()) == sorted(f"{name}.yaml" for name in PLURALS.values())


@pytest.mark.parametrize("kind", PLURALS)
def test_every_field_is_described(kind: str) -> None:
    bare = [
        place
        for place, schema in _fields(kind, _schema(kind))
        if not schema.get("description") and place != f"{kind}.metadata"
    ]
    assert not bare


def test_the_delay_of_a_lost_bookie_is_what_a_new_cluster_has() -> None:
    (delay,) = (
        schema["description"]
        for place, schema in _fields("BookiePool", _schema("BookiePool"))
        if place == "BookiePool.spec.recovery.lostBookieDelaySeconds"
    )
    assert f"({LOST_BOOKIE_DELAY_S:.0f}, a minute, in a new cluster)" in delay


@pytest.mark.parametrize("kind", PLURALS)
def test_the_schema_is_closed(kind: str) -> None:
    """Nothing unknown is kept, so that a mistyped field is found; the operator's notes go into annotations."""
    open_at = [
        place
        for place, schema in _fields(kind, _schema(kind))
        if "x-kubernetes-preserve-unknown-fields" in schema or schema.get("additionalProperties") is True
    ]
    assert not open_at


@pytest.mark.parametrize("kind", PLURALS)
def test_the_api_server_finds_nothing_to_object_to(control_plane: ControlPlane, kind: str) -> None:
    """A schema that is not structural is served all the same, with a condition that says so."""
    got = yaml.safe_load(control_plane.kubectl("get", "crd", f"{PLURALS[kind]}.daybook.dev", "-o", "yaml"))
    conditions = {each["type"]: each["status"] for each in got["status"]["conditions"]}
    assert conditions == {"Established": "True", "NamesAccepted": "True"}
    assert got["spec"]["versions"][0]["schema"] == _crd(kind)["spec"]["versions"][0]["schema"]


@pytest.mark.parametrize(("kind", "short"), [("BookiePool", "bkp"), ("Ledger", "dbl"), ("Topic", "dbt")])
def test_short_names_and_the_category(control_plane: ControlPlane, kind: str, short: str) -> None:
    listed = control_plane.kubectl("api-resources", "--categories=daybook", "--no-headers")
    assert [PLURALS[kind], short] in [line.split()[:2] for line in listed.splitlines()]
    assert kind in control_plane.kubectl("explain", short)


def test_a_pool_of_one_size_has_all_its_defaults(resources: Resources) -> None:
    spec = resources.create(pool())["spec"]
    assert spec == {
        "replicas": 3,
        "hibernate": False,
        "imagePullPolicy": "IfNotPresent",
        "metadata": {},
        "storage": {"journal": {"size": "10Gi"}, "store": {"size": "10Gi"}, "resizeInUseVolumes": True},
        "topology": {
            "regionKey": "topology.kubernetes.io/region",
            "zoneKey": "topology.kubernetes.io/zone",
            "rackKey": "topology.daybook.dev/rack",
            "onMissing": "Reject",
            "defaultRack": "default-rack",
            "spread": "Required",
            "maxSkew": 1,
        },
        "placement": {
            "policy": "Zone",
            "minRacksPerWriteQuorum": 2,
            "minZonesPerWriteQuorum": 2,
            "minRegionsPerWriteQuorum": 2,
            "enforce": False,
            "weighByFreeSpace": False,
        },
        "rollout": {
            "maxUnavailable": 1,
            "gate": "FullyReplicated",
            "paused": False,
            "progressDeadlineSeconds": 900,
        },
        "scaleDown": {"policy": "Drain", "pvcRetention": "Retain", "progressDeadlineSeconds": 3600},
        "lostDisk": {"policy": "Replace"},
        "jobs": {
            "suspend": False,
            "driver": {"cpu": "500m", "memory": "2Gi"},
            "executors": {"count": 2, "cpu": "1", "memory": "2Gi"},
            "activeDeadlineSeconds": 21_600,
            "backoffLimit": 1,
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 3,
        },
        "recovery": {
            "paused": False,
            "parallelism": 2,
            "ledgersPerJob": 100,
            "bandwidthPerJob": "64Mi",
            "backoffLimit": 3,
            "activeDeadlineSeconds": 3600,
            "ttlSecondsAfterFinished": 300,
        },
        "disk": {"warnPercent": 90, "lowWaterPercent": 90, "readOnlyPercent": 95, "reservePercent": 98},
        "probes": {
            "startup": {"periodSeconds": 5, "timeoutSeconds": 3, "failureThreshold": 120},
            "readiness": {"periodSeconds": 5, "timeoutSeconds": 3, "failureThreshold": 3},
            "liveness": {"periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6},
        },
        "terminationGracePeriodSeconds": 60,
        "podTemplate": {},
        "enablePDB": True,
        "reclaimPolicy": "Retain",
    }


def test_the_defaults_of_ledgers_and_topics(resources: Resources) -> None:
    quorum = {"ensembleSize": 3, "writeQuorum": 3}
    asked = {"poolRef": {"name": "bk"}, "reclaimPolicy": "Retain"}
    assert resources.create(ledger())["spec"] == {**asked, **quorum, "ackQuorum": 2, "seal": False}
    assert resources.create(topic())["spec"] == {
        **asked,
        **quorum,
        "managed": True,
        "tenant": "public",
        "topicNamespace": "default",
        "partitions": 0,
        "segment": {"maxSize": "2Gi", "maxAgeSeconds": 14_400, "maxEntries": 50_000},
        "retention": {"policy": "Discard"},
        "messageTTLSeconds": 0,
        "deduplication": False,
        "compaction": {
            "enabled": False,
            "timeZone": "Etc/UTC",
            "keepKeyless": True,
            "suspend": False,
        },
    }


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (merged(pool(), {"spec": {"storage": None}}), "spec.storage"),
        (merged(pool(), {"spec": {"storage": {"store": {"size": None}}}}), "spec.storage.store.size"),
        (merged(ledger(), {"spec": {"poolRef": None}}), "spec.poolRef"),
        (merged(topic(), {"spec": {"poolRef": {"name": None}}}), "spec.poolRef.name"),
        (merged(pool(), {"spec": {"tls": {}}}), "spec.tls.secretName"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_must_be_said(resources: Resources, body: Object, field: str) -> None:
    with pytest.raises(RefusedError, match=f"{field}: Required value"):
        resources.create(body, dry_run=True)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (pool(lostDisk={"policy": "Guess"}), 'supported values: "Replace", "Manual"'),
        (pool(replicas=1001), "should be less than or equal to 1000"),
        (pool(recovery={"ledgersPerJob": 101}), "should be less than or equal to 100"),
        (pool(placement={"minRacksPerWriteQuorum": 0}), "should be greater than or equal to 1"),
        (ledger(ensembleSize=65), "should be less than or equal to 64"),
        (ledger(ackQuorum=0), "should be greater than or equal to 1"),
        (topic(partitions=PARTITIONS_MAX + 1), f"should be less than or equal to {PARTITIONS_MAX}"),
        (topic(reclaimPolicy="Recycle"), 'supported values: "Retain", "Delete"'),
        (pool(resources={"limits": {"memory": "much"}}), "should match"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_values_out_of_range_are_refused(resources: Resources, body: Object, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        resources.create(body, dry_run=True)


def test_more_racks_than_there_are_can_be_asked_for(resources: Resources) -> None:
    """What cannot be met is for a condition to say: the nodes may come later."""
    wanted = {"minRacksPerWriteQuorum": 5, "enforce": True}
    assert resources.create(pool(placement=wanted), dry_run=True)["spec"]["placement"]["enforce"] is True


@pytest.mark.parametrize("body", [pool(replica=5), ledger(sealed=True), topic(ttl=3)], ids=PLURALS)
def test_unknown_fields_are_dropped_or_refused(resources: Resources, body: Object) -> None:
    unknown = set(body["spec"]) & {"replica", "sealed", "ttl"}
    assert not unknown & set(resources.create(body, dry_run=True)["spec"])
    with pytest.raises(RefusedError, match="unknown field"):
        resources.create(body, dry_run=True, strict=True)


def test_the_columns_of_a_pool(resources: Resources) -> None:
    resources.create(pool())
    status = {
        "readyReplicas": 2,
        "writableReplicas": 1,
        "rackCount": 3,
        "recovery": {"underReplicated": 4},
        "phase": "RollingOut",
        "currentImage": "bookie:1",
        "message": "bk-2 is starting",
    }
    resources.apply({**_named("BookiePool", "bk"), "status": status}, manager="operator", part="status")
    cells = resources.table("BookiePool", "bk")
    assert cells.pop("Age")
    assert cells == {
        "Name": "bk",
        "Desired": 3,
        "Ready": 2,
        "Writable": 1,
        "Racks": 3,
        "UnderRepl": 4,
        "Phase": "RollingOut",
        "Image": "bookie:1",
        "Message": "bk-2 is starting",
    }


def test_the_columns_of_a_ledger_and_a_topic(resources: Resources) -> None:
    resources.create(ledger())
    status: Object = {"ledgerId": 7, "quorum": "3/3/2", "state": "Closed", "lastEntry": 41, "lengthBytes": 99}
    status |= {"underReplicated": False, "rackCount": 2}
    resources.apply({**_named("Ledger", "orders"), "status": status}, manager="operator", part="status")
    cells = resources.table("Ledger", "orders")
    assert cells.pop("Age")
    assert list(cells.values()) == ["orders", "bk", 7, "3/3/2", "Closed", 41, 99, False, 2, None]

    resources.create(topic())
    status = {"quorum": "3/3/2", "ledgerCount": 4, "bytes": 5, "backlogEntries": 6, "conditions": [CONDITION]}
    resources.apply({**_named("Topic", "events"), "status": status}, manager="operator", part="status")
    cells = resources.table("Topic", "events")
    assert cells.pop("Age")
    assert list(cells.values()) == ["events", "bk", "3/3/2", 4, 5, 6, "True", None, None]


def test_the_scale_subresource(resources: Resources) -> None:
    resources.create(pool())
    resources.apply(
        {**_named("BookiePool", "bk"), "status": {"replicas": 2, "selector": "daybook.dev/pool=bk"}},
        manager="operator",
        part="status",
    )
    scale = resources.scale("bk")
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 2, "selector": "daybook.dev/pool=bk"}
    scale["spec"]["replicas"] = 5
    resources.replace(scale, part="scale")
    assert resources.get("BookiePool", "bk")["spec"]["replicas"] == 5
    scale = resources.scale("bk")
    scale["spec"]["replicas"] = 0
    with pytest.raises(RefusedError, match="set hibernate to true"):
        resources.replace(scale, part="scale")


def test_kubectl_scales_a_pool(control_plane: ControlPlane, resources: Resources) -> None:
    resources.create(pool())
    control_plane.kubectl("scale", "bkp/bk", "--replicas=4", "-n", resources.namespace)
    assert resources.get("BookiePool", "bk")["spec"]["replicas"] == 4


@pytest.mark.parametrize("body", [pool(), ledger(), topic()], ids=PLURALS)
def test_status_is_apart_from_the_spec(resources: Resources, body: Object) -> None:
    """A user's write leaves the status alone; the operator's write of the status changes no generation."""
    created = resources.create({**body, "status": {"message": "a user's"}})
    assert "status" not in created
    name = body["metadata"]["name"]
    changed = merged(created, {"spec": {"poolRef": None}, "status": {"message": "the operator's"}})
    changed["spec"] = created["spec"]
    written = resources.replace(changed, part="status")
    assert written["status"] == {"message": "the operator's"}
    assert written["metadata"]["generation"] == created["metadata"]["generation"] == 1
    again = merged(written, {"spec": {"reclaimPolicy": "Delete"}, "status": {"message": "a user's"}})
    resources.replace(again)
    kept = resources.get(body["kind"], name)
    assert kept["status"] == {"message": "the operator's"}
    assert kept["metadata"]["generation"] == 2


def test_a_status_of_the_release_before_is_read_without_its_age_of_the_oldest_message(
    resources: Resources,
) -> None:
    """An operator of that release may run beside this schema during an upgrade, too."""
    created = resources.create(topic())
    backlog = {"name": "slow", "backlogEntries": 4}
    old = {**created, "status": {"subscriptions": [{**backlog, "oldestAgeSeconds": 9}]}}
    assert resources.replace(old, part="status")["status"] == {"subscriptions": [backlog]}


@pytest.mark.parametrize("body", [pool(), ledger(), topic()], ids=PLURALS)
def test_conditions_of_two_managers_merge_by_type(resources: Resources, body: Object) -> None:
    resources.create(body)
    named = _named(body["kind"], body["metadata"]["name"])

    def apply(manager: str, *conditions: Object, force: bool = False) -> Object:
        status = {**named, "status": {"conditions": list(conditions)}}
        return resources.apply(status, manager=manager, part="status", force=force)

    apply("operator", CONDITION)
    both = apply("somebody", {**CONDITION, "type": "Audited"})
    assert {each["type"] for each in both["status"]["conditions"]} == {"Ready", "Audited"}
    with pytest.raises(RefusedError, match='conflict with "operator"') as refused:
        apply("somebody", {**CONDITION, "status": "False"})
    assert refused.value.code == 409
    taken = apply("somebody", {**CONDITION, "status": "False"}, force=True)
    assert [(each["type"], each["status"]) for each in taken["status"]["conditions"]] == [("Ready", "False")]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": "Maybe"}, "supported values"),
        ({"reason": "not one word"}, "should match"),
        ({"lastTransitionTime": "now"}, "date-time"),
        ({"message": None}, "message: Required value"),
    ],
)
def test_a_condition_is_whole(resources: Resources, change: Object, words: str) -> None:
    resources.create(pool())
    body = {**_named("BookiePool", "bk"), "status": {"conditions": [merged(CONDITION, change)]}}
    with pytest.raises(RefusedError, match=words):
        resources.apply(body, manager="operator", part="status")


def test_two_conditions_of_one_type_are_refused(resources: Resources) -> None:
    created = resources.create(pool())
    twice = merged(created, {"status": {"conditions": [CONDITION, CONDITION]}})
    with pytest.raises(RefusedError, match="Duplicate value"):
        resources.replace(twice, part="status")


def test_ledgers_of_one_pool_can_be_selected(control_plane: ControlPlane, resources: Resources) -> None:
    for name, of in (("one", "bk"), ("two", "other")):
        body = merged(ledger(poolRef={"name": of}), {"metadata": {"name": name}})
        resources.create(body)
    selected = control_plane.kubectl(
        "get", "dbl", "-n", resources.namespace, "--field-selector=spec.poolRef.name=other", "-o", "name"
    )
    assert selected.split() == ["ledger.daybook.dev/two"]


def _named(kind: str, name: str) -> Object:
    return {"apiVersion": "daybook.dev/v1alpha1", "kind": kind, "metadata": {"name": name}}
