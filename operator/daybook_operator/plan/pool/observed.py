"""What is true of a pool now: Kubernetes' objects and the cluster's metadata, as plain values.

`reconcile.pool_observer` fills it in; every step of the plan is a function of it. The status remembers (`Drain`, `Roll`,
`Recovery`) only what no fact shows, so that a plan that was interrupted is made anew from what is there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from daybook.core.ids import BookieId, LedgerId, pool_of
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.bookies import Location
from daybook_operator.plan.effects import ClusterRef, Manifest, Ref, ref_of
from daybook_operator.plan.lost_ledgers import Verdict
from daybook_operator.plan.names import pool_in_cluster
from daybook_operator.plan.open_gaps import OpenGaps
from daybook_operator.plan.pool.parts import Part
from daybook_operator.plan.pool.spec import PoolDefaults, PoolSpec
from daybook_operator.plan.pool.state import Drain, Recovery, Roll
from daybook_operator.plan.spark_jobs import JobsReport

DATA_PORT: Final = 3181
TLS_PORT: Final = 3183
LANE_PORT: Final = 3184
"""The data port with TLS, while TLS is optional and `DATA_PORT` is without."""
HEALTH_PORT: Final = 3182
METRICS_PORT: Final = 8000

RECOVERY_BLOCKED: Final = "RecoveryBlocked"

ROLES: Final = ("journal", "store")
REPAIR_LEDGER: Final = "Repair or delete that ledger; bookies and other ledgers continue meanwhile."
"""What a person can do where the ledgers' metadata cannot be read."""


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """A bookie's pod. `exit_code` and `last_words` are of a container that does not run now."""

    name: str
    ordinal: int
    uid: str
    node: str = ""
    """Empty until the scheduler has bound it."""
    ready: bool = False
    terminating: bool = False
    revision: str = ""
    image: str = ""
    rack: str = ""
    """Its label, which the budgets of racks select by."""
    exit_code: int | None = None
    last_words: str = ""
    waits_for: str = ""
    """Why it does not run, in Kubernetes' words."""


@dataclass(frozen=True, slots=True)
class ObservedClaim:
    """A PersistentVolumeClaim of a bookie. `capacity_bytes` is 0 until it is bound."""

    name: str
    ordinal: int
    role: str
    uid: str
    requested_bytes: int
    capacity_bytes: int = 0
    storage_class: str = ""
    waits_for_restart: bool = False
    """The file system is resized only when the pod starts again."""
    resizing: str = ""
    """What the volume's driver says of a growth that is under way."""
    terminating: bool = False
    owner_uid: str = ""


@dataclass(frozen=True, slots=True)
class ObservedStatefulSet:
    """The StatefulSet. `update_revision` is empty while its controller has not seen the last change."""

    uid: str
    replicas: int
    update_revision: str = ""
    terminating: bool = False
    owner_uid: str = ""
    manifest: Manifest = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Survey:
    """What the metadata of all ledgers says, as of a `sync`.

    Not `is_whole`: it is still being read, `ledgers` of them so far; `read_error` is what keeps that from ending.
    `ledgers_of` counts the ledgers that name each bookie; `naming` has these ledgers for bookies that may have to leave.
    `ack_quorum_of` has the smallest ack quorum among the ledgers that name a bookie. `ensemble_max` is the largest ensemble
    of a ledger, `ensemble_max_ledger` such a ledger; `own_ensemble_max` and its ledger count only those that stay in this
    pool (rule 69). `write_quorum_min` is the smallest write quorum of a ledger that names a bookie of this pool, 0 without
    one. `misplaced` has, for some ledgers of this pool, how they violate the placement policy; `misplaced_count` is how
    many do.
    """

    ledgers: int = 0
    is_whole: bool = True
    read_error: str = ""
    ledgers_of: Mapping[BookieId, int] = field(default_factory=dict)
    naming: Mapping[BookieId, tuple[LedgerId, ...]] = field(default_factory=dict)
    ack_quorum_of: Mapping[BookieId, int] = field(default_factory=dict)
    ensemble_max: int = 0
    ensemble_max_ledger: LedgerId = -1
    own_ensemble_max: int = 0
    own_ensemble_max_ledger: LedgerId = -1
    write_quorum_min: int = 0
    misplaced: tuple[str, ...] = ()
    misplaced_count: int = 0

    @property
    def why_unreadable(self) -> str:
        """Why the metadata cannot be read, as part of a sentence (see `REPAIR_LEDGER`); "" if it can."""
        is_stuck = not self.is_whole and self.read_error
        return f"the ledgers' metadata cannot be read: {self.read_error.rstrip('.')}" if is_stuck else ""


