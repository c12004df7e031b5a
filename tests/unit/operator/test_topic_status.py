"""The status of a Topic: ledgers, and the backlogs that owners report."""

from dataclasses import replace
from typing import Any

import pytest
from daybook_operator.plan.conditions import iso
from daybook_operator.plan.decision import Decision
from daybook_operator.plan.pool.state import Drain, Stage
from daybook_operator.plan.topic.observed import ObservedTopic, TopicInCluster
from daybook_operator.plan.topic.plan import decide
from daybook_operator.plan.topic.reports import (
    OwnersReports,
    SubscriptionBacklog,
    TopicAtOwner,
    largest_backlogs,
)

from daybook.core.topics.ledger_list import ListedLedger
from daybook.metadata.partitions import partition
from tests.unit.operator.test_topic_plan import NAME, NOW_MS, POOL, condition, created, node, status


def test_the_status_shows_ledgers_and_changes_with_figures_alone_every_five_minutes() -> None:
    there = created()
    assert there.cluster is not None
    assert there.cluster.plain is not None
    ledgers = (
        ListedLedger(4, NOW_MS, entries=10, size_bytes=1000, closed_at_ms=NOW_MS),
        ListedLedger(9, NOW_MS),
    )
    policy = there.cluster.plain.policy.value

    def with_ledgers(now: ObservedTopic, *listed: ListedLedger) -> ObservedTopic:
        return replace(now, cluster=TopicInCluster(plain=node(policy, *listed)))

    first = status(decide(with_ledgers(there, *ledgers), NOW_MS))
    assert (first["ledgerCount"], first["bytes"], first["entries"]) == (2, 1000, 10)
    assert (first["firstLedger"], first["openLedger"]) == (4, 9)
    assert (first["quorum"], first["topicName"], first["topicId"]) == ("3/3/2", str(NAME), "t")
    said = replace(there, manifest={**there.manifest, "status": dict(first)})
    more = with_ledgers(said, replace(ledgers[0], entries=99), ledgers[1])
    assert decide(more, NOW_MS + 299_000).effects == ()
    assert status(decide(more, NOW_MS + 300_000))["entries"] == 99
    barely = with_ledgers(said, replace(ledgers[0], size_bytes=1009), ledgers[1])
    assert decide(barely, NOW_MS + 300_000).effects == ()


REPORTS = OwnersReports(
    {
        str(partition(NAME, 0)): TopicAtOwner(
            "broker-0", (SubscriptionBacklog("slow", 70, NOW_MS - 9_000), SubscriptionBacklog("a", 1))
        ),
        str(partition(NAME, 1)): TopicAtOwner(
            "broker-1", (SubscriptionBacklog("slow", 30, NOW_MS - 60_000),)
        ),
        str(NAME): TopicAtOwner("broker-1", (SubscriptionBacklog("slow", 5, NOW_MS - 3_000),)),
    }
)


def test_the_status_shows_the_backlogs_that_owners_report_of_all_partitions_together() -> None:
    parts = replace(created(partitions=2), reports=REPORTS)
    shown = status(decide(parts, NOW_MS))
    assert shown["subscriptions"] == [
        {"name": "slow", "backlogEntries": 100, "oldestPublishedAt": iso(NOW_MS - 60_000)},
        {"name": "a", "backlogEntries": 1},
    ]
    assert shown["backlogEntries"] == 101
    assert "owner" not in shown, "each partition has its own"
    plain = status(decide(replace(created(), reports=REPORTS), NOW_MS))
    assert (plain["backlogEntries"], plain["owner"]) == (5, "broker-1")


STUCK_MS = NOW_MS - 3_600_000
SLOW, OTHER = SubscriptionBacklog("slow", 1_000, STUCK_MS), SubscriptionBacklog("other", 1_000, STUCK_MS)


def reported(*backlogs: SubscriptionBacklog) -> OwnersReports:
    return OwnersReports({str(NAME): TopicAtOwner("broker-0", backlogs)})


def after_five_minutes(before: OwnersReports, later: OwnersReports) -> Decision:
    """What is decided then, of a topic whose status has the figures of before."""
    there = replace(created(), reports=before)
    said = replace(there, manifest={**there.manifest, "status": dict(status(decide(there, NOW_MS)))})
    assert decide(replace(said, reports=later), NOW_MS + 299_000).effects == ()
    return decide(replace(said, reports=later), NOW_MS + 300_000)


