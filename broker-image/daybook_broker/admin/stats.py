"""What a topic's owner knows about it, in the fields that Pulsar's tools read. Counters are of this owner, since it took the topic over."""

from datetime import UTC, datetime
from typing import Any

from daybook.core.topics.dispatch.single import SingleDispatch
from daybook.core.topics.ledger_list import LedgerList, Position
from daybook_broker.admin.reports import open_ledger_report
from daybook_broker.topics.consumer import Consumer
from daybook_broker.topics.producer import Producer
from daybook_broker.topics.subscription import Subscription
from daybook_broker.topics.topic import Topic
from daybook_broker.topics.upkeep import backlog_bytes

_ACCESS_MODES = ("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing")


def topic_stats(topic: Topic, ledger_list: LedgerList, broker: str) -> dict[str, Any]:
    """The statistics of a topic."""
    subscriptions = topic.subscriptions.all()
    shown = {each.name: _subscription(each, topic) for each in subscriptions}
    consumers = [consumer for each in subscriptions for consumer in each.consumers.values()]
    return {
        "ownerBroker": broker,
        "msgRateIn": topic.rates.messages_per_s,
        "msgThroughputIn": topic.rates.bytes_per_s,
        "msgInCounter": topic.publishing.messages_in,
        "bytesInCounter": topic.publishing.bytes_in,
        "entriesInCounter": topic.publishing.entries_in,
        "msgOutCounter": sum(each.messages_out for each in consumers),
        "bytesOutCounter": sum(each.bytes_out for each in consumers),
        "averageMsgSize": topic.publishing.bytes_in / topic.publishing.messages_in
        if topic.publishing.messages_in
        else 0.0,
        "storageSize": _stored_bytes(topic, ledger_list),
        "backlogSize": max([each["backlogSize"] for each in shown.values()], default=0),
        **_durability(topic),
        "numberOfEntries": topic.extent.count(topic.extent.before(topic.extent.first)),
        "publishers": [_producer(each) for each in topic.producers.publishing()],
        "waitingPublishers": len(topic.producers) - len(topic.producers.publishing()),
        "subscriptions": shown,
    }


def _durability(topic: Topic) -> dict[str, Any]:
    """Daybook's own fields: what holds for the ledger that is written, and whether that has fewer copies at present (rule 45)."""
    durability, degrade = topic.durability
    return {"durability": durability.value, "degrade": degrade.value, "isDegraded": topic.is_degraded}


def _stored_bytes(topic: Topic, ledger_list: LedgerList) -> int:
    """Of one copy; the list does not know the size of the ledger that is written."""
    written = topic.handle(ledger_list.newest)
    return sum(ledger.size_bytes for ledger in ledger_list.ledgers) + (
        0 if written is None else written.length
    )


def _producer(producer: Producer) -> dict[str, Any]:
    return {
        "producerId": producer.id,
        "producerName": producer.name,
        "accessMode": _ACCESS_MODES[producer.wish.access_mode],
        **_client(producer),
        "msgInCounter": producer.messages_in,
        "bytesInCounter": producer.bytes_in,
    }


def _client(announced: Producer | Consumer) -> dict[str, Any]:
    """Who publishes or receives."""
    return {
        "address": announced.peer.address,
        "clientVersion": announced.peer.client_version,
        "metadata": dict(announced.wish.metadata),
    }


def _subscription(subscription: Subscription, topic: Topic) -> dict[str, Any]:
    consumers = subscription.consumers.values()
    states = subscription.machine.consumers if subscription.machine is not None else {}
    kind = None if subscription.kind is None else subscription.kind.value
    return {
        "type": kind,
        **_active_consumer(subscription),
        "isDurable": subscription.is_durable,
        "msgBacklog": subscription.acks.unacked_entries(),
        "backlogSize": backlog_bytes(topic, subscription.acks.mark_delete),
        "unackedMessages": sum(state.unacked for state in states.values()),
        "msgOutCounter": sum(each.messages_out for each in consumers),
        "bytesOutCounter": sum(each.bytes_out for each in consumers),
        "markDeletePosition": str(subscription.acks.mark_delete),
        "lastAckedTimestamp": subscription.acks.last_active_ms,
        "subscriptionProperties": dict(subscription.acks.properties),
        "consumers": [_consumer(each, subscription) for each in consumers],
    }


