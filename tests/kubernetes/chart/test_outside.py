"""Clients outside the cluster: each broker has an address of its own, and tells them that one and no other (ADR 11)."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from daybook_broker.settings import BrokerSettings

from daybook.runtime.settings import load_settings
from tests.kubernetes.chart.conftest import HelmError, Object, Render, of_kind
from tests.kubernetes.chart.test_brokers import pod_of, statefulset
from tests.paths import ROOT

EXAMPLES: Final = ROOT / "examples"
NODES: Final = {"type": "NodePort", "host": "nodes.example.org", "nodePort": 30100}
BALANCERS: Final = {"type": "LoadBalancer", "host": "broker-{ordinal}.example.org"}
TLS: Final = {"enabled": True, "certManager": {"enabled": True}}


def values(external: Object, **more: Any) -> Object:
    return {"broker": {"enabled": True, "replicas": 3, "external": external}, **more}


def services(objects: list[Object]) -> dict[str, Object]:
    """Of each broker, by the name of its pod."""
    found = {each["metadata"]["name"]: each for each in of_kind(objects, "Service")}
    return {name: each for name, each in found.items() if name.removeprefix("daybook-broker-").isdigit()}


def urls(objects: list[Object], folder: Path, *, tls: bool = False) -> dict[str, str | None]:
    """The address of the listener `external` that each broker reads from its file, by the name of its pod."""
    command = pod_of(objects)["containers"][0]["command"]
    mounts = {each["name"]: each["mountPath"] for each in pod_of(objects)["containers"][0]["volumeMounts"]}
    (config,) = [
        each
        for each in of_kind(objects, "ConfigMap")
        if each["metadata"]["name"] == "daybook-broker-listeners"
    ]
    found = {}
    for pod in services(objects):
        path = command[-1].replace("$(POD_NAME)", pod)
        assert (command[-2], path) == ("--config", f"{mounts['listeners']}/{pod}.toml")
        file = folder / f"{pod}.toml"
        file.write_text(config["data"][file.name], encoding="utf-8")
        flags = {"broker_id": pod, "zookeeper": "zk:2181", "cluster": "daybook"}
        found[pod] = load_settings(BrokerSettings, file, flags).listener_url("external", tls=tls)
    return found


def test_brokers_are_reached_from_inside_alone_at_first(render: Render) -> None:
    objects = render({"broker": {"enabled": True}})
    assert not services(objects)
    assert pod_of(objects)["containers"][0]["command"] == ["daybook-broker", "start"]
    assert not of_kind(objects, "ConfigMap")


def test_each_broker_advertises_the_node_port_of_its_own_service(render: Render, tmp_path: Path) -> None:
    objects = render(values(NODES))
    labels = statefulset(objects)["spec"]["template"]["metadata"]["labels"]
    ports = {each["name"] for each in pod_of(objects)["containers"][0]["ports"]}
    advertised = urls(objects, tmp_path)
    assert len(advertised) == 3
    for pod, service in services(objects).items():
        spec = service["spec"]
        selector = dict(spec["selector"])
        assert selector.pop("statefulset.kubernetes.io/pod-name") == pod
        assert selector.items() <= labels.items()
        assert spec["publishNotReadyAddresses"] is True
        (port,) = spec["ports"]
        assert port["targetPort"] in ports
        assert advertised[pod] == f"pulsar://nodes.example.org:{port['nodePort']}"


def test_each_load_balancer_has_a_name_of_its_own(render: Render, tmp_path: Path) -> None:
    external = {
        **BALANCERS,
        "loadBalancerClass": "fast",
        "annotations": {"dns": "broker-{ordinal}.example.org"},
    }
    objects = render(values(external))
    advertised = urls(objects, tmp_path)
    for ordinal, (pod, service) in enumerate(services(objects).items()):
        host = f"broker-{ordinal}.example.org"
        assert advertised[pod] == f"pulsar://{host}:{service['spec']['ports'][0]['port']}"
        assert service["metadata"]["annotations"] == {"dns": host}
        assert service["spec"]["loadBalancerClass"] == "fast"


def test_with_tls_only_the_tls_port_is_outside_and_the_certificate_has_the_names(
    render: Render, tmp_path: Path
) -> None:
    objects = render(values(BALANCERS, tls=TLS, networkPolicy={"enabled": True}))
    assert urls(objects, tmp_path, tls=True)["daybook-broker-2"] == "pulsar+ssl://broker-2.example.org:6651"
    assert {port["targetPort"] for each in services(objects).values() for port in each["spec"]["ports"]} == {
        "pulsar-tls"
    }
    (certificate,) = [
        each for each in of_kind(objects, "Certificate") if each["metadata"]["name"] == "daybook-broker"
    ]
    assert certificate["spec"]["dnsNames"][-3:] == [f"broker-{n}.example.org" for n in range(3)]
    numbers = render(values({**NODES, "host": "192.0.2.7"}, tls=TLS))
    (certificate,) = [
        each for each in of_kind(numbers, "Certificate") if each["metadata"]["name"] == "daybook-broker"
    ]
    assert certificate["spec"]["ipAddresses"] == ["192.0.2.7"]
    assert "192.0.2.7" not in certificate["spec"]["dnsNames"]


@pytest.mark.parametrize(
    ("ranges", "expected"), [(["192.0.2.0/24"], ["192.0.2.0/24"]), ([], ["0.0.0.0/0", "::/0"])]
)
def test_the_policy_admits_the_networks_to_the_port_for_clients_alone(
    render: Render, ranges: list[str], expected: list[str]
) -> None:
    objects = render(values({**BALANCERS, "sourceRanges": ranges}, networkPolicy={"enabled": True}))
    (policy,) = [
        each for each in of_kind(objects, "NetworkPolicy") if each["metadata"]["name"] == "daybook-broker"
    ]
    outside = [rule for rule in policy["spec"]["ingress"] if "ipBlock" in rule["from"][0]]
    assert [[peer["ipBlock"]["cidr"] for peer in rule["from"]] for rule in outside] == [expected]
    assert outside[0]["ports"] == [{"port": "pulsar"}]
    for service in services(objects).values():
        assert service["spec"].get("loadBalancerSourceRanges", []) == ranges


def test_there_is_an_address_for_each_broker_that_the_autoscaler_may_start(render: Render) -> None:
    broker = {"enabled": True, "autoscaling": {"enabled": True, "maxReplicas": 5}, "external": NODES}
    assert len(services(render({"broker": broker}))) == 5


def test_another_address_restarts_brokers_and_another_broker_does_not(render: Render) -> None:
    def template(external: Object, replicas: int) -> Object:
        broker = {"enabled": True, "replicas": replicas, "external": external}
        found: Object = statefulset(render({"broker": broker}))["spec"]["template"]
        return found

    assert template(NODES, 2) == template(NODES, 3)
    assert template(NODES, 2) != template({**NODES, "nodePort": 30200}, 2)


@pytest.mark.parametrize("name", ["load-balancers.yaml", "tls.yaml"])
def test_an_example_that_turns_tls_on_is_for_a_new_release_and_its_pool_has_the_certificate(
    render: Render, name: str
) -> None:
    """In a release that runs, ZooKeeper's servers and the bookies would speak no TLS while the others speak nothing else."""
    text = (EXAMPLES / "values" / name).read_text(encoding="utf-8")
    assert f"helm install daybook charts/daybook -n data --create-namespace -f examples/values/{name}" in text
    assert "helm upgrade" not in text
    assert "kubectl apply -n data -f examples/tls.yaml" in text
    pool = yaml.safe_load((EXAMPLES / "tls.yaml").read_text(encoding="utf-8"))
    made = {each["spec"]["secretName"] for each in of_kind(render(yaml.safe_load(text)), "Certificate")}
    assert pool["spec"]["tls"]["secretName"] in made


def test_no_other_example_of_values_turns_tls_on() -> None:
    for path in (EXAMPLES / "values").glob("*.yaml"):
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert ("tls" in values) == (path.name in {"load-balancers.yaml", "tls.yaml"}), path.name


@pytest.mark.parametrize(
    ("broker", "words"),
    [
        ({"external": {"type": "NodePort"}}, "needs broker.external.host"),
        ({"external": {"type": "LoadBalancer", "host": "one.example.org"}}, "needs {ordinal}"),
        ({"external": NODES, "settings": {"listeners": "[]"}}, "exclude each other"),
        ({"external": {**NODES, "host": "http://nodes"}}, "external/host"),
        ({"external": {"type": "Ingress"}}, "external/type"),
    ],
)
def test_what_cannot_work_is_refused_by_name(render: Render, broker: Object, words: str) -> None:
    with pytest.raises(HelmError, match=words):
        render({"broker": {"enabled": True, **broker}})
