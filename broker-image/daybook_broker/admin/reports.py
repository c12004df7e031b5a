"""What this broker knows of itself and of its topics, as records. Nothing here waits, and nothing asks ZooKeeper or a bookie."""

from collections.abc import Sequence

import daybook
from daybook.client.ledger import Ledger
from daybook.client.topic_reports import (
    BrokerReport,
    OpenLedgerReport,
    QuotaReport,
    Serving,
    SubscriptionReport,
    TopicReport,
)
from daybook.core.topics.dispatch.shared import SharedDispatch
from daybook.core.topics.name import TopicName
from daybook.runtime.clock import unix_ms
from daybook_broker.broker import Broker
from daybook_broker.topics.registry import TopicRegistry
from daybook_broker.topics.subscription import Subscription
from daybook_broker.topics.topic import Topic
from daybook_broker.topics.upkeep import backlog_bytes

_SECOND_MS = 1000


def broker_report(broker: Broker) -> BrokerReport:
    """The broker."""
    ownership = broker.ownership
    info = ownership.info
    return BrokerReport(
        broker=info.broker,
        boot_id=info.boot_id,
        session_id=hex(ownership.session_id),
        is_certain=ownership.is_certain,
        leader=ownership.view.leader,
        version=daybook.__version__,
        started_at_ms=info.started_at_ms,
        now_ms=unix_ms(),
        bundles=len(ownership.bundles),
        topics=len(broker.registry.names()),
    )


def topic_report(
    name: TopicName,
    registry: TopicRegistry,
    shown: Sequence[Subscription],
    *,
    following: str | None = None,
) -> TopicReport:
    """A topic that the broker has in memory, or is about to; with these of its subscriptions, which `following` follows."""
    topic = registry.known(name)
    if topic is None:
        return TopicReport(topic=str(name), serving=Serving.TAKING_OVER)
    subscriptions, ledger_list, error = topic.subscriptions.all(), topic.ledger_list, topic.error
    publishing, waits = topic.producers.publishing(), topic.publish_refusal
    is_served = registry.get(name) is topic
    durability, degrade = topic.durability
    return TopicReport(
        topic=str(name),
        serving=Serving.SERVED
        if is_served
        else Serving.UNLOADING
        if topic.is_closing
        else Serving.TAKING_OVER,
        error=None if error is None else str(error),
        taken_over_at_ms=topic.taken_over_at_ms,
        phase=topic.phase.name,
        list_version=topic.list_version,
        owner_token=topic.owner_token,
        producer_epoch=topic.producers.epoch,
        state=ledger_list.state.value,
        ledgers=len(ledger_list.ledgers),
        bytes=sum(ledger.size_bytes for ledger in ledger_list.ledgers) + topic.open_bytes,
        entries=topic.extent.count(topic.extent.before(topic.extent.first)),
        last_position=str(topic.extent.last_confirmed),
        durability=durability.value,
        degrade=degrade.value,
        is_degraded=topic.is_degraded,
        refusal=None if waits is None else str(waits),
        held_receipts=topic.publishing.held,
        messages_in=topic.publishing.messages_in,
        bytes_in=topic.publishing.bytes_in,
        message_rate_in=round(topic.rates.messages_per_s, 3),
        byte_rate_in=round(topic.rates.bytes_per_s, 3),
        producers=len(publishing),
        waiting_producers=len(topic.producers) - len(publishing),
        consumers=sum(len(each.consumers) for each in subscriptions),
        open_ledger=open_ledger_report(topic.open_ledger),
        quota=_quota(topic, subscriptions),
        subscriptions=tuple(_subscription(each, topic) for each in shown),
        subscription_count=len(subscriptions),
        unopened_subscriptions=tuple(topic.subscriptions.unopened()[: max(len(shown), 1)]),
        next_subscription=following,
    )


def open_ledger_report(handle: Ledger | None) -> OpenLedgerReport | None:
    """The ledger that a topic writes, and its quorums."""
    if handle is None:
        return None
    quorum = handle.metadata.quorum
    return OpenLedgerReport(
        ledger_id=handle.id,
        ensemble=handle.ensemble(),
        missing=handle.missing,
        write_quorum=quorum.write_quorum,
        ack_quorum=quorum.ack_quorum,
        ensemble_changes=handle.ensemble_changes,
        size_bytes=handle.length,
        pending_bytes=handle.pending_bytes,
        error=None if handle.error is None else str(handle.error),
    )


def _quota(topic: Topic, subscriptions: Sequence[Subscription]) -> QuotaReport:
    """The slowest subscription has the most bytes behind it."""
    slowest = min((each.acks.mark_delete for each in subscriptions if each.is_durable), default=None)
    policy = topic.policy
    return QuotaReport(
        backlog_bytes=0 if slowest is None else backlog_bytes(topic, slowest),
        limit_bytes=policy.backlog_bytes,
        limit_ms=policy.backlog_ms,
        action=policy.backlog_action.value,
        refusal=None if topic.refusal is None else str(topic.refusal),
    )


def _subscription(subscription: Subscription, topic: Topic) -> SubscriptionReport:
    acks, machine = subscription.acks, subscription.machine
    states = () if machine is None else tuple(machine.consumers.values())
    return SubscriptionReport(
        name=subscription.name,
        kind=None if subscription.kind is None else subscription.kind.value,
        is_durable=subscription.is_durable,
        backlog_entries=acks.unacked_entries(),
        oldest_age_s=_oldest_age_s(subscription, topic),
        mark_delete=str(acks.mark_delete),
        holes=acks.range_count,
        last_active_ms=acks.last_active_ms,
        consumers=len(subscription.consumers),
        permits=sum(max(state.permits, 0) for state in states),
        unacked_messages=sum(state.unacked for state in states),
        is_blocked=isinstance(machine, SharedDispatch) and machine.is_blocked,
        blocked_consumers=sum(state.is_blocked for state in states),
        paused_consumers=sum(state.is_paused for state in states),
    )


def _oldest_age_s(subscription: Subscription, topic: Topic) -> int | None:
    if not subscription.acks.unacked_entries():
        return None
    now_ms, oldest = unix_ms(), topic.extent.after(subscription.acks.mark_delete)
    published_ms = topic.times.published_at_ms(oldest, topic.ledger_list, now_ms)
    return None if published_ms is None else max(now_ms - published_ms, 0) // _SECOND_MS
