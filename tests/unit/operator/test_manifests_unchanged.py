"""Manifests stay as they are, byte for byte: another pod template would roll every pool when the operator is upgraded.

`manifests.json` has all objects of a pool that leaves everything to defaults, and for each other spec the values that
differ, by path. After a change that is meant: `UPDATE=1 pytest tests/unit/operator/test_manifests_unchanged.py`, and the
change log says that pools roll.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from daybook_operator.plan.effects import Apply, Effect
from daybook_operator.plan.names import RESTART
from daybook_operator.plan.pool.decide import decide
from daybook_operator.plan.pool.spec import cluster_of, spec_of
from daybook_operator.plan.recovery.jobs import ObservedTask
from daybook_operator.plan.recovery.plan import ObservedRecovery, decide_recovery

from tests.unit.operator.pool_facts import Claim, pool_manifest
from tests.unit.operator.pool_sim import DEFAULTS, PoolSim, grown

GOLDEN: Final = Path(__file__).with_name("manifests.json")
TASKS: Final = (ObservedTask(3, 1, 5, ("lost data.bk-0",)), ObservedTask(7, 2, 6, ("lost data.bk-0",)))

SPECS: Final[Mapping[str, Mapping[str, Any]]] = {
    "default": {},
    "replicas": {"replicas": 5},
    "image": {"image": "other/bookie:2", "imagePullPolicy": "Always", "imagePullSecrets": [{"name": "pull"}]},
    "metadata": {"metadata": {"zookeeper": "a:2181,b:2181/x", "cluster": "logs"}},
    "hibernate": {"hibernate": True},
    "volumes": {
        "storage": {
            "journal": {"size": "2Gi", "storageClass": "fast"},
            "store": {"size": "1Ti", "storageClass": ""},
        }
    },
    "volumes that stay": {"storage": {"store": {"size": "20G"}, "resizeInUseVolumes": False}},
    "topology": {"topology": {"regionKey": "r", "zoneKey": "z", "rackKey": "k", "maxSkew": 3}},
    "topology with defaults": {"topology": {"onMissing": "DefaultRack", "defaultRack": "r0"}},
    "topology preferred": {"topology": {"spread": "Preferred"}},
    "topology of zones alone": {"topology": {"rackKey": "topology.kubernetes.io/zone"}},
    "topology of nodes": {"topology": {"zoneKey": "kubernetes.io/hostname"}},
    "placement": {
        "placement": {
            "policy": "Region",
            "minRacksPerWriteQuorum": 3,
            "minZonesPerWriteQuorum": 1,
            "minRegionsPerWriteQuorum": 2,
            "enforce": True,
            "weighByFreeSpace": True,
        }
    },
    "placement random": {"placement": {"policy": "Random"}},
    "disk": {"disk": {"warnPercent": 80, "lowWaterPercent": 70, "readOnlyPercent": 85, "reservePercent": 97}},
    "disk in part": {"disk": {"readOnlyPercent": 96}},
    "settings": {"settings": {"write_cache_bytes": "67108864", "log_format": "console"}},
    "probes": {
        "probes": {
            "startup": {"failureThreshold": 9},
            "readiness": {"periodSeconds": 7},
            "liveness": {"timeoutSeconds": 2},
        }
    },
    "termination": {"terminationGracePeriodSeconds": 17},
    "resources": {
        "resources": {"requests": {"cpu": "500m", "memory": 1073741824}, "limits": {"memory": "2Gi"}}
    },
    "pod template": {
        "podTemplate": {
            "labels": {"team": "logs"},
            "annotations": {"note": "x"},
            "nodeSelector": {"disk": "nvme"},
            "tolerations": [
                {"key": "logs", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}
            ],
            "priorityClassName": "high",
        }
    },
    "no budgets": {"enablePDB": False},
    "tls": {"tls": {"secretName": "certs"}},
    "tls for clients": {"tls": {"secretName": "certs", "clientAuth": "Required"}},
    "tls optional": {"tls": {"secretName": "certs", "clientAuth": "Required", "mode": "Optional"}},
    "zookeeper's tls": {"zookeeperAccess": {"tls": {"secretName": "zk"}}},
    "zookeeper's certificates": {
        "zookeeperAccess": {
            "tls": {"secretName": "zk", "clientAuth": "Required", "x509Owners": ["CN=a,O=b", "CN=c"]}
        }
    },
    "zookeeper's digest": {"zookeeperAccess": {"digestSecretRef": {"name": "zk"}}},
    "zookeeper's all": {
        "zookeeperAccess": {"tls": {"secretName": "zk"}, "digestSecretRef": {"name": "zk", "key": "user"}},
        "tls": {"secretName": "certs"},
    },
    "rollout": {
        "rollout": {"gate": "Ready", "maxUnavailable": 2, "paused": True, "progressDeadlineSeconds": 60}
    },
    "scale-down": {"scaleDown": {"policy": "Refuse", "pvcRetention": "Delete"}, "reclaimPolicy": "Delete"},
    "lost disk": {"lostDisk": {"policy": "Manual"}},
    "recovery": {
        "recovery": {
            "parallelism": 1,
            "ledgersPerJob": 1,
            "bandwidthPerJob": "1M",
            "backoffLimit": 0,
            "activeDeadlineSeconds": 10,
            "ttlSecondsAfterFinished": 0,
            "lostBookieDelaySeconds": 600,
        }
    },
    "recovery's jobs": {
        "recovery": {
            "jobTemplate": {
                "resources": {"limits": {"cpu": 1}},
                "nodeSelector": {"disk": "any"},
                "tolerations": [],
                "priorityClassName": "low",
            }
        },
        "podTemplate": {
            "nodeSelector": {"disk": "nvme"},
            "tolerations": [{"key": "x"}],
            "priorityClassName": "high",
        },
    },
    "recovery paused": {"recovery": {"paused": True}},
    "unknown fields": {
        "later": {"x": 1},
        "topology": {"later": 1},
        "storage": {"store": {"size": "10Gi", "later": True}},
    },
}


def manifests_of(effects: tuple[Effect, ...]) -> list[Any]:
    return [json.loads(json.dumps(each.manifest)) for each in effects if isinstance(each, Apply)]


def rendered(manifest: dict[str, Any], sim: PoolSim | None = None) -> dict[str, Any]:
    """Everything that is made for the pool, by kind and use."""
    seen = (sim or PoolSim(manifest)).world()
    found = {each["kind"]: each for each in manifests_of(decide(seen, 1_000_000).effects)}
    for speaks_tls in (False, True):
        jobs = decide_recovery(
            manifest,
            spec_of(manifest, DEFAULTS),
            ObservedRecovery(cluster_of(manifest, DEFAULTS), TASKS),
            1_000_000,
            poll_s=5,
            needless_ms=1000,
            operator_speaks_tls=speaks_tls,
        )
        for each in manifests_of(jobs.effects):
            use = f"{each['kind']} of recovery"
            if found.setdefault(use, each) != each:
                found[f"{use} of an operator with TLS"] = each
    return found


def cases() -> dict[str, dict[str, Any]]:
    found = {name: rendered(pool_manifest(**spec)) for name, spec in SPECS.items()}
    restarted = pool_manifest()
    restarted["metadata"]["annotations"] = {RESTART: "2"}
    found["restart"] = rendered(restarted)
    known = pool_manifest(metadata={"zookeeper": "new:2181"})
    known["status"] = {"targetImage": "kept:1", "metadata": {"zookeeper": "old:2181", "cluster": "kept"}}
    found["known before"] = rendered(known)
    again = PoolSim()
    again.claims["store-bk-0"] = Claim("u", "10Gi", "10Gi", "first-owner")
    found["made again over its volumes"] = rendered(again.manifest, again)
    six = grown(replicas=6)
    found["budget of all"] = {name: each for (_, name), each in six.objects.items()}
    six.crash(1)
    six.reconcile()
    found["budgets of racks"] = {name: each for (_, name), each in six.objects.items()}
    return found


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each value with its path; of what is empty, the empty thing itself. Things with names are told apart by these."""
    if value and isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{path}/{str(key).replace('/', '~')}")
    elif value and isinstance(value, list):
        names = [
            each.get("name", number) if isinstance(each, dict) else number
            for number, each in enumerate(value)
        ]
        if names != [*range(len(value))]:
            yield f"{path} in order", " ".join(map(str, names))
        for name, each in zip(names, value, strict=True):
            yield from leaves(each, f"{path}/{name}")
    else:
        yield path, value


