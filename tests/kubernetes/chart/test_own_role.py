"""The operator with the rights that the chart gives it and no other, for one namespace of a cluster."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client as kubernetes

from daybook.metadata.instance import ensure_cluster
from daybook.metadata.layout import Layout
from daybook.metadata.store.zookeeper import ZooKeeperStore
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pretend_nodes import PretendNodes
from tests.kubernetes.api.operator_kit import OperatorProcess, condition, ledger
from tests.kubernetes.api.pool_kit import CLUSTER, PretendBookies, Site, attend_until
from tests.kubernetes.api.rest import Resources
from tests.kubernetes.chart.conftest import Render, of_kind

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

NAME = "narrow-operator"
RIGHTS = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ServiceAccount")


@pytest.fixture
def operator(
    control_plane: ControlPlane, render: Render, data: str, namespace: str, zookeeper: str, tmp_path: Path
) -> Iterator[OperatorProcess]:
    """One that looks after the test's namespace, under the account that the chart makes for it."""
    values = {"fullnameOverride": "narrow", "operator": {"watchNamespaces": [namespace]}}
    rights = [
        each for each in of_kind(render(values), *RIGHTS) if "zookeeper" not in each["metadata"]["name"]
    ]
    for each in rights:
        if not each["kind"].startswith("Cluster"):
            each["metadata"].setdefault("namespace", data)
    control_plane.apply(rights)
    process = OperatorProcess(
        control_plane,
        namespace,
        tmp_path / "operator",
        zookeeper,
        CLUSTER=CLUSTER,
        KUBECONFIG=str(control_plane.kubeconfig_of_service_account(data, NAME)),
        LEASE_NAMESPACE=data,
        LEASE_NAME=NAME,
    )
    yield process
    process.end()


def test_an_operator_of_one_namespace_needs_no_more_than_its_role_and_leaves_others_alone(
    control_plane: ControlPlane,
    api: kubernetes.ApiClient,
    namespace: str,
    nodes: PretendNodes,
    zookeeper: str,
    operator: OperatorProcess,
) -> None:
    site = Site(control_plane, api, namespace, nodes, zookeeper)
    elsewhere = f"{namespace}-elsewhere"
    control_plane.kubectl("create", "namespace", elsewhere)
    site.create(replicas=3)
    mine, theirs = Resources(control_plane, namespace), Resources(control_plane, elsewhere)
    theirs.create({**site.pool(), "metadata": {"name": "bk"}, "status": {}})
    for resources in (mine, theirs):
        resources.create(ledger("orders"))

    async def scene() -> None:
        store = await ZooKeeperStore.open(zookeeper)
        await ensure_cluster(store, Layout(CLUSTER), created_at_ms=0)
        bookies = PretendBookies(site, store)
        operator.start()
        assert await attend_until(
            site, bookies, operator, lambda: site.status.get("readyReplicas") == 3, "up"
        )
        assert await attend_until(
            site, bookies, operator, lambda: _is_created(mine), "the ledger is created on them"
        )
        site.core.delete_namespaced_service_account("bk-bookie", namespace)
        assert await attend_until(site, bookies, operator, lambda: _has_account(site), "drift is repaired")
        mine.delete("Ledger", "orders")
        site.custom.delete_namespaced_custom_object("daybook.dev", "v1alpha1", namespace, "bookiepools", "bk")
        assert await attend_until(site, bookies, operator, lambda: not _names(site), "the finalizers go")
        await store.close()

    asyncio.run(scene())
    control_plane.kubectl("delete", "namespace", elsewhere, "--wait=false")
    assert "orbidden" not in operator.log.read_text(), operator.tail()
    for kind, name in (("BookiePool", "bk"), ("Ledger", "orders")):
        left = theirs.get(kind, name)
        assert "finalizers" not in left["metadata"]
        assert not left.get("status"), "nobody looks after it"


def _is_created(resources: Resources) -> bool:
    return condition(resources.get("Ledger", "orders"), "Ready").get("status") == "True"


def _has_account(site: Site) -> bool:
    accounts = site.core.list_namespaced_service_account(site.namespace).items
    return any(each.metadata.name == "bk-bookie" for each in accounts)


def _names(site: Site) -> list[str]:
    """The pools and ledgers that are there."""
    return [
        each["metadata"]["name"]
        for plural in ("bookiepools", "ledgers")
        for each in site.custom.list_namespaced_custom_object(
            "daybook.dev", "v1alpha1", site.namespace, plural
        )["items"]
    ]
