"""The managed ledger when a ledger takes no more, and when ledgers are trimmed (rule 50, rule 51)."""

from daybook.core.errors import NotOwnerError, TopicTerminatedError
from daybook.core.topics.events import (
    Append,
    CasList,
    CloseLedger,
    CompactionWritten,
    CreateLedger,
    DeleteLedger,
    LedgerEnded,
    LedgerRequestFailed,
    ReadList,
    RecoverLedger,
    Retrying,
    RollRequested,
    TerminateRequested,
    TrimRequested,
)
from daybook.core.topics.ledger_list import NO_POSITION, Compaction, ListState, Position
from daybook.core.topics.offload.changes import OffloadBegun
from daybook.core.topics.open_ledger import ManagedLedgerPolicy
from daybook.core.topics.trimming import Retention
from tests.unit.core.topics.world import TIME_OUT, Owner, World, kinds, serving, writing

POLICY = ManagedLedgerPolicy()


# A ledger that takes no more


def test_rule_50_after_a_fence_by_the_auditor_only_what_is_not_in_the_ledger_is_sent_again() -> None:
    world = World()
    owner = writing(world, b"a")
    owner.publish(b"b", b"c", b"d")
    owner.publish(b"e")
    kinds(owner)
    world.ledgers[0].store()
    world.ledgers[0].store()
    world.ledgers[0].close()
    owner.fail_handle(0)
    owner.publish(b"f")
    assert kinds(owner) == [ReadList, RecoverLedger, CreateLedger, CasList, Append]
    assert owner.published[1:] == [(Position(0, 1), b"b"), (Position(0, 2), b"c")]
    owner.run()
    assert [data for _, data in world.topic()] == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert [data for _, data in owner.published] == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_rule_50_after_a_fence_by_a_new_owner_it_stops() -> None:
    world = World()
    owner = writing(world, b"a")
    owner.publish(b"b")
    kinds(owner)
    serving(world, "two")
    owner.fail_handle(0)
    assert kinds(owner) == [ReadList]
    assert owner.failed == [b"b"]
    assert [type(error) for error in owner.ended] == [NotOwnerError]
    assert [data for _, data in world.topic()] == [b"a"]


def test_rule_50_a_new_owner_that_has_fenced_and_not_written_the_list_yet_loses_to_the_old_one() -> None:
    world = World()
    owner = writing(world, b"a")
    owner.publish(b"b")
    kinds(owner)
    second = Owner(world, "two")
    second.carry_out()
    second.carry_out()
    owner.fail_handle(0)
    owner.run()
    second.run()
    assert owner.published == [(Position(0, 0), b"a"), (Position(1, 0), b"b")]
    assert [type(error) for error in second.ended] == [NotOwnerError]


def test_another_ledger_is_begun_for_what_comes_next_when_one_would_be_better() -> None:
    world = World()
    owner = serving(world)
    owner.step(RollRequested())
    assert kinds(owner) == [], "no ledger is open"
    owner.publish(b"a")
    owner.run()
    owner.publish(b"b")
    owner.step(RollRequested())
    owner.publish(b"c")
    owner.run()
    assert owner.published == [(Position(0, 0), b"a"), (Position(0, 1), b"b"), (Position(1, 0), b"c")]
    owner.step(RollRequested())
    assert kinds(owner) == [CloseLedger, CasList]
    assert [ledger.is_open for ledger in world.ledger_list.ledgers] == [False, False]


def test_a_topic_is_terminated_after_what_came_before() -> None:
    world = World()
    owner = writing(world, b"a")
    owner.publish(b"b")
    owner.step(TerminateRequested())
    assert isinstance(owner.machine.refusal, TopicTerminatedError)
    owner.run()
    assert [data for _, data in owner.published] == [b"a", b"b"]
    assert world.ledger_list.state is ListState.TERMINATED
    assert world.ledger_list.last_confirmed == Position(0, 1)
    owner.step(TerminateRequested())
    assert kinds(owner) == []
    later = serving(world, "two")
    assert isinstance(later.machine.refusal, TopicTerminatedError)
    assert world.ledger_list.state is ListState.TERMINATED


def test_a_topic_without_messages_is_terminated() -> None:
    world = World()
    owner = serving(world)
    owner.step(TerminateRequested())
    assert kinds(owner) == [CasList]
    assert world.ledger_list.state is ListState.TERMINATED


def test_a_failed_ledger_without_messages_is_recorded() -> None:
    world = World()
    owner = writing(world, b"a")
    owner.fail_handle(0)
    owner.fail()
    owner.tick(POLICY.retry_ms)
    owner.carry_out()
    owner.fail()
    owner.tick(POLICY.retry_ms)
    assert kinds(owner) == [ReadList, RecoverLedger, CasList]
    assert world.ledger_list.state is ListState.CLOSED


