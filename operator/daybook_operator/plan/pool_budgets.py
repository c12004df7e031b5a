"""Disruption budgets, one for each rack, whose integer minAvailable follows what is replicated now.

All is well: one bookie of a rack may go. One is away, and everything has its other replicas in other racks: the rest of
its rack may go too (a node or a zone is drained whole), and nobody of another. Replicas are missing, or nobody can tell:
nobody may go. The selectors are by the rack's label on the pods, so no pod is under two budgets, which would make
evictions fail with an error.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from daybook_operator.plan.decision import Step
from daybook_operator.plan.effects import Effect, Remove, ref_of
from daybook_operator.plan.pool_objects import apply_if_needed, is_foreign, metadata, sealed
from daybook_operator.plan.pool_pod import selector
from daybook_operator.plan.pool_topology import Placing, rack_label
from daybook_operator.plan.pool_world import RACK_LABEL, PoolWorld

KIND: Final = "PodDisruptionBudget"
_NAME_MAX: Final = 63


def budgets(world: PoolWorld, placing: Placing, *, is_full: bool | None, is_spread: bool) -> dict[str, int]:
    """minAvailable for each rack, by its label. `is_spread`: no entry has all its replicas in one rack."""
    racks: dict[str, list[int]] = {}
    for ordinal in world.expected:
        if (place := placing.places.get(ordinal)) is not None:
            racks.setdefault(rack_label(place), []).append(ordinal)
    down = {rack for rack, ordinals in racks.items() if not all(map(world.serves, ordinals))}
    may_lose = dict.fromkeys(racks, 0)
    if is_full and not down:
        may_lose = dict.fromkeys(racks, 1)
    elif len(down) == 1 and world.cluster is not None and not world.cluster.under_replicated:
        (rack,) = down
        may_lose[rack] = len(racks[rack]) if is_spread else 1
    return {rack: max(0, len(racks[rack]) - may_lose[rack]) for rack in sorted(racks)}


def budgets_step(world: PoolWorld, placing: Placing, *, is_full: bool | None, is_spread: bool) -> Step:
    """Bring the budgets to what holds now; those of racks without bookies go."""
    wanted = budgets(world, placing, is_full=is_full, is_spread=is_spread) if world.spec.keeps_budgets else {}
    manifests = {
        name: _manifest(world, rack, name, least)
        for rack, least in wanted.items()
        if (name := budget_name(world.name, rack))
    }
    effects: list[Effect] = []
    for name, manifest in manifests.items():
        live = world.live.get((KIND, name))
        if not is_foreign(world, live):
            effects += apply_if_needed(manifest, live)
    for (kind, name), live in sorted(world.live.items()):
        if kind == KIND and name not in manifests and not is_foreign(world, live):
            effects.append(Remove(ref_of(live)))
    return Step(tuple(effects))


def budget_name(pool: str, rack: str) -> str:
    """`<pool>-<rack>` where that is a name; else with a digest of the label, so that two racks never share one."""
    name = f"{pool}-{rack}"
    if len(name) <= _NAME_MAX and re.fullmatch(r"[a-z0-9-]*[a-z0-9]", name):
        return name
    digest = hashlib.sha256(rack.encode()).hexdigest()[:8]
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower())[: _NAME_MAX - len(digest) - 1].strip("-")
    return f"{plain}-{digest}"


def _manifest(world: PoolWorld, rack: str, name: str, least: int) -> Mapping[str, Any]:
    return sealed(
        {
            "apiVersion": "policy/v1",
            "kind": KIND,
            "metadata": metadata(world, name, {RACK_LABEL: rack}),
            "spec": {
                "minAvailable": least,
                "selector": {"matchLabels": {**selector(world), RACK_LABEL: rack}},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",  # who does not serve protects nothing
            },
        }
    )
