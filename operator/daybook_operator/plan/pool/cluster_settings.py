"""What a pool's spec says of its whole cluster: the address of ZooKeeper, and the delay for lost bookies.

Another address, a new name or port or more servers, takes the place of the one in the status only once the very cluster
of the pool answers there: bookies that were sent to another one would find their ledgers deleted. The same instance id
is not enough while the present address answers too, because a copy of an ensemble has it as well, and each of two live
ensembles would let other ledgers change. So both must list the same bookies, by the boots of their processes, which are
ephemeral and in no copy. An address that does not answer once is not gone: until it has been silent for long, the bookies
that were last observed there must be the ones that are registered at the new one.

The delay is one setting of the cluster. The oldest pool that names it decides; otherwise two pools that differ would
overwrite each other's value at every reconcile.
"""

from collections.abc import Mapping
from typing import Any, Final

from daybook.core.ids import BookieId
from daybook_operator.plan.conditions import Condition, find, fine, from_iso, wrong
from daybook_operator.plan.effects import ClusterRef, Effect, Manifest, SetLostBookieDelay
from daybook_operator.plan.pool.observed import RECOVERY_BLOCKED, ObservedAddress, ObservedPool
from daybook_operator.plan.pool.spec import own_spec
from daybook_operator.plan.pool.state import digest_of

FORMER_MAX: Final = 8
SILENT_MS: Final = 600_000
"""So long an address must not answer before it counts as gone: no election and no restart of an ensemble takes it."""
CLUSTER_SETTINGS: Final = "ClusterSettingsAccepted"


def delay_effects(pool: ObservedPool) -> list[Effect]:
    """Set the cluster's delay for lost bookies, if this pool decides on it."""
    wanted = pool.spec.recovery.lost_bookie_delay_seconds
    if wanted is None or pool.cluster is None or _holder(pool) is not None:
        return []
    return (
        []
        if pool.cluster.lost_bookie_delay_s == wanted
        else [SetLostBookieDelay(pool.cluster_ref, float(wanted))]
    )


def cluster_settings_condition(pool: ObservedPool, now_ms: int) -> Condition:
    """The condition ClusterSettingsAccepted: whether the cluster is as this pool's spec says."""
    if pool.address is not None and (why_not := _why_not_moved(pool, pool.address, now_ms)):
        return wrong(
            CLUSTER_SETTINGS,
            "ZooKeeperNotAccepted",
            f"spec.metadata.zookeeper is {pool.address.zookeeper}, and the pool keeps using {pool.cluster_ref.zookeeper}: "
            f"{why_not}",
            next_step="The operator checks again; name servers of the same ensemble, or revert the change.",
        )
    wanted, holder = pool.spec.recovery.lost_bookie_delay_seconds, _holder(pool)
    if wanted is None or holder is None or _delay_of(holder) == wanted:
        return fine(CLUSTER_SETTINGS, "Accepted")
    meta = holder["metadata"]
    return wrong(
        CLUSTER_SETTINGS,
        "HeldByAnotherPool",
        f"spec.recovery.lostBookieDelaySeconds is {wanted} here and {_delay_of(holder):g} in BookiePool "
        f"{meta['namespace']}/{meta['name']}, which is older: its value applies to cluster {pool.cluster_ref.cluster}",
        next_step="Set the same value in both, or remove it here.",
    )


def moves_to(pool: ObservedPool, now_ms: int) -> str:
    """ZooKeeper's new address, if the pool uses it from here on; else ""."""
    if pool.address is None or _why_not_moved(pool, pool.address, now_ms):
        return ""
    return pool.address.zookeeper


def _why_not_moved(pool: ObservedPool, address: ObservedAddress, now_ms: int) -> str:
    boots = {b: info.boot_id for b, info in pool.cluster.bookies.items()} if pool.cluster else None
    recovery = find(pool.status.get("conditions") or (), RECOVERY_BLOCKED)
    was_silent = boots is None and recovery is not None and recovery["status"] == "Unknown"
    return why_not_moved(
        address,
        instance_id=pool.instance_id,
        was_reached=bool(pool.cluster or pool.recovery.bookies_digest),
        boots=boots,
        had_these=digest_of(address.boots) == pool.recovery.bookies_digest,
        silent_ms=now_ms - from_iso(recovery["lastTransitionTime"])
        if recovery is not None and was_silent
        else 0,
    )


def _holder(pool: ObservedPool) -> Manifest | None:
    """The oldest pool of the cluster that names the delay, if that is another pool."""
    naming = [each for each in (pool.manifest, *pool.others) if _delay_of(each) is not None]
    oldest = min(naming, key=_age, default=pool.manifest)
    return None if oldest is pool.manifest else oldest


def _age(manifest: Manifest) -> tuple[str, str, str]:
    meta = manifest["metadata"]
    return meta.get("creationTimestamp", ""), meta["namespace"], meta["name"]


def _delay_of(manifest: Manifest) -> float | None:
    delay_s = own_spec(manifest).recovery.lost_bookie_delay_seconds
    return None if delay_s is None else float(delay_s)


# ZooKeeper's address.


def other_address(manifest: Manifest, used: ClusterRef) -> str:
    """The address that the spec names, if it is another than the one that is used; else ""."""
    wanted = (manifest["spec"].get("metadata") or {}).get("zookeeper") or ""
    return "" if wanted == used.zookeeper else str(wanted)


def why_not_moved(
    address: ObservedAddress,
    *,
    instance_id: str,
    was_reached: bool,
    boots: Mapping[BookieId, str] | None,
    had_these: bool,
    silent_ms: int,
) -> str:
    """Why the address is not used; "" if it is from here on.

    `instance_id` is that of the pool's cluster, "" if it is not known; `was_reached`: whether its ZooKeeper ever answered;
    `boots` are those of the bookies that are registered at the present address, None if it does not answer, and has not
    for `silent_ms`; `had_these`: the bookies at the new address are those last observed at the present one.
    """
    if not instance_id and not was_reached:
        return ""  # no bookie ever registered: the address was wrong from the beginning
    if not instance_id:
        return (
            "the instance id of this pool's cluster is not known yet, and its present address does not answer"
        )
    if address.error:
        return address.error
    if address.instance_id != instance_id:
        return (
            f"another cluster answers there: its instance is {address.instance_id}, this pool's {instance_id}"
        )
    if boots is None and not had_these and silent_ms < SILENT_MS:
        return (
            "its present address does not answer now, so a copy cannot be distinguished: the change waits until it answers, or "
            f"has not answered for {SILENT_MS // 60_000} minutes"
        )
    if boots is not None and not boots and not address.boots:
        return "no bookie is registered at either address, so a copy cannot be distinguished: start a bookie first"
    if boots is not None and dict(boots) != dict(address.boots):
        return (
            "other bookies are registered there than at the present address: it is another ensemble, for example a copy, "
            "unless a bookie just came or left"
        )
    return ""


def metadata_record(
    used: ClusterRef, moves_to: str, instance_id: str, before: Mapping[str, Any]
) -> dict[str, Any]:
    """`status.metadata`: the address that is used from here on, and the former ones, the latest first."""
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
