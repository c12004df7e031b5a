"""What is true in a pool's world in miniature, and what everybody but the operator does in it.

Kubernetes' controllers and kubelets, bookies, clients, workers and an auditor, each as one call; see `pool_sim`.
"""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from daybook_operator.plan.effects import Effect, Manifest, Report
from daybook_operator.plan.names import API_VERSION, OWNER_ANNOTATION
from daybook_operator.plan.pool.observed import ObservedPod

from daybook.core.bookie.exits import EXIT_DISK_LOST, EXIT_FORGOTTEN
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.bookies import Location

WRITE_QUORUM = 2
ACK_QUORUM = 2
ZONES = ("zone-1", "zone-2", "zone-3")


def pool_manifest(**spec: Any) -> dict[str, Any]:
    """A BookiePool as the API server has it."""
    return {
        "apiVersion": API_VERSION,
        "kind": "BookiePool",
        "metadata": {
            "name": "bk",
            "namespace": "data",
            "uid": "pool-uid",
            "generation": 1,
            "resourceVersion": "1",
        },
        "spec": {"replicas": 3, "storage": {"store": {"size": "10Gi"}}, **spec},
    }


@dataclass
class Pod:
    """A pod; it serves once `started`, unless its disk forbids."""

    uid: str
    revision: str
    image: str
    node: str = ""
    started: bool = False
    terminating: bool = False
    rack: str = ""
    exit_code: int | None = None


@dataclass
class Claim:
    """A claim and its volume. `has_data`: the bookie's directories have its cookie."""

    uid: str
    size: str
    capacity: str
    owner: str
    has_data: bool = False
    read_only: bool = False
    """What a bookie keeps of what it was told, on the volume of its store."""


