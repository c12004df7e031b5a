"""The brokers that the chart runs: their settings, certificates and probes, and how they stop."""

from typing import Any, Final

import pytest
import yaml
from daybook_broker.settings import AuthMethod, BrokerSettings

from daybook.client.placement_settings import PlacementOptions
from daybook.metadata.store.settings import options_of_process
from daybook.runtime.settings import load_settings
from tests.kubernetes.api.crd_rules import CRDS
from tests.kubernetes.chart.conftest import CHART, HelmError, Object, Render, of_kind

PREFIX: Final = "DAYBOOK_BROKER_"
MARGIN_MS: Final = 5_000
"""What a broker needs of its grace beside its drain."""


def statefulset(objects: list[Object]) -> Object:
    (found,) = [
        each for each in of_kind(objects, "StatefulSet") if each["metadata"]["name"] == "daybook-broker"
    ]
    return found


def pod_of(objects: list[Object]) -> Object:
    pod: Object = statefulset(objects)["spec"]["template"]["spec"]
    return pod


def settings_of(container: Object) -> BrokerSettings:
    """What the broker makes of its variables; one that it does not know ends it at its start."""
    variables = {each["name"]: each.get("value", "me:secret") for each in container["env"]}
    given = {
        name: value.replace("$(POD_NAME)", "daybook-broker-1").replace("$(ZONE)", "z1")
        for name, value in variables.items()
        if name.startswith(PREFIX)
    }
    known = {f"{PREFIX}{name.upper()}" for name in BrokerSettings.model_fields}
    assert given.keys() <= known
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        return load_settings(BrokerSettings)


def test_brokers_are_off_at_first(render: Render) -> None:
    assert not [each for each in render() if "broker" in each["metadata"]["name"]]


def test_a_broker_is_found_by_the_name_of_its_pod_and_by_its_ports(render: Render) -> None:
    objects = render({"broker": {"enabled": True}, "clusterDomain": "cluster.local"})
    (container,) = pod_of(objects)["containers"]
    settings = settings_of(container)
    host = "daybook-broker-1.daybook-broker-pods.data.svc.cluster.local"
    assert settings.broker_id == "data.daybook-broker-1"
    assert settings.advertised_address == f"{host}:6650"
    assert settings.advertised_admin_address == f"{host}:8080"
    assert settings.zone == "z1"
    assert not settings.authentication
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    for name, address in (
        ("pulsar", settings.address),
        ("admin", settings.admin_address),
        ("health", settings.health_address),
        ("metrics", settings.metrics_address),
    ):
        assert address == f"0.0.0.0:{ports[name]}"
    services = {each["metadata"]["name"]: each["spec"] for each in of_kind(objects, "Service")}
    assert statefulset(objects)["spec"]["serviceName"] == "daybook-broker-pods"
    assert services["daybook-broker-pods"]["publishNotReadyAddresses"] is True
    labels = statefulset(objects)["spec"]["template"]["metadata"]["labels"]
    for name in ("daybook-broker", "daybook-broker-pods"):
        assert services[name]["selector"].items() <= labels.items()
        assert {each["targetPort"] for each in services[name]["ports"]} <= ports.keys()


def placement_of(container: Object) -> PlacementOptions:
    """What a broker makes of its variables of the placement policy."""
    with pytest.MonkeyPatch.context() as patch:
        for each in container["env"]:
            if each["name"].startswith("DAYBOOK_PLACEMENT_"):
                patch.setenv(each["name"], each["value"])
        return load_settings(PlacementOptions)


def test_brokers_place_as_a_pool_that_says_nothing_unless_they_are_told_otherwise(render: Render) -> None:
    """The auditor goes by the pool: what a broker places otherwise is moved once its ledger is closed, and not before."""
    (container,) = pod_of(render({"broker": {"enabled": True}}))["containers"]
    schema = yaml.safe_load((CRDS / "bookiepools.yaml").read_text(encoding="utf-8"))
    spec = schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    fields = spec["properties"]["placement"]["properties"]
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert values["broker"]["placement"] == {name: field["default"] for name, field in fields.items()}
    assert placement_of(container) == PlacementOptions(policy="zone")
    strict = {"policy": "Region", "minRegionsPerWriteQuorum": 3, "enforce": True, "weighByFreeSpace": True}
    (container,) = pod_of(render({"broker": {"enabled": True, "placement": strict}}))["containers"]
    assert placement_of(container) == PlacementOptions(
        policy="region", min_regions=3, enforce=True, weigh_by_free_space=True
    )