def recorded() -> dict[str, Any]:
    """The default in full, of the others the values that differ; null: there is none."""
    flat = {name: dict(leaves(found)) for name, found in cases().items()}
    default = flat.pop("default")
    return {"default": default, **{name: difference(default, found) for name, found in flat.items()}}


def difference(default: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `found` that `default` has otherwise. Of an object that is not made at all, only that it is not."""
    made = {path.split("/")[1] for path in found}
    not_made = {path.split("/")[1] for path in default} - made
    return {f"/{name}": None for name in sorted(not_made)} | {
        path: found.get(path)
        for path in sorted(default.keys() | found.keys())
        if path.split("/")[1] in made
        and (
            json.dumps(found.get(path)) != json.dumps(default.get(path))
            or (path in found) != (path in default)
        )
    }


def test_every_manifest_is_as_it_was() -> None:
    found = recorded()
    if os.environ.get("UPDATE"):
        GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    kept = json.loads(GOLDEN.read_text(encoding="utf-8"))
    for name in sorted(found.keys() | kept.keys()):
        assert found.get(name) == kept.get(name), name
    assert json.dumps(found, sort_keys=True) == json.dumps(kept, sort_keys=True), "a number or a truth value"


if __name__ == "__main__":
    print(json.dumps(cases(), indent=1))
