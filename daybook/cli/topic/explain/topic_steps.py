"""The steps about the topic itself: who manages it, what is set, who owns it, and whether its messages can be stored."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from daybook.cli.topic.explain.dialect import Dialect
from daybook.cli.topic.explain.facts import Resource, Snapshot
from daybook.cli.topic.explain.step import Step, Verdict, age, limited
from daybook.client.topic_reports import OpenLedgerReport, QuotaReport, Serving, TopicReport
from daybook.core.ids import BookieId, pool_of
from daybook.core.ledger.metadata import LedgerState
from daybook.core.topics.ledger_list import ListState
from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.policy import UNLIMITED, BacklogAction, Degrade, Policy

TAKE_OVER_MS: Final = 30_000
"""A take-over lasts as long as the recovery of one ledger; after this time something holds it up."""
LEDGERS_NAMED_MAX: Final = 10
_WITHOUT_REASON: Final = "nothing was read about it"

# What was asked for


def resource(snapshot: Snapshot, dialect: Dialect) -> Step:
    """Whether the Topic resources and the topic's policy agree about who manages the topic."""
    manager, found = snapshot.manager, snapshot.resources
    list_all = dialect.command("resources")
    if "resource" in snapshot.unread:
        return unread("resource", snapshot, list_all)
    troubled = [each for each in found or () if each.problems]
    managing = [each for each in found or () if each.is_managing]
    mine = next((each for each in managing if manager is not None and each.uid == manager.uid), None)
    others = [each for each in managing if each is not mine]
    what, next_command = "", list_all
    if manager is not None and found is not None and mine is None:
        what = f"{manager}, which the topic's policy names as its manager, does not exist"
    elif troubled:
        what, next_command = f"{troubled[0]} is not as it should be", _describe(troubled[0], dialect)
    elif others:
        what = f"{others[0]} names the topic, and the topic's policy names {manager or 'no manager'}"
        next_command = _describe(others[0], dialect)
    if what:
        evidence = [problem for each in troubled for problem in each.problems]
        evidence += [f"{each} has no effect" for each in others]
        return Step("resource", Verdict.WRONG, what, limited(evidence), next_command)
    if manager is not None:
        return Step("resource", Verdict.FINE, f"{manager} manages it")
    if found:
        return Step("resource", Verdict.FINE, f"{found[0]} reports it, and no resource manages it")
    return Step("resource", Verdict.FINE, "no Topic resource manages it")


def _describe(found: Resource, dialect: Dialect) -> str:
    return dialect.command("resource", namespace=found.namespace, name=found.name)


def policy(snapshot: Snapshot, dialect: Dialect) -> Step:
    """What holds for the topic; a policy that is weak by choice is evidence, and not wrong."""
    next_command = policy_command(snapshot, dialect)
    if snapshot.policy_problem:
        what = "what is set for the topic cannot hold"
        return Step("policy", Verdict.WRONG, what, (snapshot.policy_problem,), next_command)
    found = snapshot.policy
    if found is None:
        return unread("policy", snapshot, next_command)
    quorum = found.quorum
    sizes = f"E={quorum.ensemble_size} Qw={quorum.write_quorum} Qa={quorum.ack_quorum}"
    what = f"durability {found.durability.value} ({sizes}), degrade {found.degrade.value}"
    return Step("policy", Verdict.FINE, what, (found.warning,) if found.warning else ())


def policy_command(snapshot: Snapshot, dialect: Dialect) -> str:
    """A managed topic is changed by its resource alone."""
    if snapshot.manager is not None:
        return dialect.command("resource", namespace=snapshot.manager.namespace, name=snapshot.manager.name)
    return dialect.command("policy", topic=snapshot.topic)


# Who serves it


def owner(snapshot: Snapshot, dialect: Dialect) -> Step:
    """Whether one broker owns the topic, and serves it."""
    step = partial(Step, "owner")
    bundle, lease, report = Bundle.of(snapshot.topic), snapshot.owner, snapshot.report
    evidence = (snapshot.refusal,) if snapshot.refusal else ()
    if snapshot.brokers is not None and not snapshot.brokers:
        return step(Verdict.WRONG, "no broker is registered", evidence, dialect.command("brokers"))
    if "owner" in snapshot.unread:
        return unread("owner", snapshot, dialect.command("brokers"))
    if lease is None:
        what = f"no broker has the lease of bundle {bundle}"
        return step(Verdict.WRONG, what, evidence, dialect.command("stats", topic=snapshot.topic))
    if lease.released:
        to = f" for {lease.to}" if lease.to else ""
        what = f"broker {lease.broker} released bundle {bundle}{to}, and no broker has taken it over"
        next_command = dialect.command("broker", broker=lease.to or lease.broker)
        return step(Verdict.WRONG, what, evidence, next_command)
    log = dialect.command("broker", broker=lease.broker)
    if report is None:
        what = f"broker {lease.broker} has the lease of bundle {bundle}, and does not report the topic"
        return step(Verdict.WRONG, what, evidence, log)
    if snapshot.broker is not None and snapshot.broker.broker != lease.broker:
        what = f"broker {snapshot.broker.broker} reports the topic, and broker {lease.broker} has the lease of bundle {bundle}"
        return step(Verdict.WRONG, what, (), dialect.command("unload", topic=snapshot.topic))
    if problem := _not_served(report, snapshot.now_ms):
        return step(Verdict.WRONG, f"broker {lease.broker} {problem}", _error_of(report), log)
    return step(Verdict.FINE, f"broker {lease.broker} owns it, by the lease of bundle {bundle}")


