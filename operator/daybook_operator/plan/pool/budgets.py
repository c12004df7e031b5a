"""Disruption budgets, whose integer minAvailable follows what is replicated now.

    what is so                          budgets
    everything is replicated            one: one bookie of the whole pool may go. With one for each rack, two nodes that
                                        are drained at once would take a bookie of each of two racks.
    bookies of one rack are away, and   one for each rack: the rest of that rack may go too (a node or a zone is drained
    all their entries have replicas     whole), and no bookie of another
    in other racks
    replicas are missing, or a bookie   one: no bookie may go
    came back since the last clean
    audit, or it is not known
    a roll with rollout.gate Ready      one, by readiness alone

Bookies of other pools of the cluster count, too. A pod under two budgets cannot be evicted: the call ends with an error.
So there is either the pool's budget or those of racks, and while one replaces the other no bookie goes.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from daybook.core.ids import BookieId
from daybook_operator.plan.decision import Step
from daybook_operator.plan.drift import apply_if_needed, sealed
from daybook_operator.plan.effects import Effect, Remove, ref_of
from daybook_operator.plan.names import RACK_LABEL
from daybook_operator.plan.pods import BOOKIE, metadata_of
from daybook_operator.plan.pool.objects import is_foreign
from daybook_operator.plan.pool.observed import ObservedPool
from daybook_operator.plan.pool.other_pools import others_away
from daybook_operator.plan.pool.pod import selector
from daybook_operator.plan.pool.replication import Replication, unaudited
from daybook_operator.plan.pool.topology import Placing, rack_label

KIND: Final = "PodDisruptionBudget"
WHOLE_POOL: Final = ""
"""In the place of a rack's label: the budget is over all bookies."""
_NAME_MAX: Final = 63


def budgets(
    pool: ObservedPool, placing: Placing, replication: Replication, *, is_spread: bool
) -> dict[str, int]:
    """minAvailable for each rack, by its label, or for the whole pool. `is_spread`: no entry has all its replicas in one rack."""
    if not pool.expected or not pool.pods:
        return {}
    bookies = {
        *pool.expected,
        *pool.pods,
    }  # the pod of a bookie that is forgotten is under the budget as well
    racks: dict[str, set[int]] = {}
    for ordinal in bookies & placing.places.keys():
        racks.setdefault(rack_label(placing.places[ordinal]), set()).add(ordinal)
    down = {
        rack for rack, ordinals in racks.items() if not all(map(pool.serves, ordinals & {*pool.expected}))
    }
    cluster = pool.cluster
    placed = sum(map(len, racks.values()))  # a bookie without a location has never served
    rollout = pool.spec.rollout
    if pool.roll is not None and cluster is not None and not rollout.waits_for_replication:
        return {WHOLE_POOL: max(0, placed - rollout.max_unavailable)}  # as the spec asks of rolls
    elsewhere = {_rack_of(pool, bookie) for bookie in others_away(pool)}
    if replication.is_full and racks and not down and not elsewhere:
        return {WHOLE_POOL: placed - 1}
    closed = cluster is None or cluster.under_replicated or unaudited(replication.recovery, cluster)
    if len(down | elsewhere) == 1 and "" not in elsewhere and not closed:
        (rack,) = down | elsewhere
        may_lose = len(racks.get(rack, ())) if is_spread else int(not elsewhere)
        return {each: len(racks[each]) - (may_lose if each == rack else 0) for each in sorted(racks)}
    return {WHOLE_POOL: len(bookies)}


def _rack_of(pool: ObservedPool, bookie: BookieId) -> str:
    place = pool.cluster.locations.get(bookie) if pool.cluster is not None else None
    return rack_label(place) if place is not None else ""


def budgets_step(pool: ObservedPool, placing: Placing, replication: Replication, *, is_spread: bool) -> Step:
    """Bring the budgets in line with what is replicated now.

    Budgets that are wanted no longer are removed last, and only if all others can be there, so that no bookie is ever without.
    """
    wanted = budgets(pool, placing, replication, is_spread=is_spread) if pool.spec.enable_pdb else {}
    manifests = {
        name: _manifest(pool, rack, name, least)
        for rack, least in wanted.items()
        if (name := budget_name(pool.name, rack))
    }
    effects: list[Effect] = []
    can_replace = True
    for name, manifest in manifests.items():
        live = pool.live.get((KIND, name))
        if is_foreign(pool, live) or (KIND, name) in pool.refused:
            can_replace = False
        else:
            effects += apply_if_needed(manifest, live)
    for (kind, name), live in sorted(pool.live.items()):
        if kind == KIND and name not in manifests and can_replace and not is_foreign(pool, live):
            effects.append(Remove(ref_of(live)))
    return Step(tuple(effects))


def budget_name(pool: str, rack: str) -> str:
    """`<pool>-<rack>` where that is a name; else with a digest of the label, so that two racks never share one.

    The whole pool's has a dot, which neither pools nor racks' budgets have in their names.
    """
    if rack == WHOLE_POOL:
        return f"{pool}.bookies"
    name = f"{pool}-{rack}"
    if len(name) <= _NAME_MAX and re.fullmatch(r"[a-z0-9-]*[a-z0-9]", name):
        return name
    digest = hashlib.sha256(rack.encode()).hexdigest()[:8]
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower())[: _NAME_MAX - len(digest) - 1].strip("-")
    return f"{plain}-{digest}"


def _manifest(pool: ObservedPool, rack: str, name: str, least: int) -> Mapping[str, Any]:
    of_rack = {} if rack == WHOLE_POOL else {RACK_LABEL: rack}
    return sealed(
        {
            "apiVersion": "policy/v1",
            "kind": KIND,
            "metadata": metadata_of(pool.manifest, BOOKIE, name, of_rack),
            "spec": {
                "minAvailable": least,
                "selector": {"matchLabels": {**selector(pool), **of_rack}},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",  # a bookie that does not serve protects nothing
            },
        }
    )
