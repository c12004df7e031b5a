"""Cuts of a ledger: ranges of about one size, none of which crosses the border of a fragment.

Ranges of one fragment are read from the same bookies. Metadata has the bytes before each fragment, and of a closed ledger the bytes
of all: entries are taken to have their fragment's average size.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from daybook.core.ids import EntryId
from daybook.core.ledger.metadata import LedgerMetadata

ENTRY_BYTES_GUESS: Final = 1024
"""Of an open ledger's first fragment, about whose entries metadata says nothing."""


class Cut(NamedTuple):
    """Entries first … last, both included."""

    first: EntryId
    last: EntryId


def cut_ledger(metadata: LedgerMetadata, first: EntryId, last: EntryId, range_bytes: int) -> Iterator[Cut]:
    """The entries first … last as ranges of about `range_bytes`, each entry in exactly one of them; none if there are none."""
    for index, fragment in enumerate(metadata.fragments):
        begin = max(first, fragment.first_entry)
        end = metadata.fragment_end(index)
        until = last if end is None else min(last, end)
        entries_max = max(1, int(range_bytes // average_bytes(metadata, index)))
        while begin <= until:
            cut = Cut(begin, min(until, begin + entries_max - 1))
            yield cut
            begin = cut.last + 1


def cut_file(entry_bytes: float, first: EntryId, last: EntryId, range_bytes: int) -> Iterator[Cut]:
    """The same of a ledger in a file, which has no fragments."""
    entries_max = max(1, int(range_bytes // entry_bytes))
    for begin in range(first, last + 1, entries_max):
        yield Cut(begin, min(last, begin + entries_max - 1))


def average_bytes(metadata: LedgerMetadata, index: int) -> float:
    """How large an entry of a fragment is on average, at least 1; that of the fragments before where it is not known."""
    fragment, end = metadata.fragments[index], metadata.fragment_end(index)
    if end is not None and end >= fragment.first_entry:
        is_last = index + 1 == len(metadata.fragments)
        until = metadata.length if is_last else metadata.fragments[index + 1].length_before
        return max(1.0, (until - fragment.length_before) / (end - fragment.first_entry + 1))
    if fragment.first_entry:
        return max(1.0, fragment.length_before / fragment.first_entry)
    return ENTRY_BYTES_GUESS
