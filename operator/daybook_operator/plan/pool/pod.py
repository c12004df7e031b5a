"""The pod of a bookie: settings as variables, probes on the health port, volumes, and the restricted security profile.

A stop moves no data (there is no preStop): the bookie unregisters, ends its calls and flushes, and nothing is copied,
because it comes back. Liveness and start-up probes ask for the process alone; a bookie that replays a long journal is
alive.
"""

from collections.abc import Mapping
from typing import Any, Final

from daybook_operator.plan.effects import Manifest
from daybook_operator.plan.names import POOL_LABEL, RESTART
from daybook_operator.plan.pods import (
    BOOKIE,
    container_security,
    of_the_pod,
    pod_dns,
    pod_identity,
    pod_security,
    tls_files,
    tls_mount,
    tls_volume,
    with_set,
)
from daybook_operator.plan.pool.observed import (
    DATA_PORT,
    HEALTH_PORT,
    LANE_PORT,
    METRICS_PORT,
    ROLES,
    TLS_PORT,
    ObservedPool,
)
from daybook_operator.plan.pool.spec import PoolSpec, TlsSpec
from daybook_operator.plan.zookeeper_access import OF_BOOKIES

MOUNT: Final = "/var/lib/daybook"
CONNECT_TIMEOUT_MS: Final = 300_000
"""A start waits for ZooKeeper instead of failing, which Kubernetes would answer with ever longer pauses."""


def selector(pool: ObservedPool) -> dict[str, str]:
    """Selects the bookies' pods, and not those of recovery Jobs. Immutable in a StatefulSet."""
    return {"app.kubernetes.io/component": BOOKIE, POOL_LABEL: pool.name}


def pod_template(pool: ObservedPool) -> Manifest:
    """The StatefulSet's template."""
    extra = pool.spec.pod_template
    pod_labels = {
        **extra.labels,
        "app.kubernetes.io/name": "daybook",
        "app.kubernetes.io/instance": pool.name,
        **selector(pool),
    }
    template_metadata: dict[str, Any] = {"labels": pod_labels}
    annotations = dict(extra.annotations)
    if restart := (pool.manifest["metadata"].get("annotations") or {}).get(RESTART):
        annotations[RESTART] = restart
    if annotations:
        template_metadata["annotations"] = annotations
    return {"metadata": template_metadata, "spec": _pod_spec(pool)}


def _pod_spec(pool: ObservedPool) -> dict[str, Any]:
    spec, extra = pool.spec, pool.spec.pod_template
    pod: dict[str, Any] = {
        **pod_identity(pool.manifest, BOOKIE),
        **pod_dns(),
        "terminationGracePeriodSeconds": spec.termination_grace_period_seconds,
        "securityContext": {**pod_security(), "fsGroupChangePolicy": "OnRootMismatch"},
        "topologySpreadConstraints": _spread(pool),
        "containers": [_container(pool)],
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            *([] if spec.tls is None else [tls_volume(spec.tls.secret_name, defaultMode=0o440)]),
            *spec.zookeeper_access.volumes(),
        ],
    }
    optional: Mapping[str, Any] = {
        "nodeSelector": extra.node_selector,
        "tolerations": list(extra.tolerations),
        "priorityClassName": extra.priority_class_name,
        "imagePullSecrets": list(spec.image_pull_secrets),
    }
    return with_set(pod, optional)


def _container(pool: ObservedPool) -> dict[str, Any]:
    spec = pool.spec
    ports = ports_of(spec)
    mounts: list[dict[str, Any]] = [{"name": role, "mountPath": f"{MOUNT}/{role}"} for role in ROLES]
    mounts.append({"name": "tmp", "mountPath": "/tmp"})  # noqa: S108 - an emptyDir of the pod's own
    if spec.tls is not None:
        mounts.append(tls_mount())
    container: dict[str, Any] = {
        "name": BOOKIE,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "command": ["daybook-bookie", "start"],
        "env": _environment(pool),
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        "volumeMounts": [*mounts, *spec.zookeeper_access.mounts()],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": container_security(),
        **_probes(spec),
    }
    return container if not spec.resources else {**container, "resources": dict(spec.resources)}


