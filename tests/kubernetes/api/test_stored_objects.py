"""What the API server stores of what the plan applies is what the plan wants: or every look would apply it anew."""

import asyncio
from typing import Any

import pytest
from daybook_operator.kube.api import Kube, load_configuration
from daybook_operator.metrics import OperatorMetrics
from daybook_operator.plan.drift import apply_if_needed
from daybook_operator.plan.pool.objects import service, service_account, stateful_set

from tests.cluster.control_plane import ControlPlane
from tests.unit.operator.pool_facts import pool_manifest
from tests.unit.operator.pool_sim import PoolSim

pytestmark = [pytest.mark.integration]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {
            "resources": {
                "requests": {"cpu": "1000m", "memory": "1024Mi"},
                "limits": {"cpu": 2, "memory": "1.5Gi"},
            },
            "storage": {"journal": {"size": "0.5Gi"}, "store": {"size": "1024Gi"}},
            "tls": {"secretName": "bookie-tls", "clientAuth": "Required"},
            "podTemplate": {
                "tolerations": [{"key": "disk", "operator": "Exists"}],
                "nodeSelector": {"disk": "ssd"},
            },
        },
    ],
    ids=["little", "much"],
)
def test_what_was_applied_needs_no_second_apply(
    control_plane: ControlPlane, namespace: str, spec: dict[str, Any]
) -> None:
    manifest = pool_manifest(**spec)
    manifest["metadata"]["namespace"] = namespace
    world = PoolSim(manifest).world()

    async def scene() -> None:
        configuration = load_configuration(control_plane.kubeconfig)
        kube = Kube(configuration, threads=1, timeout_s=30, metrics=OperatorMetrics())
        for wanted in (service_account(world), service(world), stateful_set(world, 0)):
            stored = await kube.apply(
                wanted
            )  # asked for later, it may be gone: its owner is of this test alone
            assert apply_if_needed(wanted, stored) == ()
        kube.close()

    asyncio.run(scene())