def _not_served(report: TopicReport, now_ms: int) -> str:
    """What the owner does instead of serving the topic; empty if it serves it, or has just begun to take it over."""
    if report.serving is Serving.UNLOADING:
        return "gives the topic up"
    taken_ms = now_ms - report.taken_over_at_ms
    if report.serving is Serving.TAKING_OVER and taken_ms > TAKE_OVER_MS:
        return f"began to take the topic over {age(taken_ms)} ago, and is still at {report.phase}"
    return ""


def _error_of(report: TopicReport) -> tuple[str, ...]:
    return (report.error,) if report.error else ()


def session(snapshot: Snapshot, dialect: Dialect) -> Step:
    """Whether the owner is registered, and its session certainly lives (rule 46)."""
    step = partial(Step, "session")
    lease, broker = snapshot.owner, snapshot.broker
    if snapshot.brokers is None:
        return unread("session", snapshot, dialect.command("brokers"))
    if lease is None or lease.released:
        return step(Verdict.UNKNOWN, "the topic has no owner whose session could be judged")
    log = dialect.command("broker", broker=lease.broker)
    problem = snapshot.brokers.get(lease.broker)
    if problem is None:
        registered = ", ".join(sorted(snapshot.brokers)) or "none"
        what = f"broker {lease.broker}, which has the lease, is not registered"
        return step(Verdict.WRONG, what, (f"registered brokers: {registered}",), log)
    if problem:
        return step(Verdict.WRONG, f"broker {lease.broker} does not serve", (problem,), log)
    if broker is not None and broker.broker == lease.broker and not broker.is_certain:
        what = f"broker {lease.broker} is not certain that its ZooKeeper session {broker.session_id} lives"
        held = 0 if snapshot.report is None else snapshot.report.held_receipts
        return step(Verdict.WRONG, what, (f"the receipts of {held:,} entries wait for that",), log)
    of_session = f"its ZooKeeper session {broker.session_id} certainly lives" if broker else "serves"
    return step(Verdict.FINE, f"broker {lease.broker} is registered, and {of_session}")


# Where its messages go


def fencing(snapshot: Snapshot, dialect: Dialect) -> Step:
    """Whether the owner can write: nobody else wrote the list, or fenced the ledger (rule 38)."""
    step = partial(Step, "fencing")
    report, stored = snapshot.report, snapshot.stored
    unload = dialect.command("unload", topic=snapshot.topic)
    if report is None:
        return unread("fencing", snapshot, unload)
    if stored is not None and stored.owner_token != report.owner_token:
        what = "another broker wrote the topic's list after the one that reports the topic"
        tokens = f"owner token of the list: {stored.owner_token}, of the broker: {report.owner_token}"
        return step(Verdict.WRONG, what, (tokens,), unload)
    if report.error:
        return step(Verdict.WRONG, "the owner cannot write the topic any more", (report.error,), unload)
    if report.state == ListState.TERMINATED.value:
        return step(Verdict.FINE, "the topic is terminated: it can be read, and takes no message any more")
    written = report.open_ledger
    if written is None:
        return step(Verdict.FINE, "no ledger is open: the next message begins one")
    name = f"ledger {written.ledger_id}"
    if written.error:
        return step(Verdict.WRONG, f"{name} takes no more entries", (written.error,), unload)
    if stored is not None and stored.open_ledger == written.ledger_id:
        if not stored.ledger_state:
            show = dialect.command("ledger", ledger=written.ledger_id)
            return step(Verdict.WRONG, f"{name} is written, and its metadata does not exist", (), show)
        if stored.ledger_state != LedgerState.OPEN.value:
            what = f"{name} is written, and {stored.ledger_state} in its metadata: another client fenced it"
            return step(Verdict.WRONG, what, (), unload)
    return step(Verdict.FINE, f"{name} is open, and its writer was not fenced")


def ensemble(snapshot: Snapshot, dialect: Dialect) -> Step:
    """Whether the bookies that the topic needs are there, and hold what they should."""
    report, bookies = snapshot.report, snapshot.bookies
    written = None if report is None else report.open_ledger
    problems: list[str] = []
    if bookies is not None and snapshot.policy is not None:
        problems += _too_few(snapshot.policy, [each for each, is_writable in bookies.items() if is_writable])
    if written is not None:
        problems += _absent(written, bookies)
    if report is not None:
        problems += _refuses(report)
    next_command = dialect.command("bookies" if problems else "repair")
    if snapshot.under_replicated:
        problems.append(_lacking(snapshot.under_replicated))
    if problems:
        return Step("ensemble", Verdict.WRONG, problems[0], limited(problems[1:]), next_command)
    if bookies is None or report is None or "ensemble" in snapshot.unread:
        return unread("ensemble", snapshot, dialect.command("bookies"))
    what = f"{sum(bookies.values())} of {len(bookies)} registered bookies take writes"
    if written is not None:
        what += f"; ledger {written.ledger_id} is written to {', '.join(written.ensemble)}"
    return Step("ensemble", Verdict.FINE, what)


