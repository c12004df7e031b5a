"""Where in a topic the times of a query are, on a ledger in a file."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from daybook_spark.plan.times import span_of
from daybook_spark.rows.topic_rows import TimeRange

from daybook.client.by_time import WITHOUT_TIME_MAX
from daybook.core.format.entries import Entry
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import LedgerList, ListedLedger, Position
from daybook.offload.reading import EntriesFile
from tests.unit.core.topics.offload.kit import offload
from tests.unit.offload.kit import write
from tests.unit.wire.pulsar.kit import UNREADABLE, published

LEDGER = 7
HOUR_MS = 3_600_000
EARLIER_MS, WANTED_MS, LATER_MS = HOUR_MS, 3 * HOUR_MS // 2, 2 * HOUR_MS


async def span(
    folder: Path, entries: int, earlier: int, unreadable: Collection[int], times: TimeRange
) -> tuple[Position, Position]:
    """The span of times in a topic with so many entries, the first of which are earlier; those that are unreadable have no time."""
    place = f"file://{folder}/{LEDGER}.parquet"
    payloads = [
        UNREADABLE if number in unreadable else published(EARLIER_MS if number < earlier else LATER_MS)
        for number in range(entries)
    ]
    write(place, payloads, LEDGER)
    file = replace(offload(LEDGER, entries).without_replicas, place=place)
    row = ListedLedger(LEDGER, 0, entries, 1_000, closed_at_ms=1, offload=file)
    extent = TopicExtent(LedgerList(ledgers=(row,), last_confirmed=row.last_position))
    client: Any = None
    return await span_of(client, extent, times)


@pytest.mark.parametrize("unreadable", [0, 8, 9, 10, 11, 48, 49, 50, 98, 99])
async def test_an_entry_without_readable_metadata_leaves_no_message_out(
    tmp_path: Path, unreadable: int
) -> None:
    first, _ = await span(tmp_path, 100, 10, [unreadable], TimeRange(start_ms=WANTED_MS))
    assert Position(LEDGER, 9) <= first <= Position(LEDGER, 10)
    _, end = await span(tmp_path, 100, 10, [unreadable], TimeRange(end_ms=WANTED_MS))
    assert Position(LEDGER, 10) <= end <= Position(LEDGER, 11)


@pytest.mark.parametrize("count", [WITHOUT_TIME_MAX - 1, 3 * WITHOUT_TIME_MAX])
async def test_many_entries_without_readable_metadata_leave_no_message_out(
    tmp_path: Path, count: int
) -> None:
    entries = count + 50
    first, _ = await span(tmp_path, entries, 0, range(count), TimeRange(start_ms=WANTED_MS))
    assert first == Position(LEDGER, 0), "nobody knows that any of them is earlier"
    _, end = await span(tmp_path, entries, entries, range(count), TimeRange(end_ms=WANTED_MS))
    assert end == Position(LEDGER, entries)


async def test_a_search_that_steps_back_reads_a_row_group_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def counting(self: EntriesFile, number: int) -> list[Entry]:
        read.append(number)
        return read_group(self, number)

    read_group = EntriesFile.read_group
    monkeypatch.setattr(EntriesFile, "read_group", counting)
    await span(tmp_path, 100, 100, range(50), TimeRange(start_ms=WANTED_MS))
    assert read == [0]
