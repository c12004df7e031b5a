"""Lists of ledgers for tests of what moves along a topic."""

from hypothesis import strategies as st

from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import NO_POSITION, LedgerList, ListedLedger, ListState, Position


def closed_list(*ledgers: tuple[int, int], last_confirmed: Position = NO_POSITION) -> LedgerList:
    """A list of closed ledgers, each an id and its number of entries."""
    listed = tuple(
        ListedLedger(ledger_id, 0, entries=entries, closed_at_ms=1) for ledger_id, entries in ledgers
    )
    last = max([last_confirmed, *(ledger.last_position for ledger in listed if ledger.entries)])
    return LedgerList(ListState.CLOSED, listed, last)


def open_list(*ledgers: tuple[int, int], open_id: int, last_confirmed: Position = NO_POSITION) -> LedgerList:
    """The same with a ledger that is open."""
    before = closed_list(*ledgers, last_confirmed=last_confirmed)
    listed = (*before.ledgers, ListedLedger(open_id, 0))
    return LedgerList(ListState.OPEN, listed, before.last_confirmed)


def extent_of(*ledgers: tuple[int, int], open_with: tuple[int, int] | None = None) -> TopicExtent:
    """A topic of closed ledgers, and of an open one with so many acknowledged entries."""
    if open_with is None:
        return TopicExtent(closed_list(*ledgers))
    extent = TopicExtent(open_list(*ledgers, open_id=open_with[0]))
    if open_with[1]:
        extent.confirm(Position(open_with[0], open_with[1] - 1))
    return extent


@st.composite
def topics(draw: st.DrawFn) -> tuple[TopicExtent, list[Position]]:
    """A topic of any shape, and its entries in order."""
    ids = sorted(draw(st.sets(st.integers(0, 5), max_size=4)))
    ledgers = [(ledger_id, draw(st.integers(0, 6))) for ledger_id in ids]
    is_open = bool(ledgers) and draw(st.booleans())
    extent = extent_of(*ledgers[:-1], open_with=ledgers[-1]) if is_open else extent_of(*ledgers)
    return extent, [Position(ledger_id, n) for ledger_id, entries in ledgers for n in range(entries)]


positions = st.builds(Position, st.integers(-1, 6), st.integers(-1, 7))
