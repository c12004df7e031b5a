"""What the chart renders, given to a real API server: accepted, under restricted pod security, with roles that suffice."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kubernetes import client

from tests.cluster.control_plane import ControlPlane
from tests.cluster.pretend_nodes import PretendNodes
from tests.kubernetes.chart.conftest import CHART, RELEASE, HelmError, Object, Render, of_kind
from tests.paths import ROOT
from tests.unit.bookie.server_kit import eventually

FOREIGN: Final = ("Certificate", "Issuer", "ServiceMonitor", "PodMonitor", "PrometheusRule")
"""Kinds of other projects' CRDs, which a bare API server does not know."""
OPTIONS: Final[dict[str, Object]] = {
    "defaults": {},
    "everything": {
        "tls": {"enabled": True, "certManager": {"enabled": True}},
        "networkPolicy": {"enabled": True},
        "jobs": {"namespaces": ["data"]},
        "monitoring": {"dashboard": {"enabled": True}},
        "broker": {"enabled": True, "autoscaling": {"enabled": True}, "tokens": {"secretName": "keys"}},
    },
    "one namespace, ZooKeeper elsewhere": {
        "operator": {"watchNamespaces": ["data"]},
        "zookeeper": {"external": "zk:2181"},
    },
}
SUBJECT: Final = "system:serviceaccount:data:daybook-operator"


def take(control_plane: ControlPlane, objects: list[Object]) -> str:
    """Let the API server judge the objects and keep none of them; what it said, warnings with it."""
    text = "\n---\n".join(yaml.safe_dump(each) for each in objects if each["kind"] not in FOREIGN)
    return control_plane.kubectl(
        "apply", "--server-side", "--dry-run=server", "--field-manager=helm", "--force-conflicts", "-n", "data", "-f", "-",
        stdin=text,
    )  # fmt: skip


@pytest.mark.parametrize("values", OPTIONS.values(), ids=OPTIONS.keys())
def test_the_api_server_takes_all_of_it(
    control_plane: ControlPlane, render: Render, data: str, values: Object
) -> None:
    objects = render(values)
    output = take(control_plane, objects)
    assert output.count("serverside-applied") == len(
        [each for each in objects if each["kind"] not in FOREIGN]
    )


def test_pods_pass_where_restricted_pod_security_is_enforced(
    control_plane: ControlPlane, render: Render, data: str
) -> None:
    """As pods of their own: a template that violates it is only warned about, a pod is refused."""
    pods: list[Object] = []
    for each in of_kind(
        render({"tls": {"enabled": True}, "broker": {"enabled": True}}), "Deployment", "StatefulSet"
    ):
        template = each["spec"]["template"]
        meta = {"name": f"probe-{each['metadata']['name']}", "labels": template["metadata"]["labels"]}
        claimed = [
            {"name": claim["metadata"]["name"], "emptyDir": {}}
            for claim in each["spec"].get("volumeClaimTemplates", ())
        ]
        spec = {**template["spec"], "volumes": [*template["spec"]["volumes"], *claimed]}
        spec.pop("serviceAccountName", None)
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    assert take(control_plane, pods).count("serverside-applied") == 3
    del pods[0]["spec"]["securityContext"]["seccompProfile"]
    with pytest.raises(Exception, match="violates PodSecurity"):
        take(control_plane, pods[:1])


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples" / "values").glob("*.yaml")), ids=lambda path: path.stem
)
def test_the_api_server_takes_what_examples_of_values_render(
    control_plane: ControlPlane, render: Render, data: str, path: Path
) -> None:
    objects = render(yaml.safe_load(path.read_text(encoding="utf-8")))
    expected = [each for each in objects if each["kind"] not in FOREIGN]
    assert take(control_plane, objects).count("serverside-applied") == len(expected)


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples").glob("*.yaml")))
def test_an_example_applies(control_plane: ControlPlane, data: str, name: str) -> None:
    documents = list(yaml.safe_load_all((ROOT / "examples" / name).read_text(encoding="utf-8")))
    assert take(control_plane, documents).count("serverside-applied") == len(documents)


def test_the_examples_of_the_chart_itself_apply(control_plane: ControlPlane, data: str) -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    documents = yaml.safe_load(about["annotations"]["artifacthub.io/crdsExamples"])
    assert take(control_plane, documents).count("serverside-applied") == 3


