"""A Ledger's status: what ZooKeeper and the last audit know of it, and conditions that name the next step."""

from typing import Any, Final

from daybook.core.ids import BookieId
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState
from daybook.core.placement.among import in_pool
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo
from daybook_operator.plan.conditions import Condition, fine, iso, unknown, wrong
from daybook_operator.plan.ledger.observed import LedgerInCluster, ObservedLedger
from daybook_operator.plan.lost_ledgers import Verdict, deletion_of
from daybook_operator.plan.stored import READY

FULLY_REPLICATED: Final = "FullyReplicated"
RACK_DIVERSE: Final = "RackDiverse"
SEALED: Final = "Sealed"
MESSAGE_ORDER: Final = (READY, FULLY_REPLICATED, SEALED, RACK_DIVERSE)
"""Which condition counts first for the message."""

FRAGMENTS_MAX: Final = 100
_STATES: Final = {
    LedgerState.OPEN: "Open",
    LedgerState.IN_RECOVERY: "InRecovery",
    LedgerState.CLOSED: "Closed",
}


def mirror(observed: ObservedLedger, seen: LedgerInCluster) -> dict[str, Any]:
    """The status of a ledger that is there, without conditions and message."""
    assert seen.metadata is not None
    assert observed.cluster_ref is not None
    metadata = seen.metadata.value
    quorum = metadata.quorum
    missing = frozenset(seen.task.bookies) if seen.task else frozenset()
    status: dict[str, Any] = {
        "ledgerId": metadata.ledger_id,
        "cluster": observed.cluster_ref.cluster,
        "quorum": f"{quorum.ensemble_size}/{quorum.write_quorum}/{quorum.ack_quorum}",
        "state": _STATES[metadata.state],
        "attached": metadata.writer_token is not None,
        "metadataVersion": seen.metadata.version,
        "createdAt": iso(metadata.created_at_ms),
        "fragmentCount": len(metadata.fragments),
        "fragments": [
            {
                "firstEntry": fragment.first_entry,
                "bookies": list(fragment.bookies),
                "racks": [rack_of(seen, bookie) for bookie in fragment.bookies],
                "missing": sorted(missing & set(fragment.bookies)),
            }
            for fragment in metadata.fragments[-FRAGMENTS_MAX:]
        ],
        "rackCount": len({rack_of(seen, bookie) for bookie in metadata.last_fragment.bookies} - {""}),
        "underReplicated": seen.lacks_replicas,
        "recoveryJob": seen.recovery_job or None,
    }
    if metadata.is_closed:
        status |= {"lastEntry": metadata.last_entry, "lengthBytes": metadata.length}
    return status


def rack_of(seen: LedgerInCluster, bookie: BookieId) -> str:
    """`<zone>/<rack>`, the names that are known; "" if none is."""
    info = seen.bookies.get(bookie, BookieInfo(bookie))
    return "/".join(name for name in (info.zone, info.rack) if name)


def conditions_of(observed: ObservedLedger, seen: LedgerInCluster) -> list[Condition]:
    """The conditions of a ledger that is there."""
    assert seen.metadata is not None
    metadata = seen.metadata.value
    return [
        _ready(metadata),
        _fully_replicated(seen),
        _rack_diverse(observed, seen, metadata),
        _sealed(observed, metadata),
    ]


def _ready(metadata: LedgerMetadata) -> Condition:
    if metadata.is_closed:
        return fine(READY, "Closed", f"Ledger {metadata.ledger_id} is closed and can be read.")
    if metadata.state is LedgerState.IN_RECOVERY:
        return fine(
            READY, "InRecovery", f"Ledger {metadata.ledger_id} takes no writes any more and is being closed."
        )
    if metadata.writer_token is not None:
        return fine(READY, "Attached", f"A client is, or was, attached to ledger {metadata.ledger_id}.")
    return fine(READY, "Created", f"A client can attach to ledger {metadata.ledger_id}, once.")


