"""Rule 67: whose a topic is, what comes before what, what a deleted resource takes with it, and that nothing of it comes back."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import pytest
from daybook_operator.clusters.link import ClusterLink
from daybook_operator.plan.decision import Decision
from daybook_operator.plan.effects import ClusterRef, Effect
from daybook_operator.plan.topic import changes, plan
from daybook_operator.plan.topic.observed import ObservedTopic
from daybook_operator.plan.topic.reports import OwnersReports
from daybook_operator.plan.topic.spec import TopicSpec
from daybook_operator.reconcile.brokers import BrokerReports

from daybook.metadata.partitions import PartitionedTopic
from daybook.metadata.topics import TopicManager
from tests.model.mutants.registry import around, instead_of, mutant

TESTS = "tests/unit/operator/test_topic_plan.py::test_rule_67"
Changes: TypeAlias = Callable[..., tuple[Effect, ...]]
Release: TypeAlias = Callable[..., Decision]
by_test = partial(mutant, not_simulated="there is no operator in the simulated cluster")


@by_test(67, f"{TESTS}_a_topic_that_a_client_made_is_left_alone_until_a_person_allows_it")
def every_topic_is_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resource takes over a topic that clients made, without being asked."""
    monkeypatch.setattr(ObservedTopic, "may_adopt", property(lambda _observed: True))


@by_test(67, f"{TESTS}_the_second_resource_that_names_a_topic_has_a_conflict")
def every_topic_is_the_own_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resource takes whoever manages a topic for itself."""
    monkeypatch.setattr(
        ObservedTopic, "manager", property(lambda observed: observed.topics[0][1].policy.value.managed_by)
    )


@by_test(67, f"{TESTS}_partitions_have_their_policy_before_the_record_counts_them")
@around(plan, "changes")
def partitions_grow_before_policies(changes: Changes, *args: Any) -> tuple[Effect, ...]:
    """Clients see partitions that have no policy yet."""
    return tuple(reversed(changes(*args)))


@by_test(67, f"{TESTS}_a_retained_topic_stays_and_names_no_manager_any_more")
def every_topic_is_deleted_with_its_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retain is taken for Delete."""
    monkeypatch.setattr(TopicSpec, "deletes_topic", True)


@by_test(67, f"{TESTS}_a_broker_deletes_the_topic_before_the_finalizer_goes")
@around(plan, "release")
def the_finalizer_goes_first(release: Release, *args: Any, **parts: Any) -> Decision:
    """Nobody deletes the topic if the operator dies, or no broker runs, just then."""
    return Decision(tuple(reversed(release(*args, **parts).effects)))


@by_test(67, "tests/unit/operator/test_broker_reports.py::test_each_broker_is_asked_once_for_all_its_topics")
@instead_of(BrokerReports, "of")
async def each_topic_asks_the_brokers(
    self: BrokerReports, _ref: ClusterRef, link: ClusterLink
) -> OwnersReports:
    """The status of each of thousands of Topics costs a request to every broker."""
    return await self.ask(link)


@by_test(
    67,
    "tests/unit/operator/test_topic_deletion.py::test_rule_67_a_resource_is_let_go_only_after_its_half_deleted_topic_is_gone",
)
def a_record_without_partitions_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion that ended before the record leaves it behind for ever."""
    monkeypatch.setattr(changes, "_is_almost_deleted", lambda _observed: False)


@by_test(
    67,
    "tests/unit/broker/admin/test_partition_deletion.py::"
    "test_rule_67_partitions_that_clients_use_do_not_come_back_while_they_are_deleted_by_force",
    slow=True,
)
def clients_create_partitions_again_during_the_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record counts a partition until the last one is deleted, so its clients create it again."""
    monkeypatch.setattr(PartitionedTopic, "check_stays", lambda _record, _name: None)


@by_test(
    67,
    "tests/unit/metadata/test_partition_deletion.py::"
    "test_rule_67_a_deletion_that_begins_while_a_partition_is_created_comes_first",
)
@around(TopicManager, "create")
async def a_partition_is_created_whatever_became_of_the_record(
    create: Callable[..., Any], *args: Any, **_checks: Any
) -> Any:
    """A broker that read the record before the deletion began creates the partition after it."""
    return await create(*args)
