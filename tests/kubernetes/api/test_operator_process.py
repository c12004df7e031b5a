"""The operator as a process: one of two leads, the API server may go and come back, a namespace can always end."""

import os
import signal
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
from kubernetes import client as kubernetes

from daybook.local.zookeeper import EmbeddedZooKeeper
from daybook.runtime.ports import HeldPort
from tests.cluster.control_plane import ControlPlane
from tests.kubernetes.api.operator_kit import OperatorProcess, condition, ledger, pool, until
from tests.kubernetes.api.rest import RefusedError, Resources, role

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def reason_of(resources: Resources, name: str) -> str:
    """Why the Ledger is as ready as it is."""
    return str(condition(resources.get("Ledger", name), "Ready").get("reason", ""))


@pytest.fixture
def stage(
    control_plane: ControlPlane, namespace: str, zookeeper_server: EmbeddedZooKeeper, tmp_path: Path
) -> Iterator[tuple[Resources, list[OperatorProcess]]]:
    """A namespace, and two operators for it, not started."""
    operators = [
        OperatorProcess(
            control_plane,
            namespace,
            tmp_path / name,
            zookeeper_server.connect_string,
            CLUSTER=f"process-{os.getpid()}-{namespace}",
            RESYNC_MS="600000",
            LEASE_NAME="one-of-two",
            LEASE_DURATION_MS="6000",
            IDENTITY=name,
        )
        for name in ("one", "two")
    ]
    yield Resources(control_plane, namespace), operators
    for each in operators:
        if each.is_running():
            each.end(signal.SIGKILL)


def test_of_two_operators_one_leads_and_the_other_takes_over(
    stage: tuple[Resources, list[OperatorProcess]],
) -> None:
    resources, (one, two) = stage
    one.start()
    until(one.leads, one, "the first leads")
    two.start()
    until(lambda: two.probe("/readyz") == 200, two, "a standby is ready")
    assert two.probe("/healthz") == 200
    assert not two.leads()
    resources.create(ledger("first"))
    until(lambda: reason_of(resources, "first") == "PoolNotFound", one, "the leader works")

    assert one.process is not None
    one.process.send_signal(signal.SIGSTOP)
    until(two.leads, two, "the second takes over from one that is silent")
    resources.create(ledger("second"))
    until(lambda: reason_of(resources, "second") == "PoolNotFound", two, "and works")
    one.process.send_signal(signal.SIGCONT)
    assert one.process.wait(60) == 1, "one that was silent for too long ends"
    assert "Lease" in one.tail().splitlines()[-1]

    one.start()
    until(lambda: one.probe("/readyz") == 200, one, "it is the standby now")
    assert two.end() == 0
    until(one.leads, one, "an operator that stops gives its Lease back")


def test_watches_come_back_after_the_api_server_was_away(
    stage: tuple[Resources, list[OperatorProcess]],
    control_plane: ControlPlane,
) -> None:
    resources, (operator, _) = stage
    operator.start(DAYBOOK_OPERATOR_LEASE_DURATION_MS="60000")  # it is not about the Lease
    until(operator.leads, operator, "it leads")
    resources.create(ledger("before"))
    until(lambda: reason_of(resources, "before") == "PoolNotFound", operator, "it works")
    control_plane.restart_api_server()
    resources.create(ledger("after"))  # no resync comes for ten minutes: a watch must tell
    until(lambda: reason_of(resources, "after") == "PoolNotFound", operator, "the watch is back")
    assert operator.is_running()
    assert operator.probe("/healthz") == 200


def test_a_deleted_namespace_stops_the_operator_for_no_other(
    stage: tuple[Resources, list[OperatorProcess]], control_plane: ControlPlane
) -> None:
    """Its role went with it: all that is asked of it is forbidden."""
    resources, (operator, _) = stage
    name, namespace = f"operator-{resources.namespace}", resources.namespace
    user = control_plane.kubeconfig_of_user(name, ())
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    reads = {"apiGroups": [""], "resources": ["nodes", "namespaces"], "verbs": ["get", "list", "watch"]}
    control_plane.apply([*role("", name, everything, namespace), *role("Cluster", name, reads)])
    resources.create(ledger("before"))
    operator.start(
        DAYBOOK_OPERATOR_KUBECONFIG=str(user),
        DAYBOOK_OPERATOR_NAMESPACES=f"a-namespace-that-is-gone,{namespace}",
        DAYBOOK_OPERATOR_LEASE_DURATION_MS="60000",
    )
    until(lambda: reason_of(resources, "before") == "PoolNotFound", operator, "it lists the other")
    resources.create(ledger("after"))
    until(lambda: reason_of(resources, "after") == "PoolNotFound", operator, "it watches the other")
    assert operator.is_running()
    assert (operator.probe("/healthz"), operator.probe("/readyz")) == (200, 200)


@pytest.fixture
def port() -> Iterator[int]:
    """A port on which nobody listens."""
    with HeldPort() as held:
        yield held.port


def test_the_conditions_of_a_ledger_lead_to_the_cause(
    stage: tuple[Resources, list[OperatorProcess]], control_plane: ControlPlane, port: int
) -> None:
    """No pool; a pool whose ZooKeeper does not answer; then the namespace ends although a finalizer is on the Ledger."""
    resources, (operator, _) = stage
    namespace = resources.namespace
    operator.start(DAYBOOK_OPERATOR_LEASE_DURATION_MS="60000")
    resources.create(ledger("orders", reclaimPolicy="Delete"))
    until(lambda: reason_of(resources, "orders") == "PoolNotFound", operator, "there is no pool")
    resources.create(pool("bk", f"127.0.0.1:{port}", "nowhere", is_paused=True))
    until(lambda: reason_of(resources, "orders") == "MetadataUnavailable", operator, "the pool's event came")
    said = condition(resources.get("Ledger", "orders"), "Ready")
    assert said["status"] == "Unknown"
    assert f"127.0.0.1:{port}" in said["message"]

    control_plane.kubectl(
        "patch", "ledger", "orders", "-n", namespace, "--type=merge", "-p",
        '{"metadata":{"finalizers":["daybook.dev/operator"],'
        f'"annotations":{{"daybook.dev/cluster":"nowhere@127.0.0.1:{port}"}}}}}}',
    )  # fmt: skip
    resources.delete("Ledger", "orders")
    until(lambda: reason_of(resources, "orders") == "DeletionWaits", operator, "it waits for ZooKeeper")
    with control_plane.api() as api:
        core = kubernetes.CoreV1Api(api)
        core.delete_namespace(namespace)
        until(lambda: is_gone(resources, "orders"), operator, "the finalizer lets the namespace end")
        told = [
            each.message
            for each in core.list_namespaced_event("default").items
            if each.involved_object.name == namespace and each.reason == "LeftBehind"
        ]
    assert told, "an event says what was left behind, where it can be told"
    assert "left behind in nowhere" in told[0]


def is_gone(resources: Resources, name: str) -> bool:
    """Whether the Ledger is not there any more."""
    try:
        resources.get("Ledger", name)
    except RefusedError as error:
        return error.code == HTTPStatus.NOT_FOUND
    return False