def _fully_replicated(seen: LedgerInCluster) -> Condition:
    if seen.verdict is not None and seen.task is not None:
        return _nowhere(seen.verdict, seen.task.why_not)
    if seen.lacks_replicas and seen.task is not None and not seen.problems:
        job = f"Job {seen.recovery_job} repairs it" if seen.recovery_job else "It waits for a recovery Job"
        why = f"; the last attempt ended with: {seen.task.why_not}" if seen.task.why_not else ""
        return wrong(
            FULLY_REPLICATED,
            "UnderReplicated",
            f"Found: {', '.join(seen.task.reasons)}{why}",
            next_step=f"{job}; no action is needed, unless this lasts (see the pool's FullyReplicated).",
        )
    if seen.problems:
        return _without_repair(seen)
    if not seen.audited:
        return unknown(
            FULLY_REPLICATED,
            "NotAudited",
            "No audit has ended since the operator started",
            next_step="Wait for the next one.",
        )
    return fine(FULLY_REPLICATED, "AllReplicas", "The last audit found nothing missing.")


def _nowhere(verdict: Verdict, why_not: str) -> Condition:
    """The last repair found an entry on no bookie; the verdict says whether it is lost."""
    if verdict.is_lost:
        return wrong(
            FULLY_REPLICATED,
            "Unrecoverable",
            f"{why_not}; the disks of {', '.join(verdict.gone)} are lost",
            next_step=f"What is left can be read; `{deletion_of(verdict.ledger_id)}` deletes the ledger for good.",
        )
    who = f"; {', '.join(verdict.awaited)} may have it and cannot be asked now" if verdict.awaited else ""
    return unknown(
        FULLY_REPLICATED,
        "HoldersAway" if verdict.awaited else "NotFoundYet",
        f"{why_not}{who}",
        next_step="Restore the bookies that are away, with their disks; the repair then continues. Nothing is known to be lost.",
    )


def _without_repair(seen: LedgerInCluster) -> Condition:
    """What the auditor found and no Job can repair now."""
    found = ", ".join(seen.problems)
    if seen.lacks_replicas:
        return wrong(
            FULLY_REPLICATED,
            "UnderReplicated",
            f"The last audit found: {found}, and no bookie can replace the missing one now",
            next_step="Restore the lost bookie, or add bookies (raise the pool's spec.replicas); the grace period of an open "
            "ledger may also not be over yet.",
        )
    return wrong(
        FULLY_REPLICATED,
        "BookieAway",
        f"The last audit found: {found}",
        next_step="Wait: a bookie that restarts still has its entries; after the pool's delay it counts as lost.",
    )


def _rack_diverse(observed: ObservedLedger, seen: LedgerInCluster, metadata: LedgerMetadata) -> Condition:
    policy = in_pool(metadata.pool, make_policy(observed.placement))
    problems = [
        f"from entry {fragment.first_entry}: {problem}"
        for fragment in metadata.fragments
        for problem in policy.problems(metadata.quorum, fragment.bookies, seen.bookies)
    ]
    if not problems:
        return fine(RACK_DIVERSE, "PlacementKept", "Its replicas lie as the pool's placement asks.")
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return wrong(
        RACK_DIVERSE,
        "PlacementNotKept",
        f"{problems[0]}{more}",
        next_step="The auditor has it moved as soon as there is a better location: add bookies on other nodes, racks or zones, "
        "or lower the pool's spec.placement minima.",
    )


def _sealed(observed: ObservedLedger, metadata: LedgerMetadata) -> Condition:
    if metadata.is_closed:
        return fine(SEALED, "Closed", f"Its last entry is {metadata.last_entry}, for good.")
    failure = observed.failure
    if failure is not None and failure.effect == "SealLedger":
        return wrong(
            SEALED,
            "SealFailed",
            failure.message,
            next_step="Nothing is lost, and the operator tries again; check that enough of its bookies run.",
        )
    if observed.spec.seal:
        return wrong(SEALED, "Sealing", "It is being closed", next_step="No action is needed.")
    return fine(SEALED, "NotAskedFor", "Set spec.seal to true to close it for good.", status=False)
