"""The chart's own ZooKeeper, as the chart renders it."""

import json

from daybook.runtime.zookeeper_ensemble import ServerSettings
from tests.kubernetes.chart.conftest import Render, of_kind


def test_zookeeper_is_even_while_it_grows_and_only_then(render: Render) -> None:
    (stateful,) = of_kind(render({"zookeeper": {"replicas": 4, "growing": True}}), "StatefulSet")
    assert stateful["spec"]["replicas"] == 4
    assert stateful["metadata"]["annotations"] == {"daybook.dev/zookeeper-servers": "4"}


def test_zookeeper_knows_each_of_its_servers_by_the_name_that_its_pod_has(render: Render) -> None:
    objects = render({"zookeeper": {"replicas": 5}, "tls": {"enabled": True}})
    (stateful,) = of_kind(objects, "StatefulSet")
    name, spec = stateful["metadata"]["name"], stateful["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    settings = ServerSettings.from_variables({**variables, "HOSTNAME": f"{name}-4"})
    assert settings.servers == tuple(f"{name}-{n}.{spec['serviceName']}.data.svc" for n in range(5))
    assert settings.ordinal == 4
    headless = next(
        each for each in of_kind(objects, "Service") if each["metadata"]["name"] == spec["serviceName"]
    )
    assert headless["spec"]["publishNotReadyAddresses"] is True
    assert headless["spec"]["clusterIP"] == "None"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert (ports["client"], ports["client-tls"]) == (settings.client_port, settings.tls_port)
    assert (ports["quorum"], ports["election"]) == (settings.quorum_port, settings.election_port)
    assert ports["health"] == settings.health_port
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(settings.tls_dir) == mounts["tls"]
    assert str(settings.data_dir) == mounts["data"]
    assert (
        spec["template"]["spec"]["topologySpreadConstraints"][0]["topologyKey"]
        == "topology.kubernetes.io/zone"
    )


def test_a_zookeeper_that_exists_is_used_and_none_is_run(render: Render) -> None:
    objects = render({"zookeeper": {"external": "zk-0:2181,zk-1:2181"}, "networkPolicy": {"enabled": True}})
    assert not [each for each in objects if "zookeeper" in each["metadata"]["name"]]
    assert '"zk-0:2181,zk-1:2181"' in json.dumps(of_kind(objects, "Deployment"))
    assert not of_kind(objects, "StatefulSet")


def test_an_upgrade_of_the_chart_alone_restarts_no_zookeeper(render: Render) -> None:
    """Neither the chart's version nor the application's is in the pod template, but in its image."""
    (stateful,) = of_kind(render(), "StatefulSet")
    template = stateful["spec"]["template"]
    assert not {"helm.sh/chart", "app.kubernetes.io/version"} & template["metadata"]["labels"].keys()
    assert stateful["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