@dataclass
class PoolFacts:
    """The facts."""

    manifest: dict[str, Any] = field(default_factory=pool_manifest)
    now_ms: int = 1_000_000
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    objects: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    stateful_set: dict[str, Any] | None = None
    pods: dict[int, Pod] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    expandable: bool = True
    has_zookeeper: bool = True
    bookies: dict[str, BookieInfo] = field(default_factory=dict)
    cookies: set[str] = field(default_factory=set)
    replacements: set[str] = field(default_factory=set)
    locations: dict[str, Location] = field(default_factory=dict)
    ledgers: dict[int, tuple[str, ...]] = field(default_factory=dict)
    staying: set[int] = field(default_factory=set)
    """The ledgers that stay in the pool (rule 69)."""
    leaving: dict[int, str] = field(default_factory=dict)
    in_need: set[int] = field(default_factory=set)
    in_limbo: set[str] = field(default_factory=set)
    ack_quorum: int = ACK_QUORUM
    clean_audit_began_ms: int | None = None
    audit_began_ms: int | None = None
    audit_saw: frozenset[tuple[str, str]] = frozenset()
    stopped_by_us: set[int] = field(default_factory=set)
    told: list[Report] = field(default_factory=list)
    done: list[Effect] = field(default_factory=list)
    numbers: int = 0
    other_pods: dict[str, ObservedPod] = field(default_factory=dict)
    """Pods of another pool's bookies."""

    def __post_init__(self) -> None:
        for number, zone in enumerate(ZONES):
            self.nodes[f"node-{number}"] = {"topology.kubernetes.io/zone": zone}

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    @property
    def revision(self) -> str:
        assert self.stateful_set is not None
        text = json.dumps(self.stateful_set["spec"]["template"], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    # -------------------------------------------------------------------------------------------------- the world

    @staticmethod
    def bookie(ordinal: int) -> str:
        return f"data.bk-{ordinal}"

    def serves(self, ordinal: int) -> bool:
        pod = self.pods.get(ordinal)
        return pod is not None and pod.started and self.bookie(ordinal) in self.bookies

    def is_fully_replicated(self) -> bool:
        """The truth: everybody who is named serves, and an audit that saw the very processes of now was clean."""
        here = frozenset((b, info.boot_id) for b, info in self.bookies.items())
        named = {bookie for each in self.ledgers.values() for bookie in each}
        return not self.in_need and named <= self.bookies.keys() and self.audit_saw == here

    def unregister(self, bookie: str) -> None:
        """It is away; what is written meanwhile it misses."""
        if self.bookies.pop(bookie, None) is not None:
            self.audit_saw = frozenset()

    def controllers(self) -> None:
        """The StatefulSet's controller, the garbage collector, the scheduler: everything they can do now."""
        found = self.stateful_set
        if found is not None and "deletionTimestamp" in found["metadata"]:
            self.stateful_set = found = None
        for ordinal, pod in sorted(self.pods.items()):
            if pod.terminating:
                self.unregister(self.bookie(ordinal))
                del self.pods[ordinal]
        if found is None:
            return
        replicas = found["spec"]["replicas"]
        for ordinal in [o for o in self.pods if o >= replicas]:
            self.unregister(self.bookie(ordinal))
            del self.pods[ordinal]
        for ordinal in range(replicas):
            if ordinal not in self.pods:
                self._create_pod(found, ordinal)

    def _create_pod(self, found: dict[str, Any], ordinal: int) -> None:
        for template in found["spec"]["volumeClaimTemplates"]:
            name = f"{template['metadata']['name']}-bk-{ordinal}"
            size = template["spec"]["resources"]["requests"]["storage"]
            owner = template["metadata"]["annotations"][OWNER_ANNOTATION]
            self.claims.setdefault(name, Claim(f"claim-{self.number()}", size, size, owner))
        image = found["spec"]["template"]["spec"]["containers"][0]["image"]
        node = sorted(self.nodes)[ordinal % len(self.nodes)]
        self.pods[ordinal] = Pod(f"pod-{self.number()}", self.revision, image, node)

    def kubelet(self, ordinal: int) -> None:
        """The pod starts, as far as its disk, its cookie and the topology let it (rule 29)."""
        pod, bookie = self.pods.get(ordinal), self.bookie(ordinal)
        if pod is None or pod.terminating or not self.has_zookeeper or "broken" in pod.image:
            return
        claims = [self.claims[f"{role}-bk-{ordinal}"] for role in ("journal", "store")]
        has_data = all(claim.has_data for claim in claims)
        pod.exit_code = None
        if bookie in self.replacements:
            self.replacements.discard(bookie)
            owed = {ledger for ledger, each in self.ledgers.items() if bookie in each}
            self.in_need |= owed
            self.in_limbo |= {bookie} if owed else set()
        elif has_data != (bookie in self.cookies):
            pod.exit_code = EXIT_FORGOTTEN if has_data else EXIT_DISK_LOST
            return
        self.cookies.add(bookie)
        for claim in claims:
            claim.has_data = True
        if bookie not in self.locations or bookie in self.bookies:
            return
        place = self.locations[bookie]
        pod.started = True
        self.bookies[bookie] = BookieInfo(
            bookie,
            zone=place.zone,
            rack=place.rack,
            node=place.node,
            boot_id=f"boot-{self.number()}",
            writable=not self.claims[f"store-bk-{ordinal}"].read_only,
        )
        self.audit_saw = frozenset()

    def crash(self, ordinal: int) -> None:
        """The container dies; the kubelet will start it again."""
        pod = self.pods.get(ordinal)
        if pod is not None:
            pod.started = False
            self.unregister(self.bookie(ordinal))

    def lose_disk(self, ordinal: int) -> None:
        """The container dies, and its volumes are empty."""
        self.crash(ordinal)
        for role in ("journal", "store"):
            if (claim := self.claims.get(f"{role}-bk-{ordinal}")) is not None:
                claim.has_data = claim.read_only = False

    def write_ledger(self, choice: int) -> None:
        """A client makes a ledger on bookies that take entries."""
        writable = sorted(b for b, info in self.bookies.items() if info.writable)
        if len(writable) >= WRITE_QUORUM:
            start = choice % len(writable)
            ring = (writable * 2)[start : start + WRITE_QUORUM]
            self.ledgers[self.number()] = tuple(sorted(ring))

    def work(self) -> None:
        """Workers do what tasks say, as far as bookies are there."""
        writable = sorted(b for b, info in self.bookies.items() if info.writable)
        for ledger, bookie in sorted(self.leaving.items()):
            ensemble = self.ledgers.get(ledger, ())
            spare = [b for b in writable if b not in ensemble]
            if bookie not in ensemble:
                del self.leaving[ledger]
            elif spare:
                self.ledgers[ledger] = tuple(sorted({*ensemble, spare[0]} - {bookie}))
                del self.leaving[ledger]
        self.in_need = {k for k in self.in_need if not set(self.ledgers[k]) <= self.bookies.keys()}
        self.in_limbo = {b for b in self.in_limbo if any(b in self.ledgers[k] for k in self.in_need)}

    def audit(self) -> None:
        """A full audit from begin to end; it began at the last `begin_audit`, or now."""
        named = {bookie for each in self.ledgers.values() for bookie in each}
        if not self.in_need and named <= self.bookies.keys() and self.has_zookeeper:
            self.clean_audit_began_ms = self.now_ms
            self.audit_saw = frozenset((b, info.boot_id) for b, info in self.bookies.items())
