"""The managed ledger: taking over, writing, rolling, trimming and unloading, with every answer and without it."""

from dataclasses import replace
from typing import Any

import pytest

from daybook.core.errors import DaybookError, NoSuchTopicError, NotOwnerError, TopicTerminatedError
from daybook.core.events import CasAnswered, CasOutcome, MetadataUnreadable
from daybook.core.topics.events import (
    Append,
    Appended,
    CasList,
    CloseLedger,
    CreateLedger,
    HandleFailed,
    LedgerCreated,
    LedgerDeleted,
    LedgerEnded,
    LedgerRequestFailed,
    ListRead,
    ReadList,
    RecoverLedger,
    Retrying,
    TopicEnded,
    TopicTick,
    TrimRequested,
    UnloadRequested,
)
from daybook.core.topics.ledger_list import LedgerList, ListState, Position
from daybook.core.topics.managed_ledger import ManagedLedger
from daybook.core.topics.open_ledger import ManagedLedgerPolicy
from daybook.core.topics.trimming import Retention
from tests.unit.core.topics.world import TIME_OUT, UNIX_MS, Owner, World, kinds, serving, writing

POLICY = ManagedLedgerPolicy()
NOBODYS = 10**6
"""The id of a request that no machine made."""


# Taking over


def test_rule_38_a_new_owner_recovers_the_open_ledger_then_changes_the_list_then_serves() -> None:
    world = World()
    first = writing(world, b"a", b"b")
    second = Owner(world, "two")
    second.publish(b"c")
    assert kinds(second) == [ReadList, RecoverLedger, CasList, CreateLedger, CasList, Append]
    second.run()
    assert [ledger.entries for ledger in world.ledger_list.ledgers] == [2, 0]
    assert second.published == [(Position(1, 0), b"c")]
    assert [data for _, data in world.topic()] == [b"a", b"b", b"c"]
    first.publish(b"d")
    first.run()
    assert first.failed == [b"d"]
    assert [type(error) for error in first.ended] == [NotOwnerError]


def test_rule_38_of_two_new_owners_the_one_that_loses_the_list_stops_everything() -> None:
    world = World()
    writing(world, b"a")
    second, third = Owner(world, "two"), Owner(world, "three")
    for owner in (second, third):
        owner.carry_out()
        owner.carry_out()
    third.publish(b"x")
    second.run()
    third.run()
    assert third.failed == [b"x"]
    assert third.machine.is_done
    assert [type(error) for error in third.ended] == [NotOwnerError]
    for event in (TrimRequested((), Retention()), UnloadRequested(), TopicTick(10**9, 10**12)):
        assert third.machine.step(event) == []
    assert second.machine.refusal is None


def test_a_recovery_that_fails_is_begun_again_after_a_pause() -> None:
    world = World()
    writing(world, b"a")
    second = Owner(world, "two")
    second.carry_out()
    second.fail()
    assert second.news == [Retrying(TIME_OUT)]
    second.tick(POLICY.retry_ms - 1)
    assert not second.asked
    second.tick(1)
    assert kinds(second) == [ReadList, RecoverLedger, CasList]


def test_rule_38_a_new_owner_follows_the_list_where_the_old_one_has_trimmed_what_it_recovers() -> None:
    world = World()
    first = writing(world, b"a")
    second = Owner(world, "two")
    second.carry_out()
    first.fail_handle(0)
    first.publish(b"b")
    first.run()
    first.step(TrimRequested((), Retention()))
    first.run()
    assert world.ledgers.keys() == {1}
    assert kinds(second) == [RecoverLedger]
    second.tick(POLICY.retry_ms)
    assert kinds(second) == [ReadList, RecoverLedger, CasList]
    assert world.ledger_list.owner_token == "two"
    assert [data for _, data in world.topic()] == [b"b"]


def test_a_list_that_cannot_be_read_is_read_again_after_a_pause() -> None:
    owner = Owner(World())
    owner.fail()
    owner.tick(POLICY.retry_ms)
    assert kinds(owner) == [ReadList, CasList]


def test_a_topic_that_does_not_exist_is_not_served() -> None:
    owner = Owner(World())
    asked = owner.asked.popleft()
    assert isinstance(asked, ReadList)
    owner.step(ListRead(asked.request_id, None))
    assert [type(error) for error in owner.ended] == [NoSuchTopicError]


def test_a_terminated_topic_refuses_messages_and_is_still_trimmed() -> None:
    world = World()
    owner = writing(world, b"a")
    owner.step(UnloadRequested())
    owner.run()
    world.ledger_list = replace(world.ledger_list, state=ListState.TERMINATED)
    second = serving(world, "two")
    assert isinstance(second.machine.refusal, TopicTerminatedError)
    second.step(TrimRequested((), Retention()))
    second.run()
    assert world.ledger_list.ledgers == ()
    assert world.ledger_list.last_confirmed == Position(0, 0), "it outlives its ledger"


# Writing


def test_messages_are_acknowledged_as_far_as_they_are_stored() -> None:
    owner = serving(World())
    owner.publish(b"a", b"b", b"c")
    kinds(owner)
    owner.acknowledge(2)
    assert owner.published == [(Position(0, 0), b"a"), (Position(0, 1), b"b")]
    owner.acknowledge(1)
    assert owner.published[2:] == [(Position(0, 2), b"c")]


def test_what_waits_is_bounded() -> None:
    owner = serving(World(), policy=replace(POLICY, pending_bytes_max=3))
    assert owner.machine.has_room
    owner.publish(b"abc")
    assert not owner.machine.has_room
    owner.run()
    assert owner.machine.has_room


