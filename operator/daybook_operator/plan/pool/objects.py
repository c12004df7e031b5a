"""The Kubernetes objects of a pool, from its spec: ServiceAccount, headless Service, StatefulSet.

The StatefulSet starts pods in parallel and replaces none by itself (OnDelete): its own rolling update asks for
readiness alone, and a bookie that is ready may still owe replicas. Nothing of the operator's own version is in the
pod template, so that an upgrade of the operator rolls no pool.
"""

from dataclasses import replace
from typing import Any

from daybook_operator.plan import pods
from daybook_operator.plan.drift import sealed
from daybook_operator.plan.effects import Manifest
from daybook_operator.plan.names import OWNER_ANNOTATION, POOL_LABEL
from daybook_operator.plan.pods import BOOKIE, labels_of, metadata_of
from daybook_operator.plan.pool.pod import pod_template, ports_of, selector
from daybook_operator.plan.pool.spec import VolumeSpec
from daybook_operator.plan.pool.world import PoolWorld


def service_account(world: PoolWorld) -> Manifest:
    """The bookies' identity."""
    return sealed(pods.service_account(world.manifest, BOOKIE))


def service(world: PoolWorld) -> Manifest:
    """Names for the pods. They have addresses before they are ready: a bookie is found by ZooKeeper, not by readiness."""
    ports = ports_of(world.spec)
    return sealed(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata_of(world.manifest, BOOKIE, world.name, {}),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": selector(world),
                "ports": [
                    {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
                    for name, port in ports.items()
                ],
            },
        }
    )


def stateful_set(world: PoolWorld, replicas: int) -> Manifest:
    """The pods and their volumes. Volumes outlive it: only the end of a drain removes any."""
    volumes = world.spec.storage.volumes
    return sealed(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": metadata_of(world.manifest, BOOKIE, world.name, {}),
            "spec": {
                "replicas": replicas,
                "serviceName": world.name,
                "podManagementPolicy": "Parallel",
                "updateStrategy": {"type": "OnDelete"},
                "revisionHistoryLimit": 5,
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
                "selector": {"matchLabels": selector(world)},
                "template": pod_template(world),
                "volumeClaimTemplates": [_claim_template(world, role, volumes[role]) for role in volumes],
            },
        }
    )


def _claim_template(world: PoolWorld, role: str, volume: VolumeSpec) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": volume.size}},
    }
    if volume.storage_class is not None:
        spec["storageClassName"] = volume.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": role,
            "labels": labels_of(world.manifest, BOOKIE),
            "annotations": {OWNER_ANNOTATION: world.owner_uid},
        },
        "spec": spec,
    }


def is_foreign(world: PoolWorld, live: Manifest | None) -> bool:
    """Whether an object of a name that the pool needs belongs to somebody else."""
    if live is None:
        return False
    meta = live["metadata"]
    owners = [owner for owner in meta.get("ownerReferences") or () if owner.get("controller")]
    if owners:
        return bool(owners[0]["uid"] != world.manifest["metadata"]["uid"])
    mine = labels_of(world.manifest, BOOKIE)
    found = meta.get("labels") or {}
    return any(found.get(key) != mine[key] for key in ("app.kubernetes.io/managed-by", POOL_LABEL))


def without_foreign_set(world: PoolWorld) -> PoolWorld:
    """`world` without a StatefulSet that belongs to somebody else: it says nothing of this pool, and nothing is done to it."""
    seen = world.stateful_set
    if seen is None or not is_foreign(world, seen.manifest):
        return world
    return replace(world, stateful_set=None)
