"""What one reader knows: it learns from every part of itself, and nothing goes back (rule 59)."""

from dataclasses import dataclass

import pytest

from daybook.core.effects import LacKnown, MetadataKnown
from daybook.core.ids import EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.reader.view import LedgerView
from tests.unit.core.small_cluster import Cluster

OPEN = Cluster(spares=2).meta
MOVED = OPEN.with_ensemble(6, 18, ("b4", "b2", "b3"))
CLOSED = MOVED.closed(9, 30)


def test_a_view_begins_with_what_metadata_confirms() -> None:
    assert [LedgerView(each).last_add_confirmed for each in (OPEN, MOVED, CLOSED)] == [-1, 5, 9]


def test_rule_59_what_one_part_finds_out_the_next_one_begins_with() -> None:
    view = LedgerView(OPEN)
    view.learn(MetadataKnown(MOVED))
    assert (view.metadata, view.last_add_confirmed) == (MOVED, 5)
    view.learn(LacKnown(7))
    assert view.follow().metadata == MOVED
    assert view.follow().last_add_confirmed == 7
    assert view.read(0, 7).metadata == MOVED
    assert view.refresh().metadata == MOVED
    view.learn(LacKnown(9, CLOSED))
    assert (view.metadata, view.last_add_confirmed) == (CLOSED, 9)


def test_rule_59_nothing_goes_back_when_parts_report_late() -> None:
    view = LedgerView(MOVED)
    view.learn(LacKnown(8))
    view.learn(LacKnown(6))
    view.learn(MetadataKnown(OPEN))
    assert (view.metadata, view.last_add_confirmed) == (MOVED, 8)
    replaced = OPEN.with_ensemble(6, 18, ("b4", "b5", "b3"))
    view.learn(MetadataKnown(replaced))
    assert view.metadata == replaced
    view.learn(MetadataKnown(CLOSED))
    view.learn(MetadataKnown(MOVED))
    view.learn(LacKnown(7))
    assert (view.metadata, view.last_add_confirmed) == (CLOSED, 9)


def test_rule_12_a_close_before_what_was_shown_is_an_alarm() -> None:
    view = LedgerView(OPEN)
    view.learn(LacKnown(10))
    with pytest.raises(AssertionError, match="rule 12"):
        view.learn(LacKnown(9, CLOSED))


@dataclass
class Handle:
    """A writer's handle as a reader in its process sees it."""

    metadata: LedgerMetadata = OPEN
    last_add_confirmed: EntryId = -1
    is_over: bool = False


def test_rule_59_a_reader_of_the_own_handle_knows_what_it_knows() -> None:
    handle = Handle()
    view = LedgerView(OPEN, handle)
    assert view.follow_writer()
    handle.last_add_confirmed = 5
    handle.metadata = MOVED
    assert view.follow_writer()
    assert (view.metadata, view.last_add_confirmed) == (MOVED, 5)
    handle.metadata, handle.is_over = CLOSED, True
    assert view.follow_writer(), "a close is final: nobody has to be asked"
    assert (view.metadata, view.last_add_confirmed) == (CLOSED, 9)
    assert view.follow_writer()


def test_rule_59_a_repair_that_the_writer_does_not_know_of_is_not_forgotten() -> None:
    handle = Handle(MOVED, 7)
    view = LedgerView(MOVED, handle)
    repaired = MOVED.with_replica(0, "b1", "b5")
    view.learn(MetadataKnown(repaired))
    assert view.follow_writer()
    assert (view.metadata, view.last_add_confirmed) == (repaired, 7)


def test_rule_59_a_handle_that_is_over_is_not_followed_any_more() -> None:
    """Another client may recover the ledger and close it beyond what this handle confirmed."""
    handle = Handle(OPEN, 4)
    view = LedgerView(OPEN, handle)
    handle.is_over = True
    assert not view.follow_writer()
    assert view.last_add_confirmed == 4
    view.learn(LacKnown(9, CLOSED))
    assert view.follow_writer()
    assert view.last_add_confirmed == 9
