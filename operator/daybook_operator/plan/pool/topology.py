"""Where the bookies stand: from the labels of their nodes into ZooKeeper, before they serve, and onto their pods.

A bookie registers only once the topology names it, so that no ledger is ever placed by a rack that nobody knows. The
label on the pod is for the disruption budgets of racks, which select by it.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from daybook.core.ids import BookieId
from daybook.metadata.bookies import Location
from daybook_operator.plan.decision import Step
from daybook_operator.plan.effects import Effect, PatchMeta, Ref, SetLocations
from daybook_operator.plan.names import RACK_LABEL
from daybook_operator.plan.pool.spec import TopologySpec
from daybook_operator.plan.pool.world import PodSeen, PoolWorld

_LABEL_MAX: Final = 63
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Placing:
    """Where each bookie stands by ordinal, as far as it is known, and what nodes do not say."""

    places: Mapping[int, Location]
    missing: tuple[str, ...]


def location_on(labels: Mapping[str, str], node: str, topology: TopologySpec) -> Location | None:
    """Where a bookie on this node stands; None if the node does not say, and must."""
    zone = labels.get(topology.zone_key, "")
    rack = labels.get(topology.rack_key, "") or zone
    if not rack:
        if topology.rejects_missing:
            return None
        rack = topology.default_rack
    return Location(labels.get(topology.region_key, ""), zone, rack, node)


def rack_path(place: Location) -> str:
    """`zone/rack`, as the status has it: racks count within their zone."""
    return f"{place.zone}/{place.rack}" if place.zone else place.rack


def rack_label(place: Location) -> str:
    """The rack's name as a label: what does not fit gets a digest, so that two racks never share one."""
    name = place.rack if place.rack == place.zone or not place.zone else f"{place.zone}.{place.rack}"
    if len(name) <= _LABEL_MAX and _LABEL.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[: _LABEL_MAX - len(digest) - 1].rstrip("-")
    return f"{plain}-{digest}" if plain else digest


def placing_of(world: PoolWorld) -> Placing:
    """What the nodes say of the pods that are bound; of the others, what ZooKeeper has from before."""
    places: dict[int, Location] = {}
    missing: list[str] = []
    if world.cluster is not None:
        for bookie, place in world.cluster.locations.items():
            if (ordinal := world.ordinal_of(bookie)) is not None:
                places[ordinal] = place
    for ordinal, pod in sorted(world.pods.items()):
        labels = world.nodes.get(pod.node)
        if labels is None:
            continue
        found = location_on(labels, pod.node, world.spec.topology)
        if found is not None:
            places[ordinal] = found
            continue
        missing.append(
            f"node {pod.node} of pod {pod.name} has neither of the labels {world.spec.topology.zone_key} and "
            f"{world.spec.topology.rack_key}"
        )
        if not world.is_registered(ordinal):
            places.pop(ordinal, None)
    return Placing(places, tuple(missing))


def topology_step(world: PoolWorld, placing: Placing) -> Step:
    """Make ZooKeeper and the pods' labels say what the nodes say."""
    effects: list[Effect] = []
    changes: dict[BookieId, Location | None] = {}
    if world.cluster is not None:
        for ordinal, pod in sorted(world.pods.items()):
            if pod.node not in world.nodes or is_kept_from_registering(world, ordinal):
                continue
            bookie, wanted = world.bookie(ordinal), placing.places.get(ordinal)
            if wanted != world.cluster.locations.get(bookie):
                changes[bookie] = wanted
    if changes:
        effects.append(SetLocations(world.cluster_ref, changes))
    for ordinal, pod in sorted(world.pods.items()):
        place = placing.places.get(ordinal)
        if place is not None and not pod.terminating and pod.rack != rack_label(place):
            effects.append(PatchMeta(_pod_ref(world, pod), labels={RACK_LABEL: rack_label(place)}))
    return Step(tuple(effects))


def is_kept_from_registering(world: PoolWorld, ordinal: int) -> bool:
    """Whether the bookie is drained, and no cookie says that it holds anything: then the topology must not name it."""
    if world.drain is None or world.drain.ordinal != ordinal or world.cluster is None:
        return False
    bookie = world.bookie(ordinal)
    return bookie not in world.cluster.bookies and bookie not in world.cluster.cookies


def _pod_ref(world: PoolWorld, pod: PodSeen) -> Ref:
    return Ref("v1", "Pod", world.namespace, pod.name, pod.uid)
