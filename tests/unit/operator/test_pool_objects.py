"""What a BookiePool's spec becomes: the StatefulSet, its pods, the Service; and when an object is as it should be."""

import copy
import json
import re
from dataclasses import replace
from typing import Any

import pytest
import yaml
from daybook_bookie.settings import BookieSettings
from daybook_operator.plan.conditions import iso
from daybook_operator.plan.drift import apply_if_needed, is_within
from daybook_operator.plan.effects import Apply, ClusterRef, Remove, Report, SetStatus
from daybook_operator.plan.names import FINALIZER, OWNER_ANNOTATION
from daybook_operator.plan.pool.decide import decide
from daybook_operator.plan.pool.objects import is_foreign, service, service_account, stateful_set
from daybook_operator.plan.pool.observed import ObservedClaim, ObservedPool
from daybook_operator.plan.pool.spec import PoolDefaults, cluster_of, spec_of
from daybook_operator.plan.quantities import bytes_of, in_words
from daybook_operator.plan.recovery.jobs import NewJob
from daybook_operator.plan.recovery.manifests import job_manifest
from hypothesis import given
from hypothesis import strategies as st

from tests.kubernetes.api.crd_rules import CRDS
from tests.unit.operator.pool_facts import pool_manifest
from tests.unit.operator.pool_sim import DEFAULTS, PoolSim, kinds


def world(**spec: Any) -> ObservedPool:
    return PoolSim(pool_manifest(**spec)).world()


def pod(**spec: Any) -> dict[str, Any]:
    template: dict[str, Any] = stateful_set(world(**spec), 3)["spec"]["template"]
    return template


def container(**spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = pod(**spec)["spec"]["containers"][0]
    return found


def environment(**spec: Any) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(**spec)["env"] if "value" in each}


def test_the_stateful_set_starts_all_at_once_and_replaces_nobody_by_itself() -> None:
    spec = stateful_set(world(), 5)["spec"]
    assert spec["replicas"] == 5
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    names = [each["metadata"]["name"] for each in spec["volumeClaimTemplates"]]
    assert names == ["journal", "store"]


