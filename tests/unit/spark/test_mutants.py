"""The mistakes that a reader of Spark's could have, each planted: the check that stands for it must fail.

They break no rule of docs/protocol.md, so the catalog of mutants, which is ordered by rules, has no place for them. The LAC taken
leniently is in test_failover.py, where bookies can be lost.
"""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from daybook_spark.compact import columns
from daybook_spark.compact.columns import batch_left
from daybook_spark.compact.entries import StoredEntry
from daybook_spark.options import ReadOptions, StreamOptions, Where
from daybook_spark.plan import ranges
from daybook_spark.plan.entry_range import EntryRange
from daybook_spark.plan.ranges import Cut, cut_ledger
from daybook_spark.read import rows
from daybook_spark.rows import messages
from daybook_spark.rows.columns import columns_of
from daybook_spark.rows.ledger_rows import entry_rows
from daybook_spark.stream.reader import StreamReader
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructField, StructType

from daybook.core.errors import DaybookError
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.quorum import Quorum
from daybook.core.topics.compaction.record import decode_compacted
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position
from daybook.wire.pulsar import compacting
from daybook.wire.pulsar.batches import BatchMessage, encode_batch
from daybook.wire.pulsar.compacting import compacted_entry
from daybook.wire.pulsar.entries import check_entry, split_entry
from daybook.wire.pulsar.errors import EntryChecksumError
from daybook.wire.pulsar.pulsar_pb2 import CompressionType, SingleMessageMetadata
from tests.unit.spark.test_messages import Sent, encode_single, rows_of
from tests.unit.spark.test_offsets import topic
from tests.unit.wire.pulsar.kit import metadata
from tests.unit.wire.pulsar.test_compacting import damaged

WHERE = Where("zk:2181")
TOPIC = "persistent://public/default/t"


def caught(check: Callable[[], None]) -> bool:
    """Whether a check fails."""
    try:
        check()
    except (AssertionError, pytest.fail.Exception):
        return True
    return False


# An entry is checked before it is unpacked


def damage_is_seen() -> None:
    """An entry with a changed byte of payload is no row."""
    entry = bytearray(encode_single(Sent(b"payload", None, None, {}, 0), CompressionType.NONE))
    entry[-1] ^= 1
    with pytest.raises(DaybookError):
        rows_of([bytes(entry)])


def test_unpacking_without_the_checksum_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not caught(damage_is_seen)
    monkeypatch.setattr(messages, "check_entry", split_entry)
    assert caught(damage_is_seen)


# A compaction makes no wrong checksum right


def damage_stays_damage() -> None:
    """What is left of a batch with a changed byte is no message, either."""
    batch = [
        BatchMessage(SingleMessageMetadata(partition_key=key, payload_size=1), b"v") for key in ("a", "b")
    ]
    entry = StoredEntry(Position(7, 0), 1, damaged(encode_batch(metadata(), batch)))
    opened = entry.opened()
    kept = (True, False) if opened.keyed.messages else ()
    for left in filter(None, (batch_left(entry, {0}), compacted_entry(opened, kept))):
        with pytest.raises(EntryChecksumError):
            check_entry(decode_compacted(left).data)


@pytest.mark.parametrize("pass_over_batches", [columns, compacting])
def test_a_compaction_that_reads_without_the_checksum_is_caught(
    monkeypatch: pytest.MonkeyPatch, pass_over_batches: ModuleType
) -> None:
    assert not caught(damage_stays_damage)
    monkeypatch.setattr(pass_over_batches, "check_entry", split_entry)
    assert caught(damage_stays_damage)


# Ranges meet and do not overlap


def ranges_meet() -> None:
    """Each entry of a ledger is in one range."""
    fragments = (Fragment(0, 0, ("a", "b", "c")), Fragment(10, 1000, ("a", "b", "d")))
    metadata = LedgerMetadata(7, Quorum(3, 3, 2), fragments).closed(24, 2500)
    cuts = list(ranges.cut_ledger(metadata, 0, 24, 300))
    assert [entry for cut in cuts for entry in range(cut.first, cut.last + 1)] == list(range(25))


