"""Cuts of a ledger: each entry in exactly one range, whatever the fragments are."""

from daybook_spark.plan.ranges import cut_ledger
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.ledger.metadata import Fragment, LedgerMetadata, LedgerState
from daybook.core.quorum import Quorum

BOOKIES = ("a", "b", "c")


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    """A ledger with some fragments, closed or not."""
    counts = draw(st.lists(st.integers(1, 30), max_size=4))
    sizes = [draw(st.integers(0, 5_000)) for _ in counts]
    fragments, first, length = [Fragment(0, 0, BOOKIES)], 0, 0
    for count, size in zip(counts, sizes, strict=True):
        first, length = first + count, length + count * size
        fragments.append(Fragment(first, length, BOOKIES))
    metadata = LedgerMetadata(7, Quorum(3, 3, 2), tuple(fragments))
    if draw(st.booleans()):
        return metadata
    more = draw(st.integers(0, 30))
    return metadata.closed(first + more - 1, length + more * draw(st.integers(0, 5_000)))


@given(ledgers(), st.integers(0, 150), st.integers(0, 150), st.integers(1, 40_000))
def test_each_entry_is_in_exactly_one_range(
    metadata: LedgerMetadata, first: int, last: int, size: int
) -> None:
    if metadata.state is LedgerState.CLOSED:
        last = min(last, metadata.last_entry)
    cuts = list(cut_ledger(metadata, first, last, size))
    assert [entry for cut in cuts for entry in range(cut.first, cut.last + 1)] == list(range(first, last + 1))
    for cut in cuts:
        assert metadata.fragment_index(cut.first) == metadata.fragment_index(cut.last)
