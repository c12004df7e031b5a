"""Whether every entry is on all its bookies, for the gates: no task about a missing replica, and a full audit since.

Readiness says nothing about what a bookie missed while it was away. So the status remembers the list of bookies, with
the boot of each. Whenever the list differs, a bookie left or came back, and only a full audit that began later counts. The
time is the operator's own, at or after the change, rounded up.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Final

from daybook.core.ids import BookieId
from daybook.core.placement.policy import BookieInfo
from daybook_operator.plan.conditions import Condition, fine, from_iso, iso, unknown, wrong
from daybook_operator.plan.lost_ledgers import Verdict, deletion_of
from daybook_operator.plan.pool.observed import ObservedCluster, ObservedPool
from daybook_operator.plan.pool.state import Recovery, digest_of, whole

FULLY_REPLICATED: Final = "FullyReplicated"
_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Replication:
    """The verdict, and what the status is to remember; `is_full` None: not known."""

    is_full: bool | None
    recovery: Recovery
    condition: Condition


def replication_of(pool: ObservedPool, now_ms: int) -> Replication:
    """Judge the whole cluster that the pool belongs to: ledgers do not stop at a pool's border."""
    cluster = pool.cluster
    if cluster is None:
        condition = unknown(
            FULLY_REPLICATED,
            "ZooKeeperUnreachable",
            f"ZooKeeper of {pool.cluster_ref} does not answer: {pool.cluster_error}",
            next_step="Restore ZooKeeper; bookies and open ledgers continue meanwhile.",
        )
        return Replication(None, pool.recovery, condition)
    recovery = remembered(pool, cluster, now_ms)
    condition = _judge(pool, cluster, recovery)
    if condition.status is True:
        boots = {bookie: _boot(info) for bookie, info in cluster.bookies.items()}
        recovery = replace(recovery, audited=boots, replaced=frozenset())
    return Replication(condition.status, recovery, condition)


def unaudited(recovery: Recovery, cluster: ObservedCluster) -> list[BookieId]:
    """Bookies of the cluster that came since everything was last known to be replicated: they may lack entries."""
    return [bookie for bookie, info in cluster.bookies.items() if recovery.audited.get(bookie) != _boot(info)]


def _boot(info: BookieInfo) -> str:
    return hashlib.sha256(info.boot_id.encode()).hexdigest()[:8]


def clean_audit_began_ms(pool: ObservedPool) -> int | None:
    """When the last full audit began, if it was clean, as the status has it.

    An audit counts once the status has it, so that it outlives this operator: the next one would otherwise take
    back what this one allowed. The status has whole seconds, rounded down.
    """
    known = pool.status.get("recovery", {}).get("lastFullAudit", {})
    return from_iso(known["startedAt"]) if known.get("clean") else None


def remembered(pool: ObservedPool, cluster: ObservedCluster, now_ms: int) -> Recovery:
    """What the status remembers, if the same processes are still registered; else the same with a change of the list now.

    The change is never before a known audit: the clock of the operator that began it may be ahead of this one's.
    """
    before = replace(pool.recovery, replaced=pool.recovery.replaced | cluster.replacements)
    digest = digest_of({bookie: info.boot_id for bookie, info in cluster.bookies.items()})
    if digest == before.bookies_digest:
        return before
    changed_ms = max(whole(now_ms), clean_audit_began_ms(pool) or 0)
    return replace(before, bookies_digest=digest, changed_ms=changed_ms)


def _judge(pool: ObservedPool, cluster: ObservedCluster, recovery: Recovery) -> Condition:
    if pool.is_stopped:
        return unknown(
            FULLY_REPLICATED,
            "Hibernated",
            "The bookies are stopped, because spec.hibernate is true",
            next_step="Set spec.hibernate to false to start them.",
        )
    if cluster.verdicts:
        return _nowhere(cluster.verdicts)
    if cluster.under_replicated:
        return wrong(
            FULLY_REPLICATED,
            "UnderReplicated",
            f"{_ledgers(cluster.under_replicated)} lack a replica",
            next_step="Recovery copies what is missing; `kubectl daybook recover watch` shows its progress.",
        )
    if away := away_bookies(pool, cluster):
        return _away(away, _without_place(pool, cluster, away))
    began_ms = clean_audit_began_ms(pool)
    if began_ms is None or began_ms <= recovery.changed_ms:
        found = f"; the last one says: {cluster.last_audit}" if cluster.last_audit else ""
        if cluster.open_gaps:
            text = f"{cluster.open_gaps.in_words}{found}"
            return wrong(FULLY_REPLICATED, "OpenGaps", text, next_step=cluster.open_gaps.next_step)
        return wrong(
            FULLY_REPLICATED,
            "AuditPending",
            f"No full audit that began after {iso(recovery.changed_ms)}, when the list of bookies last changed, has ended clean{found}",
            next_step="No action is needed: the auditor begins one soon.",
        )
    return fine(
        FULLY_REPLICATED,
        "AuditClean",
        "A full audit that began since the list of bookies last changed found nothing missing.",
    )


