"""Objects as the API server tells them, trimmed to what the plugin looks at: a pool of three in namespace data."""

from collections.abc import Callable
from typing import Any

from daybook.cli.kubectl.api import ApiError, Object
from daybook.cli.kubectl.world import World

SINCE = "2026-05-04T10:00:00Z"


def condition(kind: str, status: str, reason: str = "AsItShouldBe", message: str = "") -> dict[str, str]:
    """A condition of a status."""
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": SINCE}


def bookie(ordinal: int, **changes: Any) -> dict[str, Any]:
    """A bookie as the pool's status has it; zones a, b and c in turn."""
    zone = "abc"[ordinal % 3]
    return {
        "id": f"data.bk-{ordinal}",
        "ordinal": ordinal,
        "pod": f"bk-{ordinal}",
        "node": f"worker-{zone}",
        "zone": f"zone-{zone}",
        "rack": f"zone-{zone}",
        "state": "Writable",
        "ready": True,
        "usedBytes": 10 << 30,
        "capacityBytes": 100 << 30,
        "ledgers": 12,
        **changes,
    }


def pool(*bookies: dict[str, Any], spec: dict[str, Any] | None = None, **status: Any) -> Object:
    """The pool `bk`, healthy unless `status` says otherwise."""
    members = list(bookies) or [bookie(0), bookie(1), bookie(2)]
    return {
        "apiVersion": "daybook.dev/v1alpha1",
        "kind": "BookiePool",
        "metadata": {"name": "bk", "namespace": "data", "uid": "pool-uid", "generation": 3},
        "spec": {"replicas": len(members), **(spec or {})},
        "status": {
            "observedGeneration": 3,
            "phase": "Running",
            "replicas": len(members),
            "readyReplicas": sum(bool(each["ready"]) for each in members),
            "writableReplicas": sum(each["state"] == "Writable" for each in members),
            "rackCount": 3,
            "bookies": members,
            "recovery": {"underReplicated": 0, "activeJobs": 0},
            "conditions": [
                condition("Ready", "True"),
                condition("FullyReplicated", "True"),
                condition("RackPlacementSatisfied", "True"),
                condition("Progressing", "False", "Complete"),
                condition("DiskPressure", "False"),
            ],
            **status,
        },
    }


def ledger(name: str = "first", fragments: list[dict[str, Any]] | None = None, **status: Any) -> Object:
    """A Ledger of that pool."""
    return {
        "apiVersion": "daybook.dev/v1alpha1",
        "kind": "Ledger",
        "metadata": {"name": name, "namespace": "data", "uid": f"{name}-uid", "generation": 1},
        "spec": {"poolRef": {"name": "bk"}, "ensembleSize": 3, "writeQuorum": 3, "ackQuorum": 2},
        "status": {
            "observedGeneration": 1,
            "ledgerId": 7,
            "quorum": "3/3/2",
            "state": "Open",
            "fragments": fragments
            or [
                {
                    "firstEntry": 0,
                    "bookies": ["data.bk-0", "data.bk-1", "data.bk-2"],
                    "racks": ["zone-a/zone-a", "zone-b/zone-b", "zone-c/zone-c"],
                }
            ],
            "conditions": [condition("Ready", "True"), condition("FullyReplicated", "True")],
            **status,
        },
    }


def pod(
    name: str = "bk-1",
    namespace: str = "data",
    *,
    component: str = "bookie",
    ready: bool = True,
    **status: Any,
) -> Object:
    """A pod; ready unless told otherwise."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/name": "daybook", "app.kubernetes.io/component": component},
        },
        "spec": {
            "nodeName": "worker-b",
            "containers": [{"name": component, "image": "daybook-bookie:1"}],
            "volumes": [
                {"name": "store", "persistentVolumeClaim": {"claimName": f"store-{name}"}},
                {"name": "tmp", "emptyDir": {}},
            ]
            if component == "bookie"
            else [],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.1.2.3",
            "conditions": [condition("Ready", str(ready))],
            **status,
        },
    }


def claim(name: str = "store-bk-1", phase: str = "Bound") -> Object:
    """A volume claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "data"},
        "spec": {"storageClassName": "fast"},
        "status": {"phase": phase},
    }


def node(name: str = "worker-b", ready: str = "True", message: str = "") -> Object:
    """A machine."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"topology.kubernetes.io/zone": "zone-b", "owner": "ann@example.org"},
        },
        "spec": {"providerID": "cloud:///account-1234/worker-b"},
        "status": {
            "conditions": [condition("Ready", ready, "KubeletReady", message)],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}],
            "images": [{"names": ["private/thing:1"]}],
        },
    }


def event(kind: str, name: str, reason: str, message: str, last: str = SINCE) -> Object:
    """A warning about an object of namespace data."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{reason}", "namespace": "data", "creationTimestamp": SINCE},
        "involvedObject": {"kind": kind, "name": name, "namespace": "data"},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": last,
    }


def job(name: str = "recover-1", *ledgers: int, ended: bool = False) -> Object:
    """A recovery Job of the pool."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "data", "ownerReferences": [{"uid": "pool-uid"}]},
        "spec": {
            "template": {
                "spec": {
                    "containers": [
                        {"command": ["daybook", "recover"], "args": [str(each) for each in ledgers]}
                    ]
                }
            }
        },
        "status": {
            "startTime": SINCE,
            "active": 0 if ended else 1,
            "failed": 2,
            "conditions": [condition("Complete", "True")] if ended else [],
        },
    }


def listing_of(world: World, *refused: str) -> Callable[..., list[Object]]:
    """An API server that has these objects, and refuses to list some kinds."""
    by_kind = {
        "BookiePool": world.pools,
        "Ledger": world.ledgers,
        "Pod": world.pods,
        "PersistentVolumeClaim": world.claims,
        "Node": world.nodes,
        "Job": world.jobs,
        "Event": world.events,
    }

    def listing(kind: str, namespace: str, _labels: str = "") -> list[Object]:
        if kind in refused:
            raise ApiError(f"{kind} is forbidden", 403)
        return [
            each for each in by_kind[kind] if namespace in ("", each["metadata"].get("namespace", namespace))
        ]

    return listing