def test_the_service_has_addresses_before_pods_are_ready() -> None:
    spec = service(world())["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    assert [port["port"] for port in spec["ports"]] == [3181, 3184, 3182, 8000]


def test_pods_comply_with_restricted_pod_security() -> None:
    found, main = pod()["spec"], container()
    assert found["securityContext"]["runAsNonRoot"] is True
    assert found["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert found["automountServiceAccountToken"] is False
    assert main["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert service_account(world())["automountServiceAccountToken"] is False


def test_only_readiness_may_depend_on_others_and_a_start_has_time_to_replay() -> None:
    main = container()
    services = {kind: main[kind]["grpc"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert services == {
        "startupProbe": {"port": 3182, "service": "liveness"},
        "livenessProbe": {"port": 3182, "service": "liveness"},
        "readinessProbe": {"port": 3182, "service": "readiness"},
    }
    assert main["startupProbe"]["periodSeconds"] * main["startupProbe"]["failureThreshold"] >= 600
    assert main["terminationMessagePolicy"] == "FallbackToLogsOnError", "the operator reads why it ended"
    assert "lifecycle" not in main, "no data moves when a bookie stops"


def test_a_bookies_settings() -> None:
    found = environment(disk={"warnPercent": 80}, settings={"write_cache_bytes": "67108864"})
    expected = {
        "DAYBOOK_BOOKIE_BOOKIE_ID": "data.$(POD_NAME)",
        "DAYBOOK_BOOKIE_ADVERTISED_ADDRESS": "$(POD_NAME).bk.data.svc:3181",
        "DAYBOOK_BOOKIE_WAIT_FOR_TOPOLOGY": "true",
        "DAYBOOK_BOOKIE_OWNER_UID": "pool-uid",
        "DAYBOOK_BOOKIE_ZOOKEEPER": "zk:2181",
        "DAYBOOK_BOOKIE_CLUSTER": "daybook",
        "DAYBOOK_BOOKIE_DISK_WARN_RATIO": "0.80",
        "DAYBOOK_BOOKIE_WRITE_CACHE_BYTES": "67108864",
    }
    assert expected.items() <= found.items()


def test_what_the_operator_sets_is_refused_in_settings_or_said_to_be_open() -> None:
    crd = yaml.safe_load((CRDS / "bookiepools.yaml").read_text(encoding="utf-8"))
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    settings = spec["properties"]["settings"]
    refused = set(re.findall(r"'([a-z_]+)'", settings["x-kubernetes-validations"][1]["rule"]))
    found = environment(tls={"secretName": "s", "clientAuth": "Required"})
    ours = {name.removeprefix("DAYBOOK_BOOKIE_").lower(): value for name, value in found.items()}
    (said,) = re.findall(
        r"but for (\w+) and (\w+), which are (\w+) and (\w+) otherwise", settings["description"]
    )
    assert {name: ours[name] for name in ours.keys() - refused} == dict(zip(said[:2], said[2:], strict=True))
    assert environment(settings={"log_format": "console"})["DAYBOOK_BOOKIE_LOG_FORMAT"] == "console"


def test_every_variable_is_a_setting_of_a_bookie() -> None:
    """One that a bookie does not know would stop it at its start."""
    known = {f"DAYBOOK_BOOKIE_{name.upper()}" for name in BookieSettings.model_fields}
    assert environment(tls={"secretName": "s", "clientAuth": "Required"}).keys() <= known
    values = {
        name.removeprefix("DAYBOOK_BOOKIE_").lower(): value.replace("$(POD_NAME)", "bk-0").replace(
            "$(POD_IP)", "10.1.2.3"
        )
        for name, value in environment().items()
    }
    assert BookieSettings.model_validate(values).bookie_id == "data.bk-0"


def test_tls_secrets_are_mounted_and_clients_are_asked_for_certificates_only_if_wanted() -> None:
    assert "DAYBOOK_BOOKIE_TLS_CA" not in environment(tls={"secretName": "certs"})
    found = environment(tls={"secretName": "certs", "clientAuth": "Required"})
    assert found["DAYBOOK_BOOKIE_TLS_CA"] == "/etc/daybook/tls/ca.crt"
    volumes = {each["name"]: each for each in pod(tls={"secretName": "certs"})["spec"]["volumes"]}
    assert volumes["tls"]["secret"]["secretName"] == "certs"
    assert "tls" not in {each["name"] for each in pod()["spec"]["volumes"]}


def test_while_tls_is_optional_bookies_serve_both_ways_and_jobs_speak_what_the_operator_speaks() -> None:
    tls = {"secretName": "bookie-tls", "clientAuth": "Required", "mode": "Optional"}
    container = pod(tls=tls)["spec"]["containers"][0]
    values = {each["name"].removeprefix("DAYBOOK_BOOKIE_"): each.get("value") for each in container["env"]}
    assert values["ADVERTISED_PLAIN_ADDRESS"] == "$(POD_NAME).bk.data.svc:3181", (
        "clients of before stay there"
    )
    assert values["ADVERTISED_ADDRESS"] == "$(POD_NAME).bk.data.svc:3183"
    assert (values["PLAIN_ADDRESS"], values["ADDRESS"]) == ("0.0.0.0:3181", "0.0.0.0:3183")
    assert values["TLS_CERTIFICATE"]
    assert {each["name"]: each["containerPort"] for each in container["ports"]}["data-tls"] == 3183
    assert {each["name"]: each["port"] for each in service(world(tls=tls))["spec"]["ports"]}[
        "data-tls"
    ] == 3183

    def has_tls(*, operator_speaks_tls: bool, **tls: str) -> bool:
        manifest = pool_manifest(tls=tls or None)
        spec, made = spec_of(manifest, DEFAULTS), NewJob("job", (7,), ("7:1:1",))
        ref = ClusterRef("zk:2181", "daybook")
        job = job_manifest(manifest, spec, ref, made, operator_speaks_tls=operator_speaks_tls)
        return "DAYBOOK_TLS_CA" in json.dumps(job)

    assert not has_tls(operator_speaks_tls=False, **tls), "not every bookie may serve with TLS yet"
    assert has_tls(operator_speaks_tls=True, **tls), "on the way back not every bookie may serve without yet"
    for speaks in (False, True):
        assert has_tls(operator_speaks_tls=speaks, secretName="bookie-tls")
        assert not has_tls(operator_speaks_tls=speaks)


def test_the_pod_template_takes_what_the_spec_adds_and_not_what_selects() -> None:
    found = pod(
        podTemplate={
            "labels": {"team": "blue", "daybook.dev/pool": "other"},
            "annotations": {"a": "b"},
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"operator": "Exists"}],
            "priorityClassName": "high",
        },
        resources={"requests": {"cpu": "1"}},
        terminationGracePeriodSeconds=90,
    )
    assert found["metadata"]["labels"]["team"] == "blue"
    assert found["metadata"]["labels"]["daybook.dev/pool"] == "bk"
    assert found["metadata"]["annotations"] == {"a": "b"}
    spec = found["spec"]
    assert (spec["nodeSelector"], spec["priorityClassName"]) == ({"disk": "ssd"}, "high")
    assert (spec["tolerations"], spec["terminationGracePeriodSeconds"]) == ([{"operator": "Exists"}], 90)
    assert spec["containers"][0]["resources"] == {"requests": {"cpu": "1"}}


def test_zones_are_required_only_where_every_node_must_have_one() -> None:
    def strictness(**topology: Any) -> dict[str, str]:
        spread = pod(topology=topology)["spec"]["topologySpreadConstraints"]
        return {each["topologyKey"]: each["whenUnsatisfiable"] for each in spread}

    zone = "topology.kubernetes.io/zone"
    assert strictness()[zone] == "DoNotSchedule"
    assert strictness(spread="Preferred")[zone] == "ScheduleAnyway"
    assert strictness(onMissing="DefaultRack")[zone] == "ScheduleAnyway"
    assert strictness()["topology.daybook.dev/rack"] == "ScheduleAnyway", "most nodes have no such label"


@pytest.mark.parametrize(
    "topology",
    [{"rackKey": "topology.kubernetes.io/zone"}, {"zoneKey": "kubernetes.io/hostname"}],
    ids=["the rack is the zone", "the zone is the node"],
)
def test_what_is_asked_of_zones_holds_where_a_rack_or_node_is_one(topology: dict[str, str]) -> None:
    spread = pod(topology={**topology, "maxSkew": 3})["spec"]["topologySpreadConstraints"]
    found = {each["topologyKey"]: (each["whenUnsatisfiable"], each["maxSkew"]) for each in spread}
    assert found[topology.get("zoneKey", "topology.kubernetes.io/zone")] == ("DoNotSchedule", 3)
    assert len(spread) == len(found) == 2


def test_a_zone_whose_nodes_take_no_pods_is_no_empty_one() -> None:
    """By default a cordoned node's zone counts as empty, and no other zone may get a pod before it."""
    spread = pod()["spec"]["topologySpreadConstraints"]
    assert {each["nodeTaintsPolicy"] for each in spread} == {"Honor"}


def test_an_upgrade_of_the_operator_rolls_no_pool() -> None:
    """Neither its version nor its default image reach a pool that it knows."""
    sim = PoolSim()
    sim.settle(8)
    known = sim.manifest
    newer = PoolDefaults("registry/bookie:2", "other:2181", "other")
    assert spec_of(known, newer) == spec_of(known, DEFAULTS)
    assert cluster_of(known, newer) == cluster_of(known, DEFAULTS)


def test_a_pool_that_is_made_again_continues_with_the_volumes_that_were_retained() -> None:
    sim = PoolSim()
    seen = sim.world()
    kept = ObservedClaim("store-bk-0", 0, "store", "claim-uid", bytes_of("10Gi"), owner_uid="the-first-pool")
    made = stateful_set(replace(seen, claims={"store-bk-0": kept}), 3)
    values = {
        each["name"]: each.get("value") for each in made["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert values["DAYBOOK_BOOKIE_OWNER_UID"] == "the-first-pool"
    annotations = [each["metadata"]["annotations"] for each in made["spec"]["volumeClaimTemplates"]]
    assert annotations == [{OWNER_ANNOTATION: "the-first-pool"}] * 2


# Drift.


@pytest.mark.parametrize(
    ("wanted", "live", "is_so"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": {"b": 1}}, {"a": {}}, False),
        ({"a": [{"n": 1}]}, {"a": [{"n": 1, "defaulted": True}]}, True),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
        ({"a": None}, {}, True),
        ({"a": {}}, {}, True),
        ({"a": {}}, {"a": {"b": 1}}, False),
        ({"a": False}, {"a": 0}, True),
        ({"a": "1"}, {"a": 1}, False),
        ({"requests": {"cpu": "1000m"}}, {"requests": {"cpu": "1"}}, True),
        ({"limits": {"cpu": 2, "memory": "1024Gi"}}, {"limits": {"cpu": "2", "memory": "1Ti"}}, True),
        ({"requests": {"cpu": "0.5"}}, {"requests": {"cpu": "500m"}}, True),
        ({"requests": {"cpu": "1500m"}}, {"requests": {"cpu": "1"}}, False),
        ({"requests": {"cpu": "1"}}, {"requests": {}}, False),
        ({"requests": {"cpu": "much"}}, {"requests": {"cpu": "1"}}, False),
        ({"cpu": "1000m"}, {"cpu": "1"}, False),
    ],
)
def test_drift_is_a_wanted_field_that_differs(wanted: Any, live: Any, *, is_so: bool) -> None:
    assert is_within(wanted, live) is is_so


JSON = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans(),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON)
def test_everything_is_as_it_is(value: Any) -> None:
    assert is_within(value, copy.deepcopy(value))


def test_a_field_that_is_wanted_no_longer_is_noticed_by_the_digest() -> None:
    """Nothing that is wanted differs, and yet the object must be applied."""
    before = stateful_set(world(podTemplate={"nodeSelector": {"disk": "ssd"}}), 3)
    after = stateful_set(world(), 3)
    assert apply_if_needed(after, before) == (Apply(after),)
    assert apply_if_needed(after, after) == ()


def test_objects_of_somebody_else_are_not_touched() -> None:
    sim = PoolSim()
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "bk", "namespace": "data", "uid": "x"},
        "spec": {"clusterIP": "10.0.0.1"},
    }
    sim.objects["Service", "bk"] = theirs
    decision = decide(sim.world(), 1_000)
    assert not [each for each in decision.effects if isinstance(each, Apply)]
    sim.reconcile()
    assert sim.manifest["status"]["phase"] == "Blocked"
    assert sim.condition("Ready")["reason"] == "NameTaken"
    assert "Service bk" in sim.condition("Ready")["message"]
    assert sim.objects["Service", "bk"] is theirs


@pytest.fixture
def beside_a_foreign_set() -> PoolSim:
    """A pool that finds its name taken by a larger StatefulSet with smaller volumes."""
    sim = PoolSim(pool_manifest(reclaimPolicy="Delete"))
    theirs = copy.deepcopy(dict(stateful_set(sim.world(), 9)))
    theirs["metadata"] = {"name": "bk", "namespace": "data", "uid": "x"}
    theirs["spec"]["volumeClaimTemplates"][1]["spec"]["resources"]["requests"]["storage"] = "1Gi"
    sim.stateful_set = theirs
    return sim


def test_a_stateful_set_of_somebody_else_is_neither_made_anew_nor_drained(
    beside_a_foreign_set: PoolSim,
) -> None:
    sim = beside_a_foreign_set
    effects = sim.reconcile().effects
    assert not [each for each in effects if isinstance(each, Apply | Remove) and "StatefulSet" in str(each)]
    assert sim.condition("Ready")["reason"] == "NameTaken"
    assert "StatefulSet bk" in sim.condition("Ready")["message"]
    assert sim.condition("Draining")["reason"] == "NotDraining", "their replicas are no bookies"


def test_a_pool_that_goes_with_its_volumes_leaves_the_stateful_set_of_somebody_else(
    beside_a_foreign_set: PoolSim,
) -> None:
    sim = beside_a_foreign_set
    sim.manifest["metadata"] |= {"deletionTimestamp": iso(sim.now_ms), "finalizers": [FINALIZER]}
    assert kinds(decide(sim.world(), sim.now_ms).effects) == ["PatchMeta"], "nothing of the pool is left"


def test_an_object_that_the_api_server_refuses_holds_nothing_else_up_and_is_reported() -> None:
    sim = PoolSim()
    sim.reconcile()
    sim.controllers()
    sim.manifest["spec"]["image"] = "other"
    seen = sim.world()
    whole = decide(seen, sim.now_ms).effects
    (refused,) = [e for e in whole if isinstance(e, Apply) and e.manifest["kind"] == "StatefulSet"]
    effects = decide(
        replace(seen, refused={("StatefulSet", "bk"): "cpu must not exceed its limit"}), sim.now_ms
    ).effects
    assert [e for e in effects if not isinstance(e, Report | SetStatus)] == [
        e for e in whole if not isinstance(e, Report | SetStatus) and e is not refused
    ]
    assert {"SetLocations", "Apply"} <= set(kinds(effects)), "places and budgets"
    for effect in effects:
        sim.perform(effect)
    said = sim.condition("Ready")
    assert (said["status"], said["reason"]) == ("False", "ObjectsRefused")
    assert "StatefulSet bk: cpu must not exceed its limit" in said["message"]
    assert sim.manifest["status"]["message"] == said["message"]


def test_a_stateful_set_that_cannot_be_made_now_is_not_taken_away() -> None:
    sim = PoolSim()
    sim.settle(8)
    sim.objects["Service", "bk"] = {"metadata": {"name": "bk", "namespace": "data", "uid": "x"}}
    sim.manifest["spec"]["storage"] = {"store": {"size": "20Gi"}}
    effects = decide(sim.world(), sim.now_ms).effects
    assert [each.manifest["kind"] for each in effects if isinstance(each, Apply)] == [
        "PersistentVolumeClaim"
    ] * 3
    assert not [each for each in effects if isinstance(each, Remove)]


def test_what_an_orphaning_deletion_left_is_ours() -> None:
    seen = world()
    left = copy.deepcopy(dict(service(seen)))
    del left["metadata"]["ownerReferences"]
    assert not is_foreign(seen, left)
    left["metadata"]["labels"]["daybook.dev/pool"] = "other"
    assert is_foreign(seen, left)


@pytest.mark.parametrize("missing", ["image", "zookeeper"])
def test_a_pool_without_an_image_or_a_zookeeper_says_so(missing: str) -> None:
    sim = PoolSim()
    defaults = {"image": PoolDefaults("", "zk:2181"), "zookeeper": PoolDefaults("image", "")}[missing]
    seen = replace(
        sim.world(),
        spec=spec_of(sim.manifest, defaults),
        cluster_ref=cluster_of(sim.manifest, defaults),
        cluster=None,
    )
    for effect in decide(seen, 1_000).effects:
        assert not isinstance(effect, Apply)
        sim.perform(effect)
    assert sim.condition("Ready")["reason"] == "NotConfigured"
    assert missing in sim.condition("Ready")["message"]


# Quantities.


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("10Gi", 10 * 2**30),
        ("1500M", 1_500_000_000),
        ("1e3", 1000),
        ("0.5Ki", 512),
        ("1k", 1000),
        ("7", 7),
        ("1m", 1),
    ],
)
def test_quantities(text: str, size_bytes: int) -> None:
    assert bytes_of(text) == size_bytes


@given(st.integers(0, 2**62))
def test_a_quantity_in_words_is_exact(size_bytes: int) -> None:
    assert bytes_of(in_words(size_bytes)) == size_bytes


def test_what_is_no_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="20Gi"):
        bytes_of("much")
