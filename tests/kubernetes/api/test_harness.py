"""The control plane that the tests stand on is strict where Kubernetes is: roles, pod security, garbage, restarts."""

from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client, watch

from tests.cluster.control_plane import ControlPlane, KubectlError
from tests.cluster.pretend_nodes import PretendKubelets, PretendNodes

CONTAINER = {
    "name": "main",
    "image": "none",
    "securityContext": {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
LABELS = {"app": "x"}


def _stateful_set(replicas: int, storage_class: str | None = None) -> dict[str, Any]:
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "set"},
        "spec": {
            "serviceName": "set",
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [CONTAINER]}},
            "volumeClaimTemplates": [claim] if storage_class else [],
        },
    }


def _wait(listing: Callable[..., Any], namespace: str, enough: Callable[[dict[str, Any]], bool]) -> None:
    """Follow a kind's objects until `enough(objects by name)`."""
    seen: dict[str, Any] = {}
    for event in watch.Watch().stream(listing, namespace, timeout_seconds=30):
        name = event["object"].metadata.name
        if event["type"] == "DELETED":
            seen.pop(name, None)
        else:
            seen[name] = event["object"]
        if enough(seen):
            return
    pytest.fail(f"not within 30 s: {sorted(seen)}")


def test_a_service_account_may_do_what_its_role_allows_and_no_more(
    control_plane: ControlPlane, api: client.ApiClient, namespace: str
) -> None:
    client.CoreV1Api(api).create_namespaced_service_account(namespace, {"metadata": {"name": "reader"}})
    rbac = client.RbacAuthorizationV1Api(api)
    rules = [{"apiGroups": ["daybook.dev"], "resources": ["ledgers"], "verbs": ["list"]}]
    rbac.create_namespaced_role(namespace, {"metadata": {"name": "reader"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    rbac.create_namespaced_role_binding(
        namespace, {"metadata": {"name": "reader"}, "roleRef": role, "subjects": [subject]}
    )
    kubeconfig = control_plane.kubeconfig_of_service_account(namespace, "reader")
    with control_plane.api(kubeconfig) as limited:
        custom = client.CustomObjectsApi(limited)
        assert custom.list_namespaced_custom_object("daybook.dev", "v1alpha1", namespace, "ledgers")
        with pytest.raises(client.ApiException) as refused:
            custom.list_namespaced_custom_object("daybook.dev", "v1alpha1", namespace, "topics")
    assert refused.value.status == 403


def test_pods_must_comply_with_restricted_pod_security(api: client.ApiClient, namespace: str) -> None:
    core = client.CoreV1Api(api)
    careless = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    with pytest.raises(client.ApiException, match="violates PodSecurity"):
        core.create_namespaced_pod(namespace, careless)
    core.create_namespaced_pod(namespace, {"metadata": {"name": "x"}, "spec": {"containers": [CONTAINER]}})


def test_what_a_deleted_owner_leaves_is_collected(api: client.ApiClient, namespace: str) -> None:
    core = client.CoreV1Api(api)
    owner = core.create_namespaced_config_map(namespace, {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}
    owned = core.create_namespaced_config_map(
        namespace, {"metadata": {"name": "owned", "ownerReferences": [reference]}}
    )
    core.delete_namespaced_config_map("owner", namespace)
    changes = watch.Watch().stream(
        core.list_namespaced_config_map,
        namespace,
        resource_version=owned.metadata.resource_version,
        timeout_seconds=30,
    )
    assert any(
        change["type"] == "DELETED" and change["object"].metadata.name == "owned" for change in changes
    )


def test_a_stateful_set_comes_up_on_pretended_nodes_and_goes_again(
    api: client.ApiClient, namespace: str, nodes: PretendNodes
) -> None:
    for zone in "abc":
        nodes.create_node(f"{namespace}-{zone}", zone=f"zone-{zone}")
    apps = client.AppsV1Api(api)
    with PretendKubelets(nodes, namespace):
        apps.create_namespaced_stateful_set(namespace, _stateful_set(3))
        _wait(
            apps.list_namespaced_stateful_set, namespace, lambda sets: sets["set"].status.ready_replicas == 3
        )
        pods = nodes.core.list_namespaced_pod(namespace).items
        assert len({pod.spec.node_name for pod in pods}) == 3
        assert len({pod.status.pod_ip for pod in pods}) == 3
        apps.patch_namespaced_stateful_set("set", namespace, {"spec": {"replicas": 0}})
        _wait(apps.list_namespaced_stateful_set, namespace, lambda sets: not sets["set"].status.replicas)


def test_a_crash_shows_its_exit_code_and_message(
    api: client.ApiClient, namespace: str, nodes: PretendNodes
) -> None:
    nodes.create_node(f"{namespace}-a")
    nodes.core.create_namespaced_pod(
        namespace, {"metadata": {"name": "x"}, "spec": {"containers": [CONTAINER]}}
    )
    nodes.bind(namespace, "x", f"{namespace}-a")
    nodes.crash(namespace, "x", exit_code=78, message="the disk is empty")
    status = nodes.core.read_namespaced_pod("x", namespace).status.container_statuses[0]
    assert status.last_state.terminated.exit_code == 78
    assert status.last_state.terminated.message == "the disk is empty"
    assert status.state.waiting.reason == "CrashLoopBackOff"


@pytest.mark.parametrize(("exit_code", "condition"), [(0, "Complete"), (1, "Failed")])
def test_a_job_ends_as_its_pod_does(
    api: client.ApiClient, namespace: str, nodes: PretendNodes, exit_code: int, condition: str
) -> None:
    nodes.create_node(f"{namespace}-a")
    batch = client.BatchV1Api(api)
    template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    batch.create_namespaced_job(
        namespace, {"metadata": {"name": "job"}, "spec": {"backoffLimit": 0, "template": template}}
    )
    with PretendKubelets(nodes, namespace):
        running: list[str] = []

        def runs(pods: dict[str, Any]) -> bool:
            running[:] = [name for name, pod in pods.items() if pod.status.phase == "Running"]
            return bool(running)

        _wait(nodes.core.list_namespaced_pod, namespace, runs)
        nodes.finish(namespace, running[0], exit_code=exit_code)
        _wait(
            batch.list_namespaced_job,
            namespace,
            lambda jobs: condition in {each.type for each in jobs["job"].status.conditions or ()},
        )


def test_claims_are_bound_and_grow(api: client.ApiClient, namespace: str, nodes: PretendNodes) -> None:
    nodes.create_storage_class(namespace)
    client.AppsV1Api(api).create_namespaced_stateful_set(namespace, _stateful_set(1, namespace))
    claims = nodes.core.list_namespaced_persistent_volume_claim
    _wait(claims, namespace, lambda found: "data-set-0" in found)
    nodes.bind_claim(namespace, "data-set-0")
    _wait(claims, namespace, lambda found: found["data-set-0"].status.phase == "Bound")
    larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    nodes.core.patch_namespaced_persistent_volume_claim("data-set-0", namespace, larger)
    assert claims(namespace).items[0].status.capacity == {"storage": "1Gi"}
    nodes.grow_volume(namespace, "data-set-0")
    assert claims(namespace).items[0].status.capacity == {"storage": "2Gi"}


def test_the_api_server_can_be_restarted(control_plane: ControlPlane, namespace: str) -> None:
    assert namespace in control_plane.kubectl("get", "namespaces", "-o", "name")
    control_plane.stop_api_server()
    with pytest.raises(KubectlError, match="refused"):
        control_plane.kubectl("get", "namespaces")
    control_plane.start_api_server()
    assert namespace in control_plane.kubectl("get", "namespaces", "-o", "name")


def test_what_kubectl_says_reaches_the_test(control_plane: ControlPlane) -> None:
    with pytest.raises(KubectlError, match="the server doesn't have a resource type"):
        control_plane.kubectl("get", "nonsense")
    with pytest.raises(KubectlError, match="storage: Required value"):
        control_plane.apply(
            "{apiVersion: daybook.dev/v1alpha1, kind: BookiePool, metadata: {name: x}, spec: {}}"
        )
