"""A pool's world in miniature: Kubernetes' controllers and kubelets, ZooKeeper, ledgers, workers and an auditor, as plain values.

`PoolSim.reconcile` shows it to the plan and carries the effects out, all of them or only the first few, as an operator
does that is killed. Every effect that could cost a replica is checked as it is carried out, against what is true in the
miniature and not against what the plan was told.
"""

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

from daybook_operator.plan.conditions import find
from daybook_operator.plan.decision import API_VERSION, Decision
from daybook_operator.plan.effects import (
    Apply,
    AuthoriseReplacement,
    ClusterRef,
    DeleteCookie,
    Effect,
    Manifest,
    MarkLeaving,
    PatchMeta,
    Propagation,
    Remove,
    Report,
    SetLocations,
    SetLostBookieDelay,
    SetReadOnly,
    SetStatus,
    UnmarkLeaving,
)
from daybook_operator.plan.pool_decide import decide
from daybook_operator.plan.pool_spec import PoolDefaults, cluster_of, spec_of
from daybook_operator.plan.pool_state import Drain, Recovery, Roll
from daybook_operator.plan.pool_world import (
    OWNER_ANNOTATION,
    RACK_LABEL,
    ClaimSeen,
    ClusterSeen,
    PodSeen,
    PoolWorld,
    StatefulSetSeen,
    Survey,
)
from daybook_operator.plan.quantities import bytes_of

from daybook.core.exits import EXIT_DISK_LOST, EXIT_FORGOTTEN
from daybook.core.placement import BookieInfo
from daybook.metadata.bookies import Location

DEFAULTS = PoolDefaults("registry/bookie:1", "zk:2181")
WRITE_QUORUM = 2
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


