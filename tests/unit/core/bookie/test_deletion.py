"""Which ledgers a bookie may delete (rule 28)."""

from daybook.core.bookie.deletion import DeletionCycle
from tests.unit.core.bookie.test_bookie import OPEN


def test_rule_28_only_what_a_listing_lacks_and_a_read_does_not_find_is_deleted() -> None:
    cycle = DeletionCycle([1, 2, 3, 4, 9], next_id=9, existing={1})
    assert (cycle.missing, cycle.never_created) == ([2, 3, 4], [9])
    assert not cycle.metadata_read(2, OPEN), "the listing was short"
    assert cycle.metadata_read(3, None)
    assert list(cycle.take_certain(at_least=2)) == []
    assert cycle.metadata_read(4, None)
    assert list(cycle.take_certain(at_least=2)) == [[3, 4]]
    assert list(cycle.take_certain()) == []