def test_a_ledger_that_cannot_be_created_is_asked_for_again_after_a_pause() -> None:
    owner = serving(World())
    owner.publish(b"a")
    owner.fail()
    owner.tick(POLICY.retry_ms)
    owner.run()
    assert owner.published == [(Position(0, 0), b"a")]


# An unknown outcome of a change of the list


def naming_without_an_answer(world: World) -> tuple[Owner, CasList]:
    """An owner that has no answer to the change that names its ledger, and the change."""
    owner = serving(world)
    owner.publish(b"a")
    owner.carry_out()
    change = owner.fail()
    assert isinstance(change, CasList)
    return owner, change


def test_a_ledger_whose_name_may_still_arrive_is_not_deleted() -> None:
    world = World()
    owner, change = naming_without_an_answer(world)
    owner.fail()
    owner.step(UnloadRequested())
    assert not owner.asked
    owner.tick(POLICY.retry_ms)
    owner.carry_out()
    assert world.apply(change), "while the second attempt is on its way"
    owner.run()
    assert world.topic() == [(Position(0, 0), b"a")]


# Rolling


def rolled(policy: ManagedLedgerPolicy, age_ms: int) -> bool:
    """Whether a ledger with two entries of 10 bytes has had enough at that age."""
    world = World()
    owner = serving(world, policy=policy)
    owner.publish(bytes(10), bytes(10))
    owner.run()
    owner.tick(age_ms)
    owner.publish(b"next")
    owner.run()
    assert [data for _, data in owner.published] == [bytes(10), bytes(10), b"next"]
    return len(world.ledger_list.ledgers) == 2


@pytest.mark.parametrize(
    ("changes", "age_ms", "is_rolled"),
    [
        ({"entries_max": 2}, 600_000, True),
        ({"entries_max": 2}, 599_999, False),
        ({"entries_max": 3}, 600_000, False),
        ({"size_bytes_max": 20}, 600_000, True),
        ({"size_bytes_max": 21}, 600_000, False),
        ({}, 14_400_000, True),
        ({}, 14_399_999, False),
    ],
)
def test_a_ledger_is_rolled_by_entries_bytes_and_age(
    changes: dict[str, int], age_ms: int, is_rolled: bool
) -> None:
    assert rolled(replace(POLICY, idle_ms_max=10**9, **changes), age_ms) is is_rolled


def test_a_roll_waits_for_what_was_sent_and_names_end_and_beginning_in_one_change() -> None:
    world = World()
    owner = serving(world, policy=replace(POLICY, entries_max=1, age_ms_min=0))
    owner.publish(b"a")
    kinds(owner)
    version = world.version
    owner.publish(b"b")
    owner.tick(5)
    assert not owner.asked
    owner.acknowledge()
    assert kinds(owner) == [CloseLedger, CreateLedger, CasList, Append]
    assert world.version == version + 1
    old, new = world.ledger_list.ledgers
    assert (old.entries, old.size_bytes, old.closed_at_ms) == (1, 1, UNIX_MS + 5)
    assert (old.first_published_at_ms, old.last_published_at_ms) == (UNIX_MS, UNIX_MS)
    assert new.is_open
    assert world.ledger_list.last_confirmed == Position(0, 0)
    assert world.ledger_list.last_ledger_created_at_ms == UNIX_MS + 5


# Unloading


def test_an_unloaded_topic_finishes_what_came_before_and_refuses_what_comes_after() -> None:
    world = World()
    owner = serving(world)
    owner.publish(b"a")
    owner.step(UnloadRequested())
    assert isinstance(owner.machine.refusal, NotOwnerError)
    owner.run()
    assert owner.published == [(Position(0, 0), b"a")]
    assert owner.ended == [None]
    assert owner.machine.is_done
    assert world.ledger_list.state is ListState.CLOSED
    second = Owner(world, "two")
    assert kinds(second) == [ReadList, CasList], "there is nothing to recover"


def test_an_idle_topic_is_unloaded_at_once() -> None:
    owner = serving(World())
    owner.step(UnloadRequested())
    assert owner.ended == [None]


# The contract of machines


EVENTS: list[Any] = [
    ListRead(NOBODYS, LedgerList(), 7),
    MetadataUnreadable(NOBODYS),
    CasAnswered(NOBODYS, CasOutcome.CONFLICT),
    LedgerCreated(NOBODYS, 5),
    LedgerEnded(NOBODYS, 1, 1),
    LedgerRequestFailed(NOBODYS, DaybookError("late")),
    LedgerDeleted(NOBODYS),
    Appended(NOBODYS, 3),
    HandleFailed(NOBODYS, DaybookError("late")),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_answer_that_nobody_waits_for_is_dropped(event: Any) -> None:
    assert Owner(World()).machine.step(event) == []
    owner = writing(World(), b"a")
    assert owner.machine.step(event) == []


def test_an_event_of_another_machine_is_refused() -> None:
    machine = ManagedLedger("t", "one")
    with pytest.raises(AssertionError, match="Retention"):
        machine.step(Retention())  # type: ignore[arg-type]  # what the test is about


def test_a_driver_asks_before_it_publishes() -> None:
    owner = serving(World())
    owner.step(UnloadRequested())
    with pytest.raises(AssertionError, match="a driver asks"):
        owner.publish(b"a")
    assert isinstance(owner.news[-1], TopicEnded)