@dataclass
class PoolSim:
    """See the module's opening."""

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
    leaving: dict[int, str] = field(default_factory=dict)
    in_need: set[int] = field(default_factory=set)
    clean_audit_began_ms: int | None = None
    audit_began_ms: int | None = None
    audit_saw: frozenset[tuple[str, str]] = frozenset()
    stopped_by_us: set[int] = field(default_factory=set)
    told: list[Report] = field(default_factory=list)
    done: list[Effect] = field(default_factory=list)
    numbers: int = 0

    def __post_init__(self) -> None:
        for number, zone in enumerate(ZONES):
            self.nodes[f"node-{number}"] = {"topology.kubernetes.io/zone": zone}

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    # ------------------------------------------------------------------------------------------------- observing

    def world(self) -> PoolWorld:
        spec = spec_of(self.manifest, DEFAULTS)
        status = self.manifest.get("status", {})
        return PoolWorld(
            manifest=self.manifest,
            spec=spec,
            cluster_ref=cluster_of(self.manifest, DEFAULTS),
            drain=Drain.from_record(status.get("drain")),
            roll=Roll.from_record(status.get("rollout")),
            recovery=Recovery.from_record(status.get("recovery")),
            live=dict(self.objects),
            stateful_set=self._stateful_set_seen(),
            pods={ordinal: self._pod_seen(ordinal, pod) for ordinal, pod in self.pods.items()},
            claims={name: self._claim_seen(name, claim) for name, claim in self.claims.items()},
            nodes={pod.node: self.nodes[pod.node] for pod in self.pods.values() if pod.node},
            expandable={"": self.expandable},
            cluster=self._cluster_seen(spec.replicas) if self.has_zookeeper else None,
            cluster_trouble="" if self.has_zookeeper else "connection refused",
            defaults=DEFAULTS,
        )

    def _stateful_set_seen(self) -> StatefulSetSeen | None:
        found = self.stateful_set
        if found is None:
            return None
        owner = found["spec"]["volumeClaimTemplates"][0]["metadata"]["annotations"][OWNER_ANNOTATION]
        return StatefulSetSeen(
            uid=found["metadata"]["uid"],
            replicas=found["spec"]["replicas"],
            update_revision=self.revision,
            terminating="deletionTimestamp" in found["metadata"],
            owner_uid=owner,
            manifest=found,
        )

    def _pod_seen(self, ordinal: int, pod: Pod) -> PodSeen:
        return PodSeen(
            name=f"bk-{ordinal}",
            ordinal=ordinal,
            uid=pod.uid,
            node=pod.node,
            ready=self.serves(ordinal) or (pod.started and not self.has_zookeeper),
            terminating=pod.terminating,
            revision=pod.revision,
            image=pod.image,
            rack=pod.rack,
            exit_code=pod.exit_code,
        )

    def _claim_seen(self, name: str, claim: Claim) -> ClaimSeen:
        role, _, rest = name.partition("-bk-")
        size, capacity = bytes_of(claim.size), bytes_of(claim.capacity)
        return ClaimSeen(name, int(rest), role, claim.uid, size, capacity, owner_uid=claim.owner)

    def _cluster_seen(self, wanted: int) -> ClusterSeen:
        counts: dict[str, int] = {}
        naming: dict[str, list[int]] = {}
        for ledger, ensemble in sorted(self.ledgers.items()):
            for bookie in ensemble:
                counts[bookie] = counts.get(bookie, 0) + 1
                if int(bookie.rpartition("-")[2]) >= min(wanted, self._drained()):
                    naming.setdefault(bookie, []).append(ledger)
        leaving: dict[str, set[int]] = {}
        for ledger, bookie in self.leaving.items():
            leaving.setdefault(bookie, set()).add(ledger)
        return ClusterSeen(
            bookies=dict(self.bookies),
            cookies=frozenset(self.cookies),
            replacements=frozenset(self.replacements),
            locations=dict(self.locations),
            under_replicated=tuple(sorted(self.in_need)),
            leaving={bookie: frozenset(ledgers) for bookie, ledgers in leaving.items()},
            clean_audit_began_ms=self.clean_audit_began_ms,
            survey=Survey(
                ledgers=len(self.ledgers),
                ledgers_of=counts,
                naming={bookie: tuple(ledgers) for bookie, ledgers in naming.items()},
                ensemble_max=max((len(each) for each in self.ledgers.values()), default=0),
            ),
        )

    def _drained(self) -> int:
        drain = self.manifest.get("status", {}).get("drain")
        return drain["ordinal"] if drain else 1_000

    @property
    def revision(self) -> str:
        assert self.stateful_set is not None
        text = json.dumps(self.stateful_set["spec"]["template"], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def condition(self, type_: str) -> Any:
        return find(self.manifest["status"]["conditions"], type_)

    # ------------------------------------------------------------------------------------------------ reconciling

    def reconcile(self, effects_max: int | None = None) -> Decision:
        """One look; with `effects_max` the operator dies after so many effects."""
        self.now_ms += 1
        decision = decide(self.world(), self.now_ms)
        for effect in decision.effects[:effects_max]:
            self.perform(effect)
            self.done.append(effect)
        return decision

    def perform(self, effect: Effect) -> None:
        match effect:
            case Apply(manifest):
                self._apply(manifest)
            case Remove(ref, propagation):
                self._remove(ref.kind, ref.name, ref.uid, propagation)
            case SetStatus(_, status):
                self.manifest["status"] = json.loads(json.dumps(status))
            case PatchMeta():
                self._patch(effect)
            case Report():
                self.told.append(effect)
            case SetLocations(_, changes):
                self.locations |= {b: place for b, place in changes.items() if place is not None}
                for bookie in [b for b, place in changes.items() if place is None]:
                    self.locations.pop(bookie, None)
            case AuthoriseReplacement(_, bookie):
                assert bookie not in self.bookies, "rule 29: never while it is registered"
                self.replacements.add(bookie)
            case SetReadOnly(_, bookie, read_only):
                if bookie in self.bookies:
                    self.bookies[bookie] = replace(self.bookies[bookie], writable=not read_only)
            case MarkLeaving(_, bookie, ledgers):
                self.leaving |= dict.fromkeys(ledgers, bookie)
            case UnmarkLeaving(_, bookie):
                self.leaving = {k: b for k, b in self.leaving.items() if b != bookie}
            case DeleteCookie(ClusterRef(), bookie):
                assert not any(bookie in each for each in self.ledgers.values()), "a ledger names it"
                assert bookie not in self.bookies or not self.bookies[bookie].writable, "it takes entries"
                self.cookies.discard(bookie)
            case SetLostBookieDelay():
                return
            case _:
                raise AssertionError(effect)

    def _patch(self, effect: PatchMeta) -> None:
        if effect.ref.kind == "Pod":
            assert effect.labels is not None
            pod = self.pods[int(effect.ref.name.removeprefix("bk-"))]
            assert pod.uid == effect.ref.uid
            pod.rack = effect.labels[RACK_LABEL] or ""
            return
        finalizers = self.manifest["metadata"].setdefault("finalizers", [])
        if effect.add_finalizer:
            finalizers.append(effect.add_finalizer)
        if effect.remove_finalizer:
            finalizers.remove(effect.remove_finalizer)

    def _apply(self, manifest: Manifest) -> None:
        copied = json.loads(json.dumps(manifest))
        kind, name = copied["kind"], copied["metadata"]["name"]
        if kind == "PersistentVolumeClaim":
            self.claims[name].size = copied["spec"]["resources"]["requests"]["storage"]
            return
        if kind != "StatefulSet":
            self.objects[kind, name] = copied
            return
        before = self.stateful_set
        if before is not None:
            assert "deletionTimestamp" not in before["metadata"], "applied to what is being deleted"
            templates = "volumeClaimTemplates"
            assert before["spec"][templates] == copied["spec"][templates], "templates are immutable"
            self._check_lowering(before["spec"]["replicas"], copied["spec"]["replicas"])
        uid = before["metadata"]["uid"] if before else f"set-{self.number()}"
        self.stateful_set = {**copied, "metadata": {**copied["metadata"], "uid": uid}}

    def _check_lowering(self, before: int, after: int) -> None:
        """Never lower before the cookie is gone; hibernation needs a clean state."""
        if after == 0 and before > 0:
            assert self.manifest["spec"].get("hibernate"), "nobody asked for it"
            assert self.is_fully_replicated(), "hibernated from an unclean state"
            self.stopped_by_us |= set(range(before))
            return
        for ordinal in range(after, before):
            assert self.bookie(ordinal) not in self.cookies, "lowered before the cookie was gone"
            assert not any(self.bookie(ordinal) in each for each in self.ledgers.values())

    def _remove(self, kind: str, name: str, uid: str, propagation: Propagation) -> None:
        if kind == "StatefulSet":
            assert self.stateful_set is not None
            assert propagation is Propagation.ORPHAN
            assert self.stateful_set["metadata"]["uid"] == uid
            self.stateful_set["metadata"]["deletionTimestamp"] = "now"
        elif kind == "PersistentVolumeClaim":
            ordinal = int(name.rpartition("-")[2])
            assert self.claims[name].uid == uid
            assert self.bookie(ordinal) not in self.cookies
            assert ordinal not in self.pods
            del self.claims[name]
        elif kind == "Pod":
            self._stop_pod(int(name.removeprefix("bk-")), uid)
        else:
            del self.objects[kind, name]

    def _stop_pod(self, ordinal: int, uid: str) -> None:
        pod = self.pods[ordinal]
        assert pod.uid == uid
        if self.serves(ordinal):
            assert self.stateful_set is not None
            wanted = set(range(self.stateful_set["spec"]["replicas"])) - {ordinal}
            others = [o for o in self.stopped_by_us & wanted if not self.serves(o)]
            assert not others, f"bk-{ordinal} is stopped while {others} are down by our hand"
            assert self.is_fully_replicated(), f"bk-{ordinal} is stopped while replicas are missing"
        self.stopped_by_us.add(ordinal)
        pod.terminating = True

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
            self.in_need |= {ledger for ledger, each in self.ledgers.items() if bookie in each}
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
            bookie, zone=place.zone, rack=place.rack, node=place.node, boot_id=f"boot-{self.number()}"
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
                claim.has_data = False

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

    def audit(self) -> None:
        """A full audit from begin to end; it began at the last `begin_audit`, or now."""
        named = {bookie for each in self.ledgers.values() for bookie in each}
        if not self.in_need and named <= self.bookies.keys() and self.has_zookeeper:
            self.clean_audit_began_ms = self.now_ms
            self.audit_saw = frozenset((b, info.boot_id) for b, info in self.bookies.items())

    def settle(self, rounds: int = 40) -> None:
        """Everybody does his part, fairly, until nothing is left to do, for so many rounds at most."""
        quiet = 0
        while quiet < 2 and rounds:
            rounds -= 1
            self.now_ms += 5_000
            effects = self.reconcile().effects
            self.controllers()
            for ordinal in list(self.pods):
                if not self.serves(ordinal):
                    self.kubelet(ordinal)
            for claim in self.claims.values():
                claim.capacity = claim.size
            effects += self.reconcile().effects
            self.work()
            self.now_ms += 5_000
            self.audit()
            quiet = 0 if effects else quiet + 1
