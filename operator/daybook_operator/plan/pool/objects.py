"""The Kubernetes objects of a pool, from its spec: ServiceAccount, headless Service, StatefulSet.

The StatefulSet starts pods in parallel and replaces none by itself (OnDelete): its own rolling update looks at
readiness alone, and a bookie that is ready may still owe replicas. Nothing of the operator's own version is in the
pod template, so that its upgrade rolls no pool.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from daybook_operator.plan.decision import API_VERSION
from daybook_operator.plan.effects import Apply, Effect, Manifest
from daybook_operator.plan.pool.pod import COMPONENT, pod_template, ports_of, selector
from daybook_operator.plan.pool.spec import VolumeSpec
from daybook_operator.plan.pool.world import (
    APPLIED_ANNOTATION,
    OWNER_ANNOTATION,
    POOL_LABEL,
    PoolWorld,
)
from daybook_operator.plan.quantities import are_same_amounts

MANAGED_BY: Final = "daybook-operator"
_AMOUNTS: Final = {"requests", "limits"}
"""Fields of `resources`: what they map names to are quantities."""


def labels(world: PoolWorld) -> dict[str, str]:
    """On everything that belongs to the pool."""
    return {
        "app.kubernetes.io/name": "daybook",
        "app.kubernetes.io/component": COMPONENT,
        "app.kubernetes.io/instance": world.name,
        "app.kubernetes.io/managed-by": MANAGED_BY,
        POOL_LABEL: world.name,
    }


def metadata(world: PoolWorld, name: str, extra_labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Of an object that goes with the pool."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": "BookiePool",
        "name": world.name,
        "uid": world.manifest["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": name,
        "namespace": world.namespace,
        "labels": {**labels(world), **(extra_labels or {})},
        "ownerReferences": [owner],
    }


def service_account(world: PoolWorld) -> Manifest:
    """The bookies' identity; it has no rights, and its token is not mounted."""
    return sealed(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata(world, f"{world.name}-bookie"),
            "automountServiceAccountToken": False,
        }
    )


def service(world: PoolWorld) -> Manifest:
    """Names for the pods. They have addresses before they are ready: a bookie is found by ZooKeeper, not by readiness."""
    ports = ports_of(world.spec)
    return sealed(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(world, world.name),
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
            "metadata": metadata(world, world.name),
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
            "labels": labels(world),
            "annotations": {OWNER_ANNOTATION: world.owner_uid},
        },
        "spec": spec,
    }


def sealed(manifest: dict[str, Any]) -> Manifest:
    """`manifest` with a digest of itself, by which a field that is wanted no longer is noticed."""
    text = json.dumps(manifest, sort_keys=True).encode()
    annotations = {
        **manifest["metadata"].get("annotations", {}),
        APPLIED_ANNOTATION: hashlib.sha256(text).hexdigest()[:16],
    }
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}


def apply_if_needed(wanted: Manifest, live: Manifest | None) -> tuple[Effect, ...]:
    """Apply unless the object is so already, as far as this operator has a say in it."""
    return () if live is not None and is_within(wanted, live) else (Apply(wanted),)


def is_within(wanted: Any, live: Any) -> bool:
    """Whether all that is wanted is there; what the server or others added beside does not matter.

    Lists must be of one length: a container, port or variable more is drift. Amounts of resources are compared as such.
    """
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(
            key in live and (_are_amounts_within if key in _AMOUNTS else is_within)(value, live[key])
            if not _is_nothing(value)
            else not live.get(key)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(live, list | tuple) and len(wanted) == len(live) and all(map(is_within, wanted, live))
        )
    return bool(wanted == live)


def _are_amounts_within(wanted: Any, live: Any) -> bool:
    if not isinstance(wanted, Mapping) or not isinstance(live, Mapping):
        return bool(wanted == live)
    return all(key in live and are_same_amounts(value, live[key]) for key, value in wanted.items())


def _is_nothing(value: Any) -> bool:
    """What the server leaves out of what it stores."""
    return value is None or value == {} or value == []


def is_foreign(world: PoolWorld, live: Manifest | None) -> bool:
    """Whether an object of a name that the pool needs belongs to somebody else."""
    if live is None:
        return False
    meta = live["metadata"]
    owners = [owner for owner in meta.get("ownerReferences") or () if owner.get("controller")]
    if owners:
        return bool(owners[0]["uid"] != world.manifest["metadata"]["uid"])
    mine = labels(world)
    found = meta.get("labels") or {}
    return any(found.get(key) != mine[key] for key in ("app.kubernetes.io/managed-by", POOL_LABEL))


def without_foreign_set(world: PoolWorld) -> PoolWorld:
    """`world` without a StatefulSet that belongs to somebody else: it says nothing of this pool, and nothing is done to it."""
    seen = world.stateful_set
    if seen is None or not is_foreign(world, seen.manifest):
        return world
    return replace(world, stateful_set=None)
