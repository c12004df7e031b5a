"""What people see of topics: tables; and the records of `--json`."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from daybook.cli.kubectl.api import Object
from daybook.cli.kubectl.topic.observe import facts_of
from daybook.cli.kubectl.topic.pods import broker_of
from daybook.cli.kubectl.world import is_ready
from daybook.cli.topic.explain.step import age
from daybook.client.topic_reports import BrokerReport, Serving, SubscriptionReport, TopicReport
from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.bundles import Bundle

_SERVING = {Serving.SERVED: "green", Serving.TAKING_OVER: "yellow", Serving.UNLOADING: "yellow"}


def list_record(name: str, owner: str, report: TopicReport | None, resource: Object | None) -> dict[str, Any]:
    """A topic at a glance; without a report no broker has it in memory."""
    facts = None if resource is None else facts_of(resource)
    return {
        "topic": name,
        "owner": owner,
        "serving": "idle" if report is None else report.serving.value,
        "bytes": None if report is None else report.bytes,
        "backlogEntries": None
        if report is None
        else sum(each.backlog_entries for each in report.subscriptions),
        "producers": None if report is None else report.producers,
        "consumers": None if report is None else report.consumers,
        "subscriptions": None if report is None else report.subscription_count,
        "resource": None if facts is None else f"{facts.namespace}/{facts.name}",
        "problems": [] if facts is None else list(facts.problems),
    }


def list_table(records: Iterable[Mapping[str, Any]]) -> RenderableType:
    """All topics."""
    table = Table(
        "topic", "owner", "state", "bytes", "backlog", "producers", "consumers", "subscriptions", "resource"
    )
    for record in records:
        figures = ("bytes", "backlogEntries", "producers", "consumers", "subscriptions")
        table.add_row(
            escape(record["topic"]),
            record["owner"],
            _coloured(record["serving"], record["serving"] == Serving.SERVED.value),
            *(_number(record[each]) for each in figures),
            _coloured(record["resource"] or "", not record["problems"]),
        )
    return table


def stats_table(found: Mapping[str, tuple[BrokerReport, TopicReport]]) -> RenderableType:
    """What the owners know of topics."""
    table = Table(
        "topic", "owner", "state", "messages in", "messages/s", "bytes/s", "stored bytes", "entries", "ledgers",
        "producers", "consumers", "bookies",
    )  # fmt: skip
    for name, (broker, report) in found.items():
        written = report.open_ledger
        table.add_row(
            escape(name),
            broker.broker,
            f"[{_SERVING[report.serving]}]{report.serving.value}[/] {report.state}",
            _number(report.messages_in),
            f"{report.message_rate_in:,.1f}",
            f"{report.byte_rate_in:,.0f}",
            _number(report.bytes),
            _number(report.entries),
            _number(report.ledgers),
            _number(report.producers),
            _number(report.consumers),
            "" if written is None else ", ".join(written.ensemble),
        )
    return table


def backlog_table(found: Mapping[str, tuple[BrokerReport, TopicReport]]) -> RenderableType:
    """What waits for each subscription, the largest backlog first."""
    table = Table(
        "topic", "subscription", "type", "backlog", "oldest", "consumers", "permits", "unacknowledged", "holes", "behind"
    )  # fmt: skip
    rows = [(name, each) for name, (_, report) in found.items() for each in report.subscriptions]
    for name, each in sorted(rows, key=lambda row: -row[1].backlog_entries):
        table.add_row(
            escape(name.rpartition("/")[2]),
            escape(each.name),
            each.kind or "–",
            _number(each.backlog_entries),
            "" if each.oldest_age_s is None else age(1000 * each.oldest_age_s),
            _number(each.consumers),
            _number(each.permits),
            _unacked(each),
            _number(each.holes),
            each.mark_delete,
        )
    return table


def _unacked(each: SubscriptionReport) -> str:
    blocked = each.is_blocked or each.blocked_consumers
    return f"[red]{each.unacked_messages:,} blocked[/]" if blocked else _number(each.unacked_messages)


def owner_record(name: TopicName, owner: str | None, pods: Iterable[Object]) -> dict[str, Any]:
    """Who owns a topic, and where that broker runs."""
    pod = next((each for each in pods if broker_of(each) == owner), None)
    spec = {} if pod is None else pod.get("spec") or {}
    return {
        "topic": str(name),
        "bundle": str(Bundle.of(name)),
        "owner": owner,
        "pod": None if pod is None else pod["metadata"]["name"],
        "node": spec.get("nodeName"),
        "ready": None if pod is None else is_ready(pod),
    }


def owner_table(records: Iterable[Mapping[str, Any]]) -> RenderableType:
    """Who owns each topic."""
    table = Table("topic", "bundle", "owner", "pod", "node", "ready")
    for record in records:
        ready = {None: "", True: "yes", False: "[red]no[/]"}[record["ready"]]
        owner = record["owner"] or "[yellow]none: the next client's lookup finds one[/]"
        table.add_row(
            escape(record["topic"]), record["bundle"], owner, record["pod"] or "", record["node"] or "", ready
        )
    return table


def _coloured(text: str, is_fine: bool) -> str:
    return escape(text) if is_fine else f"[yellow]{escape(text)}[/]"


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