def ports_of(spec: PoolSpec) -> dict[str, int]:
    """The ports of a bookie, by name."""
    ports = {"data": DATA_PORT, "lane": LANE_PORT, "health": HEALTH_PORT, "metrics": METRICS_PORT}
    return {**ports, "data-tls": TLS_PORT} if spec.tls is not None and spec.tls.is_optional else ports


def _probes(spec: PoolSpec) -> dict[str, Any]:
    """gRPC health on a port of its own, without TLS; only readiness may depend on ZooKeeper."""
    paces = spec.probes.model_dump(by_alias=True)
    services = {"startup": "liveness", "liveness": "liveness", "readiness": "readiness"}
    return {
        f"{name}Probe": {"grpc": {"port": HEALTH_PORT, "service": service}, **paces[name]}
        for name, service in services.items()
    }


def _environment(pool: ObservedPool) -> list[dict[str, Any]]:
    spec = pool.spec
    host = f"$(POD_NAME).{pool.name}.{pool.namespace}.svc{pool.defaults.dns_suffix}"
    settings: dict[str, str] = {
        "BOOKIE_ID": f"{pool.namespace}.$(POD_NAME)",
        "ZOOKEEPER": pool.cluster_ref.zookeeper,
        "CLUSTER": pool.cluster_ref.cluster,
        "OWNER_UID": pool.owner_uid,
        "WAIT_FOR_TOPOLOGY": "true",
        "JOURNAL_DIR": f"{MOUNT}/journal",
        "STORE_DIR": f"{MOUNT}/store",
        "ADDRESS": f"0.0.0.0:{DATA_PORT}",
        "ADVERTISED_ADDRESS": f"{host}:{DATA_PORT}",
        "ADVERTISED_IP_ADDRESS": "$(POD_IP)",
        "LANE_ADDRESS": f"0.0.0.0:{LANE_PORT}",
        "ADVERTISED_LANE_ADDRESS": f"{host}:{LANE_PORT}",
        "HEALTH_ADDRESS": f"0.0.0.0:{HEALTH_PORT}",
        "METRICS_ADDRESS": f"0.0.0.0:{METRICS_PORT}",
        "CONNECT_TIMEOUT_MS": str(CONNECT_TIMEOUT_MS),
        "LOG_FORMAT": "json",
        **spec.disk.settings(),
        **_tls_settings(spec.tls),
        **(_both_ways(host) if spec.tls is not None and spec.tls.is_optional else {}),
        **spec.bookie_settings,
    }
    return [
        of_the_pod("POD_NAME", "metadata.name"),
        of_the_pod("POD_IP", "status.podIP"),
        *({"name": f"DAYBOOK_BOOKIE_{key}", "value": value} for key, value in settings.items()),
        *spec.zookeeper_access.variables(OF_BOOKIES),
    ]


def _tls_settings(tls: TlsSpec | None) -> dict[str, str]:
    return {} if tls is None else tls_files(with_certificate=True, with_ca=tls.authenticates_clients)


def _both_ways(host: str) -> dict[str, str]:
    """The port without TLS stays the same; clients with TLS find theirs in the registration."""
    return {
        "ADDRESS": f"0.0.0.0:{TLS_PORT}",
        "ADVERTISED_ADDRESS": f"{host}:{TLS_PORT}",
        "PLAIN_ADDRESS": f"0.0.0.0:{DATA_PORT}",
        "ADVERTISED_PLAIN_ADDRESS": f"{host}:{DATA_PORT}",
    }


def _spread(pool: ObservedPool) -> list[dict[str, Any]]:
    """Over zones, racks and nodes alike; a domain whose nodes take no pods (cordoned, tainted) does not count as empty.

    Only the zone can be required, and only where every node must have one: no pod could be scheduled to a node without a
    required label. Where the rack or the node is the zone, the constraint of the zone applies.
    """
    topology = pool.spec.topology
    keys = {
        topology.zone_key: (
            "DoNotSchedule" if topology.requires_zone else "ScheduleAnyway",
            topology.max_skew,
        )
    }
    for key in (topology.rack_key, "kubernetes.io/hostname"):
        keys.setdefault(key, ("ScheduleAnyway", 1))
    return [
        {
            "maxSkew": skew,
            "topologyKey": key,
            "whenUnsatisfiable": when,
            "nodeTaintsPolicy": "Honor",
            "labelSelector": {"matchLabels": selector(pool)},
        }
        for key, (when, skew) in keys.items()
    ]
