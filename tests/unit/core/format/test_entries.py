"""Entries as columns behave as a tuple of entries, which is what their users see."""

from hypothesis import given
from hypothesis import strategies as st

from daybook.core.format.entries import Entry, EntryRun, joined, payloads_of

RUN = EntryRun(range(3, 6), [b"a", b"bb", b"ccc"])
ENTRIES = (Entry(3, b"a"), Entry(4, b"bb"), Entry(5, b"ccc"))


def test_a_run_is_a_sequence_of_its_entries() -> None:
    assert tuple(RUN) == ENTRIES
    assert (RUN[0], RUN[-1]) == (ENTRIES[0], ENTRIES[-1])
    assert RUN[-1].entry_id == 5
    assert (len(RUN), bool(RUN), bool(RUN[:0])) == (3, True, False)
    assert isinstance(RUN[1:], EntryRun)
    assert RUN[1:] == ENTRIES[1:]


def test_a_run_is_equal_to_any_sequence_of_the_same_entries() -> None:
    assert ENTRIES == RUN == list(ENTRIES)
    assert ENTRIES[1:] != RUN
    assert RUN != 3
    assert repr(RUN[:1]) == "EntryRun((Entry(entry_id=3, data=b'a'),))"


def test_payloads_are_those_of_runs_and_of_tuples() -> None:
    assert payloads_of(RUN) is RUN.payloads
    assert payloads_of(ENTRIES) == RUN.payloads


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(1, 4))
def test_runs_are_joined_with_and_without_gaps(steps: list[int], pieces: int) -> None:
    ids: list[int] = []
    for step in steps:
        ids.append((ids[-1] if ids else 7) + 1 + max(0, step - 2))
    payloads = [b"%d" % entry_id for entry_id in ids]
    cuts = [EntryRun(ids[n::1][:pieces], payloads[n::1][:pieces]) for n in range(0, len(ids), pieces)]
    found = joined(cuts)
    assert found == list(map(Entry, ids, payloads))
    if len(cuts) > 1 and ids[-1] - ids[0] + 1 == len(ids):
        assert found.entry_ids == range(ids[0], ids[-1] + 1)