def _active_consumer(subscription: Subscription) -> dict[str, str]:
    """Of an exclusive or failover subscription; without the field, as Pulsar has it, where no consumer receives alone."""
    machine = subscription.machine
    active = machine.active if isinstance(machine, SingleDispatch) else None
    return {} if active is None else {"activeConsumerName": active.name}


def _consumer(consumer: Consumer, subscription: Subscription) -> dict[str, Any]:
    states = subscription.machine.consumers if subscription.machine is not None else {}
    state = states.get(consumer.key)
    return {
        "consumerName": consumer.name,
        **_client(consumer),
        "connectedSince": datetime.fromtimestamp(consumer.since_unix_s, UTC).isoformat(),
        "availablePermits": 0 if state is None else max(state.permits, 0),
        "unackedMessages": 0 if state is None else state.unacked,
        "blockedConsumerOnUnackedMsgs": state is not None and state.is_blocked,
        "msgOutCounter": consumer.messages_out,
        "bytesOutCounter": consumer.bytes_out,
        "messageRedeliverCounter": consumer.redelivered,
        "messageAckCounter": consumer.acks,
        "priorityLevel": consumer.wish.priority,
        "type": consumer.wish.kind.value,
    }


def internal_stats(topic: Topic, ledger_list: LedgerList) -> dict[str, Any]:
    """The ledgers of a topic and its cursors."""
    extent, compaction = topic.extent, ledger_list.compaction
    written = open_ledger_report(topic.open_ledger)
    ledgers = [
        {
            "ledgerId": ledger.ledger_id,
            "entries": ledger.entries,
            "size": ledger.size_bytes,
            "offloaded": ledger.offload is not None,
            **({} if ledger.stored_as is None else {"storedAs": ledger.stored_as}),
            "underReplicated": ledger.under_replicated,
            "createdAtMs": ledger.created_at_ms,
            "closedAtMs": ledger.closed_at_ms,
        }
        for ledger in ledger_list.ledgers
    ]
    return {
        "entriesAddedCounter": topic.publishing.entries_in,
        "numberOfEntries": extent.count(extent.before(extent.first)),
        "totalSize": _stored_bytes(topic, ledger_list),
        "lastLedgerCreatedTimestampMs": ledger_list.last_ledger_created_at_ms,
        "lastConfirmedEntry": str(extent.last_confirmed),
        "state": ledger_list.state.value,
        **_durability(topic),
        "openLedger": None if written is None else written.model_dump(mode="json", by_alias=True),
        "ledgers": ledgers,
        "compactionHorizon": None if compaction is None else str(compaction.horizon),
        "compactedLedgers": [
            {"ledgerId": each.ledger_id, "entries": each.entries, "size": each.size_bytes}
            for each in (() if compaction is None else compaction.ledgers)
        ],
        "cursors": {each.name: _cursor(each, topic) for each in topic.subscriptions.all()},
    }


def _cursor(subscription: Subscription, topic: Topic) -> dict[str, Any]:
    acks = subscription.acks
    return {
        "markDeletePosition": str(acks.mark_delete),
        "readPosition": str(acks.next_unacked(topic.extent.after(acks.mark_delete))),
        "individuallyDeletedRanges": acks.range_count,
        "numberOfEntriesSinceFirstNotAckedMessage": topic.extent.count(acks.mark_delete),
        "msgBacklog": acks.unacked_entries(),
        "isDurable": subscription.is_durable,
    }


def position_record(position: Position) -> dict[str, int]:
    """A position as Pulsar's tools read it."""
    return {"ledgerId": position.ledger_id, "entryId": position.entry_id, "partitionIndex": -1}
