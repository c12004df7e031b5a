"""The bookies of the cluster that belong to other pools, and whether one bookie may go now, as the whole cluster stands.

Ledgers do not stop at a pool's border, and pools of one cluster are looked at on their own. So a pool's plan judges the
bookies of all, and what it decided is judged once more by facts that are read after everybody else's turn has ended: a
pod that was told to stop a moment ago is registered still.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from daybook.core.ids import BookieId, LedgerId
from daybook.core.placement.policy import BookieInfo
from daybook_operator.plan.effects import Evict
from daybook_operator.plan.pool.world import PodSeen, PoolWorld


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """What is true just before a pod goes. `pods` are those of the cluster's bookies, as far as Kubernetes has them."""

    bookies: Mapping[BookieId, BookieInfo]
    pods: Mapping[BookieId, PodSeen]
    in_need: tuple[LedgerId, ...] = ()
    """Ledgers that lack a replica."""


def others_away(world: PoolWorld) -> dict[BookieId, str]:
    """Bookies of other pools that do not serve, or are about to stop, and how that is known; without those that nothing names."""
    seen = world.cluster
    if seen is None:
        return {}
    found: dict[BookieId, str] = {}
    for bookie in sorted(seen.cookies | seen.bookies.keys()):
        if world.ordinal_of(bookie) is not None:
            continue
        if bookie not in seen.bookies:
            if not seen.survey.is_whole or seen.survey.ledgers_of.get(bookie):
                found[bookie] = "is not registered"
        elif (pod := world.other_pods.get(bookie)) is not None and (why := _is_going(pod)):
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


def _is_going(pod: PodSeen) -> str:
    if pod.terminating:
        return "is stopping"
    return "" if pod.ready else "is not ready"
