"""A pool whose ZooKeeper gets another address: another name or port, or more servers.

The address that the status has is the one that is used; the spec's takes its place only once the very cluster of the
pool answers there, since bookies that were sent to another one would find their ledgers deleted. The same instance id is
not enough while the present address answers too: a copy of an ensemble has it as well, and two ensembles that both live
would each let other ledgers change. So both have to list the same bookies, by the boots of their processes, which are
ephemeral and in no copy. An address that does not answer at one look is not gone: until it has been silent for long, the
bookies that were last seen there must be the ones that are registered at the new one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from daybook.core.ids import BookieId
from daybook_operator.plan.effects import ClusterRef, Manifest

FORMER_MAX: Final = 8
SILENT_MS: Final = 600_000
"""So long an address has to be silent before it counts as gone: no election and no restart of an ensemble takes it."""


@dataclass(frozen=True, slots=True)
class AddressSeen:
    """What answers at the address that the spec names and the pool does not use yet.

    `boots` are the boot ids of the bookies that are registered there; `trouble` is why nothing is known.
    """

    zookeeper: str
    instance_id: str = ""
    boots: Mapping[BookieId, str] = field(default_factory=dict)
    trouble: str = ""


def address_to_look_at(manifest: Manifest, used: ClusterRef) -> str:
    """The address that the spec names, if it is another than the one that is used; else ""."""
    wanted = (manifest["spec"].get("metadata") or {}).get("zookeeper") or ""
    return "" if wanted == used.zookeeper else str(wanted)


def why_not_moved(
    seen: AddressSeen,
    *,
    instance_id: str,
    was_reached: bool,
    boots: Mapping[BookieId, str] | None,
    had_these: bool,
    silent_ms: int,
) -> str:
    """Why the address is not used; "" if it is from here on.

    `instance_id` is the pool's cluster's, "" if it was never noted; `was_reached`: whether its ZooKeeper ever answered;
    `boots` are those of the bookies that are registered where the pool is now, None if nobody answers there, and has not
    for `silent_ms`; `had_these`: the bookies at the new address are those that were last seen at the present one.
    """
    if not instance_id and not was_reached:
        return ""  # no bookie ever belonged to anything: the address was wrong from the beginning
    if not instance_id:
        return "which cluster this pool belongs to was not noted yet, and its present address does not answer"
    if seen.trouble:
        return seen.trouble
    if seen.instance_id != instance_id:
        return f"another cluster answers there: its instance is {seen.instance_id}, this pool's {instance_id}"
    if boots is None and not had_these and silent_ms < SILENT_MS:
        return (
            "its present address does not answer just now, so a copy cannot be told apart: the change waits until it answers, or "
            f"has been silent for {SILENT_MS // 60_000} minutes"
        )
    if boots is not None and not boots and not seen.boots:
        return (
            "no bookie is registered at either address, so a copy cannot be told apart: start a bookie first"
        )
    if boots is not None and dict(boots) != dict(seen.boots):
        return (
            "other bookies are registered there than at the present address: it is another ensemble, a copy for instance, "
            "unless a bookie came or went just now"
        )
    return ""


def metadata_record(
    used: ClusterRef, moves_to: str, instance_id: str, before: Mapping[str, Any]
) -> dict[str, Any]:
    """`status.metadata`: the address that is used from here on, and those that were, the last one first."""
    former = [each for each in before.get("formerZookeepers", ()) if each != (moves_to or used.zookeeper)]
    if moves_to:
        former = [used.zookeeper, *(each for each in former if each != used.zookeeper)]
    return {
        "zookeeper": moves_to or used.zookeeper or None,
        "cluster": used.cluster,
        "instanceId": instance_id or None,
        "formerZookeepers": former[:FORMER_MAX] or None,
    }


def is_where_it_was(pool: Manifest, noted: ClusterRef, now: ClusterRef) -> bool:
    """Whether `noted` is where the pool's cluster answered before it answered at `now`."""
    known = (pool.get("status") or {}).get("metadata") or {}
    return noted.cluster == now.cluster and noted.zookeeper in known.get("formerZookeepers", ())
