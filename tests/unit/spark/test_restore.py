"""The restore job on a real cluster with real Spark: message ids and bytes before an offload, after it, and after the restore (rule 72)."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from daybook_spark.jobs.restoring import CopyWritten, LedgerRestore, restored
from daybook_spark.options import Where
from pyspark.sql import SparkSession

import daybook
from daybook.client.blocking import BlockingLedger
from daybook.core.ids import LedgerId
from daybook.core.quorum import Quorum
from daybook.core.topics.name import TopicName
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.core.topics.unnamed import RESTORED_KEY
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.metadata.job_results import JobResults
from daybook.offload.store import delete_file
from tests.fixtures.brokers import Brokers
from tests.fixtures.spark import RunJob, where
from tests.unit.offload.kit import write
from tests.unit.spark.test_offload import LIMIT_MS, close_ledger, closed_topic, rows, until_without_replicas

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

VALUES = [b"%d" % number * 500 for number in range(7)]


async def done(run_job: RunJob, cluster: LocalCluster, job: str, *arguments: str) -> dict[str, Any]:
    """Run a job that succeeds; its figures."""
    code, shown, errors = await asyncio.to_thread(run_job, cluster, job, *arguments)
    assert code == 0, (shown, errors)
    return dict(shown["figures"])


def received(client: pulsar.Client, topic: str, subscription: str) -> list[tuple[str, bytes]]:
    """All messages of the topic, for a new subscription."""
    earliest = pulsar.InitialPosition.Earliest
    consumer = client.subscribe(topic, subscription, initial_position=earliest)
    found = [consumer.receive(LIMIT_MS) for _ in VALUES]
    consumer.close()
    return [(str(message.message_id()), message.data()) for message in found]


@pytest.mark.usefixtures("no_brokers")
def test_without_a_broker_nothing_happens(run_job: RunJob, cluster: LocalCluster, tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    there = ("--namespace", "public/default", "--termination-log", str(log))
    code, _, errors = run_job(cluster, "restore", *there)
    assert (code, "nothing was changed; start a broker" in errors) == (1, True)
    assert "start a broker" in json.loads(log.read_text())["error"]
    code, _, errors = run_job(cluster, "restore")
    assert (code, "which topics?" in errors) == (1, True)


async def test_rule_72_ids_and_bytes_are_the_same_before_an_offload_after_it_and_after_the_restore(
    run_job: RunJob,
    cluster: LocalCluster,
    brokers: Brokers,
    pulsar_client: pulsar.Client,
    client: daybook.Client,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    topic = await closed_topic(brokers, pulsar_client, client, (VALUES[:4], VALUES[4:]))

    def query(**options: str) -> list[Any]:
        return spark.read.format("daybook").options(**where(cluster), topic=topic, **options).load().collect()

    async def seen(subscription: str) -> tuple[list[tuple[str, bytes]], list[Any]]:
        """What a consumer receives, and what a query returns."""
        found = await asyncio.to_thread(received, pulsar_client, topic, subscription)
        return found, await asyncio.to_thread(query)

    before = await seen("before")
    assert [data for _, data in before[0]] == [bytes(row.value) for row in before[1]] == VALUES
    offload = ("--topic", topic, "--to", f"file://{tmp_path}/cold", "--lag", "0")
    assert (await done(run_job, cluster, "offload", *offload))["ledgersOffloaded"] == 2
    await until_without_replicas(client, topic)
    assert await seen("offloaded") == before

    figures = await done(run_job, cluster, "restore", "--topic", topic, "--dry-run")
    assert (figures["ledgersToRestore"], figures["filesToDelete"]) == (2, 0)
    assert all(not row.has_replicas for row in await rows(client, topic))
    figures = await done(run_job, cluster, "restore", "--topic", topic, "--lag", "0")
    assert (figures["ledgersRestored"], figures["filesDeleted"]) == (2, 2)
    assert list(tmp_path.joinpath("cold").rglob("*.parquet")) == []
    result = await JobResults(client.store, client.layout).read(TopicName.parse(topic), "restore")
    assert result is not None
    assert result.succeeded
    copies = [row.stored_as for row in await rows(client, topic)]
    for row, copy in zip(await rows(client, topic), copies, strict=True):
        assert copy is not None
        custom = (await client.ledgers.read(copy)).value.custom_metadata
        assert custom[RESTORED_KEY] == str(row.ledger_id).encode()
    assert await seen("restored") == before
    middle = before[1][4].publish_time
    later = await asyncio.to_thread(query, startTime=str(round(middle.timestamp() * 1000)))
    assert later == [row for row in before[1] if row.publish_time >= middle]

    assert (await done(run_job, cluster, "offload", *offload, "--restored"))["ledgersOffloaded"] == 2
    for copy in copies:
        assert copy is not None
        async for found in client.ledgers.watch(copy):
            if found is None:
                break
    assert await seen("offloaded-again") == before


async def test_the_next_owner_reads_the_copy_while_the_file_stays_for_a_day(
    run_job: RunJob,
    cluster: LocalCluster,
    brokers: Brokers,
    pulsar_client: pulsar.Client,
    client: daybook.Client,
    tmp_path: Path,
) -> None:
    topic = await closed_topic(brokers, pulsar_client, client, [VALUES])
    before = await asyncio.to_thread(received, pulsar_client, topic, "before")
    await done(run_job, cluster, "offload", "--topic", topic, "--to", f"file://{tmp_path}/cold", "--lag", "0")
    await until_without_replicas(client, topic)
    await done(run_job, cluster, "restore", "--topic", topic)
    assert len(list(tmp_path.joinpath("cold").rglob("*.parquet"))) == 1, "the file stays for a day"
    await asyncio.to_thread(close_ledger, brokers, topic)
    assert await asyncio.to_thread(received, pulsar_client, topic, "after") == before


@pytest.fixture
async def asked(
    cluster: LocalCluster, client: daybook.Client, tmp_path: Path
) -> AsyncIterator[LedgerRestore]:
    """What a task is asked for: a ledger of which only the file is left. At the end no ledger says that it is a copy of it."""
    handle = await client.create_ledger()
    ledger_id = handle.id
    await handle.close()
    await client.delete_ledger(ledger_id)
    place = f"file://{tmp_path}/cold.parquet"
    written = await asyncio.to_thread(write, place, VALUES, ledger_id)
    planned = PlannedLedger(ledger_id, len(VALUES), sum(map(len, VALUES)))
    yield LedgerRestore(planned, place, written.crc, "persistent://t/n/x", "0" * 32, Quorum(3, 2, 2), "")
    marked = [
        each.value.ledger_id
        async for each in client.ledgers.read_all()
        if each.value.custom_metadata.get(RESTORED_KEY) == str(ledger_id).encode()
    ]
    assert marked == [], "a copy that is not whole is left behind"


def where_of(cluster: LocalCluster) -> Where:
    """The cluster, for a task."""
    return Where(cluster.zookeeper.connect_string, CLUSTER_NAME)


async def test_entries_keep_their_ids_and_the_copy_its_marks(
    cluster: LocalCluster, client: daybook.Client, asked: LedgerRestore
) -> None:
    done = await asyncio.to_thread(restored, asked, where_of(cluster))
    assert done.stored_as is not None, done.error
    reader = await client.open_ledger(done.stored_as, recover=False)
    assert [(entry.entry_id, entry.data) async for entry in reader.read()] == list(enumerate(VALUES))
    assert reader.metadata.quorum == asked.quorum
    await client.delete_ledger(done.stored_as)


async def refused(cluster: LocalCluster, asked: LedgerRestore, why: str) -> None:
    """The task fails, and says why."""
    done: CopyWritten = await asyncio.to_thread(restored, asked, where_of(cluster))
    assert (done.stored_as, why in done.error) == (None, True), done


async def test_rule_72_a_file_that_is_not_the_one_that_the_list_names_is_not_restored(
    cluster: LocalCluster, asked: LedgerRestore
) -> None:
    ledger_id: LedgerId = asked.planned.ledger_id
    await asyncio.to_thread(write, asked.place, [b"x" * len(each) for each in VALUES], ledger_id)
    await refused(cluster, asked, "bring the file that it names back")
    await asyncio.to_thread(write, asked.place, VALUES, ledger_id + 1)
    await refused(cluster, asked, "has entries of another ledger")
    await asyncio.to_thread(write, asked.place, VALUES[1:], ledger_id)
    await refused(cluster, asked, "it has 6 entries, and the topic's list names 7")
    await asyncio.to_thread(delete_file, asked.place)
    await refused(cluster, asked, "does not exist")


async def test_rule_72_a_copy_that_is_not_what_the_file_has_is_no_copy(
    cluster: LocalCluster, asked: LedgerRestore, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = BlockingLedger.append_many

    for end, why in ((b"!", "its copy was read back with the CRC"), (b"", "and the topic's list says")):

        def careless(self: BlockingLedger, entries: Any, end: bytes = end) -> Any:
            return append(self, [each[:-1] + end for each in entries])

        monkeypatch.setattr(BlockingLedger, "append_many", careless)
        await refused(cluster, asked, why)