def _nowhere(verdicts: tuple[Verdict, ...]) -> Condition:
    """The last repair found an entry on no bookie; the verdicts say whether it is lost."""
    if lost := [each for each in verdicts if each.is_lost]:
        gone = sorted({bookie for each in lost for bookie in each.gone})
        ids = tuple(each.ledger_id for each in lost)
        return wrong(
            FULLY_REPLICATED,
            "Unrecoverable",
            f"{_ledgers(ids)} {_have(ids)} an entry that no bookie has any more, since the disks of {_names(gone)} are lost",
            next_step=f"What is left can be read; `{deletion_of(ids[0])}` deletes a ledger for good.",
        )
    ids = tuple(each.ledger_id for each in verdicts)
    awaited = sorted({bookie for each in verdicts for bookie in each.awaited})
    who = f"{_names(awaited)} may have it and cannot be asked now" if awaited else "repair looks for it again"
    return unknown(
        FULLY_REPLICATED,
        "HoldersAway" if awaited else "NotFoundYet",
        f"{_ledgers(ids)} {_have(ids)} an entry that no bookie returned at the last repair; {who}",
        next_step="Restore the bookies that are away, with their disks, and wait: nothing is known to be lost.",
    )


def away_bookies(pool: ObservedPool, cluster: ObservedCluster) -> list[str]:
    """Bookies of the pool that have served and are not registered, by ordinal."""
    known = {ordinal: b for b in cluster.cookies if (ordinal := pool.ordinal_of(b)) is not None}
    return [known[ordinal] for ordinal in sorted(known) if known[ordinal] not in cluster.bookies]


def _without_place(pool: ObservedPool, cluster: ObservedCluster, away: list[str]) -> str:
    """Why no bookie can replace one that is unavailable; "" if one can. Its entries are not copied then."""
    if cluster.blocked and not set(away).isdisjoint(cluster.lost):
        return cluster.blocked[0]
    takers = [bookie for bookie, info in cluster.bookies.items() if info.writable]
    own = [bookie for bookie in takers if pool.ordinal_of(bookie) is not None]
    survey = cluster.survey
    if not any(survey.ledgers_of.get(bookie) for bookie in away):
        return ""
    if len(own) < (need := survey.own_ensemble_max):
        return (
            f"ledger {survey.own_ensemble_max_ledger}, which stays in this pool, has an ensemble of {need}, and only "
            f"{len(own)} of the pool's bookies are writable"
        )
    if len(takers) < (need := survey.ensemble_max):
        return f"ledger {survey.ensemble_max_ledger} has an ensemble of {need}, and only {len(takers)} bookies are writable"
    return ""


def _away(away: list[str], without_place: str) -> Condition:
    said = f"{', '.join(away)} {'is' if len(away) == 1 else 'are'} not registered"
    if without_place:
        message = f"{said}; {without_place}"
        step = "No bookie can replace it: raise spec.replicas or restore it"
    else:
        message, step = said, "Its entries are copied to other bookies once it has been away for the delay"
    return wrong(
        FULLY_REPLICATED, "BookieAway", message, next_step=f"{step}; its pod says why it does not serve."
    )


def _have(ids: tuple[int, ...]) -> str:
    return "has" if len(ids) == 1 else "have"


def _names(bookies: list[str]) -> str:
    more = f" and {len(bookies) - _NAMED_MAX} more" if len(bookies) > _NAMED_MAX else ""
    return f"{', '.join(bookies[:_NAMED_MAX])}{more}"


def _ledgers(ids: tuple[int, ...]) -> str:
    named = ", ".join(map(str, ids[:_NAMED_MAX]))
    more = f" and {len(ids) - _NAMED_MAX} more" if len(ids) > _NAMED_MAX else ""
    return f"{'Ledger' if len(ids) == 1 else 'Ledgers'} {named}{more}"
