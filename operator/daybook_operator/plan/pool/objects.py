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
from daybook_operator.plan.pool.observed import ObservedPool
from daybook_operator.plan.pool.pod import pod_template, ports_of, selector
from daybook_operator.plan.pool.spec import VolumeSpec


def service_account(pool: ObservedPool) -> Manifest:
    """The bookies' identity."""
    return sealed(pods.service_account(pool.manifest, BOOKIE))


def service(pool: ObservedPool) -> Manifest:
    """DNS names for the pods, also before they are ready: clients find bookies by ZooKeeper, not by readiness."""
    ports = ports_of(pool.spec)
    return sealed(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata_of(pool.manifest, BOOKIE, pool.name, {}),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": selector(pool),
                "ports": [
                    {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
                    for name, port in ports.items()
                ],
            },
        }
    )


def stateful_set(pool: ObservedPool, replicas: int) -> Manifest:
    """The pods and their volumes. Volumes outlive the StatefulSet: only the end of a drain or a deletion removes any."""
    volumes = pool.spec.storage.volumes
    return sealed(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": metadata_of(pool.manifest, BOOKIE, pool.name, {}),
            "spec": {
                "replicas": replicas,
                "serviceName": pool.name,
                "podManagementPolicy": "Parallel",
                "updateStrategy": {"type": "OnDelete"},
                "revisionHistoryLimit": 5,
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
                "selector": {"matchLabels": selector(pool)},
                "template": pod_template(pool),
                "volumeClaimTemplates": [_claim_template(pool, role, volumes[role]) for role in volumes],
            },
        }
    )


def _claim_template(pool: ObservedPool, role: str, volume: VolumeSpec) -> dict[str, Any]:
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
            "labels": labels_of(pool.manifest, BOOKIE),
            "annotations": {OWNER_ANNOTATION: pool.owner_uid},
        },
        "spec": spec,
    }


def is_foreign(pool: ObservedPool, live: Manifest | None) -> bool:
    """Whether an object with a name that the pool needs does not belong to the pool."""
    if live is None:
        return False
    meta = live["metadata"]
    owners = [owner for owner in meta.get("ownerReferences") or () if owner.get("controller")]
    if owners:
        return bool(owners[0]["uid"] != pool.manifest["metadata"]["uid"])
    mine = labels_of(pool.manifest, BOOKIE)
    found = meta.get("labels") or {}
    return any(found.get(key) != mine[key] for key in ("app.kubernetes.io/managed-by", POOL_LABEL))


def without_foreign_set(pool: ObservedPool) -> ObservedPool:
    """`pool` without a StatefulSet that is not its own: that one says nothing of this pool, and is left alone."""
    found = pool.stateful_set
    if found is None or not is_foreign(pool, found.manifest):
        return pool
    return replace(pool, stateful_set=None)
