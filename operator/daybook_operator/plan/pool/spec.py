"""A BookiePool's spec as values, with the operator's own settings filled in where the spec leaves them to it.

The API server has checked the spec against crds/bookiepools.yaml and filled in its defaults before it comes here; the
same defaults stand here, so that a plan can be tested without a server. What the operator fills in is taken from the
status once it stands there: an operator with other settings changes no pool that it already knows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from daybook.core.placement.policies import PlacementSettings
from daybook_operator.plan.effects import ClusterRef, Manifest
from daybook_operator.plan.quantities import bytes_of
from daybook_operator.plan.zookeeper_access import ZooKeeperAccess, zookeeper_access_of


@dataclass(frozen=True, slots=True)
class PoolDefaults:
    """What the operator was set up with. `dns_suffix` follows `.svc` in host names, like `.cluster.local`; may be empty.

    `finalizer_bound_ms`: how long a finalizer may hold a pool of a namespace that terminates.
    """

    image: str
    zookeeper: str
    cluster: str = "daybook"
    dns_suffix: str = ""
    uses_finalizers: bool = True
    finalizer_bound_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class VolumeSpec:
    """One volume of each bookie; `storage_class` None is the Kubernetes cluster's default."""

    size: str = "10Gi"
    storage_class: str | None = None

    @property
    def size_bytes(self) -> int:
        """In bytes."""
        return bytes_of(self.size)


@dataclass(frozen=True, slots=True)
class TopologySpec:
    """Which node labels say where a bookie stands."""

    region_key: str = "topology.kubernetes.io/region"
    zone_key: str = "topology.kubernetes.io/zone"
    rack_key: str = "topology.daybook.dev/rack"
    rejects_missing: bool = True
    default_rack: str = "default-rack"
    is_spread_required: bool = True
    max_skew: int = 1


@dataclass(frozen=True, slots=True)
class RolloutSpec:
    """How a change of the pods reaches them."""

    max_unavailable: int = 1
    waits_for_replication: bool = True
    paused: bool = False
    progress_deadline_s: int = 900


@dataclass(frozen=True, slots=True)
class ScaleDownSpec:
    """What happens when replicas is lowered."""

    drains: bool = True
    deletes_claims: bool = False
    progress_deadline_s: int = 3600


@dataclass(frozen=True, slots=True)
class DiskSpec:
    """What a bookie does as its volumes fill, in percent of use."""

    warn: int = 90
    low_water: int = 90
    read_only: int = 95
    reserve: int = 98

    def settings(self) -> dict[str, str]:
        """The bookie's own settings."""
        ratios = {
            "WARN": self.warn,
            "LOW_WATER": self.low_water,
            "FULL": self.read_only,
            "RESERVE": self.reserve,
        }
        return {f"DISK_{name}_RATIO": f"{percent / 100:.2f}" for name, percent in ratios.items()}


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """A probe's pace and patience."""

    period_s: int
    timeout_s: int
    failures: int

    def record(self) -> dict[str, int]:
        """As a probe has it."""
        return {
            "periodSeconds": self.period_s,
            "timeoutSeconds": self.timeout_s,
            "failureThreshold": self.failures,
        }


PROBES: Final[Mapping[str, ProbeSpec]] = {
    "startupProbe": ProbeSpec(5, 3, 120),
    "readinessProbe": ProbeSpec(5, 3, 3),
    "livenessProbe": ProbeSpec(10, 5, 6),
}


@dataclass(frozen=True, slots=True)
class TlsSpec:
    """The Secret with tls.crt, tls.key and ca.crt; empty: no TLS."""

    secret_name: str = ""
    client_authentication: bool = False
    is_optional: bool = False
    """Bookies serve without TLS as well, so that clients can move one by one."""


