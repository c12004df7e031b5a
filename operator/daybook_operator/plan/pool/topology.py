"""The locations of the bookies: from the labels of their nodes to ZooKeeper, before they serve, and to their pods.

A bookie registers only once the topology names it, so that no ledger is ever placed by an unknown rack. The label on the
pod is for the disruption budgets of racks, which select by it.
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
from daybook_operator.plan.pool.observed import ObservedPod, ObservedPool
from daybook_operator.plan.pool.spec import TopologySpec

_LABEL_MAX: Final = 63
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Placing:
    """The location of each bookie by ordinal, as far as it is known, and what the labels of nodes lack."""

    places: Mapping[int, Location]
    missing: tuple[str, ...]


def location_on(labels: Mapping[str, str], node: str, topology: TopologySpec) -> Location | None:
    """The location of a bookie on this node; None if the node has no label and the spec rejects that."""
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


def placing_of(pool: ObservedPool) -> Placing:
    """For pods that are bound, what their nodes' labels say; for the others, what ZooKeeper has from before."""
    places: dict[int, Location] = {}
    missing: list[str] = []
    if pool.cluster is not None:
        for bookie, place in pool.cluster.locations.items():
            if (ordinal := pool.ordinal_of(bookie)) is not None:
                places[ordinal] = place
    for ordinal, pod in sorted(pool.pods.items()):
        labels = pool.nodes.get(pod.node)
        if labels is None:
            continue
        found = location_on(labels, pod.node, pool.spec.topology)
        if found is not None:
            places[ordinal] = found
            continue
        missing.append(
            f"node {pod.node} of pod {pod.name} has neither of the labels {pool.spec.topology.zone_key} and "
            f"{pool.spec.topology.rack_key}"
        )
        if not pool.is_registered(ordinal):
            places.pop(ordinal, None)
    return Placing(places, tuple(missing))


def topology_step(pool: ObservedPool, placing: Placing) -> Step:
    """Bring the topology in ZooKeeper and the pods' labels in line with the nodes' labels."""
    effects: list[Effect] = []
    changes: dict[BookieId, Location | None] = {}
    if pool.cluster is not None:
        for ordinal, pod in sorted(pool.pods.items()):
            if pod.node not in pool.nodes or is_kept_from_registering(pool, ordinal):
                continue
            bookie, wanted = pool.bookie(ordinal), placing.places.get(ordinal)
            if wanted != pool.cluster.locations.get(bookie):
                changes[bookie] = wanted
    if changes:
        effects.append(SetLocations(pool.cluster_ref, changes))
    for ordinal, pod in sorted(pool.pods.items()):
        place = placing.places.get(ordinal)
        if place is not None and not pod.terminating and pod.rack != rack_label(place):
            effects.append(PatchMeta(_pod_ref(pool, pod), labels={RACK_LABEL: rack_label(place)}))
    return Step(tuple(effects))


def is_kept_from_registering(pool: ObservedPool, ordinal: int) -> bool:
    """Whether the bookie is being drained and has no cookie, so that it holds nothing: then the topology must not name it."""
    if pool.drain is None or pool.drain.ordinal != ordinal or pool.cluster is None:
        return False
    bookie = pool.bookie(ordinal)
    return bookie not in pool.cluster.bookies and bookie not in pool.cluster.cookies


def _pod_ref(pool: ObservedPool, pod: ObservedPod) -> Ref:
    return Ref("v1", "Pod", pool.namespace, pod.name, pod.uid)
