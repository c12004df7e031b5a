"""Taking bookies out of a pool: what would happen, what stands in the way, and how far it is.

The operator drains: it sets the highest ordinals read-only, has their entries copied, forgets them, and only then lowers
the StatefulSet. All that is asked of it here is a number of replicas, as `kubectl scale` would.
"""

from dataclasses import dataclass

from daybook.cli.kubectl.api import Object
from daybook.cli.kubectl.world import World, bookies_of, condition, is_paused, place, rack_of, status_of


@dataclass(frozen=True, slots=True)
class DrainPlan:
    """From `before` to `after` bookies: who leaves, in order; why it cannot be; what to think of first."""

    before: int
    after: int
    leaving: tuple[str, ...]
    refusals: tuple[str, ...]
    warnings: tuple[str, ...]


def plan_drain(world: World, pool: Object, after: int) -> DrainPlan:
    """What lowering the pool to `after` bookies would do."""
    spec = pool["spec"]
    before = spec.get("replicas", 0)
    _, name = place(pool)
    bookies = bookies_of(pool)
    leaving = [bookie for bookie in reversed(bookies) if bookie.get("ordinal", 0) >= after]
    staying = [bookie for bookie in bookies if bookie.get("ordinal", 0) < after]
    refusals: list[str] = []
    if after >= before:
        refusals.append(f"the pool has {before} bookies: give --to a number below that")
    if after < 1:
        refusals.append("a pool keeps at least one bookie: to stop all of them set spec.hibernate")
    if (spec.get("scaleDown") or {}).get("policy") == "Refuse":
        refusals.append("spec.scaleDown.policy is Refuse: set it to Drain first")
    if spec.get("hibernate"):
        refusals.append(
            "the pool hibernates: set spec.hibernate to false first, so that entries can be copied"
        )
    if is_paused(pool):
        refusals.append("the pool is paused: remove the annotation daybook.dev/pause first")
    widest = max((ledger["spec"].get("ensembleSize", 1) for ledger in world.ledgers_of(pool)), default=1)
    if 1 <= after < widest:
        refusals.append(
            f"ledgers of this pool are striped over {widest} bookies: with {after} left the copies have no place"
        )
    return DrainPlan(
        before,
        after,
        tuple(bookie["id"] for bookie in leaving)
        or tuple(f"{name}-{n}" for n in range(before - 1, after - 1, -1)),
        tuple(refusals),
        tuple(_warnings(pool, leaving, staying)),
    )


def _warnings(pool: Object, leaving: list[Object], staying: list[Object]) -> list[str]:
    found: list[str] = []
    racks_before = {rack_of(bookie) for bookie in (*leaving, *staying)}
    racks_after = {rack_of(bookie) for bookie in staying}
    wanted = (pool["spec"].get("placement") or {}).get("minRacksPerWriteQuorum", 1)
    if len(racks_after) < wanted <= len(racks_before):
        found.append(f"{len(racks_after)} racks would be left, and spec.placement asks for {wanted}")
    used = sum(bookie.get("usedBytes", 0) for bookie in leaving)
    free = sum(bookie.get("capacityBytes", 0) - bookie.get("usedBytes", 0) for bookie in staying)
    if used and used > free * 0.9:
        found.append(
            f"{used / 2**30:.1f} GiB are to be copied, and those who stay have {free / 2**30:.1f} GiB free"
        )
    replicated = condition(pool, "FullyReplicated")
    if replicated["status"] != "True":
        found.append(f"not everything is replicated now ({replicated['reason']}): the drain waits for that")
    away = [bookie["id"] for bookie in staying if bookie.get("state") not in ("Writable", "ReadOnly")]
    if away:
        found.append(f"{', '.join(away)} cannot take copies now")
    return found


def drain_line(pool: Object) -> tuple[str, bool]:
    """How far the pool's drain is, and whether it has come to its end."""
    wanted = pool["spec"].get("replicas", 0)
    status = status_of(pool)
    drain = status.get("drain")
    if drain:
        left = drain.get("ledgersRemaining")
        ledgers = "" if left is None else f", {left} ledgers still name it"
        message = f": {drain['message']}" if drain.get("message") else ""
        return f"{drain.get('bookie', '')}: {drain.get('stage', '')}{ledgers}{message}", False
    if status.get("observedGeneration", 0) < pool["metadata"].get("generation", 0):
        return "the operator has not reconciled yet", False
    now = status.get("replicas", 0)
    if now > wanted:
        found = condition(pool, "Draining")
        return found.get("message") or f"{now} bookies, {wanted} wanted", False
    return f"{now} bookies, all that are wanted", True