@dataclass(frozen=True, slots=True)
class PodTemplateSpec:
    """What else the pods are to have."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    priority_class_name: str = ""


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """What the pool should be."""

    image: str
    replicas: int = 3
    hibernate: bool = False
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: Sequence[Mapping[str, str]] = ()
    dns_suffix: str = ""
    volumes: Mapping[str, VolumeSpec] = field(
        default_factory=lambda: {"journal": VolumeSpec(), "store": VolumeSpec()}
    )
    resizes_in_use: bool = True
    topology: TopologySpec = field(default_factory=TopologySpec)
    placement: PlacementSettings = field(default_factory=lambda: PlacementSettings("zone"))
    rollout: RolloutSpec = field(default_factory=RolloutSpec)
    scale_down: ScaleDownSpec = field(default_factory=ScaleDownSpec)
    replaces_lost_disks: bool = True
    disk: DiskSpec = field(default_factory=DiskSpec)
    settings: Mapping[str, str] = field(default_factory=dict)
    probes: Mapping[str, ProbeSpec] = field(default_factory=lambda: PROBES)
    termination_grace_s: int = 60
    resources: Mapping[str, Any] = field(default_factory=dict)
    pod_template: PodTemplateSpec = field(default_factory=PodTemplateSpec)
    keeps_budgets: bool = True
    tls: TlsSpec = field(default_factory=TlsSpec)
    zookeeper_access: ZooKeeperAccess = field(default_factory=ZooKeeperAccess)
    lost_bookie_delay_s: int | None = None
    deletes_claims_with_pool: bool = False


def cluster_of(manifest: Manifest, defaults: PoolDefaults) -> ClusterRef:
    """The cluster that the pool belongs to: the status' word, then the spec's, then the operator's settings.

    Another address in the spec is used once it stands in the status; see `pool_move`.
    """
    wanted = manifest["spec"].get("metadata") or {}
    known = (manifest.get("status") or {}).get("metadata") or {}
    return ClusterRef(
        known.get("zookeeper") or wanted.get("zookeeper") or defaults.zookeeper,
        known.get("cluster") or wanted.get("cluster") or defaults.cluster,
    )


def spec_of(manifest: Manifest, defaults: PoolDefaults) -> PoolSpec:
    """The spec of a BookiePool as the API server has it."""
    spec: Mapping[str, Any] = manifest["spec"]
    status: Mapping[str, Any] = manifest.get("status") or {}
    lost_disk = spec.get("lostDisk", {})
    return PoolSpec(
        image=spec.get("image") or status.get("targetImage") or defaults.image,
        replicas=spec.get("replicas", 3),
        hibernate=spec.get("hibernate", False),
        image_pull_policy=spec.get("imagePullPolicy", "IfNotPresent"),
        image_pull_secrets=spec.get("imagePullSecrets", ()),
        dns_suffix=defaults.dns_suffix,
        volumes={role: _volume(spec["storage"].get(role, {})) for role in ("journal", "store")},
        resizes_in_use=spec["storage"].get("resizeInUseVolumes", True),
        topology=_topology(spec.get("topology", {})),
        placement=_placement(spec.get("placement", {})),
        rollout=_rollout(spec.get("rollout", {})),
        scale_down=_scale_down(spec.get("scaleDown", {})),
        replaces_lost_disks=lost_disk.get("policy", "Replace") == "Replace",
        disk=_disk(spec.get("disk", {})),
        settings={name.upper(): value for name, value in spec.get("settings", {}).items()},
        probes={kind: _probe(kind, spec.get("probes", {})) for kind in PROBES},
        termination_grace_s=spec.get("terminationGracePeriodSeconds", 60),
        resources=spec.get("resources", {}),
        pod_template=_pod_template(spec.get("podTemplate", {})),
        keeps_budgets=spec.get("enablePDB", True),
        tls=_tls(spec.get("tls", {})),
        zookeeper_access=zookeeper_access_of(spec.get("zookeeperAccess", {})),
        lost_bookie_delay_s=spec.get("recovery", {}).get("lostBookieDelaySeconds"),
        deletes_claims_with_pool=spec.get("reclaimPolicy", "Retain") == "Delete",
    )


def _volume(volume: Mapping[str, Any]) -> VolumeSpec:
    return VolumeSpec(volume.get("size", "10Gi"), volume.get("storageClass"))


def _topology(topology: Mapping[str, Any]) -> TopologySpec:
    default = TopologySpec()
    return TopologySpec(
        topology.get("regionKey", default.region_key),
        topology.get("zoneKey", default.zone_key),
        topology.get("rackKey", default.rack_key),
        topology.get("onMissing", "Reject") == "Reject",
        topology.get("defaultRack", default.default_rack),
        topology.get("spread", "Required") == "Required",
        topology.get("maxSkew", default.max_skew),
    )


def _placement(placement: Mapping[str, Any]) -> PlacementSettings:
    return PlacementSettings(
        placement.get("policy", "Zone").lower(),
        min_racks=placement.get("minRacksPerWriteQuorum", 2),
        min_zones=placement.get("minZonesPerWriteQuorum", 2),
        min_regions=placement.get("minRegionsPerWriteQuorum", 2),
        enforce=placement.get("enforce", False),
        weigh_by_free_space=placement.get("weighByFreeSpace", False),
    )


def _rollout(rollout: Mapping[str, Any]) -> RolloutSpec:
    return RolloutSpec(
        rollout.get("maxUnavailable", 1),
        rollout.get("gate", "FullyReplicated") == "FullyReplicated",
        rollout.get("paused", False),
        rollout.get("progressDeadlineSeconds", 900),
    )


def _scale_down(scale_down: Mapping[str, Any]) -> ScaleDownSpec:
    return ScaleDownSpec(
        scale_down.get("policy", "Drain") == "Drain",
        scale_down.get("pvcRetention", "Retain") == "Delete",
        scale_down.get("progressDeadlineSeconds", 3600),
    )


def _disk(disk: Mapping[str, Any]) -> DiskSpec:
    return DiskSpec(
        disk.get("warnPercent", 90),
        disk.get("lowWaterPercent", 90),
        disk.get("readOnlyPercent", 95),
        disk.get("reservePercent", 98),
    )


def _probe(kind: str, probes: Mapping[str, Any]) -> ProbeSpec:
    default = PROBES[kind]
    probe = probes.get(kind.removesuffix("Probe"), {})
    return ProbeSpec(
        probe.get("periodSeconds", default.period_s),
        probe.get("timeoutSeconds", default.timeout_s),
        probe.get("failureThreshold", default.failures),
    )


def _pod_template(template: Mapping[str, Any]) -> PodTemplateSpec:
    return PodTemplateSpec(
        template.get("labels", {}),
        template.get("annotations", {}),
        template.get("nodeSelector", {}),
        template.get("tolerations", ()),
        template.get("priorityClassName", ""),
    )


def _tls(tls: Mapping[str, Any]) -> TlsSpec:
    return TlsSpec(
        tls.get("secretName", ""),
        tls.get("clientAuth", "None") == "Required",
        tls.get("mode", "Required") == "Optional",
    )
