"""Where a time is in a topic."""

from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from daybook_broker.topics.by_time import last_before
from daybook_broker.topics.compacted_reads import CompactedReads
from daybook_broker.topics.read_ahead import ReadAhead, Run

from daybook.client.by_time import WITHOUT_TIME_MAX
from daybook.core.topics.compaction.record import encode_compacted
from daybook.core.topics.dispatch.entries import TopicEntry
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import (
    NO_POSITION,
    CompactedLedger,
    Compaction,
    LedgerList,
    ListedLedger,
    ListState,
    Position,
)
from daybook.wire.pulsar.producer_entry import check_producer_entry
from tests.unit.wire.pulsar.kit import UNREADABLE, published


class Reads:
    """Entries that were published at 10, 20, 30, … over three ledgers, of which the second has none."""

    def __init__(self, gone: Collection[Position] = (), unreadable: Collection[Position] = ()) -> None:
        self.gone = gone
        self.unreadable = unreadable
        self.reads = 0

    async def read_exact(self, positions: Sequence[Position]) -> list[TopicEntry]:
        self.reads += 1
        found = []
        for position in positions:
            if position not in self.gone:
                rank = position.entry_id + (100 if position.ledger_id == 3 else 0)
                data = UNREADABLE if position in self.unreadable else published(10 * (rank + 1))
                found.append(TopicEntry(position, data, 1))
        return found


def reads_with(unreadable: Collection[Position]) -> Any:
    """Reads of a topic in which nobody can read the metadata of these entries."""
    return Reads(unreadable=unreadable)


LEDGERS = tuple(
    ListedLedger(ledger_id, 0, entries=entries, closed_at_ms=1)
    for ledger_id, entries in ((1, 100), (2, 0), (3, 50))
)


@pytest.mark.parametrize(
    ("unix_ms", "position"),
    [
        (0, Position(1, -1)),
        (10, Position(1, -1)),
        (11, Position(1, 0)),
        (1_000, Position(1, 98)),
        (1_001, Position(1, 99)),
        (1_011, Position(3, 0)),
        (1_500, Position(3, 48)),
        (10**12, Position(3, 49)),
    ],
)
async def test_the_last_entry_before_a_time_is_found_by_few_reads(unix_ms: int, position: Position) -> None:
    extent = TopicExtent(LedgerList(ListState.CLOSED, LEDGERS, Position(3, 49)))
    reads: Any = Reads()
    assert await last_before(extent, reads, unix_ms) == position
    assert reads.reads <= 8


async def test_an_entry_that_was_trimmed_meanwhile_counts_as_earlier() -> None:
    extent = TopicExtent(LedgerList(ListState.CLOSED, LEDGERS, Position(3, 49)))
    reads: Any = Reads([Position(1, entry_id) for entry_id in range(100)])
    assert await last_before(extent, reads, 1_020) == Position(3, 0)


async def test_an_empty_topic_has_nothing_before_any_time() -> None:
    reads: Any = Reads()
    assert await last_before(TopicExtent(LedgerList()), reads, 5) == NO_POSITION


@pytest.mark.parametrize(
    "times", [(500, Position(1, 48)), (1_200, Position(3, 18)), (1_500, Position(3, 48))]
)
async def test_an_entry_whose_metadata_cannot_be_read_hides_no_time(times: tuple[int, Position]) -> None:
    check_producer_entry(UNREADABLE)
    unix_ms, position = times
    extent = TopicExtent(LedgerList(ListState.CLOSED, LEDGERS, Position(3, 49)))
    found = [
        await last_before(extent, reads_with([unreadable]), unix_ms)
        for ledger in LEDGERS
        for unreadable in (Position(ledger.ledger_id, each) for each in range(ledger.entries))
    ]
    beside = {extent.before(position), position, extent.after(position)}
    assert set(found) <= beside, "one that has no time is among those of the time before it"


async def test_an_entry_that_cannot_be_read_expires_with_those_before_it() -> None:
    extent = TopicExtent(LedgerList(ListState.CLOSED, LEDGERS, Position(3, 49)))
    assert await last_before(extent, reads_with([Position(3, 49)]), 10**12) == Position(3, 49)


async def test_many_entries_that_cannot_be_read_take_no_newer_ones_with_them() -> None:
    extent = TopicExtent(LedgerList(ListState.CLOSED, LEDGERS, Position(3, 49)))
    many = [Position(1, each) for each in range(10, 100)] + [Position(3, each) for each in range(40)]
    assert len(many) > WITHOUT_TIME_MAX
    reads = reads_with(many)
    assert await last_before(extent, reads, 5) == extent.before(extent.first)
    assert await last_before(extent, reads, 55) == Position(1, 4)
    assert Position(1, 9) <= await last_before(extent, reads, 10**12) <= Position(3, 49)
    assert reads.reads <= 3 * 8 * WITHOUT_TIME_MAX, "however many there are, a search is short"


@pytest.mark.parametrize("unreadable", range(4))
async def test_an_entry_that_cannot_be_read_counts_as_those_before_it_in_a_compacted_ledger(
    unreadable: int,
) -> None:
    entries = [UNREADABLE if index == unreadable else published(10 * index) for index in range(4)]
    reads = CompactedReads(compacted_topic(entries))
    assert await reads.last_before(10**12) == Position(1, 6)
    assert await reads.last_before(15) == Position(1, 4 if unreadable == 2 else 2)


@pytest.mark.parametrize("unreadable", [0, 9, 10, 11, 12, 25, 50, 99])
async def test_an_entry_that_cannot_be_read_hides_no_newer_ones_of_a_compacted_ledger(
    unreadable: int,
) -> None:
    entries = [
        UNREADABLE if index == unreadable else published(0 if index < 10 else 1000) for index in range(100)
    ]
    last = await CompactedReads(compacted_topic(entries)).last_before(500)
    assert last == Position(1, 20 if unreadable == 10 else 18)


def compacted_topic(entries: Sequence[bytes]) -> Any:
    """A topic of which a compaction left `entries`, at every second position of ledger 1."""
    run = Run(9, 0, len(entries) - 1, 0)
    run.entries = [
        TopicEntry(Position(9, index), encode_compacted(Position(1, 2 * index), data), 1)
        for index, data in enumerate(entries)
    ]

    async def read(*_: Any) -> Run:
        return run

    last = Position(1, 2 * len(entries) - 2)
    compaction = Compaction(last, (CompactedLedger(9, len(entries), 100, last),))
    listed = LedgerList(ListState.CLOSED, LEDGERS, Position(3, 49), compaction=compaction)
    reads = SimpleNamespace(run=read, ahead=ReadAhead(2**20))
    return SimpleNamespace(name="t", services=SimpleNamespace(reads=reads), ledger_list=listed)
