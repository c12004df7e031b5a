"""Disruption budgets, whose integer minAvailable follows what is replicated now.

All is well: one bookie of the whole pool may go, or two nodes that are drained at once would take one of each rack. One
is away, and everything has its other replicas in other racks: the rest of its rack may go too (a node or a zone is
drained whole), and nobody of another; only then each rack has a budget of its own. Replicas are missing, somebody is
back whom no audit has seen, or nobody can tell: nobody may go. Bookies of other pools of the cluster count, too. A roll
that is to ask for readiness alone gets a budget that does.

A pod under two budgets cannot be evicted: the call ends with an error. So there is the pool's budget or those of racks,
and while one replaces the other nobody goes.
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
from daybook_operator.plan.pool.others import others_away
from daybook_operator.plan.pool.pod import selector
from daybook_operator.plan.pool.replication import Replication, unaudited
from daybook_operator.plan.pool.topology import Placing, rack_label
from daybook_operator.plan.pool.world import PoolWorld

KIND: Final = "PodDisruptionBudget"
WHOLE_POOL: Final = ""
"""In the place of a rack's label: the budget is over all bookies."""
_NAME_MAX: Final = 63


def budgets(
    world: PoolWorld, placing: Placing, replication: Replication, *, is_spread: bool
) -> dict[str, int]:
    """minAvailable for each rack, by its label, or for the whole pool. `is_spread`: no entry has all its replicas in one rack."""
    if not world.expected or not world.pods:
        return {}
    bookies = {*world.expected, *world.pods}  # the pod of one that is forgotten is under the budget as well
    racks: dict[str, set[int]] = {}
    for ordinal in bookies & placing.places.keys():
        racks.setdefault(rack_label(placing.places[ordinal]), set()).add(ordinal)
    down = {
        rack for rack, ordinals in racks.items() if not all(map(world.serves, ordinals & {*world.expected}))
    }
    seen = world.cluster
    placed = sum(map(len, racks.values()))  # who has no place yet has never served
    rollout = world.spec.rollout
    if world.roll is not None and seen is not None and not rollout.waits_for_replication:
        return {WHOLE_POOL: max(0, placed - rollout.max_unavailable)}  # as the spec asks of rolls
    elsewhere = {_rack_of(world, bookie) for bookie in others_away(world)}
    if replication.is_full and racks and not down and not elsewhere:
        return {WHOLE_POOL: placed - 1}
    closed = seen is None or seen.under_replicated or unaudited(replication.recovery, seen)
    if len(down | elsewhere) == 1 and "" not in elsewhere and not closed:
        (rack,) = down | elsewhere
        may_lose = len(racks.get(rack, ())) if is_spread else int(not elsewhere)
        return {each: len(racks[each]) - (may_lose if each == rack else 0) for each in sorted(racks)}
    return {WHOLE_POOL: len(bookies)}


def _rack_of(world: PoolWorld, bookie: BookieId) -> str:
    place = world.cluster.locations.get(bookie) if world.cluster is not None else None
    return rack_label(place) if place is not None else ""


def budgets_step(world: PoolWorld, placing: Placing, replication: Replication, *, is_spread: bool) -> Step:
    """Bring the budgets to what holds now.

    Those that are wanted no longer go last, and only if all others can be there, so that no bookie is ever under none.
    """
    wanted = budgets(world, placing, replication, is_spread=is_spread) if world.spec.enable_pdb else {}
    manifests = {
        name: _manifest(world, rack, name, least)
        for rack, least in wanted.items()
        if (name := budget_name(world.name, rack))
    }
    effects: list[Effect] = []
    can_replace = True
    for name, manifest in manifests.items():
        live = world.live.get((KIND, name))
        if is_foreign(world, live) or (KIND, name) in world.refused:
            can_replace = False
        else:
            effects += apply_if_needed(manifest, live)
    for (kind, name), live in sorted(world.live.items()):
        if kind == KIND and name not in manifests and can_replace and not is_foreign(world, live):
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


def _manifest(world: PoolWorld, rack: str, name: str, least: int) -> Mapping[str, Any]:
    of_rack = {} if rack == WHOLE_POOL else {RACK_LABEL: rack}
    return sealed(
        {
            "apiVersion": "policy/v1",
            "kind": KIND,
            "metadata": metadata_of(world.manifest, BOOKIE, name, of_rack),
            "spec": {
                "minAvailable": least,
                "selector": {"matchLabels": {**selector(world), **of_rack}},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",  # who does not serve protects nothing
            },
        }
    )
