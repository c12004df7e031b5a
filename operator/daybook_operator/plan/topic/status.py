"""A Topic's status: what ZooKeeper and the owners know of its topics, and conditions that name the next step.

Figures change with every ledger, so they are written only when one has changed by a hundredth, and at most every five minutes. What a
person reads long after it was written must still be right: so a subscription that stands still has the time of its oldest message, not an age.
"""

from collections.abc import Mapping
from typing import Any, Final

from daybook.core.topics.ledger_list import ListState
from daybook.core.topics.policy import Policy, merged
from daybook.metadata.creation import CREATION_TOKEN
from daybook_operator.plan.conditions import Condition, fine, from_iso, iso, unknown, wrong
from daybook_operator.plan.names import ADOPT
from daybook_operator.plan.pool.drain import DRAINING
from daybook_operator.plan.pool.state import Drain
from daybook_operator.plan.stored import CONFLICT, READY
from daybook_operator.plan.topic.jobs import JOBS_HEALTHY, last_runs
from daybook_operator.plan.topic.observed import ObservedTopic, TopicNode
from daybook_operator.plan.topic.reports import SubscriptionBacklog, largest_backlogs

UNSUPPORTED: Final = "Unsupported"
BACKLOG_HEALTHY: Final = "BacklogHealthy"
POOL_DRAINING: Final = "PoolDraining"
MESSAGE_ORDER: Final = (READY, CONFLICT, BACKLOG_HEALTHY, JOBS_HEALTHY, POOL_DRAINING, UNSUPPORTED)
_COMPARED: Final = ("ledgerCount", "bytes", "entries")
_FIGURES: Final = (
    *_COMPARED,
    "backlogEntries",
    "subscriptions",
    "firstLedger",
    "openLedger",
    "figuresAt",
)
FIGURES_EVERY_MS: Final = 300_000
FIGURES_CHANGE: Final = 0.01


def mirror(observed: ObservedTopic, now_ms: int) -> dict[str, Any]:
    """The status of a topic that is there, without conditions and message."""
    assert observed.cluster_ref is not None
    nodes = [node for _, node in observed.topics if node is not None]
    quorum = merged(Policy(), nodes[0].policy.value).quorum if nodes else None
    status: dict[str, Any] = {
        "topicName": str(observed.name),
        "topicId": nodes[0].ledger_list.unknown_fields.get(CREATION_TOKEN) if nodes else None,
        "cluster": observed.cluster_ref.cluster,
        "owner": _owner(observed),
        "partitions": (observed.cluster.partitions if observed.cluster else None) or 0,
        "quorum": quorum and f"{quorum.ensemble_size}/{quorum.write_quorum}/{quorum.ack_quorum}",
    }
    return status | _figures(observed, nodes, now_ms) | {"jobs": last_runs(nodes)}


def _figures(observed: ObservedTopic, nodes: list[TopicNode], now_ms: int) -> dict[str, Any]:
    ledgers = [ledger for node in nodes for ledger in node.ledger_list.ledgers]
    found: dict[str, Any] = {
        "ledgerCount": len(ledgers),
        "bytes": sum(ledger.size_bytes for ledger in ledgers),
        "entries": sum(ledger.entries for ledger in ledgers),
    }
    if len(nodes) == 1 and ledgers:
        found["firstLedger"] = ledgers[0].ledger_id
        found["openLedger"] = ledgers[-1].ledger_id if ledgers[-1].is_open else None
    before = {name: observed.status.get(name) for name in _FIGURES}
    found |= _backlog(observed, before)
    written_at = before.get("figuresAt")
    if written_at is not None and (
        now_ms - from_iso(written_at) < FIGURES_EVERY_MS or not _have_changed(before, found, now_ms)
    ):
        return before
    return {**found, "figuresAt": iso(now_ms)}


def _backlog(observed: ObservedTopic, before: Mapping[str, Any]) -> dict[str, Any]:
    """What the owners report; what was known before stays where a broker did not answer."""
    if observed.reports is None or (observed.reports.silent and not observed.at_owners):
        return {name: before[name] for name in ("backlogEntries", "subscriptions")}
    backlogs = largest_backlogs(observed.at_owners)
    return {
        "backlogEntries": sum(each.entries for each in backlogs),
        "subscriptions": [_subscription(each) for each in backlogs],
    }


def _subscription(backlog: SubscriptionBacklog) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": backlog.name, "backlogEntries": backlog.entries}
    if backlog.oldest_published_ms is not None:
        shown["oldestPublishedAt"] = iso(backlog.oldest_published_ms)
    return shown


def _owner(observed: ObservedTopic) -> str | None:
    """The broker that has the topic; None for partitions, which have one each, and where nobody uses it."""
    owners = observed.at_owners
    return owners[0].broker if owners and not observed.spec.partitions else None


