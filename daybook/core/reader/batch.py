"""A batch: entries from one on, as many as fit, asked of one bookie at once, without a machine.

A broker that serves consumers reads a few entries at a time, and a machine for each such read would cost more than the read.
So the common case is one request and one answer: the nearest replica that is not suspected holds what is asked for and gives
it. Whatever else happens (a failure, a gap, an ensemble without a bookie that has all of the range) gives nothing here, and
`LedgerReader` reads the same range with all its care. What may be shown is bounded as there.
"""

from collections.abc import Sequence
from itertools import accumulate, takewhile

from daybook.core.effects import SendRead
from daybook.core.events import ReadAnswered
from daybook.core.format.entries import Entry, payload_sizes
from daybook.core.ids import EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.quorum import write_set
from daybook.core.reader.reader import Rank
from daybook.core.reader.suspects import Suspects


def ask_one(
    metadata: LedgerMetadata,
    first: EntryId,
    last: EntryId,
    bytes_max: int,
    *,
    rank: Rank,
    suspects: Suspects,
    now_ms: int,
) -> SendRead | None:
    """The request for first … last to the best bookie that should have all of them; None if there is no such bookie.

    The range lies in one fragment, or it is cut at the fragment's end.
    """
    index = metadata.fragment_index(first)
    end = metadata.fragment_end(index)
    last = last if end is None else min(last, end)
    quorum, bookies = metadata.quorum, metadata.fragments[index].bookies
    if last > first and quorum.write_quorum < quorum.ensemble_size:
        return None
    best = min(
        (bookies[position] for position in write_set(quorum, first)),
        key=lambda bookie: (suspects.failures(bookie, now_ms), rank(bookie)),
    )
    return SendRead(best, 0, first, last, bytes_max)


def take_answer(ask: SendRead, answer: ReadAnswered, suspects: Suspects, now_ms: int) -> Sequence[Entry]:
    """The entries of `answer` that follow each other from the first that was asked for; none if it is of no use."""
    suspects.answered(ask.bookie, answer.code, now_ms)
    entries = answer.entries
    if not entries or entries[0].entry_id != ask.first:
        return ()
    if entries[-1].entry_id != ask.first + len(entries) - 1:
        numbered = enumerate(entries, ask.first)
        entries = tuple(entry for _, entry in takewhile(lambda pair: pair[0] == pair[1].entry_id, numbered))
    return fitting(entries, ask.bytes_max)


def fitting(entries: Sequence[Entry], bytes_max: int) -> Sequence[Entry]:
    """The first of `entries` that have at most `bytes_max` bytes of payload together; at least one."""
    sizes = payload_sizes(entries)
    if sum(sizes) <= bytes_max:
        return entries
    return entries[: max(1, sum(1 for total in accumulate(sizes) if total <= bytes_max))]
