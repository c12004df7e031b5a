"""Whether replicas really lie in as many racks and zones as the spec asks, judged by ensembles and not by the spec.

A spec that asks for more domains than there are harms nothing that runs: the condition says so, with a remedy.
"""

from collections.abc import Mapping
from typing import Final

from daybook.core.placement.policies import PlacementSettings
from daybook.metadata.bookies import Location
from daybook_operator.plan.conditions import Condition, fine, unknown, wrong
from daybook_operator.plan.pool.observed import REPAIR_LEDGER, ObservedPool
from daybook_operator.plan.pool.topology import Placing, rack_path

RACK_PLACEMENT: Final = "RackPlacementSatisfied"
_TIERS: Final = {
    "random": (),
    "rack": ("rack",),
    "zone": ("zone", "rack"),
    "region": ("region", "zone", "rack"),
}


def placement_condition(pool: ObservedPool, placing: Placing) -> Condition:
    """The condition RackPlacementSatisfied."""
    topology = pool.spec.topology
    if placing.missing:
        return wrong(
            RACK_PLACEMENT,
            "TopologyMissing",
            f"{'; '.join(placing.missing)}: the bookies there do not serve",
            next_step=f"Label the nodes (`kubectl label node NODE {topology.zone_key}=ZONE`), or set topology.onMissing to DefaultRack.",
        )
    if pool.cluster is None:
        return unknown(
            RACK_PLACEMENT,
            "ZooKeeperUnreachable",
            "Where replicas lie is not known while ZooKeeper does not answer",
            next_step="Restore ZooKeeper.",
        )
    places = [placing.places[ordinal] for ordinal in pool.expected if ordinal in placing.places]
    if len(places) < len(pool.expected):
        waiting = [pool.bookie(ordinal) for ordinal in pool.expected if ordinal not in placing.places]
        return unknown(
            RACK_PLACEMENT,
            "NotPlacedYet",
            f"The location of {', '.join(waiting)} is not known yet",
            next_step=f"Their pods must be scheduled{_which_nodes(pool)}; `kubectl describe pod` says what a pod waits for.",
        )
    if (few := too_few(pool.spec.placement.settings, places)) is not None:
        return few
    survey = pool.cluster.survey
    if survey.why_unreadable:
        return unknown(
            RACK_PLACEMENT,
            "LedgersUnreadable",
            f"Where replicas lie is not known: {survey.why_unreadable}",
            next_step=REPAIR_LEDGER,
        )
    if not survey.is_whole:
        return unknown(
            RACK_PLACEMENT,
            "LedgersBeingRead",
            f"The ledgers' metadata is being read, {survey.ledgers} so far",
            next_step="No action is needed.",
        )
    if survey.misplaced_count:
        return wrong(
            RACK_PLACEMENT,
            "Misplaced",
            f"{survey.misplaced_count} ledgers violate the placement policy, for example {'; '.join(survey.misplaced)}",
            next_step="The auditor has them moved where a better location is free; add bookies in other domains if this stays so.",
        )
    if not places:
        return fine(RACK_PLACEMENT, "NoBookies", "No bookie is wanted.")
    racks = len({rack_path(place) for place in places})
    return fine(
        RACK_PLACEMENT,
        "EnsemblesChecked",
        f"All {survey.ledgers} ledgers are spread as asked, over {racks} racks.",
    )


def _which_nodes(pool: ObservedPool) -> str:
    """Which nodes alone take the pods that wait for one, as part of a sentence; "" if any may."""
    topology = pool.spec.topology
    if not topology.requires_zone or all(pod.node for pod in pool.pods.values()):
        return ""
    return f", and only nodes with the label {topology.zone_key} take them while topology.spread is Required"


def too_few(placement: PlacementSettings, places: list[Location]) -> Condition | None:
    """The condition if there are fewer domains than are asked for; a kind that no bookie names asks for nothing."""
    wanted = _minimum(placement)
    for tier in _TIERS[placement.policy]:
        names = domains(places)[tier]
        if names and len(names) < wanted[tier]:
            return wrong(
                RACK_PLACEMENT,
                f"TooFew{tier.capitalize()}s",
                f"placement asks for {wanted[tier]} {tier}s for each write quorum, and the bookies are in {len(names)} "
                f"({', '.join(names)})"
                + (", and placement.enforce keeps new ledgers waiting" if placement.enforce else ""),
                next_step=f"Add nodes and bookies in other {tier}s, or lower placement.min{tier.capitalize()}sPerWriteQuorum; "
                "nothing that runs is harmed.",
            )
    return None


def domains(places: list[Location]) -> Mapping[str, list[str]]:
    """The names of regions, zones and racks that there are."""
    return {
        "region": sorted({place.region for place in places if place.region}),
        "zone": sorted({place.zone for place in places if place.zone}),
        "rack": sorted({rack_path(place) for place in places if place.rack}),
    }


def is_spread(pool: ObservedPool, placing: Placing, condition: Condition) -> bool:
    """Whether no entry of the cluster has all its replicas in one rack of the pool.

    A tier that the policy lacks, or that no bookie names, spreads nothing, whatever its minimum is; nor does a write quorum of 1.
    """
    if condition.status is not True or pool.cluster is None or pool.cluster.survey.write_quorum_min == 1:
        return False
    placement = pool.spec.placement.settings
    wanted = _minimum(placement)
    names = domains([placing.places[ordinal] for ordinal in pool.expected if ordinal in placing.places])
    return any(wanted[tier] > 1 and names[tier] for tier in _TIERS[placement.policy])


def _minimum(placement: PlacementSettings) -> Mapping[str, int]:
    """How many domains of each kind the spec asks for."""
    return {"region": placement.min_regions, "zone": placement.min_zones, "rack": placement.min_racks}
