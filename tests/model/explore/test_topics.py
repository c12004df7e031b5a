"""Two owners of a topic in every order of what they do, within small bounds; and a rule that is taken out is found."""

from collections.abc import Callable

import pytest

from tests.model.explore.bounds import SMALL_TOPICS
from tests.model.explore.explorer import Found
from tests.model.explore.parts import TopicBounds
from tests.model.explore.topics import explore_topic
from tests.model.mutants.catalog import topics as topic_mutants


@pytest.mark.parametrize("bounds", SMALL_TOPICS, ids=str)
def test_rule_38_whatever_two_owners_do_in_whatever_order_the_topic_is_sound(bounds: TopicBounds) -> None:
    report = explore_topic(bounds)
    print(report)
    assert report.is_complete
    assert report.worlds > 300
    assert report.superseded, "no owner ever lost the topic"
    assert report.rolled, "no topic ever had two ledgers"


Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize(
    ("patch", "bounds"),
    [
        (topic_mutants.a_new_owner_does_not_recover, TopicBounds(messages=1)),
        (topic_mutants.a_receipt_does_not_wait_for_the_ledger, TopicBounds(messages=1)),
        (topic_mutants.any_list_that_is_read_is_the_own_one, TopicBounds(messages=1)),
        (topic_mutants.a_list_is_written_whoever_owns_it, TopicBounds(messages=1)),
        (topic_mutants.all_that_was_not_acknowledged_is_sent_again, TopicBounds(messages=1, fences=1)),
        (topic_mutants.a_ledger_is_deleted_that_the_next_owner_names, TopicBounds(messages=1, unknown=1)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_rule_that_is_taken_out_is_found(
    monkeypatch: pytest.MonkeyPatch, patch: Patch, bounds: TopicBounds
) -> None:
    patch(monkeypatch)
    with pytest.raises(Found):
        explore_topic(bounds)
