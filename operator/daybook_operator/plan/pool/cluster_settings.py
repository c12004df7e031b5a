"""Settings of a whole cluster that each of its pools may name: the oldest pool's word holds.

Otherwise two pools that differ would overwrite each other's value at every look, and a bookie's disk would be copied
after the one delay or the other by chance.
"""

from typing import Final

from daybook_operator.plan.conditions import Condition, find, fine, from_iso, wrong
from daybook_operator.plan.effects import Effect, Manifest, SetLostBookieDelay
from daybook_operator.plan.pool.move import AddressSeen, why_not_moved
from daybook_operator.plan.pool.spec import own_spec
from daybook_operator.plan.pool.state import digest_of
from daybook_operator.plan.pool.world import RECOVERY_BLOCKED, PoolWorld

CLUSTER_SETTINGS: Final = "ClusterSettingsAccepted"


def delay_effects(world: PoolWorld) -> list[Effect]:
    """Make the cluster's delay for lost bookies what this pool says, if it is this pool that says it."""
    wanted = world.spec.recovery.lost_bookie_delay_seconds
    if wanted is None or world.cluster is None or _holder(world) is not None:
        return []
    return (
        []
        if world.cluster.lost_bookie_delay_s == wanted
        else [SetLostBookieDelay(world.cluster_ref, float(wanted))]
    )


def cluster_settings_condition(world: PoolWorld, now_ms: int) -> Condition:
    """Whether what this pool says of the whole cluster holds."""
    if world.address is not None and (why_not := _why_not_moved(world, world.address, now_ms)):
        return wrong(
            CLUSTER_SETTINGS,
            "ZooKeeperNotAccepted",
            f"spec.metadata.zookeeper is {world.address.zookeeper}, and the pool stays with {world.cluster_ref.zookeeper}: "
            f"{why_not}",
            next_step="It is looked at again by itself; name servers of the same ensemble, or take the change back.",
        )
    wanted, holder = world.spec.recovery.lost_bookie_delay_seconds, _holder(world)
    if wanted is None or holder is None or _delay_of(holder) == wanted:
        return fine(CLUSTER_SETTINGS, "Accepted")
    meta = holder["metadata"]
    return wrong(
        CLUSTER_SETTINGS,
        "HeldByAnotherPool",
        f"spec.recovery.lostBookieDelaySeconds is {wanted} here and {_delay_of(holder):g} in BookiePool "
        f"{meta['namespace']}/{meta['name']}, which is older: its value holds for cluster {world.cluster_ref.cluster}",
        next_step="Set the same value in both, or leave it out here.",
    )


def moves_to(world: PoolWorld, now_ms: int) -> str:
    """ZooKeeper's new address, if the pool uses it from here on; else ""."""
    if world.address is None or _why_not_moved(world, world.address, now_ms):
        return ""
    return world.address.zookeeper


def _why_not_moved(world: PoolWorld, address: AddressSeen, now_ms: int) -> str:
    boots = {b: info.boot_id for b, info in world.cluster.bookies.items()} if world.cluster else None
    told = find(world.status.get("conditions") or (), RECOVERY_BLOCKED)
    was_silent = boots is None and told is not None and told["status"] == "Unknown"
    return why_not_moved(
        address,
        instance_id=world.instance_id,
        was_reached=bool(world.cluster or world.recovery.bookies_digest),
        boots=boots,
        had_these=digest_of(address.boots) == world.recovery.bookies_digest,
        silent_ms=now_ms - from_iso(told["lastTransitionTime"]) if told is not None and was_silent else 0,
    )


def _holder(world: PoolWorld) -> Manifest | None:
    """The oldest pool of the cluster that names the delay, if it is another one."""
    naming = [pool for pool in (world.manifest, *world.others) if _delay_of(pool) is not None]
    oldest = min(naming, key=_age, default=world.manifest)
    return None if oldest is world.manifest else oldest


def _age(pool: Manifest) -> tuple[str, str, str]:
    meta = pool["metadata"]
    return meta.get("creationTimestamp", ""), meta["namespace"], meta["name"]


def _delay_of(pool: Manifest) -> float | None:
    delay_s = own_spec(pool).recovery.lost_bookie_delay_seconds
    return None if delay_s is None else float(delay_s)
