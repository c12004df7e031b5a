"""What one reader knows: it learns from every part of itself, and nothing goes back (rule 59)."""

import pytest

from daybook.core.effects import LacKnown, MetadataKnown
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