@pytest.fixture(scope="session")
def may(control_plane: ControlPlane, render: Render, data: str) -> Callable[..., bool]:
    """Whether the operator of the chart's roles may do something, by the API server's own authoriser."""
    mine = of_kind(render(), "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ServiceAccount")
    control_plane.kubectl("apply", "-n", "data", "-f", "-", stdin="\n---\n".join(map(yaml.safe_dump, mine)))
    api = client.AuthorizationV1Api(control_plane.api())

    def ask(verb: str, resource: str, group: str = "", namespace: str = "other", name: str = "") -> bool:
        resource, _, subresource = resource.partition("/")
        attributes: dict[str, Any] = {
            "verb": verb, "resource": resource, "subresource": subresource, "group": group,
            "namespace": namespace, "name": name,
        }  # fmt: skip
        review = {"spec": {"user": SUBJECT, "resourceAttributes": attributes}}
        return bool(api.create_subject_access_review(review).status.allowed)

    return ask


@pytest.mark.parametrize(
    ("resource", "group"),
    [
        ("statefulsets", "apps"),
        ("services", ""),
        ("serviceaccounts", ""),
        ("poddisruptionbudgets", "policy"),
        ("jobs", "batch"),
        ("cronjobs", "batch"),
    ],
)
def test_the_operator_may_keep_its_objects(may: Callable[..., bool], resource: str, group: str) -> None:
    for verb in ("get", "list", "watch", "create", "patch", "delete"):
        assert may(verb, resource, group), verb
    assert not may("deletecollection", resource, group)
    assert not may("update", resource, group), "it applies, and so needs no update"


def test_the_operator_may_look_after_resources_pods_and_volumes(may: Callable[..., bool]) -> None:
    for kind in ("bookiepools", "ledgers"):
        assert may("watch", kind, "daybook.dev")
        assert may("patch", kind, "daybook.dev")
        assert may("patch", f"{kind}/status", "daybook.dev")
        assert not may("delete", kind, "daybook.dev"), "people make and delete these"
    for kind in ("pods", "persistentvolumeclaims"):
        assert all(may(verb, kind) for verb in ("list", "watch", "patch", "delete"))
        assert not may("create", kind), "StatefulSets do"
    assert all(may(verb, "events") for verb in ("get", "list", "create", "patch"))
    assert may("create", "pods/eviction"), "bookies go as far as disruption budgets let them"
    assert may("get", "namespaces"), "whether one terminates"
    assert may("list", "nodes")


def test_the_operator_may_not_read_secrets_nor_enter_pods_nor_give_rights(may: Callable[..., bool]) -> None:
    for namespace in ("data", "other", "kube-system"):
        for verb in ("get", "list", "watch", "create"):
            assert not may(verb, "secrets", namespace=namespace)
        assert not may("create", "pods/exec", namespace=namespace)
        assert not may("create", "serviceaccounts/token", namespace=namespace)
        assert not may("create", "rolebindings", "rbac.authorization.k8s.io", namespace=namespace)
    assert not may("patch", "nodes")
    assert not may("create", "namespaces")


def test_the_operator_may_change_no_lease_but_its_own(may: Callable[..., bool]) -> None:
    group = "coordination.k8s.io"
    assert may("create", "leases", group, "data")
    assert may("update", "leases", group, "data", "daybook-operator")
    assert not may("update", "leases", group, "data", "someone-else")
    assert not may("get", "leases", group, "other", "daybook-operator")


