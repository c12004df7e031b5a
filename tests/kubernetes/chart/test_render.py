"""What the chart renders: who may do what, how pods are held, what its values may be."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml
from daybook_operator.plan.pods import pod_dns

from daybook.metadata.store.environment import zookeeper_options
from tests.kubernetes.chart.conftest import CHART, HelmError, Object, Render, of_kind
from tests.paths import ROOT

EVERYTHING: Final = {
    "tls": {"enabled": True, "certManager": {"enabled": True, "pools": [{"name": "secure"}]}},
    "networkPolicy": {"enabled": True, "poolNamespaces": ["other"]},
    "monitoring": {
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    },
    "operator": {"watchNamespaces": ["data", "other"]},
    "broker": {"enabled": True},
}
READ: Final = {"get", "list", "watch"}
NEVER: Final = {
    "secrets", "pods/exec", "pods/attach", "pods/portforward", "clusterroles", "clusterrolebindings",
    "roles", "rolebindings", "serviceaccounts/token", "nodes/proxy", "configmaps",
}  # fmt: skip


def pod_specs(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    for each in objects:
        if each["kind"] == "Pod":
            yield each["metadata"]["name"], each["spec"]
        elif "template" in each.get("spec", {}) and "spec" in each["spec"]["template"]:
            yield each["metadata"]["name"], each["spec"]["template"]["spec"]


@pytest.mark.parametrize(("values", "more"), [({}, set()), (EVERYTHING, {"daybook-broker"})])
def test_every_pod_is_held_as_tightly_as_the_restricted_profile_asks(
    render: Render, values: Object, more: set[str]
) -> None:
    found = dict(pod_specs(render(values)))
    assert found.keys() == {"daybook-operator", "daybook-zookeeper", "daybook-test"} | more
    for spec in found.values():
        held = spec["securityContext"]
        assert (held["runAsNonRoot"], held["runAsUser"]) == (True, 65532)
        assert held["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert not [volume for volume in spec["volumes"] if "hostPath" in volume]
        for container in spec["containers"]:
            inner = container["securityContext"]
            assert inner["allowPrivilegeEscalation"] is False
            assert inner["readOnlyRootFilesystem"] is True
            assert inner["capabilities"] == {"drop": ["ALL"]}
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
            assert container["resources"]["limits"]["memory"]
            assert not container["image"].endswith(":latest")


def test_pods_that_run_on_give_a_dns_server_up_as_soon_as_the_operators_pods_do(render: Render) -> None:
    found = dict(pod_specs(render(EVERYTHING)))
    del found["daybook-test"]
    assert [spec["dnsConfig"] for spec in found.values()] == [pod_dns()["dnsConfig"]] * 3


def rules(objects: list[Object]) -> Iterator[tuple[Object, Object]]:
    for role in of_kind(objects, "Role", "ClusterRole"):
        for rule in role["rules"]:
            yield role, rule


@pytest.mark.parametrize("values", [{}, EVERYTHING])
def test_no_role_has_a_wildcard_or_reads_secrets(render: Render, values: Object) -> None:
    found = list(rules(render(values)))
    assert len(found) >= 10
    for _, rule in found:
        words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        assert not [word for word in words if "*" in word], rule
        assert not NEVER & set(rule["resources"]), rule
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"]), rule


def test_an_operator_of_namespaces_changes_nothing_elsewhere(render: Render) -> None:
    objects = render(EVERYTHING)
    for role, rule in rules(objects):
        is_for_people = any(name.startswith("rbac.") for name in role["metadata"]["labels"])
        if role["kind"] == "ClusterRole" and not is_for_people:
            assert set(rule["verbs"]) <= READ, rule
    bound = {
        each["metadata"]["namespace"]
        for each in of_kind(objects, "RoleBinding")
        if "namespace" in each["metadata"]
    }
    assert bound >= {"data", "other"}


def test_drivers_of_jobs_get_their_account_in_the_namespaces_that_are_named_alone(render: Render) -> None:
    assert not [each for each in render() if each["metadata"]["name"] == "daybook-jobs"]
    found = [
        each
        for each in render({"jobs": {"namespaces": ["data", "other"]}})
        if each["metadata"]["name"] == "daybook-jobs"
    ]
    places = {(each["metadata"]["namespace"], each["kind"]) for each in found}
    assert places == {
        (namespace, kind)
        for namespace in ("data", "other")
        for kind in ("ServiceAccount", "Role", "RoleBinding")
    }
    for role in of_kind(found, "Role"):
        (rule,) = role["rules"]
        assert rule["resources"] == ["pods", "services", "configmaps", "persistentvolumeclaims"]
    for binding in of_kind(found, "RoleBinding"):
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == ("daybook-jobs", binding["metadata"]["namespace"])


def test_only_its_own_lease_may_be_changed(render: Render) -> None:
    leases = [rule for _, rule in rules(render()) if "leases" in rule["resources"]]
    assert {verb for rule in leases for verb in rule["verbs"]} == {"create", "get", "update"}
    assert all(
        rule["resourceNames"] == ["daybook-operator"] for rule in leases if "create" not in rule["verbs"]
    )


def test_the_operator_is_told_what_its_settings_know(render: Render) -> None:
    """A variable that the operator does not know ends it at its start; the same check is made here."""
    from daybook_operator.settings import OperatorSettings

    values = {
        "operator": {
            "watchNamespaces": ["data", "other"],
            "finalizers": False,
            "brokerToken": {"secretName": "operator-token"},
        },
        "clusterDomain": "cluster.local",
        "tls": {"enabled": True},
    }
    (deployment,) = of_kind(render(values), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    prefix = "DAYBOOK_OPERATOR_"
    given = {
        each["name"].removeprefix(prefix).lower(): each.get("value", "x")
        for each in container["env"]
        if each["name"].startswith(prefix)
    }
    settings = OperatorSettings(**given)
    assert settings.namespace_list == ("data", "other")
    assert settings.zookeeper == ",".join(
        f"daybook-zookeeper-{n}.daybook-zookeeper-servers.data.svc.cluster.local:2181" for n in range(3)
    )
    assert settings.bookie_image == "daybook-bookie:0.1.0"
    assert (settings.spark_image, settings.jobs_account) == ("daybook-spark:0.1.0", "daybook-jobs")
    assert settings.finalizers is False
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(settings.tls_ca) == str(settings.broker_tls_ca) == f"{mounts['tls']}/ca.crt"
    assert str(settings.broker_token_file) == f"{mounts['broker-token']}/token"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert settings.health_address.endswith(f":{ports['health']}")
    assert settings.metrics_address.endswith(f":{ports['metrics']}")


def test_the_charts_crds_are_the_projects() -> None:
    """Made by `make crds`; this is what notices that it was forgotten."""
    copies = {path.name: path.read_bytes() for path in (CHART / "files" / "crds").iterdir()}
    files = {path.name: path.read_bytes() for path in (ROOT / "crds").glob("*.yaml")}
    assert copies == files, "crds/ has changed: run `make crds`"


def test_crds_are_upgraded_with_the_chart_and_outlive_it(render: Render) -> None:
    found = of_kind(render(), "CustomResourceDefinition")
    files = [
        yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "crds").glob("*.yaml"))
    ]
    assert [each["metadata"]["name"] for each in found] == [each["metadata"]["name"] for each in files]
    for each, file in zip(found, files, strict=True):
        assert each["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert each == file
    assert not of_kind(render({"crds": {"create": False}}), "CustomResourceDefinition")


def test_what_is_optional_is_off_at_first(render: Render) -> None:
    kinds = {each["kind"] for each in render()}
    assert not kinds & {
        "NetworkPolicy",
        "Certificate",
        "Issuer",
        "ServiceMonitor",
        "PodMonitor",
        "PrometheusRule",
    }
    assert kinds & {"Deployment", "StatefulSet"}


def test_who_is_lost_and_what_lacks_replicas_is_told_by_an_alert_each(render: Render) -> None:
    (found,) = of_kind(render(EVERYTHING), "PrometheusRule")
    alerts = {each["alert"]: each for group in found["spec"]["groups"] for each in group["rules"]}
    for name, metric in (
        ("DaybookBookieLost", "daybook_auditor_num_lost_bookies"),
        ("DaybookUnderReplicated", "daybook_operator_under_replicated_ledgers"),
    ):
        assert alerts[name]["expr"] == f"max by (cluster) ({metric}) > 0"


def test_a_large_number_of_a_values_file_is_rendered_in_digits(render: Render) -> None:
    """Helm reads numbers of a file as floats, and a template prints those from a million on like 1e+06."""
    rule = {"prometheusRule": {"enabled": True, "backlogEntries": 2_500_000}}
    objects = render({"test": {"entries": 1_000_000}, "broker": {"enabled": True}, "monitoring": rule})
    (container,) = next(
        each["spec"]["containers"] for each in of_kind(objects, "Pod") if "test" in each["metadata"]["name"]
    )
    assert {"name": "ENTRIES", "value": "1000000"} in container["env"]
    (found,) = of_kind(objects, "PrometheusRule")
    alerts = {each["alert"]: each for group in found["spec"]["groups"] for each in group["rules"]}
    assert "> 2500000 and" in alerts["DaybookBacklogGrows"]["expr"]
    assert not re.findall(r"\de\+\d\d\b", yaml.safe_dump_all(objects)), "nor is any other"


def test_what_alerts_count_is_their_own_releases(render: Render) -> None:
    """One Prometheus may scrape several releases: two leaders of two releases are right."""

    def expressions(values: dict[str, Any], *flags: str) -> dict[str, str]:
        (found,) = of_kind(render(values, *flags), "PrometheusRule")
        return {each["alert"]: each["expr"] for group in found["spec"]["groups"] for each in group["rules"]}

    here = expressions(EVERYTHING)
    elsewhere = expressions(EVERYTHING, "--namespace", "other")
    beside = expressions({**EVERYTHING, "fullnameOverride": "second"})
    for alert, metric in (
        ("DaybookNoLeader", "daybook_operator_leading"),
        ("DaybookZooKeeperWithoutQuorum", "zk_server_state"),
    ):
        selectors = [
            set(re.findall(metric + r"(\{[^}]*\})?", each[alert])) for each in (here, elsewhere, beside)
        ]
        assert [len(each) for each in selectors] == [1, 1, 1]
        assert len(set.union(*selectors)) == 3
        assert "" not in set.union(*selectors)
    assert here["DaybookNoLeader"].count('{namespace="data",job=~"(.*/)?daybook-operator"}') == 2


def test_a_certificate_is_for_the_names_that_clients_use(render: Render) -> None:
    values = {**EVERYTHING, "clusterDomain": "cluster.local"}
    certificates = {each["metadata"]["name"]: each for each in of_kind(render(values), "Certificate")}
    bookies = certificates["secure-bookie"]["spec"]
    assert bookies["secretName"] == "secure-bookie-tls"
    assert "*.secure.data.svc" in bookies["dnsNames"]
    servers = certificates["daybook-zookeeper"]["spec"]
    assert servers["privateKey"]["encoding"] == "PKCS8", "the one that ZooKeeper reads"
    assert "daybook-zookeeper-0.daybook-zookeeper-servers.data.svc.cluster.local" in servers["dnsNames"]


def test_given_secrets_take_the_place_of_cert_manager(render: Render) -> None:
    objects = render({"tls": {"enabled": True, "secrets": {"zookeeper": "zk-pair", "client": "client-pair"}}})
    assert not of_kind(objects, "Certificate", "Issuer")
    mounted = {
        name: volume["secret"]["secretName"]
        for name, spec in pod_specs(objects)
        for volume in spec["volumes"]
        if "secret" in volume
    }
    assert mounted == {
        "daybook-operator": "client-pair",
        "daybook-zookeeper": "zk-pair",
        "daybook-test": "client-pair",
    }


def test_a_policy_lets_in_who_must_come_in(render: Render) -> None:
    policies = {
        (each["metadata"].get("namespace", "data"), each["metadata"]["name"]): each["spec"]
        for each in of_kind(render(EVERYTHING), "NetworkPolicy")
    }
    assert {
        ("data", "daybook-bookies"),
        ("other", "daybook-bookies"),
        ("data", "daybook-zookeeper"),
    } <= policies.keys()
    for (_, name), spec in policies.items():
        assert spec["policyTypes"] == ["Ingress"], (
            "egress is the cluster's to decide: DNS and the API server differ"
        )
        assert spec["podSelector"]["matchLabels"]["app.kubernetes.io/component"] in name or "bookies" in name
    ours, clients = policies["data", "daybook-bookies"]["ingress"][0]["from"]
    components = {each["key"]: each["values"] for each in ours["podSelector"]["matchExpressions"]}
    assert set(components["app.kubernetes.io/component"]) == {
        "bookie",
        "broker",
        "recovery",
        "spark",
        "operator",
        "test",
    }
    assert clients["podSelector"]["matchLabels"] == {"daybook.dev/client": "true"}
    assert not policies["data", "daybook-recovery"].get("ingress"), "nobody calls a recovery Job"


def test_certificates_carry_the_roles_of_those_who_show_them(render: Render) -> None:
    pools = [{"name": "secure"}, {"name": "apart", "cluster": "second"}]
    values = {"tls": {"enabled": True, "certManager": {"enabled": True, "pools": pools}}}
    objects = render(values)
    certificates = {each["metadata"]["name"]: each["spec"] for each in of_kind(objects, "Certificate")}
    roles = {name: spec.get("uris", []) for name, spec in certificates.items()}
    assert roles == {
        "daybook-ca": [],
        "daybook-zookeeper": [],
        "daybook-client": ["daybook://daybook/role/client"],
        "daybook-operator": [
            f"daybook://{cluster}/role/{role}"
            for cluster in ("daybook", "second")
            for role in ("operator", "repair")
        ],
        "secure-bookie": ["daybook://daybook/role/bookie", "daybook://daybook/role/repair"],
        "apart-bookie": ["daybook://second/role/bookie", "daybook://second/role/repair"],
    }
    used = {
        name: {volume["secret"]["secretName"] for volume in spec["volumes"] if volume["name"] == "tls"}
        for name, spec in pod_specs(objects)
    }
    assert used["daybook-operator"] == {certificates["daybook-operator"]["secretName"]}
    assert used["daybook-test"] == {certificates["daybook-client"]["secretName"]}


@pytest.mark.parametrize(
    ("secrets", "expected"),
    [({}, "daybook-client-tls"), ({"client": "c"}, "c"), ({"client": "c", "operator": "o"}, "o")],
)
def test_secrets_made_by_hand_serve_the_operator_as_before(
    render: Render, secrets: dict[str, str], expected: str
) -> None:
    specs = dict(pod_specs(render({"tls": {"enabled": True, "secrets": secrets}})))
    volumes = {each["name"]: each for each in specs["daybook-operator"]["volumes"]}
    assert volumes["tls"]["secret"]["secretName"] == expected


def _labels_of(policy: Object) -> Object:
    labels: Object = policy["podSelector"]["matchLabels"]
    return labels


def test_an_empty_list_of_who_is_let_in_lets_in_nobody(render: Render) -> None:
    empty = {"networkPolicy": {"enabled": True, "clients": [], "monitoring": []}}
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind(render(empty), "NetworkPolicy")}
    assert all(each["policyTypes"] == ["Ingress"] for each in policies.values())
    assert "ingress" not in policies["daybook-operator"]
    for name, own in (
        ("daybook-bookies", [3181, 3183, 3184]),
        ("daybook-zookeeper", ["client", "client-tls"]),
    ):
        first, *others = policies[name]["ingress"]
        assert [port["port"] for port in first["ports"]] == own
        (peer,) = first["from"]
        assert peer["podSelector"]["matchExpressions"], "Daybook's own pods"
        among = {
            "podSelector": {
                "matchLabels": {**_labels_of(policies[name]), "app.kubernetes.io/name": "daybook"}
            }
        }
        ports = {port["port"] for rule in others for port in rule["ports"] if rule["from"] != [among]}
        assert not ports & {8000, "health"}
        assert all(rule["from"] for rule in policies[name]["ingress"]), "no peers would be everybody"


def test_who_is_let_in_by_zookeeper_has_files_and_variables_that_its_settings_know(
    render: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = {
        "tls": {"secretName": "zk-client", "clientAuth": "Required", "x509Owners": ["CN=a,O=x"]},
        "digestSecretRef": {"name": "user"},
    }
    specs = dict(pod_specs(render({"zookeeper": {"access": access}, "tls": {"enabled": True}})))
    for name in ("daybook-operator", "daybook-test"):
        (container,) = specs[name]["containers"]
        env = {each["name"]: each for each in container["env"]}
        secret = env["DAYBOOK_ZOOKEEPER_DIGEST"]["valueFrom"]["secretKeyRef"]
        assert secret == {"name": "user", "key": "digest"}
        (where,) = {
            each["value"]
            for each in container["env"]
            if each["name"].endswith(("R_ZOOKEEPER", "K_ZOOKEEPER"))
        }
        assert where.count(":2281") == 3, "the secure ports"
        for variable, each in env.items():
            if variable.startswith("DAYBOOK_ZOOKEEPER_"):
                monkeypatch.setenv(variable, each.get("value", "me:secret"))
        found = zookeeper_options()
        assert (found.tls, found.auth) == (True, (("digest", "me:secret"),))
        assert {acl.id.id for acl in found.acl or ()} == {"", "CN=a,O=x"}
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        folder = mounts["zookeeper-tls"]
        assert (found.ca_file, found.cert_file, found.key_file) == (
            f"{folder}/ca.crt",
            f"{folder}/tls.crt",
            f"{folder}/tls.key",
        )
        volumes = {each["name"]: each for each in specs[name]["volumes"]}
        assert volumes["zookeeper-tls"]["secret"]["secretName"] == "zk-client"
    assert "DAYBOOK_ZOOKEEPER_" not in json.dumps(list(pod_specs(render())))


def test_the_operator_reads_the_passwords_of_ledgers_that_are_named_and_no_other_secret(
    render: Render,
) -> None:
    for namespaces in ([], ["data", "other"]):
        values = {"operator": {"passwordSecrets": ["orders", "audit"], "watchNamespaces": namespaces}}
        secrets = [rule for _, rule in rules(render(values)) if "secrets" in rule["resources"]]
        assert len(secrets) == max(1, len(namespaces))
        for rule in secrets:
            assert (rule["resourceNames"], rule["verbs"]) == (["orders", "audit"], ["get"])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"zookeeper": {"access": {"tls": {"secretName": "s"}}}}, "needs a ZooKeeper that speaks TLS"),
        (
            {"zookeeper": {"access": {"tls": {"secretName": "s"}}}, "tls": {"enabled": True}},
            "asks for a certificate",
        ),
        ({"zookeeper": {"replicas": 2}}, "zookeeper/replicas"),
        ({"zookeeper": {"replicas": 6, "growing": True}}, "zookeeper/replicas"),
        ({"zookeeper": {"replica": 3}}, "replica"),
        ({"zookeeper": {"external": "zk"}}, "zookeeper/external"),
        ({"cluster": "Day Book"}, "cluster"),
        ({"operator": {"replicas": 0}}, "operator/replicas"),
        ({"operator": {"watchNamespaces": "data"}}, "watchNamespaces"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"monitoring": {"serviceMonitor": {"interval": "often"}}}, "interval"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_name(render: Render, values: Object, words: str) -> None:
    with pytest.raises(HelmError, match=words):
        render(values)