@dataclass(frozen=True, slots=True)
class ObservedCluster:
    """What ZooKeeper and the auditor say. `under_replicated` are ledgers with a task about a missing or doubtful replica.

    `leaving` are the ledgers with a task about a bookie that leaves; `stuck` is why workers set some of them aside.
    """

    bookies: Mapping[BookieId, BookieInfo] = field(default_factory=dict)
    instance_id: str = ""
    cookies: frozenset[BookieId] = frozenset()
    replacements: frozenset[BookieId] = frozenset()
    in_limbo: frozenset[BookieId] = frozenset()
    """Registered bookies that are in limbo for a ledger; they are asked only while a disk of the pool is lost."""
    silent: Mapping[BookieId, str] = field(default_factory=dict)
    """Bookies that may be in limbo and do not answer, and why."""
    locations: Mapping[BookieId, Location] = field(default_factory=dict)
    under_replicated: tuple[LedgerId, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    """On ledgers with an entry that the last repair found on no bookie."""
    leaving: Mapping[BookieId, frozenset[LedgerId]] = field(default_factory=dict)
    stuck: Mapping[LedgerId, str] = field(default_factory=dict)
    lost: tuple[BookieId, ...] = ()
    """Bookies that have been away for longer than the delay."""
    blocked: tuple[str, ...] = ()
    """What the last audit found and no worker can repair now, in words."""
    lost_bookie_delay_s: float | None = None
    collection_held: bool = False
    """The metadata was restored, and nobody has confirmed yet that what it does not name may be deleted (rule 68)."""
    job_problems: tuple[str, ...] = ()
    """Why recovery Jobs cannot be made, or do not start, in Kubernetes' words."""
    last_audit: str = ""
    """What the last full audit found, in words, if it was not clean."""
    open_gaps: OpenGaps = field(default_factory=OpenGaps)
    """What of that no repair will change."""
    recovery: Mapping[str, Any] = field(default_factory=dict)
    """`status.recovery`, as every pool of the cluster has it."""
    survey: Survey = field(default_factory=Survey)


@dataclass(frozen=True, slots=True)
class ObservedAddress:
    """What answers at the address that the spec names and the pool does not use yet.

    `boots` are the boot ids of the bookies that are registered there; `error` is why nothing is known.
    """

    zookeeper: str
    instance_id: str = ""
    boots: Mapping[BookieId, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class ObservedPool:
    """Everything that a plan for one pool may depend on."""

    manifest: Manifest
    spec: PoolSpec
    cluster_ref: ClusterRef
    drain: Drain | None = None
    roll: Roll | None = None
    recovery: Recovery = field(default_factory=Recovery)
    live: Mapping[tuple[str, str], Manifest] = field(default_factory=dict)
    """The pool's other objects, by (kind, name): ServiceAccount, Service, PodDisruptionBudget."""
    stateful_set: ObservedStatefulSet | None = None
    pods: Mapping[int, ObservedPod] = field(default_factory=dict)
    claims: Mapping[str, ObservedClaim] = field(default_factory=dict)
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of the nodes that the pods are on; a node that is gone is not in it."""
    expandable: Mapping[str, bool] = field(default_factory=dict)
    """Whether volumes of a storage class can grow, as far as it is known."""
    cluster: ObservedCluster | None = None
    """None while ZooKeeper does not answer."""
    cluster_error: str = ""
    address: ObservedAddress | None = None
    """What answers at the address that the spec names, if the pool uses another one."""
    refused: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Objects of the pool that the API server refused in this reconcile, by (kind, name), and why."""
    failed: Mapping[Part, str] = field(default_factory=dict)
    """Parts of the plan that failed in this reconcile, and why."""
    namespace_is_terminating: bool = False
    others: tuple[Manifest, ...] = ()
    """The other pools of the cluster that are not being deleted, as the API server has them."""
    other_pods: Mapping[BookieId, ObservedPod] = field(default_factory=dict)
    """The pods of the cluster's bookies that belong to other pools."""
    not_now: str = ""
    """Why the pod that this reconcile was to evict stays for now."""
    defaults: PoolDefaults = field(default_factory=lambda: PoolDefaults("", ""))
    jobs: JobsReport | None = None
    """What is known of its jobs on Spark; None: nothing yet."""

    @property
    def ref(self) -> Ref:
        """The pool."""
        return ref_of(self.manifest)

    @property
    def namespace(self) -> str:
        """The pool's namespace."""
        return str(self.manifest["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """The pool's name, which is the StatefulSet's and the Service's."""
        return str(self.manifest["metadata"]["name"])

    @property
    def status(self) -> Mapping[str, Any]:
        """What the status says now."""
        status: Mapping[str, Any] = self.manifest.get("status") or {}
        return status

    @property
    def instance_id(self) -> str:
        """Which cluster the pool belongs to, by the id that it got when it was formatted; "" if that is not known yet."""
        noted = (self.status.get("metadata") or {}).get("instanceId", "")
        return noted or (self.cluster.instance_id if self.cluster else "")

    @property
    def in_cluster(self) -> str:
        """The pool as ids of bookies, and ledgers that stay in it, name it (rule 69)."""
        return pool_in_cluster(self.namespace, self.name)

    def bookie(self, ordinal: int) -> BookieId:
        """The bookie's id for life."""
        return f"{self.in_cluster}-{ordinal}"

    def ordinal_of(self, bookie: BookieId) -> int | None:
        """The inverse; None for a bookie of another pool."""
        return int(bookie.rpartition("-")[2]) if pool_of(bookie) == self.in_cluster else None

    def claims_of(self, ordinal: int) -> list[ObservedClaim]:
        """The bookie's claims, by name."""
        return [self.claims[name] for name in sorted(self.claims) if self.claims[name].ordinal == ordinal]

    @property
    def owner_uid(self) -> str:
        """The owner in the bookies' cookies: the UID of the pool that first made the volumes.

        A pool that was deleted with its volumes retained, and made again, uses them again.
        """
        if self.stateful_set is not None and self.stateful_set.owner_uid:
            return self.stateful_set.owner_uid
        for claim in sorted(self.claims.values(), key=lambda each: (each.ordinal, each.role)):
            if claim.owner_uid:
                return claim.owner_uid
        return str(self.manifest["metadata"]["uid"])

    @property
    def highest_known(self) -> int:
        """The highest ordinal whose bookie is registered or has a cookie; −1 if there is none, or it is not known."""
        if self.cluster is None:
            return -1
        known = self.cluster.cookies | self.cluster.bookies.keys()
        return max((o for bookie in known if (o := self.ordinal_of(bookie)) is not None), default=-1)

    @property
    def present_replicas(self) -> int:
        """How many ordinals the pool has now, whatever the spec says: none of them may be removed without a drain."""
        if self.stateful_set is not None and not self.stateful_set.terminating:
            return max(self.stateful_set.replicas, self.highest_known + 1)
        return max((*self.pods, self.highest_known), default=-1) + 1

    @property
    def is_stopping(self) -> bool:
        """Whether the pool hibernates, or is about to: no pod is wanted.

        A pool without pods stays so while its StatefulSet is made anew, for larger volumes for instance.
        """
        if not self.spec.hibernate:
            return False
        return not self.pods if self.stateful_set is None else self.stateful_set.replicas == 0

    @property
    def is_stopped(self) -> bool:
        """Whether the pool is hibernated: no pod is wanted, and none is there."""
        return self.is_stopping and not self.pods

    def is_registered(self, ordinal: int) -> bool:
        """Whether the bookie is in ZooKeeper's list, writable or read-only."""
        return self.cluster is not None and self.bookie(ordinal) in self.cluster.bookies

    def serves(self, ordinal: int) -> bool:
        """Whether clients can use the bookie: its pod is ready and does not terminate, and it is registered."""
        pod = self.pods.get(ordinal)
        return pod is not None and pod.ready and not pod.terminating and self.is_registered(ordinal)

    def is_down(self, ordinal: int) -> bool:
        """Whether the bookie certainly does not serve, whatever ZooKeeper would say."""
        pod = self.pods.get(ordinal)
        return pod is None or pod.terminating or not pod.node or pod.exit_code is not None

    def is_away(self, ordinal: int) -> bool:
        """Whether the bookie is known not to serve: while ZooKeeper does not answer, only if it is down."""
        return self.is_down(ordinal) if self.cluster is None else not self.serves(ordinal)

    @property
    def expected(self) -> tuple[int, ...]:
        """The ordinals whose bookies are to serve; one that is forgotten is not."""
        gone = self.drain.ordinal if self.drain is not None and self.drain.stage.is_final else -1
        count = 0 if self.is_stopping else max(self.present_replicas, self.spec.replicas)
        return tuple(ordinal for ordinal in range(count) if ordinal != gone)
