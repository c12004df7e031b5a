"""What tests of pools begin with; tests of other kinds have a `site` of their own."""

import pytest
from kubernetes import client as kubernetes

from tests.cluster.control_plane import ControlPlane
from tests.cluster.pretend_nodes import PretendNodes
from tests.kubernetes.api.pool_kit import Site


@pytest.fixture
def site(
    control_plane: ControlPlane,
    api: kubernetes.ApiClient,
    namespace: str,
    nodes: PretendNodes,
    zookeeper: str,
) -> Site:
    """A namespace without a pool yet, with nodes that pretend."""
    return Site(control_plane, api, namespace, nodes, zookeeper)
