"""A pool's world in miniature: Kubernetes' controllers and kubelets, ZooKeeper, ledgers, workers and an auditor, as plain values.

`PoolSim.reconcile` shows it to the plan and carries the effects out, all of them or only the first few, as an operator
does that is killed. Every effect that could cost a replica is checked as it is carried out, against what is true in the
miniature and not against what the plan was told.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from daybook_operator.plan.conditions import find, iso
from daybook_operator.plan.decision import Decision
from daybook_operator.plan.effects import (
    Apply,
    AuthoriseReplacement,
    DeleteCookie,
    Effect,
    Evict,
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
from daybook_operator.plan.names import OWNER_ANNOTATION, RACK_LABEL
from daybook_operator.plan.pool.decide import audit_wanted_since_ms, decide
from daybook_operator.plan.pool.observed import (
    ObservedClaim,
    ObservedCluster,
    ObservedPod,
    ObservedPool,
    ObservedStatefulSet,
    Survey,
)
from daybook_operator.plan.pool.other_pools import ClusterNow, why_not_now
from daybook_operator.plan.pool.spec import PoolDefaults, cluster_of, spec_of
from daybook_operator.plan.pool.state import Drain, Recovery, Roll
from daybook_operator.plan.quantities import bytes_of
from daybook_operator.plan.recovery.jobs import ObservedTask
from daybook_operator.plan.recovery.plan import ObservedRecovery, decide_recovery

from tests.unit.operator.pool_facts import Claim, Pod, PoolFacts, pool_manifest

DEFAULTS = PoolDefaults("registry/bookie:1", "zk:2181")


class PoolSim(PoolFacts):
    """See the module's opening."""

    # ------------------------------------------------------------------------------------------------- observing

    def world(self) -> ObservedPool:
        spec = spec_of(self.manifest, DEFAULTS)
        status = self.manifest.get("status", {})
        return ObservedPool(
            manifest=self.manifest,
            spec=spec,
            cluster_ref=cluster_of(self.manifest, DEFAULTS),
            drain=Drain.from_record(status.get("drain")),
            roll=Roll.from_record(status.get("rollout")),
            recovery=Recovery.from_record(status.get("recovery")),
            live=dict(self.objects),
            stateful_set=self._observed_stateful_set(),
            pods={ordinal: self._observed_pod(ordinal, pod) for ordinal, pod in self.pods.items()},
            claims={name: self._observed_claim(name, claim) for name, claim in self.claims.items()},
            nodes={pod.node: self.nodes[pod.node] for pod in self.pods.values() if pod.node},
            expandable={"": self.expandable},
            cluster=self._observed_cluster(spec.replicas) if self.has_zookeeper else None,
            cluster_error="" if self.has_zookeeper else "connection refused",
            other_pods=dict(self.other_pods),
            defaults=DEFAULTS,
        )

    def _observed_stateful_set(self) -> ObservedStatefulSet | None:
        found = self.stateful_set
        if found is None:
            return None
        owner = found["spec"]["volumeClaimTemplates"][0]["metadata"]["annotations"][OWNER_ANNOTATION]
        return ObservedStatefulSet(
            uid=found["metadata"]["uid"],
            replicas=found["spec"]["replicas"],
            update_revision=self.revision,
            terminating="deletionTimestamp" in found["metadata"],
            owner_uid=owner,
            manifest=found,
        )

    def _observed_pod(self, ordinal: int, pod: Pod) -> ObservedPod:
        return ObservedPod(
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

    def _observed_claim(self, name: str, claim: Claim) -> ObservedClaim:
        role, _, rest = name.partition("-bk-")
        size, capacity = bytes_of(claim.size), bytes_of(claim.capacity)
        return ObservedClaim(name, int(rest), role, claim.uid, size, capacity, owner_uid=claim.owner)

    def _observed_cluster(self, wanted: int) -> ObservedCluster:
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
        return ObservedCluster(
            bookies=dict(self.bookies),
            instance_id="instance-1",
            cookies=frozenset(self.cookies),
            replacements=frozenset(self.replacements),
            in_limbo=frozenset(self.in_limbo),
            locations=dict(self.locations),
            under_replicated=tuple(sorted(self.in_need)),
            leaving={bookie: frozenset(ledgers) for bookie, ledgers in leaving.items()},
            recovery=self._audits(),
            survey=Survey(
                ledgers=len(self.ledgers),
                ledgers_of=counts,
                naming={bookie: tuple(ledgers) for bookie, ledgers in naming.items()},
                ack_quorum_of=dict.fromkeys(counts, self.ack_quorum),
                ensemble_max=max((len(each) for each in self.ledgers.values()), default=0),
                own_ensemble_max=max((len(self.ledgers[each]) for each in self.staying), default=0),
                own_ensemble_max_ledger=min(self.staying, default=-1),
                write_quorum_min=min(map(len, self.ledgers.values()), default=0),
            ),
        )

    def _audits(self) -> dict[str, Any]:
        began_ms = self.clean_audit_began_ms
        return {} if began_ms is None else {"lastFullAudit": {"startedAt": iso(began_ms), "clean": True}}

    def _drained(self) -> int:
        drain = self.manifest.get("status", {}).get("drain")
        return drain["ordinal"] if drain else 1_000

    def condition(self, type_: str) -> Any:
        return find(self.manifest["status"]["conditions"], type_)

    # ------------------------------------------------------------------------------------------------ reconciling

    def reconcile(self, effects_max: int | None = None) -> Decision:
        """One look; with `effects_max` the operator dies after so many effects."""
        self.now_ms += 1
        seen = self.world()
        decision = decide(seen, self.now_ms)
        done: list[Effect] = []
        while left := [each for each in decision.effects if each not in done]:
            if len(done) == effects_max:
                break
            if isinstance(left[0], Evict) and (why_not := self.why_no_eviction(left[0])):
                assert not seen.not_now, "the plan was told"
                seen = replace(seen, not_now=why_not)
                decision = decide(seen, self.now_ms)
                continue
            self.perform(left[0])
            self.done.append(left[0])
            done.append(left[0])
        return decision

    def why_no_eviction(self, effect: Evict) -> str:
        """Why the pod stays: the cluster is not as it was, or the API server refuses, as it does by disruption budgets."""
        pods = {self.bookie(n): self._observed_pod(n, pod) for n, pod in self.pods.items()} | self.other_pods
        if why_not := why_not_now(effect, ClusterNow(self.bookies, pods, tuple(sorted(self.in_need)))):
            return why_not
        pod = self.pods[int(effect.ref.name.removeprefix("bk-"))]
        over = [
            each["spec"]["minAvailable"]
            for (kind, _), each in self.objects.items()
            if kind == "PodDisruptionBudget"
            and each["spec"]["selector"]["matchLabels"].get(RACK_LABEL, pod.rack) == pod.rack
        ]
        if len(over) > 1:
            return "more than one PodDisruptionBudget"
        healthy = sum(map(self.serves, self.pods))
        is_refused = bool(over) and self.serves_now(pod) and healthy - 1 < over[0]
        return "Cannot evict pod as it would violate the pod's disruption budget." if is_refused else ""

    def serves_now(self, pod: Pod) -> bool:
        """Whether the pod is ready."""
        return any(each is pod and self.serves(ordinal) for ordinal, each in self.pods.items())

    def perform(self, effect: Effect) -> None:
        match effect:
            case Apply(manifest):
                self._apply(manifest)
            case Remove(ref, propagation):
                self._remove(ref.kind, ref.name, ref.uid, propagation)
            case Evict(ref):
                self._stop_pod(int(ref.name.removeprefix("bk-")), ref.uid)
            case SetStatus(_, status):
                self.manifest["status"] = json.loads(json.dumps(status))
            case PatchMeta():
                self._patch(effect)
            case Report():
                self.told.append(effect)
            case _:
                self._in_zookeeper(effect)

    def _in_zookeeper(self, effect: Effect) -> None:
        match effect:
            case SetLocations(_, changes):
                known = {**self.locations, **changes}
                self.locations = {b: place for b, place in known.items() if place is not None}
            case AuthoriseReplacement(_, bookie):
                assert bookie not in self.bookies, "rule 29: never while it is registered"
                self.replacements.add(bookie)
            case SetReadOnly(_, bookie, read_only):
                assert read_only or bookie in self.bookies, "nobody is there to be told"
                if bookie in self.bookies:
                    self.bookies[bookie] = replace(self.bookies[bookie], writable=not read_only)
                    self.claims[f"store-bk-{bookie.rpartition('-')[2]}"].read_only = read_only
            case MarkLeaving(_, bookie, ledgers):
                self.leaving |= dict.fromkeys(ledgers, bookie)
            case UnmarkLeaving(_, bookie):
                self.leaving = {k: b for k, b in self.leaving.items() if b != bookie}
            case DeleteCookie(_, bookie):
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

    def work(self) -> None:
        """Workers are the pods of Jobs, and work where the plan of the repair would make one."""
        ref = cluster_of(self.manifest, DEFAULTS)
        plan = decide_recovery(
            self.manifest,
            spec_of(self.manifest, DEFAULTS),
            ObservedRecovery(ref, (ObservedTask(1, 0, 1, ("lost data.bk-0",)),)),
            self.now_ms,
            poll_s=5,
            needless_ms=1_000,
            operator_speaks_tls=False,
        )
        if any(isinstance(each, Apply) and each.manifest["kind"] == "Job" for each in plan.effects):
            super().work()

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
            if audit_wanted_since_ms(self.world(), self.now_ms) is not None:
                self.audit()
            quiet = 0 if effects else quiet + 1


def grown(**spec: Any) -> PoolSim:
    """A pool that has come up, everything replicated."""
    made = PoolSim(pool_manifest(**spec))
    made.settle(16)
    assert made.manifest["status"]["phase"] == "Running"
    return made


def kinds(effects: Iterable[Effect]) -> list[str]:
    """The effects' names."""
    return [type(each).__name__ for each in effects]