def test_rule_50_an_owner_whose_failed_ledger_was_trimmed_by_the_next_one_stops() -> None:
    world = World()
    owner = writing(world, b"a")
    owner.publish(b"b")
    kinds(owner)
    owner.fail_handle(0)
    owner.carry_out()
    second = serving(world, "two")
    second.step(TrimRequested((), Retention()))
    second.run()
    assert kinds(owner) == [RecoverLedger]
    owner.tick(POLICY.retry_ms)
    assert kinds(owner) == [ReadList]
    assert owner.failed == [b"b"]
    assert [type(error) for error in owner.ended] == [NotOwnerError]


def test_rule_61_an_owner_whose_ledger_was_closed_without_what_it_acknowledged_gives_the_topic_up() -> None:
    """What it told its readers does not exist any more; a new owner begins with what does."""
    world = World()
    owner = writing(world, b"a", b"b")
    owner.publish(b"c")
    kinds(owner)
    world.ledgers[0].entries.pop()
    world.ledgers[0].close()
    owner.fail_handle(0)
    assert kinds(owner) == [ReadList, RecoverLedger]
    assert owner.failed == [b"c"]
    assert [type(error) for error in owner.ended] == [NotOwnerError]
    second = writing(world, b"d", token="two")
    assert second.ended == []
    assert [data for _, data in world.topic()] == [b"a", b"d"]


def test_rule_61_an_idle_ledger_that_was_closed_without_what_it_acknowledged_ends_the_ownership_too() -> None:
    world = World()
    owner = writing(world, b"a", b"b")
    owner.tick(POLICY.idle_ms_max)
    close = owner.asked.popleft()
    assert isinstance(close, CloseLedger)
    owner.step(LedgerEnded(close.request_id, 1, 1))
    assert [type(error) for error in owner.ended] == [NotOwnerError]


def test_rule_61_a_ledger_may_be_closed_before_the_horizon_of_a_compaction() -> None:
    """The compacted ledgers have the entries up to there, so their positions stay used."""
    world = World()
    owner = writing(world, b"a", b"b")
    owner.step(CompactionWritten(Compaction(Position(0, 1))))
    owner.run()
    world.ledgers[0].entries.clear()
    world.ledgers[0].close()
    second = writing(world, b"c", token="two")
    assert second.ended == []
    assert world.ledger_list.last_confirmed == Position(0, 1)
    assert [ledger.follows for ledger in world.ledger_list.ledgers] == [NO_POSITION, Position(0, 1)]
    assert [data for _, data in world.topic()] == [b"c"]


def idle_and_closing(world: World) -> Owner:
    """An owner that is about to close its idle ledger."""
    owner = writing(world, b"a")
    owner.tick(POLICY.idle_ms_max)
    assert isinstance(owner.asked[0], CloseLedger)
    return owner


def test_a_close_without_an_answer_is_settled_by_a_recovery() -> None:
    owner = idle_and_closing(World())
    owner.fail(applied=True)
    assert kinds(owner) == [ReadList, RecoverLedger, CasList]


def test_a_handle_that_fails_while_it_is_closed_is_recovered_too() -> None:
    world = World()
    owner = idle_and_closing(world)
    close = owner.asked.popleft()
    assert isinstance(close, CloseLedger)
    owner.fail_handle(0)
    owner.step(LedgerRequestFailed(close.request_id, TIME_OUT))
    assert kinds(owner) == [ReadList, RecoverLedger, CasList]
    assert world.ledger_list.ledgers[0].entries == 1


# Trimming


def with_ledgers(*entries: int) -> tuple[World, Owner]:
    """A topic of one closed ledger for each number of entries, and its owner."""
    world = World()
    owner = serving(world)
    for count in entries:
        owner.publish(*[b"x"] * count)
        owner.run()
        owner.tick(POLICY.idle_ms_max)
        owner.run()
    return world, owner


def test_rule_51_what_nobody_needs_is_trimmed_while_messages_are_published() -> None:
    world, owner = with_ledgers(1)
    owner.publish(b"a")
    owner.run()
    owner.step(TrimRequested((), Retention()))
    owner.publish(b"b")
    assert kinds(owner) == [CasList, Append, DeleteLedger]
    owner.run()
    assert [data for _, data in world.topic()] == [b"a", b"b"]


def test_rule_51_a_ledger_that_is_named_says_which_entry_was_the_last_before_it() -> None:
    world, owner = with_ledgers(2)
    owner.publish(b"c")
    owner.run()
    before = [NO_POSITION, *(ledger.last_position for ledger in world.ledger_list.ledgers)]
    follows = [ledger.follows for ledger in world.ledger_list.ledgers]
    assert follows == before[:-1]
    owner.step(TrimRequested((), Retention()))
    owner.run()
    assert [ledger.follows for ledger in world.ledger_list.ledgers] == follows[-1:]


