"""The owner of a topic names what a compaction wrote, and only then deletes what the list named before: rule 41."""

import pytest

from daybook.core.errors import NotOwnerError
from daybook.core.topics.events import (
    Append,
    CasList,
    CompactionWritten,
    DeleteLedger,
    ReadList,
    TrimRequested,
    UnloadRequested,
)
from daybook.core.topics.ledger_list import CompactedLedger, Compaction, Position
from daybook.core.topics.trimming import Retention
from tests.unit.core.topics.world import Owner, World, kinds, serving, writing


def compacted(world: World, horizon: Position) -> CompactionWritten:
    """A compaction has written one ledger."""
    return CompactionWritten(Compaction(horizon, (CompactedLedger(world.create(), 1, 9, horizon),)))


def compacted_once() -> tuple[World, Owner, int]:
    """A topic with a compacted ledger, whose id it is."""
    world = World()
    owner = writing(world, b"a", b"b")
    owner.step(compacted(world, Position(0, 0)))
    owner.run()
    assert world.ledger_list.compacted_ids == {1}
    return world, owner, 1


def test_rule_41_former_compacted_ledgers_go_once_the_list_names_the_new_ones() -> None:
    world, owner, former = compacted_once()
    written = compacted(world, Position(0, 1))
    owner.step(written)
    assert kinds(owner) == [CasList, DeleteLedger]
    assert world.ledger_list.compaction == written.compaction
    assert former not in world.ledgers


def test_rule_41_while_nobody_knows_whether_the_horizon_is_stored_nothing_is_deleted() -> None:
    world, owner, former = compacted_once()
    owner.step(compacted(world, Position(0, 1)))
    owner.fail()
    assert kinds(owner) == [ReadList, CasList, DeleteLedger]
    assert former not in world.ledgers


@pytest.mark.parametrize("is_applied", [False, True])
def test_rule_41_an_owner_that_was_superseded_deletes_what_the_next_ones_list_does_not_name(
    is_applied: bool,
) -> None:
    world, owner, former = compacted_once()
    owner.step(compacted(world, Position(0, 1)))
    owner.fail(applied=is_applied)
    serving(world, "two")
    owner.run()
    assert [type(error) for error in owner.ended] == [NotOwnerError]
    assert (former in world.ledgers) is not is_applied
    assert world.ledger_list.compacted_ids <= world.ledgers.keys()


def test_messages_go_on_while_the_list_changes_and_an_unload_waits_for_it() -> None:
    world = World()
    owner = writing(world, b"a")
    owner.step(compacted(world, Position(0, 0)))
    owner.publish(b"b")
    assert kinds(owner) == [CasList, Append]
    owner.step(compacted(world, Position(0, 0)))
    owner.step(UnloadRequested())
    owner.run()
    assert [data for _, data in owner.published] == [b"a", b"b"]
    assert owner.ended == [None]
    assert world.ledger_list.compacted_ids == {2}


def test_a_compaction_holds_the_trimming_and_given_up_it_holds_nothing() -> None:
    world, owner, former = compacted_once()
    owner.step(UnloadRequested())
    owner.run()
    second = serving(world, "two")
    second.step(TrimRequested((), Retention()))
    assert kinds(second) == [], "the horizon is before the end of the ledger (rule 51)"
    second.step(CompactionWritten(None))
    assert kinds(second) == [CasList, DeleteLedger]
    second.step(TrimRequested((), Retention()))
    assert kinds(second) == [CasList, DeleteLedger]
    assert world.ledger_list.compaction is None
    assert not world.ledgers, f"{former} and the topic's own"
