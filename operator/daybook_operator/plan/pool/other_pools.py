"""The bookies of the cluster that belong to other pools, and whether one bookie may go now, as the whole cluster stands.

Ledgers span the pools of a cluster, and each pool is reconciled on its own. So a pool's plan considers the bookies of all
pools, and its decision is checked once more, just before the eviction, against facts that are read after every other
reconcile's eviction has ended: a pod that was evicted a moment ago is still registered.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from daybook.core.ids import BookieId, LedgerId
from daybook.core.placement.policy import BookieInfo
from daybook_operator.plan.effects import Evict
from daybook_operator.plan.pool.observed import ObservedPod, ObservedPool


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """What is true just before a pod goes. `pods` are those of the cluster's bookies, as far as Kubernetes has them."""

    bookies: Mapping[BookieId, BookieInfo]
    pods: Mapping[BookieId, ObservedPod]
    in_need: tuple[LedgerId, ...] = ()
    """Ledgers that lack a replica."""


def others_away(pool: ObservedPool) -> dict[BookieId, str]:
    """Bookies of other pools that do not serve, or are about to stop, and how that is known; without those that nothing names."""
    cluster = pool.cluster
    if cluster is None:
        return {}
    found: dict[BookieId, str] = {}
    for bookie in sorted(cluster.cookies | cluster.bookies.keys()):
        if pool.ordinal_of(bookie) is not None:
            continue
        if bookie not in cluster.bookies:
            if not cluster.survey.is_whole or cluster.survey.ledgers_of.get(bookie):
                found[bookie] = "is not registered"
        elif (pod := pool.other_pods.get(bookie)) is not None and (why := _is_going(pod)):
            found[bookie] = why
    return found


def why_not_now(effect: Evict, now: ClusterNow) -> str:
    """Why the pod must stay after all; "" if it may go."""
    if effect.is_idle:
        return f"{effect.bookie} is registered by now" if effect.bookie in now.bookies else ""
    for bookie in sorted(effect.boots):
        info = now.bookies.get(bookie)
        if info is None:
            return f"{bookie} is not registered any more"
        if effect.is_strict and info.boot_id != effect.boots[bookie]:
            return f"{bookie} has started anew"
    if effect.is_strict and (new := sorted(now.bookies.keys() - effect.boots.keys())):
        return f"{new[0]} has come"
    for bookie, pod in sorted(now.pods.items()):
        is_asked_for = bookie != effect.bookie and bookie in effect.boots and bookie not in effect.away
        if is_asked_for and (why := _is_going(pod)):
            return f"{bookie} {why}"
    if effect.is_strict and now.in_need:
        return f"ledger {now.in_need[0]} lacks a replica"
    return ""


def _is_going(pod: ObservedPod) -> str:
    if pod.terminating:
        return "is stopping"
    return "" if pod.ready else "is not ready"