def test_rule_51_a_trim_that_cannot_begin_at_once_is_dropped_because_its_marks_hold_only_now() -> None:
    world, owner = with_ledgers(1)
    owner.publish(b"a")
    owner.carry_out()
    owner.step(TrimRequested((), Retention()))
    assert kinds(owner) == [CasList, Append]
    assert world.ledgers.keys() == {0, 1}, "a seek may have gone back to ledger 0 meanwhile"
    owner.step(TrimRequested((Position(0, -1),), Retention()))
    assert kinds(owner) == []
    owner.step(TrimRequested((Position(0, 0),), Retention()))
    assert kinds(owner) == [CasList, DeleteLedger]
    assert world.named_now() == {1}


def without_room(world: World) -> Owner:
    """An owner whose ledger failed, and for whose next message none can be created."""
    owner = writing(world, b"a")
    owner.publish(b"b")
    kinds(owner)
    owner.fail_handle(0)
    assert [type(owner.carry_out()) for _ in range(2)] == [ReadList, RecoverLedger]
    owner.fail()
    return owner


def test_while_no_ledger_can_be_created_the_end_of_the_last_one_is_recorded_and_ledgers_are_trimmed() -> None:
    world = World()
    owner = without_room(world)
    assert isinstance(owner.carry_out(), CasList)
    assert (world.ledger_list.state, world.ledger_list.last_confirmed) == (ListState.CLOSED, Position(0, 0))
    owner.step(TrimRequested((), Retention()))
    assert isinstance(owner.fail(), CreateLedger), "the trim came while it was under way, and was dropped"
    assert not owner.asked
    owner.step(TrimRequested((Position(0, -1),), Retention()))
    assert not owner.asked
    owner.step(TrimRequested((Position(0, 0),), Retention()))
    owner.tick(POLICY.retry_ms)
    assert kinds(owner) == [CasList, DeleteLedger, CreateLedger, CasList, Append]
    owner.run()
    assert owner.published == [(Position(0, 0), b"a"), (Position(1, 0), b"b")]
    assert world.ledgers.keys() == {1}
    assert world.ledger_list.ledgers[0].follows == Position(0, 0)


def test_while_no_ledger_can_be_created_the_list_changes_and_the_next_attempt_comes_after_its_pause() -> None:
    world = World()
    owner = without_room(world)
    owner.carry_out()
    owner.fail()
    assert owner.news[-1] == Retrying(TIME_OUT)
    owner.tick(POLICY.retry_ms - 1)
    assert not owner.asked
    owner.tick(1)
    owner.step(CompactionWritten(Compaction(Position(0, 0))))
    owner.step(OffloadBegun("job"))
    assert isinstance(owner.fail(), CreateLedger)
    assert [type(owner.carry_out()) for _ in range(2)] == [CasList, CasList]
    assert (world.ledger_list.compaction, world.ledger_list.offload_job) == (
        Compaction(Position(0, 0)),
        "job",
    )
    owner.run()
    assert [data for _, data in owner.published] == [b"a", b"b"]


def test_a_deletion_that_fails_is_repeated_after_a_pause() -> None:
    world, owner = with_ledgers(1, 1)
    owner.step(TrimRequested((), Retention()))
    owner.carry_out()
    owner.fail()
    owner.fail()
    assert owner.news[-1] == Retrying(TIME_OUT)
    owner.tick(POLICY.retry_ms)
    assert kinds(owner) == [DeleteLedger, DeleteLedger]
    assert world.ledgers == {}


def test_a_handle_that_fails_during_a_trim_is_recovered_after_it() -> None:
    world, owner = with_ledgers(1)
    owner.publish(b"a")
    kinds(owner)
    owner.step(TrimRequested((), Retention()))
    owner.fail_handle(1)
    owner.publish(b"b")
    assert kinds(owner) == [CasList, DeleteLedger, ReadList, RecoverLedger, CreateLedger, CasList, Append]
    owner.run()
    assert [data for _, data in world.topic()] == [b"a", b"b"]


def test_rule_38_an_owner_that_was_superseded_trims_nothing() -> None:
    world, owner = with_ledgers(1)
    serving(world, "two")
    owner.step(TrimRequested((), Retention()))
    assert kinds(owner) == [CasList, ReadList]
    assert world.ledgers.keys() == {0}
    assert [type(error) for error in owner.ended] == [NotOwnerError]


def test_rule_38_what_an_owner_took_out_of_the_list_before_it_was_superseded_is_deleted() -> None:
    world, owner = with_ledgers(1)
    owner.step(TrimRequested((), Retention()))
    owner.fail(applied=True)
    serving(world, "two")
    assert kinds(owner) == [ReadList, DeleteLedger]
    assert world.ledgers == {}
    assert [type(error) for error in owner.ended] == [NotOwnerError]
