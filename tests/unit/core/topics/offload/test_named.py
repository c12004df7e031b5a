"""The owner of a topic names the files of a run, and gives replicas up after that: rule 70."""

import pytest

from daybook.core.errors import LedgersNeededError, MetadataError, NotOwnerError, PlanOutdatedError
from daybook.core.topics.events import Append, CasList, DeleteLedger, ReadList, RollRequested, TrimRequested
from daybook.core.topics.offload.changes import OffloadBegun, ReplicasUnneeded, check_files
from daybook.core.topics.offload.record import Offload
from daybook.core.topics.trimming import Retention
from tests.unit.core.topics.lists import open_list
from tests.unit.core.topics.offload.kit import JOB, LATER_JOB, offload, offloaded_list, written
from tests.unit.core.topics.world import Owner, World, kinds, serving, writing


def rolled() -> tuple[World, Owner]:
    """A topic with a closed ledger of two entries and an open one of one, and a run that has begun."""
    world = World()
    owner = writing(world, b"a", b"b")
    owner.step(RollRequested())
    owner.publish(b"c")
    owner.run()
    owner.step(OffloadBegun(JOB))
    owner.run()
    assert [ledger.ledger_id for ledger in world.ledger_list.ledgers] == [0, 1]
    assert world.ledger_list.offload_job == JOB
    return world, owner


def file_of(world: World) -> Offload:
    """What the list says of the first ledger."""
    found = world.ledger_list.ledgers[0].offload
    assert found is not None
    return found


def offloaded() -> tuple[World, Owner]:
    """The same with a file."""
    world, owner = rolled()
    owner.step(written((0, 2), entry_bytes=1))
    assert kinds(owner) == [CasList]
    assert file_of(world) == offload(0, 2)
    return world, owner


def test_rule_70_replicas_go_by_a_change_of_their_own_and_entries_keep_their_positions() -> None:
    world, owner = offloaded()
    assert 0 in world.ledgers
    owner.step(ReplicasUnneeded({0: file_of(world)}))
    assert kinds(owner) == [CasList, DeleteLedger]
    assert world.ledgers.keys() == {1}
    assert file_of(world) == offload(0, 2).without_replicas
    assert world.ledger_list.ledgers[0].entries == 2


def test_rule_70_while_nobody_knows_whether_the_list_gave_replicas_up_they_stay() -> None:
    world, owner = offloaded()
    owner.step(ReplicasUnneeded({0: file_of(world)}))
    owner.fail()
    assert 0 in world.ledgers
    assert kinds(owner) == [ReadList, CasList, DeleteLedger]
    assert 0 not in world.ledgers


def test_rule_70_replicas_stay_if_the_list_names_another_file_than_the_one_that_was_read() -> None:
    world, owner = offloaded()
    read = file_of(world)
    owner.step(OffloadBegun(LATER_JOB))
    owner.step(written((0, 2), job=LATER_JOB, entry_bytes=1))
    owner.step(ReplicasUnneeded({0: read}))
    assert kinds(owner) == [CasList, CasList]
    assert file_of(world).place == offload(0, 2, job=LATER_JOB).place
    assert 0 in world.ledgers


@pytest.mark.parametrize("is_applied", [False, True])
def test_rule_70_an_owner_that_was_superseded_deletes_what_the_next_ones_list_does_not_name(
    is_applied: bool,
) -> None:
    world, owner = offloaded()
    owner.step(ReplicasUnneeded({0: file_of(world)}))
    owner.fail(applied=is_applied)
    serving(world, "two")
    owner.run()
    assert [type(error) for error in owner.ended] == [NotOwnerError]
    assert (0 in world.ledgers) is not is_applied


def test_a_trim_drops_an_offloaded_ledger_with_its_replicas_or_without() -> None:
    for gives_up in (False, True):
        world, owner = offloaded()
        if gives_up:
            owner.step(ReplicasUnneeded({0: file_of(world)}))
            owner.run()
        owner.step(TrimRequested((), Retention()))
        assert kinds(owner) == [CasList, *([] if gives_up else [DeleteLedger])]
        assert world.ledger_list.ids == world.ledgers.keys() == {1}


