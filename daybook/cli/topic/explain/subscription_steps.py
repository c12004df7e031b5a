"""The steps about subscriptions: whether their consumers ask for messages, acknowledge them, and keep up."""

from collections.abc import Callable, Sequence
from typing import Final

from daybook.cli.topic.explain.dialect import Dialect
from daybook.cli.topic.explain.facts import Snapshot
from daybook.cli.topic.explain.step import Step, Verdict, age, limited
from daybook.cli.topic.explain.topic_steps import unread
from daybook.client.topic_reports import SubscriptionReport
from daybook.core.topics.cursor_record import LEDGER_RANGES_MAX

EXPIRY_SLACK_S: Final = 600
"""Brokers search for expired messages now and then, every five minutes unless their settings say otherwise."""


def permits(snapshot: Snapshot, dialect: Dialect) -> Step:
    """Whether somebody asks for the messages that wait."""

    def problem(each: SubscriptionReport) -> str:
        if not each.backlog_entries or (each.permits and each.paused_consumers < each.consumers):
            return ""
        waits = f"{each.backlog_entries:,} entries wait for subscription {each.name!r}"
        if not each.consumers:
            return f"{waits}, and no consumer is connected"
        if each.permits:
            return f"{waits}, and the connections of its {each.consumers} consumers take nothing now"
        return f"{waits}, and its {each.consumers} consumers asked for no more messages"

    def fine(found: Sequence[SubscriptionReport]) -> str:
        consumers, waiting = (
            sum(each.consumers for each in found),
            sum(each.backlog_entries for each in found),
        )
        return f"{waiting:,} entries wait for {len(found)} subscriptions with {consumers} consumers"

    return _of_subscriptions("permits", snapshot, dialect, problem, fine)


def unacked_limits(snapshot: Snapshot, dialect: Dialect) -> Step:
    """Whether a consumer receives nothing because it acknowledges too little."""

    def problem(each: SubscriptionReport) -> str:
        held = f"{each.unacked_messages:,} messages that they have not acknowledged"
        if each.is_blocked:
            return f"subscription {each.name!r} delivers nothing: its consumers have {held}, and must acknowledge half of them first"
        if each.blocked_consumers:
            who = f"{each.blocked_consumers} of {each.consumers} consumers of subscription {each.name!r}"
            return f"{who} receive nothing until they acknowledge half of what they have; all have {held}"
        return ""

    def fine(found: Sequence[SubscriptionReport]) -> str:
        held = sum(each.unacked_messages for each in found)
        return f"consumers have {held:,} messages that they have not acknowledged, within the limits"

    return _of_subscriptions("unacked limits", snapshot, dialect, problem, fine)


def holes(snapshot: Snapshot, dialect: Dialect) -> Step:
    """Whether all acknowledgements can be stored: what does not fit is delivered again after a fail-over (rule 40)."""

    def problem(each: SubscriptionReport) -> str:
        if each.holes <= LEDGER_RANGES_MAX:
            return ""
        return (
            f"subscription {each.name!r} has {each.holes:,} acknowledged ranges beyond {each.mark_delete}, of which "
            f"{LEDGER_RANGES_MAX:,} are stored: after a fail-over the broker delivers the others again"
        )

    def fine(found: Sequence[SubscriptionReport]) -> str:
        most = max(found, key=lambda each: each.holes)
        if not most.holes:
            return "no subscription has acknowledged messages beyond one that it has not"
        return f"subscription {most.name!r} has {most.holes:,} acknowledged ranges beyond {most.mark_delete}; {LEDGER_RANGES_MAX:,} are stored"

    return _of_subscriptions("holes", snapshot, dialect, problem, fine)


def oldest_message(snapshot: Snapshot, dialect: Dialect) -> Step:
    """How long the oldest message waits, and whether it should have expired."""
    ttl_s = 0 if snapshot.policy is None else snapshot.policy.ttl_ms // 1000

    def problem(each: SubscriptionReport) -> str:
        if not ttl_s or (each.oldest_age_s or 0) <= ttl_s + EXPIRY_SLACK_S:
            return ""
        return f"{_waits(each)}, and should have expired after {age(1000 * ttl_s)}"

    def fine(found: Sequence[SubscriptionReport]) -> str:
        known = [each for each in found if each.oldest_age_s is not None]
        if not known:
            return "no message waits"
        return f"{_waits(max(known, key=lambda each: each.oldest_age_s or 0))}, and no other one longer"

    return _of_subscriptions("oldest message", snapshot, dialect, problem, fine)


def _waits(each: SubscriptionReport) -> str:
    waited = age(1000 * (each.oldest_age_s or 0))
    return f"the message behind {each.mark_delete} has waited {waited} for subscription {each.name!r}"


def _of_subscriptions(
    name: str,
    snapshot: Snapshot,
    dialect: Dialect,
    problem: Callable[[SubscriptionReport], str],
    fine: Callable[[Sequence[SubscriptionReport]], str],
) -> Step:
    """A step that asks each subscription for its problem, an empty one for none."""
    next_command = dialect.command("stats", topic=snapshot.topic)
    if snapshot.report is None:
        return unread(name, snapshot, next_command)
    found = snapshot.report.subscriptions
    if not found:
        return Step(name, Verdict.FINE, "the topic has no subscription")
    problems = [(each, text) for each in found if (text := problem(each))]
    if not problems:
        return Step(name, Verdict.FINE, fine(found))
    peek = dialect.command("peek", topic=snapshot.topic, subscription=problems[0][0].name)
    return Step(name, Verdict.WRONG, problems[0][1], limited([text for _, text in problems[1:]]), peek)