@pytest.mark.parametrize("placement", [{"policy": "zone"}, {"minZonesPerWriteQuorum": 0}, {"minZones": 2}])
def test_a_placement_that_no_pool_could_have_is_refused(render: Render, placement: Object) -> None:
    with pytest.raises(HelmError, match="placement"):
        render({"broker": {"enabled": True, "placement": placement}})


def test_readiness_is_not_liveness_and_neither_asks_more_than_the_broker(render: Render) -> None:
    (container,) = pod_of(render({"broker": {"enabled": True}}))["containers"]
    asked = {
        name: container[f"{name}Probe"]["grpc"]["service"] for name in ("startup", "liveness", "readiness")
    }
    assert asked == {"startup": "liveness", "liveness": "liveness", "readiness": "readiness"}


def test_a_broker_has_no_token_of_the_api_server(render: Render) -> None:
    objects = render({"broker": {"enabled": True}})
    pod = pod_of(objects)
    assert pod["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod
    assert not [
        each for each in of_kind(objects, "Role", "RoleBinding") if "broker" in each["metadata"]["name"]
    ]


@pytest.mark.parametrize("grace_s", [20, 60, 300])
def test_the_grace_of_a_pod_is_longer_than_the_drain(render: Render, grace_s: int) -> None:
    values = {"broker": {"enabled": True, "terminationGracePeriodSeconds": grace_s}}
    pod = pod_of(render(values))
    settings = settings_of(pod["containers"][0])
    assert pod["terminationGracePeriodSeconds"] == grace_s
    assert MARGIN_MS <= settings.drain_ms <= 1000 * grace_s - MARGIN_MS


def test_tls_serves_clients_and_calls_bookies(render: Render) -> None:
    values: Object = {
        "broker": {"enabled": True, "tls": {"clientAuth": "Required"}},
        "tls": {"enabled": True, "certManager": {"enabled": True}},
    }
    objects = render(values)
    pod = pod_of(objects)
    settings = settings_of(pod["containers"][0])
    mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    secrets = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    assert str(settings.tls_certificate) == f"{mounts['tls']}/tls.crt"
    assert str(settings.tls_ca) == f"{mounts['tls']}/ca.crt"
    assert str(settings.bookie_tls_certificate) == f"{mounts['client-tls']}/tls.crt"
    assert settings.advertised_tls_address.endswith(":6651")
    certificates = {each["spec"]["secretName"]: each["spec"] for each in of_kind(objects, "Certificate")}
    names = certificates[secrets["tls"]]["dnsNames"]
    assert names == ["daybook-broker.data.svc", "*.daybook-broker-pods.data.svc"]
    assert certificates[secrets["client-tls"]]["uris"] == ["daybook://daybook/role/client"]


@pytest.mark.parametrize(
    ("kind", "setting"), [("Secret", "token_secret_file"), ("Public", "token_public_key_file")]
)
def test_tokens_are_checked_with_the_key_of_a_secret(render: Render, kind: str, setting: str) -> None:
    tokens = {"secretName": "jwt", "key": "k.pem", "kind": kind, "superusers": ["admin"], "jobs": ["spark"]}
    pod = pod_of(render({"broker": {"enabled": True, "tokens": tokens}}))
    settings = settings_of(pod["containers"][0])
    assert settings.authentication == (AuthMethod.TOKEN,)
    assert (settings.superuser_roles, settings.jobs_roles) == (("admin",), ("spark",))
    assert str(getattr(settings, setting)) == "/tokens/k.pem"
    assert [each["secret"]["secretName"] for each in pod["volumes"] if each["name"] == "tokens"] == ["jwt"]


def test_zookeepers_access_has_the_brokers_prefix(render: Render) -> None:
    access = {
        "tls": {"secretName": "zk", "clientAuth": "Required", "x509Owners": ["CN=a"]},
        "digestSecretRef": {"name": "user"},
    }
    values = {"broker": {"enabled": True}, "zookeeper": {"access": access}, "tls": {"enabled": True}}
    (container,) = pod_of(render(values))["containers"]
    options = options_of_process(settings_of(container))
    assert (options.tls, options.auth) == (True, (("digest", "me:secret"),))
    assert options.cert_file == "/zookeeper-tls/tls.crt"


def test_settings_of_the_user_win_and_are_named_as_the_broker_names_them(render: Render) -> None:
    given = {"retention_ms": "3600000", "durability": "sync", "degrade": "never", "log_format": "console"}
    (container,) = pod_of(render({"broker": {"enabled": True, "settings": given}}))["containers"]
    settings = settings_of(container)
    assert (settings.retention_ms, settings.durability.value) == (3_600_000, "sync")
    assert settings.log_format.value == "console"
    names = [each["name"] for each in container["env"]]
    assert len(names) == len(set(names)), "the API server refuses a variable that is there twice"


def test_the_autoscaler_sets_the_number_of_brokers_alone(render: Render) -> None:
    """Where there is no StatefulSet yet, or no API server to ask for it; else see `test_api_server`."""
    objects = render({"broker": {"enabled": True, "autoscaling": {"enabled": True, "maxReplicas": 5}}})
    assert "replicas" not in statefulset(objects)["spec"]
    (scaler,) = of_kind(objects, "HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"]["name"] == "daybook-broker"
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (2, 5)
    assert not of_kind(render({"broker": {"enabled": True}}), "HorizontalPodAutoscaler")


def test_one_broker_at_a_time_may_be_disrupted(render: Render) -> None:
    budgets = of_kind(render({"broker": {"enabled": True}}), "PodDisruptionBudget")
    (found,) = [each for each in budgets if each["metadata"]["name"] == "daybook-broker"]
    assert found["spec"]["maxUnavailable"] == 1


def test_brokers_get_the_credentials_of_an_object_store_from_a_secret_or_by_their_account(
    render: Render,
) -> None:
    pod = pod_of(render({"broker": {"enabled": True}}))
    assert "envFrom" not in pod["containers"][0]
    assert "serviceAccountName" not in pod
    named = {"credentialsSecretName": "bucket", "serviceAccountName": "reads-the-bucket"}
    pod = pod_of(render({"broker": {"enabled": True, **named}}))
    assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "bucket"}}]
    assert pod["serviceAccountName"] == "reads-the-bucket"
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"credentialsSecretName": "No Name"}, "credentialsSecretName"),
        ({"tls": {"clientAuth": "Required"}}, "needs TLS"),
        ({"tokens": {"superusers": ["admin"]}}, "without tokens nobody has a role"),
        ({"tokens": {"jobs": ["spark"]}}, "without tokens nobody has a role"),
        ({"replicas": 0}, "broker/replicas"),
        ({"terminationGracePeriodSeconds": 5}, "terminationGracePeriodSeconds"),
        ({"settings": {"retention_ms": 5}}, "retention_ms"),
        ({"tokens": {"kind": "HS256"}}, "kind"),
    ],
)
def test_what_cannot_work_is_refused_by_name(render: Render, values: dict[str, Any], words: str) -> None:
    with pytest.raises(HelmError, match=words):
        render({"broker": {"enabled": True, **values}})


def test_the_test_of_the_release_uses_a_topic_where_clients_need_no_token(render: Render) -> None:
    def script(broker: Object) -> str:
        (pod,) = of_kind(render({"broker": broker}), "Pod")
        return str(pod["spec"]["containers"][0]["command"][-1])

    assert "daybook topic consume" in script({"enabled": True})
    assert "daybook topic" not in script({"enabled": False})
    assert "daybook topic" not in script({"enabled": True, "tokens": {"secretName": "jwt"}})
