"""A BookiePool's spec as values, with the operator's own settings filled in where the spec leaves them to it.

What the operator fills in is taken from the status once it is there: an operator with other settings changes no
pool that it already knows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import Field

from daybook.core.placement.policies import PlacementSettings, PolicyName
from daybook_operator.plan.effects import ClusterRef, Manifest
from daybook_operator.plan.quantities import bytes_of
from daybook_operator.plan.spark_jobs import JobsSpec
from daybook_operator.plan.spec_part import SpecPart, parse_spec
from daybook_operator.plan.zookeeper_access import ZooKeeperAccess


@dataclass(frozen=True, slots=True)
class PoolDefaults:
    """The operator's own settings that a pool's spec may leave out.

    `dns_suffix` follows `.svc` in host names, like `.cluster.local`; it may be empty. `finalizer_bound_ms`: how long a
    finalizer may hold a pool of a namespace that terminates. `spark_image` and `jobs_account`: what the pods of jobs run, and the
    ServiceAccount of drivers.
    """

    image: str
    zookeeper: str
    cluster: str = "daybook"
    dns_suffix: str = ""
    uses_finalizers: bool = True
    finalizer_bound_ms: int = 60_000
    spark_image: str = ""
    jobs_account: str = "daybook-jobs"


class MetadataSpec(SpecPart):
    """Which cluster the bookies belong to; empty: the operator's own settings say."""

    zookeeper: str = ""
    cluster: str = ""


class VolumeSpec(SpecPart):
    """One volume of each bookie; `storage_class` None is the Kubernetes cluster's default."""

    size: str
    storage_class: str | None = None

    @property
    def size_bytes(self) -> int:
        """In bytes. Raises ValueError."""
        return bytes_of(self.size)


class JournalVolumeSpec(VolumeSpec):
    """The journal's volume, which has a default size."""

    size: str = "10Gi"


class StorageSpec(SpecPart):
    """The volumes of each bookie."""

    journal: JournalVolumeSpec = JournalVolumeSpec()
    store: VolumeSpec
    resize_in_use_volumes: bool = True

    @property
    def volumes(self) -> dict[str, VolumeSpec]:
        """By role."""
        return {"journal": self.journal, "store": self.store}


class TopologySpec(SpecPart):
    """Which node labels give a bookie's location."""

    region_key: str = "topology.kubernetes.io/region"
    zone_key: str = "topology.kubernetes.io/zone"
    rack_key: str = "topology.daybook.dev/rack"
    on_missing: Literal["Reject", "DefaultRack"] = "Reject"
    default_rack: str = "default-rack"
    spread: Literal["Required", "Preferred"] = "Required"
    max_skew: int = 1

    @property
    def rejects_missing(self) -> bool:
        """Whether a bookie on a node without labels does not serve."""
        return self.on_missing == "Reject"

    @property
    def requires_zone(self) -> bool:
        """Whether a pod waits for a node with the zone's label, in a zone that has not too many."""
        return self.spread == "Required" and self.rejects_missing


_POLICIES: Final[Mapping[str, PolicyName]] = {
    "Random": "random",
    "Rack": "rack",
    "Zone": "zone",
    "Region": "region",
}


class PlacementSpec(SpecPart):
    """Over what the replicas of an entry are spread."""

    policy: Literal["Random", "Rack", "Zone", "Region"] = "Zone"
    min_racks_per_write_quorum: int = 2
    min_zones_per_write_quorum: int = 2
    min_regions_per_write_quorum: int = 2
    enforce: bool = False
    weigh_by_free_space: bool = False

    @property
    def settings(self) -> PlacementSettings:
        """As the core has them."""
        return PlacementSettings(
            _POLICIES[self.policy],
            min_racks=self.min_racks_per_write_quorum,
            min_zones=self.min_zones_per_write_quorum,
            min_regions=self.min_regions_per_write_quorum,
            enforce=self.enforce,
            weigh_by_free_space=self.weigh_by_free_space,
        )


class RolloutSpec(SpecPart):
    """How a change of the pods reaches the bookies."""

    max_unavailable: int = 1
    gate: Literal["FullyReplicated", "Ready"] = "FullyReplicated"
    paused: bool = False
    progress_deadline_seconds: int = 900

    @property
    def waits_for_replication(self) -> bool:
        """Whether everything must be replicated before the next bookie is stopped."""
        return self.gate == "FullyReplicated"


class ScaleDownSpec(SpecPart):
    """What happens when replicas is lowered."""

    policy: Literal["Drain", "Refuse"] = "Drain"
    pvc_retention: Literal["Retain", "Delete"] = "Retain"
    progress_deadline_seconds: int = 3600


class LostDiskSpec(SpecPart):
    """What happens when a bookie finds its volumes empty."""

    policy: Literal["Replace", "Manual"] = "Replace"


class JobTemplateSpec(SpecPart):
    """What recovery Jobs' pods have; None: as in podTemplate."""

    resources: Mapping[str, Any] = Field(default_factory=dict)
    node_selector: Mapping[str, str] | None = None
    tolerations: tuple[Mapping[str, Any], ...] | None = None
    priority_class_name: str | None = None