def _check_that_zookeeper_grows_by_one(
    plane: ControlPlane,
    nodes: PretendNodes,
    helm: Callable[..., str],
    namespace: str,
    name: str,
    where: tuple[Any, ...],
) -> None:
    """Two disjoint majorities would be possible of servers that know three and five."""

    def servers(number: int, *more: str) -> str:
        options = ("--set", f"zookeeper.replicas={number}", *more)
        return helm("upgrade", name, CHART, *where, "--reuse-values", *options)

    growing = ("--set", "zookeeper.growing=true")
    for number, more, words in (
        (5, (), "grows by one server at a time"),
        (5, growing, "Set it to 3 again"),
        (1, (), "does not shrink"),
        (4, growing, "wait until they are"),
    ):
        with pytest.raises(HelmError, match=words):
            servers(number, *more)
    (found,) = plane.kubectl("get", "statefulset", "-n", namespace, "-o", "name").split()
    set_name = found.partition("/")[2]
    nodes.create_node(f"{namespace}-node")
    for ordinal in range(3):
        pod = f"{set_name}-{ordinal}"
        nodes.bind(namespace, pod, f"{namespace}-node")
        nodes.run(namespace, pod)
    rolled = "{.status.readyReplicas}{.status.availableReplicas}"
    assert eventually(
        lambda: plane.kubectl("get", found, "-n", namespace, "-o", f"jsonpath={rolled}") == "33", 60
    )
    servers(4, *growing)
    with pytest.raises(HelmError, match="Set it to 4 again"):
        servers(3)
    volume = ("get", "pvc", f"data-{set_name}-3", "-n", namespace, "--ignore-not-found", "-o", "name")
    assert eventually(lambda: plane.kubectl(*volume) != "", 60)
    helm("rollback", name, *where)
    nodes.run(namespace, f"{set_name}-2", ready=False)
    ready = ("get", found, "-n", namespace, "-o", "jsonpath={.spec.replicas}{.status.readyReplicas}")
    assert eventually(lambda: plane.kubectl(*ready) == "32", 60), (
        "one has the larger number and does not start"
    )
    servers(4, *growing)
    assert plane.kubectl(*ready)[0] == "4", "the way out of a rollback amid the growth"


def test_helm_installs_upgrades_and_leaves_the_crds(
    control_plane: ControlPlane, nodes: PretendNodes, helm: Callable[..., str], namespace: str
) -> None:
    where = ("--kubeconfig", control_plane.kubeconfig, "-n", namespace)
    name = f"{RELEASE}-{namespace}"
    output = helm("install", name, CHART, *where, "--take-ownership")
    assert "kubectl apply" in output, "the notes say what to do next"
    assert f"kubectl daybook status -n {namespace}\n" in output, "and where"
    assert f"kubectl daybook explain -n {namespace}\n" in output
    kinds = "deployment,statefulset,service,role,networkpolicy,poddisruptionbudget"
    assert control_plane.kubectl("get", kinds, "-n", namespace, "-o", "name").count("\n") >= 8
    helm(
        "upgrade", name, CHART, *where, "--set", "operator.replicas=1", "--set", "networkPolicy.enabled=true"
    )
    replicas = control_plane.kubectl(
        "get", "deployment", "-n", namespace, "-o", "jsonpath={.items[*].spec.replicas}"
    )
    assert replicas == "1"
    _check_that_zookeeper_grows_by_one(control_plane, nodes, helm, namespace, name, where)
    helm("uninstall", name, *where)
    kept = control_plane.kubectl("get", "crd", "-o", "name")
    assert kept.count(".daybook.dev") == 3
    assert not control_plane.kubectl("get", "deployment", "-n", namespace, "-o", "name")


def test_a_release_that_turns_autoscaling_on_keeps_the_brokers_that_there_are(
    control_plane: ControlPlane, helm: Callable[..., str], namespace: str
) -> None:
    where = ("--kubeconfig", control_plane.kubeconfig, "-n", namespace)
    name = f"{RELEASE}-{namespace}"
    brokers = ("statefulset", "-n", namespace, "-l", "app.kubernetes.io/component=broker")

    def replicas() -> str:
        return control_plane.kubectl("get", *brokers, "-o", "jsonpath={.items[*].spec.replicas}")

    def upgrade(option: str) -> None:
        helm("upgrade", name, CHART, *where, "--reuse-values", "--set", option)

    options = ("--set", "broker.enabled=true", "--set", "broker.replicas=4")
    helm("install", name, CHART, *where, "--take-ownership", *options)
    assert replicas() == "4"
    upgrade("broker.autoscaling.enabled=true")
    assert replicas() == "4", "the API server makes 1 of a field that is removed"
    control_plane.kubectl("scale", *brokers, "--replicas=6")  # as the autoscaler does
    upgrade("broker.logLevel=DEBUG")
    assert replicas() == "6"
    helm("uninstall", name, *where)