def test_messages_go_on_while_the_list_changes_and_orders_keep_their_turn() -> None:
    world, owner = rolled()
    owner.step(written((0, 2), entry_bytes=1))
    owner.step(OffloadBegun(LATER_JOB))
    owner.publish(b"d")
    assert kinds(owner) == [CasList, Append, CasList]
    owner.run()
    assert [data for _, data in owner.published] == [b"a", b"b", b"c", b"d"]
    assert world.ledger_list.offload_job == LATER_JOB


def test_rule_70_a_run_that_another_one_has_followed_names_nothing() -> None:
    world, owner = rolled()
    slow = written((0, 2), entry_bytes=1)
    owner.step(OffloadBegun(LATER_JOB))
    owner.step(slow)
    orders = owner.machine.orders
    assert (orders.taken, orders.settled) == (3, 1), "the change of the later run is under way"
    assert kinds(owner) == [CasList]
    assert (orders.taken, orders.settled) == (3, 3), "what came after it was none, and is settled with it"
    owner.step(OffloadBegun(LATER_JOB))
    assert (orders.taken, orders.settled) == (4, 4), "none at once"
    assert world.ledger_list.ledgers[0].offload is None
    with pytest.raises(PlanOutdatedError, match="another run has begun to offload the topic"):
        check_files(world.ledger_list, slow)


def test_an_answer_that_was_lost_is_no_reason_to_name_a_file_again() -> None:
    world, owner = rolled()
    assert not check_files(world.ledger_list, written((0, 2), entry_bytes=1))
    owner.step(written((0, 2), entry_bytes=1))
    owner.run()
    assert check_files(world.ledger_list, written((0, 2), entry_bytes=1))
    owner.step(written((0, 2), entry_bytes=1))
    assert kinds(owner) == []
    owner.step(OffloadBegun(LATER_JOB))
    owner.run()
    assert check_files(world.ledger_list, written((0, 2), entry_bytes=1)), "whatever has begun since"


def test_files_of_ledgers_that_are_no_longer_what_was_copied_are_not_named() -> None:
    world, owner = rolled()
    owner.step(TrimRequested((), Retention()))
    owner.run()
    owner.step(written((0, 2), (1, 1), entry_bytes=1))
    assert kinds(owner) == []
    assert world.ledger_list.ledgers[0].offload is None
    world, owner = rolled()
    owner.step(written((0, 3), entry_bytes=1))
    assert kinds(owner) == []
    world, owner = offloaded()
    owner.step(ReplicasUnneeded({0: file_of(world)}))
    owner.step(OffloadBegun(LATER_JOB))
    owner.step(written((0, 2), job=LATER_JOB, entry_bytes=1))
    assert kinds(owner) == [CasList, DeleteLedger, CasList], "the only copy stays the one that is named"


def test_a_file_that_no_list_can_name_is_refused_before_the_topic_is_asked() -> None:
    with pytest.raises(MetadataError, match="0 entries"):
        written((0, 0))


def test_rule_70_a_file_is_named_only_for_the_ledger_that_was_copied() -> None:
    found = offloaded_list({3: None, 4: offload(4, 10).without_replicas})
    assert not check_files(found, written((3, 10)))
    for files, what in (((3, 9), "the plan says 9"), ((5, 1), "no ledger 5"), ((4, 10), "")):
        if what:
            with pytest.raises(PlanOutdatedError, match=what):
                check_files(found, written(files))
        else:
            assert check_files(found, written(files))
    again = offloaded_list({4: offload(4, 10).without_replicas}, job=LATER_JOB)
    with pytest.raises(PlanOutdatedError, match="its file is the only copy: leave it out"):
        check_files(again, written((4, 10), job=LATER_JOB))
    with pytest.raises(LedgersNeededError, match="is being written"):
        check_files(open_list(open_id=6), written((6, 1)))
