"""Entries that have moved between planning and reading: the replicas of an offloaded ledger went, or a ledger came back from its file."""

import asyncio
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from daybook_spark.options import ReadOptions
from daybook_spark.plan.batch import plan
from daybook_spark.plan.bounds import Bounds
from daybook_spark.plan.entry_range import EntryRange, FileRange, Range
from daybook_spark.plan.moved import other_place

import daybook
from daybook.core.errors import NoSuchLedgerError
from daybook.core.topics.offload.record import Offload, Restored
from daybook.local.cluster import LocalCluster
from daybook.metadata.topics import TopicManager
from daybook.offload.errors import OffloadFileError
from daybook.wire.pulsar.pulsar_pb2 import CompressionType
from tests.unit.core.topics.offload.kit import offload, offloaded_list
from tests.unit.offload.kit import write
from tests.unit.spark.test_failover import messages_of, own_process_client, where_is
from tests.unit.spark.test_messages import Sent, encode_single
from tests.unit.spark.test_trimming import Owner

__all__ = ["own_process_client"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

VALUES = [b"%0100d" % number for number in range(50)]
ENTRIES = [encode_single(Sent(value, None, None, {}, 0), CompressionType.NONE) for value in VALUES]
GONE = offload(3, 10).without_replicas
IN_FILE = FileRange(3, 2, 7, GONE.place, 10, 1.0, "persistent://public/default/orders", 4)


def test_the_list_says_where_a_file_is_now() -> None:
    moved = replace(GONE, place="file:///warm/3.parquet")
    assert other_place(IN_FILE, offloaded_list({3: moved})) == replace(IN_FILE, place=moved.place)
    assert other_place(IN_FILE, offloaded_list({3: GONE})) is None, "the file where the task has looked"
    assert other_place(IN_FILE, offloaded_list({3: None})) == 3, "the ledger has replicas again"
    assert other_place(IN_FILE, offloaded_list({5: None})) is None, "trimmed"


class Mover(Owner):
    """The owner of a topic of one ledger, which moves it."""

    async def change(self, **fields: Any) -> None:
        """Change what the list says of the ledger."""
        current = await self._topics.read(self.name)
        (row,) = current.value.ledgers
        await self._topics.cas(self.name, current, replace(current.value, ledgers=(replace(row, **fields),)))

    async def ranges(self, cluster: LocalCluster) -> list[Range]:
        """The ranges of the topic as tasks get them, several of the ledger."""
        options = ReadOptions(where_is(cluster), topics=(str(self.name),), partition_bytes=2_000)
        ranges: list[Range] = pickle.loads(pickle.dumps(await asyncio.to_thread(plan, options, Bounds())))
        assert len(ranges) > 2
        return ranges


async def collected(cluster: LocalCluster, mover: Mover, ranges: list[Range]) -> list[bytes]:
    """The messages of ranges whose bookies have collected the ledger: nobody is where the ranges say."""
    gone = [
        replace(
            each,
            bookies=tuple(
                replace(info, address="127.0.0.1:1", lane_address="", boot_id="old") for info in each.bookies
            ),
        )
        if isinstance(each, EntryRange)
        else each
        for each in ranges
    ]
    return await messages_of(cluster, str(mover.name), gone)


async def test_rule_70_rule_72_a_planned_range_is_read_where_the_list_names_its_entries_now(
    client: daybook.Client, cluster: LocalCluster, tmp_path: Path
) -> None:
    mover = Mover(client)
    await mover.create()
    await mover.roll_entries(ENTRIES)
    before = await mover.ranges(cluster)
    assert isinstance(before[0], EntryRange)
    ledger_id = before[0].ledger_id

    place = f"file://{tmp_path}/orders.parquet"
    written = write(place, ENTRIES, ledger_id)
    file = Offload(place, 1, written.size_bytes, len(ENTRIES), written.crc, 1, 1)
    await mover.change(offload=file)
    await mover.change(offload=file.without_replicas)
    await client.delete_ledger(ledger_id)
    assert await collected(cluster, mover, before) == VALUES

    in_file = await mover.ranges(cluster)
    assert all(isinstance(each, FileRange) for each in in_file)
    copy = await client.create_ledger()
    await copy.append_many(ENTRIES)
    await copy.close()
    await mover.change(offload=None, restored=Restored(copy.id, place, 1))
    (tmp_path / "orders.parquet").unlink()
    assert await messages_of(cluster, str(mover.name), in_file) == VALUES

    await mover.trim()
    with pytest.raises(OffloadFileError, match="bring it back"):
        await messages_of(cluster, str(mover.name), in_file)
    topics = TopicManager(client.store, client.layout)
    await topics.delete(mover.name, (await topics.read(mover.name)).version)
    with pytest.raises(NoSuchLedgerError, match=r"was deleted|does not exist"):
        await collected(cluster, mover, before)
