"""Where a time is in a topic."""

from collections.abc import Sequence
from typing import Any

import pytest
from daybook_broker.topics.by_time import last_before

from daybook.core.topics.dispatch.entries import TopicEntry
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import NO_POSITION, LedgerList, ListedLedger, ListState, Position
from daybook.wire.pulsar.entries import encode_entry
from daybook.wire.pulsar.pulsar_pb2 import MessageMetadata


class Reads:
    """Entries that were published at 10, 20, 30, … over three ledgers, of which the second has none."""

    def __init__(self, gone: Sequence[Position] = ()) -> None:
        self.gone = gone
        self.reads = 0

    async def read_exact(self, positions: Sequence[Position]) -> list[TopicEntry]:
        self.reads += 1
        found = []
        for position in positions:
            if position not in self.gone:
                rank = position.entry_id + (100 if position.ledger_id == 3 else 0)
                metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=10 * (rank + 1))
                found.append(TopicEntry(position, encode_entry(metadata, b""), 1))
        return found


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