class RecoverySpec(SpecPart):
    """How what lost bookies held is copied again. `lost_bookie_delay_seconds` None: the pool leaves it as it is."""

    paused: bool = False
    lost_bookie_delay_seconds: int | None = None
    parallelism: int = 2
    ledgers_per_job: int = 100
    bandwidth_per_job: str = "64Mi"
    backoff_limit: int = 3
    active_deadline_seconds: int = 3600
    ttl_seconds_after_finished: int = 300
    job_template: JobTemplateSpec = JobTemplateSpec()

    @property
    def bytes_per_second(self) -> int:
        """How fast one Job copies; 0: as fast as it can. Raises ValueError."""
        return bytes_of(self.bandwidth_per_job)


class DiskSpec(SpecPart):
    """What a bookie does as its volumes fill, in percent of use."""

    warn_percent: int = 90
    low_water_percent: int = 90
    read_only_percent: int = 95
    reserve_percent: int = 98

    def settings(self) -> dict[str, str]:
        """The bookie's own settings."""
        ratios = {
            "WARN": self.warn_percent,
            "LOW_WATER": self.low_water_percent,
            "FULL": self.read_only_percent,
            "RESERVE": self.reserve_percent,
        }
        return {f"DISK_{name}_RATIO": f"{percent / 100:.2f}" for name, percent in ratios.items()}


class StartupProbeSpec(SpecPart):
    """Until it succeeds the other probes wait: a start may replay a long journal."""

    period_seconds: int = 5
    timeout_seconds: int = 3
    failure_threshold: int = 120


class ReadinessProbeSpec(SpecPart):
    """Replayed and registered."""

    period_seconds: int = 5
    timeout_seconds: int = 3
    failure_threshold: int = 3


class LivenessProbeSpec(SpecPart):
    """The process makes progress."""

    period_seconds: int = 10
    timeout_seconds: int = 5
    failure_threshold: int = 6


class ProbesSpec(SpecPart):
    """The pace and patience of each probe."""

    startup: StartupProbeSpec = StartupProbeSpec()
    readiness: ReadinessProbeSpec = ReadinessProbeSpec()
    liveness: LivenessProbeSpec = LivenessProbeSpec()


class PodTemplateSpec(SpecPart):
    """What else the bookies' pods are to have."""

    labels: Mapping[str, str] = Field(default_factory=dict)
    annotations: Mapping[str, str] = Field(default_factory=dict)
    node_selector: Mapping[str, str] = Field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    priority_class_name: str = ""


class TlsSpec(SpecPart):
    """TLS on the data port, by a Secret with tls.crt, tls.key and ca.crt."""

    secret_name: str
    client_auth: Literal["None", "Required"] = "None"
    mode: Literal["Required", "Optional"] = "Required"

    @property
    def authenticates_clients(self) -> bool:
        """Whether clients must show a certificate."""
        return self.client_auth == "Required"

    @property
    def is_optional(self) -> bool:
        """Whether bookies serve without TLS as well, so that clients can move one by one."""
        return self.mode == "Optional"


class PoolSpec(SpecPart):
    """What the pool should be. Make it by `spec_of`, which fills in the image."""

    replicas: int = 3
    hibernate: bool = False
    image: str = ""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: tuple[Mapping[str, str], ...] = ()
    metadata: MetadataSpec = MetadataSpec()
    zookeeper_access: ZooKeeperAccess = ZooKeeperAccess()
    storage: StorageSpec
    topology: TopologySpec = TopologySpec()
    placement: PlacementSpec = PlacementSpec()
    rollout: RolloutSpec = RolloutSpec()
    scale_down: ScaleDownSpec = ScaleDownSpec()
    lost_disk: LostDiskSpec = LostDiskSpec()
    recovery: RecoverySpec = RecoverySpec()
    jobs: JobsSpec = JobsSpec()
    disk: DiskSpec = DiskSpec()
    settings: Mapping[str, str] = Field(default_factory=dict)
    probes: ProbesSpec = ProbesSpec()
    termination_grace_period_seconds: int = 60
    resources: Mapping[str, Any] = Field(default_factory=dict)
    pod_template: PodTemplateSpec = PodTemplateSpec()
    enable_pdb: bool = Field(default=True, alias="enablePDB")
    tls: TlsSpec | None = None
    reclaim_policy: Literal["Retain", "Delete"] = "Retain"

    @property
    def bookie_settings(self) -> dict[str, str]:
        """Further settings of the bookies, as their variables have them."""
        return {name.upper(): value for name, value in self.settings.items()}


def own_spec(manifest: Manifest) -> PoolSpec:
    """The spec of a BookiePool as the API server has it, with nothing filled in. Raises SpecError."""
    return parse_spec(PoolSpec, manifest)


def spec_of(manifest: Manifest, defaults: PoolDefaults) -> PoolSpec:
    """The spec of a BookiePool, with the image that its bookies and Jobs run. Raises SpecError."""
    spec = own_spec(manifest)
    status: Mapping[str, Any] = manifest.get("status") or {}
    image = spec.image or status.get("targetImage") or defaults.image
    return spec.model_copy(update={"image": image})


def cluster_of(manifest: Manifest, defaults: PoolDefaults) -> ClusterRef:
    """The cluster that the pool belongs to: by the status, else by the spec, else by the operator's settings.

    Another address in the spec is used once the status has it; see `move`.
    """
    wanted = manifest["spec"].get("metadata") or {}
    known = (manifest.get("status") or {}).get("metadata") or {}
    return ClusterRef(
        known.get("zookeeper") or wanted.get("zookeeper") or defaults.zookeeper,
        known.get("cluster") or wanted.get("cluster") or defaults.cluster,
    )