@pytest.mark.parametrize("rounded_ms", [0, 1_000])
def test_a_subscription_that_stands_still_costs_no_write_and_its_oldest_message_keeps_its_time(
    rounded_ms: int,
) -> None:
    """Brokers report ages in whole seconds, so the time that follows differs by up to one."""
    later = replace(SLOW, oldest_published_ms=STUCK_MS + rounded_ms)
    assert after_five_minutes(reported(SLOW), reported(later)).effects == ()


@pytest.mark.parametrize(
    "later",
    [
        (replace(SLOW, oldest_published_ms=NOW_MS), OTHER),
        (replace(SLOW, entries=990), replace(OTHER, entries=1_010)),
        (SLOW, replace(OTHER, name="another")),
    ],
    ids=["the oldest message", "the backlog of each", "the set"],
)
def test_what_each_subscription_waits_for_is_a_figure_also_where_the_sum_stays(
    later: tuple[SubscriptionBacklog, ...],
) -> None:
    shown = status(after_five_minutes(reported(SLOW, OTHER), reported(*later)))
    assert shown["backlogEntries"] == 2_000
    found = {
        (each["name"], each["backlogEntries"], each["oldestPublishedAt"]) for each in shown["subscriptions"]
    }
    assert found == {(each.name, each.entries, iso(each.oldest_published_ms or 0)) for each in later}


def test_backlogs_stay_in_the_status_while_brokers_are_silent() -> None:
    parts = replace(created(partitions=2), reports=REPORTS)
    shown = status(decide(parts, NOW_MS))
    said = replace(parts, manifest={**parts.manifest, "status": dict(shown)})
    for reports in (None, OwnersReports({}, "no broker is registered")):
        later = decide(replace(said, reports=reports), NOW_MS + 300_000)
        assert status(later)["backlogEntries"] == 101
        assert condition(later, "BacklogHealthy")["status"] == "Unknown"
    gone = decide(replace(said, reports=OwnersReports({})), NOW_MS + 300_000)
    assert status(gone)["subscriptions"] == []
    assert condition(gone, "BacklogHealthy")["reason"] == "NotInUse"


def test_a_backlog_that_holds_producers_off_is_a_condition() -> None:
    held = OwnersReports(
        {str(NAME): TopicAtOwner("broker-0", (SubscriptionBacklog("slow", 5),), "the quota")}
    )
    decision = decide(replace(created(), reports=held), NOW_MS)
    assert condition(decision)["status"] == "True"
    said = condition(decision, "BacklogHealthy")
    assert (said["status"], said["reason"]) == ("False", "QuotaReached")
    assert status(decision)["message"] == said["message"]


def test_a_drain_of_the_pool_is_a_condition_of_its_topics_without_figures() -> None:
    def during(*, reason: str = "", remaining: int = 9, **spec: Any) -> Decision:
        drain = Drain("data.bk-3", 3, Stage.REPLICATING, NOW_MS, NOW_MS, NOW_MS, remaining)
        condition = {"type": "Draining", "status": "True", "reason": reason or drain.stage.value}
        pool = {**POOL, "status": {"drain": drain.record(""), "conditions": [condition]}}
        return decide(replace(created(**spec), pool=pool, reports=OwnersReports({})), NOW_MS)

    assert condition(decide(created(), NOW_MS), "PoolDraining")["status"] == "False"
    drains = during()
    said = condition(drains, "PoolDraining")
    assert (said["status"], said["reason"]) == ("True", "BookieLeaves")
    assert "data.bk-3 leaves BookiePool bk" in said["message"]
    assert "clients continue" in said["message"]
    assert (condition(drains)["status"], status(drains)["message"]) == ("True", "")
    assert condition(during(remaining=8), "PoolDraining") == said, "thousands of Topics would be written"
    held_up = during(reason="Blocked")
    said = condition(held_up, "PoolDraining")
    assert (said["status"], said["reason"]) == ("True", "DrainHeldUp")
    assert "kubectl describe bookiepool bk" in said["message"]
    assert status(held_up)["message"] == said["message"]


def test_a_topic_without_its_pool_drains_nowhere() -> None:
    gone = decide(replace(created(), pool=None), NOW_MS)
    assert condition(gone, "PoolDraining")["status"] == "False"


def test_a_status_has_the_twenty_largest_backlogs() -> None:
    many = tuple(SubscriptionBacklog(f"s{number:02}", number) for number in range(30))
    found = largest_backlogs([TopicAtOwner("broker-0", many)])
    assert [each.entries for each in found] == list(range(29, 9, -1))
