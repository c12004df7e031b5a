"""What lacks replicas, which Jobs repair it, and what it waits for, from the pool's status and its Jobs."""

from typing import Any

from daybook.cli.kubectl.api import Object
from daybook.cli.kubectl.world import World, bookies_of, condition, place, status_of


def recovery_plan(world: World, pool: Object) -> dict[str, Any]:
    """What is known of the pool's repair, as JSON has it."""
    recovery = status_of(pool).get("recovery") or {}
    spec = pool["spec"].get("recovery") or {}
    replicated = condition(pool, "FullyReplicated")
    return {
        "pool": "/".join(place(pool)),
        "fullyReplicated": replicated["status"],
        "why": replicated.get("message") or replicated["reason"],
        "underReplicated": recovery.get("underReplicated", 0),
        "waitingLedgers": recovery.get("waitingLedgers", 0),
        "unrecoverableLedgers": list(recovery.get("unrecoverableLedgers") or ()),
        "lostBookies": list(recovery.get("lostBookies") or ()),
        "awayBookies": [bookie["id"] for bookie in bookies_of(pool) if bookie.get("state") == "Away"],
        "lastFullAudit": recovery.get("lastFullAudit") or {},
        "paused": bool(spec.get("paused")),
        "parallelism": spec.get("parallelism"),
        "ledgersPerJob": spec.get("ledgersPerJob"),
        "jobs": [job_record(job) for job in world.jobs_of(pool)],
        "ledgers": [
            {
                "name": place(ledger)[1],
                "ledgerId": status_of(ledger).get("ledgerId"),
                "missing": _missing(ledger),
            }
            for ledger in world.ledgers_of(pool)
            if status_of(ledger).get("underReplicated") or _missing(ledger)
        ],
    }


def job_record(job: Object) -> dict[str, Any]:
    """A recovery Job: which ledgers it repairs, how often it failed, since when it runs."""
    status = status_of(job)
    containers = job["spec"]["template"]["spec"]["containers"]
    words = [*(containers[0].get("command") or ()), *(containers[0].get("args") or ())]
    return {
        "name": place(job)[1],
        "ledgers": [int(word) for word in words if str(word).isdecimal()],
        "active": status.get("active", 0),
        "failed": status.get("failed", 0),
        "startedAt": status.get("startTime", ""),
    }


def recovery_line(pool: Object) -> tuple[str, bool]:
    """How far the repair of a pool is, and whether nothing is left to repair."""
    recovery = status_of(pool).get("recovery") or {}
    replicated = condition(pool, "FullyReplicated")
    parts = [
        f"{recovery.get('underReplicated', 0)} under-replicated",
        f"{recovery.get('activeJobs', 0)} Jobs",
    ]
    if recovery.get("unrecoverable"):
        parts.append(f"{recovery['unrecoverable']} unrecoverable")
    message = replicated.get("message") or replicated["reason"]
    done = replicated["status"] == "True"
    return f"FullyReplicated {replicated['status']}: {', '.join(parts)}; {message}", done


def _missing(ledger: Object) -> list[str]:
    fragments = status_of(ledger).get("fragments", ())
    return sorted({bookie for fragment in fragments for bookie in fragment.get("missing") or ()})