def backlog_healthy(observed: ObservedTopic) -> Condition:
    """Whether the backlog quota lets producers publish. It names no figures, which would change the status for ever."""
    refusals = [each.refusal for each in observed.at_owners if each.refusal]
    if refusals:
        return wrong(
            BACKLOG_HEALTHY,
            "QuotaReached",
            f"The backlog quota of {observed.name} is reached, and its action holds producers off",
            next_step="Look at status.subscriptions: have consumers catch up, delete the subscription that nobody uses, "
            "or raise spec.backlogQuota.",
        )
    if observed.reports is None or observed.reports.silent:
        why = "ZooKeeper does not answer" if observed.reports is None else observed.reports.silent
        return unknown(
            BACKLOG_HEALTHY,
            "BrokersSilent",
            f"Not every broker says what it knows of its topics: {why}",
            next_step="Check that brokers run, and operator.brokerToken if they ask for tokens.",
        )
    if not observed.at_owners:
        return fine(
            BACKLOG_HEALTHY, "NotInUse", "No client has used the topic since its broker took it over."
        )
    return fine(BACKLOG_HEALTHY, "WithinQuota")


def pool_draining(observed: ObservedTopic) -> Condition:
    """Whether a bookie leaves the pool that the topic stays in, and what follows. It names no counts: thousands of Topics may say it."""
    said = (observed.pool or {}).get("status") or {}
    drain = Drain.from_record(said.get("drain"))
    if drain is None:
        return fine(POOL_DRAINING, "NotDraining", status=False)
    what = (
        f"{drain.bookie} leaves BookiePool {observed.pool_name}. What it has of {observed.name} is copied to other bookies of "
        "the pool, new entries go to those alone, and clients continue"
    )
    of_pool = [each for each in said.get("conditions", ()) if each["type"] == DRAINING]
    if any(each["reason"] != drain.stage.value for each in of_pool):
        return wrong(
            POOL_DRAINING,
            "DrainHeldUp",
            f"{what}; but the drain is held up",
            next_step=f"The condition Draining of the pool says by what: kubectl describe bookiepool {observed.pool_name}.",
            status=True,
        )
    return fine(POOL_DRAINING, "BookieLeaves", f"{what}.", status=True)


def _have_changed(before: Mapping[str, Any], found: Mapping[str, Any], now_ms: int) -> bool:
    """Whether a figure of the topic has changed, or the set of subscriptions, or what one of them waits for."""
    if any(_has_changed(before.get(name) or 0, found.get(name) or 0) for name in _COMPARED):
        return True
    was, now = (
        {each["name"]: each for each in figures.get("subscriptions") or ()} for figures in (before, found)
    )
    return was.keys() != now.keys() or any(
        _has_changed(was[name]["backlogEntries"], now[name]["backlogEntries"])
        or _has_changed(_oldest_age_s(was[name], now_ms), _oldest_age_s(now[name], now_ms))
        for name in now
    )


def _oldest_age_s(subscription: Mapping[str, Any], now_ms: int) -> int:
    """How old the oldest message is now; 0 without a backlog.

    Brokers report ages in whole seconds, so that the time of one message may vary by one: far less than 1 % of what a subscription that stands
    still has waited between two writes.
    """
    at = subscription.get("oldestPublishedAt")
    return 0 if at is None else (now_ms - from_iso(at)) // 1000


def _has_changed(before: int, now: int) -> bool:
    return abs(now - before) >= max(1, FIGURES_CHANGE * before)


def ready(observed: ObservedTopic) -> Condition:
    """The condition of a topic that is there; of one that is only watched nothing is asked."""
    count = observed.spec.partitions
    what = f"{observed.name} with {count} partitions" if count else str(observed.name)
    if not observed.spec.managed:
        return fine(
            READY, "Observed", f"{what} is there; spec.managed is false, so nothing of it is changed."
        )
    ended = [
        name for name, node in observed.topics if node and node.ledger_list.state is ListState.TERMINATED
    ]
    if ended:
        others = f" ({len(ended)} of {count} partitions are)" if count else ""
        return wrong(
            READY,
            "Terminated",
            f"{ended[0]} is terminated{others}: clients can read it, and it takes no messages",
            next_step="It stays so for good. Create a Topic with another topicName; or set reclaimPolicy to Delete, which deletes "
            "all messages with this resource, delete it, and create it anew.",
        )
    recorded = observed.cluster.partitions if observed.cluster else None
    if recorded is not None and recorded > count:
        return wrong(
            READY,
            "MorePartitions",
            f"{observed.name} has {recorded} partitions, and {count} are asked for",
            next_step=f"Partitions only grow: set spec.partitions to {recorded}. Clients can use the topic.",
        )
    return fine(READY, "Reconciled", f"Clients can use {what}.")


def conflict(why: str = "", next_step: str = "") -> Condition:
    """Whether somebody else has the topic."""
    if not why:
        return fine(CONFLICT, "NoConflict", status=False)
    return wrong(CONFLICT, "ManagedElsewhere", why, next_step=next_step, status=True)


def unsupported(observed: ObservedTopic) -> Condition:
    """The fields that are set and that this release does not carry out."""
    fields = observed.spec.unsupported
    if not fields:
        return fine(UNSUPPORTED, "AllCarriedOut", status=False)
    return wrong(
        UNSUPPORTED,
        "NotCarriedOut",
        f"This release does not carry out {', '.join(fields)}",
        next_step="Remove them, or leave them for a later release; the rest of the spec holds.",
        status=True,
    )


def unmanaged(what: str) -> tuple[str, str]:
    """Why a topic that a client made is left alone, and what to do."""
    return (
        f"{what} exists, and no resource made it",
        f'Set the annotation {ADOPT}: "true" on this Topic to take it over, or spec.managed to false to watch it alone.',
    )
