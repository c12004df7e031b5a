"""A topic `orders` as `explain` sees it: nothing is wrong with it unless a test says so."""

from typing import Any

from daybook.cli.topic.explain.facts import Snapshot, StoredTopic
from daybook.client.topic_reports import (
    BrokerReport,
    OpenLedgerReport,
    QuotaReport,
    Serving,
    SubscriptionReport,
    TopicReport,
)
from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.lookup import BundleOwner
from daybook.core.topics.policy import Policy

TOPIC = TopicName.parse("orders")
NOW_MS = 1_700_000_000_000
OWNER = "data.broker-1"
TOKEN = "a" * 32
BOOKIES = {"data.bk-0": True, "data.bk-1": True, "data.bk-2": True}


def subscription(name: str = "billing", **changes: Any) -> SubscriptionReport:
    """A subscription that two consumers keep up with."""
    usual: dict[str, Any] = {
        "kind": "Shared",
        "backlog_entries": 12,
        "oldest_age_s": 4,
        "mark_delete": "7:40",
        "holes": 2,
        "consumers": 2,
        "permits": 900,
        "unacked_messages": 12,
    }
    return SubscriptionReport(name=name, **{**usual, **changes})


def open_ledger(**changes: Any) -> OpenLedgerReport:
    """The ledger that is written."""
    usual: dict[str, Any] = {"ledger_id": 7, "ensemble": tuple(BOOKIES), "write_quorum": 3, "ack_quorum": 2}
    return OpenLedgerReport(**{**usual, **changes})


def report(*subscriptions: SubscriptionReport, **changes: Any) -> TopicReport:
    """The topic on its owner."""
    usual: dict[str, Any] = {
        "topic": str(TOPIC),
        "serving": Serving.SERVED,
        "taken_over_at_ms": NOW_MS - 3_600_000,
        "owner_token": TOKEN,
        "state": "LedgerOpened",
        "open_ledger": open_ledger(),
        "quota": QuotaReport(backlog_bytes=4096, action="producer_request_hold"),
        "subscriptions": subscriptions or (subscription(),),
    }
    return TopicReport(**{**usual, **changes})


def broker(**changes: Any) -> BrokerReport:
    """The owner."""
    usual: dict[str, Any] = {"broker": OWNER, "session_id": "0x1000a", "is_certain": True, "now_ms": NOW_MS}
    return BrokerReport(**{**usual, **changes})


def snapshot(**changes: Any) -> Snapshot:
    """Everything that `explain` sees."""
    usual: dict[str, Any] = {
        "topic": TOPIC,
        "now_ms": NOW_MS,
        "policy": Policy(),
        "owner": BundleOwner(OWNER),
        "brokers": {"data.broker-0": "", OWNER: ""},
        "broker": broker(),
        "report": report(),
        "stored": StoredTopic(TOKEN, 7, "OPEN"),
        "bookies": BOOKIES,
    }
    return Snapshot(**{**usual, **changes})