def test_a_range_that_is_read_twice_at_its_seam_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def overlapping(*arguments: Any) -> Iterator[Cut]:
        for cut in cut_ledger(*arguments):
            yield cut._replace(first=max(0, cut.first - 1))

    assert not caught(ranges_meet)
    monkeypatch.setattr(ranges, "cut_ledger", overlapping)
    assert caught(ranges_meet)


# What nobody wants is not fetched


def payload_stays_where_it_is() -> None:
    """A query without the value asks no bookie."""

    def fetched(*_: Any) -> Iterator[Any]:
        raise AssertionError("entries were fetched")
        yield

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "read_range", fetched)
        schema = StructType(
            [StructField("entry_id", columns_of(has_ledgers=True, is_permissive=False)["entry_id"])]
        )
        entries = EntryRange(7, 3, 9, b"", ())
        found = list(rows.rows_of(ReadOptions(WHERE, ledgers=(7,)), entries, schema))
    assert [row["entry_id"] for batch in found for row in batch.to_pylist()] == list(range(3, 10))


def test_payload_that_is_fetched_where_it_was_left_out_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetching(ledger_id: int, _first: int, _last: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        fetch = vars(rows)["read_range"]
        return entry_rows(ledger_id, fetch(WHERE, EntryRange(7, 3, 9, b"", ())), schema)

    assert not caught(payload_stays_where_it_is)
    monkeypatch.setattr(rows, "numbered_rows", fetching)
    assert caught(payload_stays_where_it_is)


# A cursor follows the commit


class FakeTopics:
    """A topic of three ledgers, without a cluster."""

    where = WHERE

    def extents(self) -> dict[str, TopicExtent]:
        return {TOPIC: topic([4, 0, 5], open_entries=3)}

    def starts(self, extents: dict[str, TopicExtent], *, is_from_latest: bool) -> dict[str, Position]:
        return {name: extent.end if is_from_latest else extent.first for name, extent in extents.items()}

    def ranges(self, *_: Any, **__: Any) -> list[EntryRange]:
        return []

    def lasts(self, end: dict[str, Position]) -> dict[str, Position]:
        extent = self.extents()[TOPIC]
        return {TOPIC: extent.before(end[TOPIC])}


class FakeCursor:
    """Records how far it was moved."""

    def __init__(self) -> None:
        self.moved: list[Position] = []

    def hold(self, name: str) -> None:
        assert name == TOPIC

    def move(self, _name: str, last: Position) -> None:
        self.moved.append(last)


def commits_move_the_cursor() -> None:
    """Batches of four entries: the cursor is where the last commit was, at every step."""
    options = StreamOptions(ReadOptions(WHERE, topics=(TOPIC,)), entries_max=4, subscription="s")
    reader: Any = StreamReader(options, StructType([]))
    reader._topics, cursor = FakeTopics(), FakeCursor()
    reader._cursor = cursor
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    start = reader.initialOffset()
    committed: list[Position] = []
    while (end := reader.latestOffset(start, limit)) != start:
        reader.partitions(start, end)
        assert cursor.moved == committed
        reader.commit(end)
        following = Position.parse(end["next"][TOPIC])
        committed.append(reader._topics.extents()[TOPIC].before(following))
        assert cursor.moved == committed
        start = end
    assert committed == [Position(1, 3), Position(3, 3), Position(4, 2)]


def test_a_cursor_that_moves_before_the_commit_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(self: Any, start: Any, end: Any) -> Any:
        self.commit(end)
        return partitions(self, start, end)

    partitions = StreamReader.partitions
    assert not caught(commits_move_the_cursor)
    monkeypatch.setattr(StreamReader, "partitions", early)
    assert caught(commits_move_the_cursor)