def _too_few(found: Policy, writable: Sequence[BookieId]) -> list[str]:
    """Whether the next ledger can be created; a topic of a pool uses that pool's bookies alone (rule 69)."""
    quorum = found.quorum
    needed = quorum.ensemble_size if found.degrade is Degrade.NEVER else quorum.ack_quorum
    count = sum(1 for each in writable if not found.pool or pool_of(each) == found.pool)
    if count >= needed:
        return []
    of_pool = f" of pool {found.pool}" if found.pool else ""
    return [f"{count} bookies{of_pool} take writes, and the topic's next ledger needs {needed}"]


def _absent(written: OpenLedgerReport, bookies: Mapping[BookieId, bool] | None) -> list[str]:
    """The bookies of the ledger's ensemble that do not take what is written, each with the reason."""
    problems = []
    for bookie in written.ensemble:
        reason = ""
        if bookies is not None and not bookies.get(bookie):
            reason = "takes no writes" if bookie in bookies else "is not registered"
        elif bookie in written.missing:
            reason = "does not answer the owner"
        if reason:
            problems.append(f"ledger {written.ledger_id} is written to bookie {bookie}, which {reason}")
    return problems


def _refuses(report: TopicReport) -> list[str]:
    """What the owner says of the copies that it writes; a quota and the end of the topic are other steps' matters."""
    problems = ["new messages have fewer copies than the policy says"] if report.is_degraded else []
    if (
        report.refusal
        and report.refusal != report.quota.refusal
        and report.state != ListState.TERMINATED.value
    ):
        problems.append(f"the owner takes no messages: {report.refusal}")
    return problems


def _lacking(ledgers: Sequence[int]) -> str:
    named = ", ".join(map(str, ledgers[:LEDGERS_NAMED_MAX]))
    more = len(ledgers) - LEDGERS_NAMED_MAX
    return f"ledgers that lack a replica: {named}" + (f" and {more:,} more" if more > 0 else "")


# Whether it takes more


def quota(snapshot: Snapshot, dialect: Dialect) -> Step:
    """Whether the backlog is within its quota, and the topic takes producers."""
    step = partial(Step, "quota")
    if snapshot.report is None:
        return unread("quota", snapshot, dialect.command("stats", topic=snapshot.topic))
    found = snapshot.report.quota
    size = f"the largest backlog has {found.backlog_bytes:,} bytes"
    limits = _limits(found)
    problems = _over(snapshot.report)
    if problems:
        evidence = [*problems[1:], *([found.refusal] if found.refusal else []), _EFFECTS[found.action]]
        return step(Verdict.WRONG, problems[0], tuple(evidence), policy_command(snapshot, dialect))
    if not limits:
        return step(Verdict.FINE, f"{size}, and there is no quota")
    return step(Verdict.FINE, f"{size}, and the quota is {' and '.join(limits)}")


def _limits(found: QuotaReport) -> list[str]:
    return [
        *([f"{found.limit_bytes:,} bytes"] if found.limit_bytes != UNLIMITED else []),
        *([age(found.limit_ms)] if found.limit_ms != UNLIMITED else []),
    ]


def _over(report: TopicReport) -> list[str]:
    found = report.quota
    problems = []
    if found.limit_bytes != UNLIMITED and found.backlog_bytes > found.limit_bytes:
        problems.append(
            f"the largest backlog has {found.backlog_bytes:,} bytes, and the quota is {found.limit_bytes:,}"
        )
    ages_ms = [
        (1000 * each.oldest_age_s, each.name)
        for each in report.subscriptions
        if each.oldest_age_s is not None
    ]
    oldest_ms, name = max(ages_ms, default=(0, ""))
    if found.limit_ms != UNLIMITED and oldest_ms > found.limit_ms:
        problems.append(
            f"a message has waited {age(oldest_ms)} for subscription {name!r}, and the quota is {age(found.limit_ms)}"
        )
    if found.refusal and not problems:
        problems.append("the topic refuses producers because of its quota")
    return problems


_EFFECTS: Final = {
    BacklogAction.HOLD.value: "producers wait until the backlog is smaller",
    BacklogAction.EXCEPTION.value: "the broker refuses producers until the backlog is smaller",
    BacklogAction.EVICT.value: "the broker drops the oldest messages",
}


def unread(name: str, snapshot: Snapshot, next_command: str) -> Step:
    """A step that nothing can be said about, with the reason."""
    reason = snapshot.unread.get(name) or snapshot.refusal or _WITHOUT_REASON
    return Step(name, Verdict.UNKNOWN, reason, (), next_command)
