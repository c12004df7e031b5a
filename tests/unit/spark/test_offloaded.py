"""A query of a topic of which ledgers lie in files alone reads these files (rule 70)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from daybook_spark.options import Where
from daybook_spark.plan.batch import topic_ranges
from daybook_spark.plan.bounds import Bounds
from daybook_spark.plan.entry_range import FileRange
from daybook_spark.plan.existing import TopicPart
from daybook_spark.read.entries import read_range

from daybook.core.errors import MetadataUnavailableError
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.name import TopicName
from daybook.metadata.store.zookeeper import ZooKeeperStore
from daybook.offload.errors import OffloadFileError
from tests.unit.core.topics.offload.kit import offload, offloaded_list
from tests.unit.offload.kit import entries_of, write
from tests.unit.spark.test_failover import own_process_client

__all__ = ["own_process_client"]

NAME = TopicName.parse("persistent://public/default/orders")
WHERE = Where("127.0.0.1:1", "tests")
PAYLOADS = [b"%d" % number * 100 for number in range(10)]


def extent_in(folder: Path) -> TopicExtent:
    """Ledgers 3 and 4 in files alone, and ledger 5, which has a file and is read from its bookies."""
    files = {}
    for ledger_id in (3, 4):
        place = f"file://{folder}/{ledger_id}.parquet"
        write(place, PAYLOADS, ledger_id)
        files[ledger_id] = replace(offload(ledger_id, 10).without_replicas, place=place)
    return TopicExtent(offloaded_list({**files, 5: offload(5, 10)}))


class NoBookies:
    """A client that plans: every ledger that is asked for lies in a file."""

    @property
    def ledgers(self) -> "NoBookies":
        return self

    async def read_each(self, ledger_ids: Sequence[int]) -> list[Any]:
        assert not ledger_ids
        return []


async def ranges(extent: TopicExtent, bounds: Bounds, range_bytes: int = 1_000) -> list[FileRange]:
    client: Any = NoBookies()
    planned = await topic_ranges(client, TopicPart(NAME, str(NAME), 1), extent, bounds, range_bytes)
    found = [each for each in planned if isinstance(each, FileRange)]
    assert found == planned
    return found


async def test_rule_70_ledgers_without_replicas_are_read_from_their_files_each_entry_once(
    tmp_path: Path,
) -> None:
    found = await ranges(extent_in(tmp_path), Bounds(start=Position(3, 4), end=Position(5, 0)), range_bytes=1)
    entries = [(each.ledger_id, entry) for each in found for run in read_range(WHERE, each) for entry in run]
    whole = [(ledger_id, entry) for ledger_id in (3, 4) for entry in entries_of(PAYLOADS)]
    assert entries == whole[4:]
    assert {(each.topic, each.partition) for each in found} == {(str(NAME), 1)}
    assert len(found) == 16, "as many ranges as the option asks for"


async def test_rule_70_a_file_that_is_not_that_of_its_ledger_is_an_error_and_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(*_: object) -> None:
        raise MetadataUnavailableError("no ZooKeeper is there to say of another file")

    monkeypatch.setattr(ZooKeeperStore, "open", unavailable)
    extent = extent_in(tmp_path)
    (tmp_path / "3.parquet").write_bytes((tmp_path / "4.parquet").read_bytes())
    (first, *_) = await ranges(extent, Bounds(end=Position(5, 0)))
    with pytest.raises(OffloadFileError, match="entries of another ledger than 3"):
        list(read_range(WHERE, first))
    (tmp_path / "3.parquet").unlink()
    with pytest.raises(OffloadFileError, match="bring it back"):
        list(read_range(WHERE, first))
