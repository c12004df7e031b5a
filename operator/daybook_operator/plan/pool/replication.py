"""Whether every entry is on all its bookies, for the gates: no task about a missing replica, and a full audit since.

Readiness says nothing about what a bookie missed while it was away. So the list of bookies is remembered, with the boot
of each; whenever it differs, somebody left or came back, and only a full audit that began later counts. The time is
the operator's own, at or after the change, and is rounded up.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Final

from daybook.core.ids import BookieId
from daybook.core.placement.policy import BookieInfo
from daybook_operator.plan.conditions import Condition, fine, from_iso, iso, unknown, wrong
from daybook_operator.plan.lost_ledgers import Verdict, deletion_of
from daybook_operator.plan.pool.state import Recovery, digest_of, whole
from daybook_operator.plan.pool.world import ClusterSeen, PoolWorld

FULLY_REPLICATED: Final = "FullyReplicated"
_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Replication:
    """The verdict, and what is to be remembered; `is_full` None: nobody can tell."""

    is_full: bool | None
    recovery: Recovery
    condition: Condition


def replication_of(world: PoolWorld, now_ms: int) -> Replication:
    """Judge the whole cluster that the pool belongs to: ledgers do not stop at a pool's border."""
    seen = world.cluster
    if seen is None:
        condition = unknown(
            FULLY_REPLICATED,
            "ZooKeeperUnreachable",
            f"ZooKeeper of {world.cluster_ref} does not answer: {world.cluster_trouble}",
            next_step="Bring it back; bookies and open ledgers go on meanwhile.",
        )
        return Replication(None, world.recovery, condition)
    recovery = remembered(world, seen, now_ms)
    condition = _judge(world, seen, recovery)
    if condition.status is True:
        boots = {bookie: _boot(info) for bookie, info in seen.bookies.items()}
        recovery = replace(recovery, audited=boots, replaced=frozenset())
    return Replication(condition.status, recovery, condition)


def unaudited(recovery: Recovery, seen: ClusterSeen) -> list[BookieId]:
    """Bookies of the cluster that came since everything was last known to be replicated: who knows what they lack."""
    return [bookie for bookie, info in seen.bookies.items() if recovery.audited.get(bookie) != _boot(info)]


def _boot(info: BookieInfo) -> str:
    return hashlib.sha256(info.boot_id.encode()).hexdigest()[:8]


def clean_audit_began_ms(world: PoolWorld) -> int | None:
    """When the last full audit began, if it was clean, as the status has it.

    An audit counts once it stands there, so that an operator that dies leaves it to the next, which would otherwise
    take back what this one allowed. The status has whole seconds, rounded down.
    """
    known = world.status.get("recovery", {}).get("lastFullAudit", {})
    return from_iso(known["startedAt"]) if known.get("clean") else None


def remembered(world: PoolWorld, seen: ClusterSeen, now_ms: int) -> Recovery:
    """What was, if the same processes are registered still; else that the list changed now.

    Not before any audit that is known: the clock of the operator that began it may be ahead of this one's.
    """
    before = replace(world.recovery, replaced=world.recovery.replaced | seen.replacements)
    digest = digest_of({bookie: info.boot_id for bookie, info in seen.bookies.items()})
    if digest == before.bookies_digest:
        return before
    changed_ms = max(whole(now_ms), clean_audit_began_ms(world) or 0)
    return replace(before, bookies_digest=digest, changed_ms=changed_ms)


def _judge(world: PoolWorld, seen: ClusterSeen, recovery: Recovery) -> Condition:
    if world.is_stopped:
        return unknown(
            FULLY_REPLICATED,
            "Hibernated",
            "The bookies are stopped, as the spec asks",
            next_step="Set spec.hibernate to false to start them.",
        )
    if seen.verdicts:
        return _nowhere(seen.verdicts)
    if seen.under_replicated:
        return wrong(
            FULLY_REPLICATED,
            "UnderReplicated",
            f"{_ledgers(seen.under_replicated)} lack a replica",
            next_step="Recovery copies what is missing; `kubectl daybook recover watch` shows how it goes on.",
        )
    if away := away_bookies(world, seen):
        return _away(away, _without_place(seen, away))
    began_ms = clean_audit_began_ms(world)
    if began_ms is None or began_ms <= recovery.changed_ms:
        found = f"; the last one says: {seen.last_audit}" if seen.last_audit else ""
        return wrong(
            FULLY_REPLICATED,
            "AuditPending",
            f"No full audit that began after {iso(recovery.changed_ms)}, when the list of bookies last changed, has ended clean{found}",
            next_step="Nothing is to do: the auditor begins one by itself.",
        )
    return fine(
        FULLY_REPLICATED,
        "AuditClean",
        "A full audit that began since the list of bookies last changed found nothing missing.",
    )


def _nowhere(verdicts: tuple[Verdict, ...]) -> Condition:
    """An entry was found nowhere; whether it is lost is another question."""
    if lost := [each for each in verdicts if each.is_lost]:
        gone = sorted({bookie for each in lost for bookie in each.gone})
        ids = tuple(each.ledger_id for each in lost)
        return wrong(
            FULLY_REPLICATED,
            "Unrecoverable",
            f"{_ledgers(ids)} {_have(ids)} an entry that nobody has any more, since the disks of {_names(gone)} are gone",
            next_step=f"What is left can be read; `{deletion_of(ids[0])}` gives a ledger up for good.",
        )
    ids = tuple(each.ledger_id for each in verdicts)
    awaited = sorted({bookie for each in verdicts for bookie in each.awaited})
    who = f"{_names(awaited)} may have it and do not tell now" if awaited else "it is looked for again"
    return unknown(
        FULLY_REPLICATED,
        "HoldersAway" if awaited else "NotFoundYet",
        f"{_ledgers(ids)} {_have(ids)} an entry that no bookie gave when it was last looked for; {who}",
        next_step="Bring back who is away with its disk, and wait: nothing is known to be lost.",
    )


def away_bookies(world: PoolWorld, seen: ClusterSeen) -> list[str]:
    """Bookies of the pool that have served and are not registered, by ordinal."""
    known = {ordinal: b for b in seen.cookies if (ordinal := world.ordinal_of(b)) is not None}
    return [known[ordinal] for ordinal in sorted(known) if known[ordinal] not in seen.bookies]


def _without_place(seen: ClusterSeen, away: list[str]) -> str:
    """Why nobody can take the place of a bookie that is away, if that is so: nobody copies it then."""
    if seen.blocked and not set(away).isdisjoint(seen.lost):
        return seen.blocked[0]
    takers = sum(info.writable for info in seen.bookies.values())
    need = seen.survey.ensemble_max
    if takers >= need or not any(seen.survey.ledgers_of.get(bookie) for bookie in away):
        return ""
    ledger = seen.survey.ensemble_max_ledger
    return f"ledger {ledger} has an ensemble of {need}, and only {takers} bookies take entries"


def _away(away: list[str], without_place: str) -> Condition:
    said = f"{', '.join(away)} {'is' if len(away) == 1 else 'are'} not registered"
    if without_place:
        message = f"{said}; {without_place}"
        step = "No bookie can take its place: raise spec.replicas or bring it back"
    else:
        message, step = said, "It is copied elsewhere once it has been away for the delay"
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
