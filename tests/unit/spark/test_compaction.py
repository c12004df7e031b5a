"""The compaction job on real Spark: what an unmodified client reads with `readCompacted` before and after it."""

import asyncio
import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulsar
import pytest
from daybook_spark.compact import job
from daybook_spark.compact.job import Compacted, CompactionSettings, compact_topic
from daybook_spark.options import Where

import daybook
from daybook.autorecovery.cluster import is_set_within
from daybook.client.broker_admin import Admin, AdminError
from daybook.client.broker_topics import commit_compaction
from daybook.core.ledger.metadata import TOPIC_KEY
from daybook.core.topics.compaction.commit import CompactionCommit
from daybook.core.topics.job_terms import CompactionTerms, Timing
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import PolicyLayer
from daybook.core.topics.unnamed import JOB_KEY
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.metadata.job_results import JobResults
from daybook.metadata.policies import PolicyManager
from daybook.metadata.topics import TopicManager
from tests.fixtures.brokers import Brokers
from tests.fixtures.spark import RunJob
from tests.unit.spark.kit import new_topic, readable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

Compact = Callable[..., Compacted | None]
Message = tuple[str | None, bytes]
LIMIT_MS = 40_000
LOOK_MS = 50
SMALL = CompactionSettings(part_bytes=2500)
"""Several parts for a few messages."""


@pytest.fixture
def compact(spark: "SparkSession", cluster: LocalCluster, brokers: Brokers) -> Compact:
    """Compact a topic by a job."""
    where = Where(cluster.zookeeper.connect_string, CLUSTER_NAME)
    admin = Admin([brokers.entry(each).admin_url for each in brokers.ids])

    def run(topic: str, settings: CompactionSettings = SMALL) -> Compacted | None:
        return compact_topic(spark, where, admin, TopicName.parse(topic), settings)

    return run


def publish(
    client: pulsar.Client, topic: str, messages: Sequence[Message], *, batch: int = 1, **options: Any
) -> list[pulsar.MessageId]:
    """Publish messages, `batch` of them as one entry; their ids."""
    ids: list[pulsar.MessageId] = []
    producer = client.create_producer(
        topic,
        batching_enabled=batch > 1,
        batching_max_messages=max(batch, 2),
        batching_max_publish_delay_ms=10_000,
        **options,
    )
    for index, (key, value) in enumerate(messages):
        producer.send_async(value, lambda _, each: ids.append(each), partition_key=key)
        if index % batch == batch - 1:
            producer.flush()
    producer.flush()
    producer.close()
    return ids


def read(client: pulsar.Client, topic: str, *, is_compacted: bool = True) -> list[tuple[str, Message]]:
    """All that a reader finds: the id of each message, its key and its value."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=is_compacted)
    found = []
    while reader.has_message_available():
        message = reader.read_next(LIMIT_MS)
        found.append((str(message.message_id()), (message.partition_key() or None, message.data())))
    reader.close()
    return found


def last_of(sent: Sequence[tuple[str, Message]], *, keeps_keyless: bool = True) -> list[tuple[str, Message]]:
    """What is to be left, by a table of the keys."""
    table: dict[str, int] = {}
    for index, (_, (key, value)) in enumerate(sent):
        if key is not None:
            table.pop(key, None)
            if value:
                table[key] = index
    kept = set(table.values())
    return [
        each for index, each in enumerate(sent) if index in kept or (each[1][0] is None and keeps_keyless)
    ]


class Topic:
    """A topic of a test's own, and what was sent to it."""

    def __init__(self, client: daybook.Client, pulsar_client: pulsar.Client) -> None:
        self.name = new_topic()
        self.sent: list[tuple[str, Message]] = []
        self._client = client
        self._pulsar = pulsar_client

    async def publish(self, messages: Sequence[Message], **options: Any) -> None:
        """Publish messages; everybody may read them once this returns."""
        ids = await asyncio.to_thread(publish, self._pulsar, self.name, messages, **options)
        self.sent += [(str(each), message) for each, message in zip(ids, messages, strict=True)]
        await readable(self._client, self.name, ids[-1])

    async def read(self, *, is_compacted: bool = True) -> list[tuple[str, Message]]:
        """All that a reader finds."""
        return await asyncio.to_thread(read, self._pulsar, self.name, is_compacted=is_compacted)

    async def ledgers_of_jobs(self) -> set[int]:
        """The ledgers that jobs wrote for the topic, and that exist."""
        await self._client.store.sync()
        return {
            each.value.ledger_id
            async for each in self._client.list_ledgers()
            if each.value.custom_metadata.get(TOPIC_KEY) == self.name.encode()
            and JOB_KEY in each.value.custom_metadata
        }

    async def named(self) -> set[int]:
        """The compacted ledgers that the list names."""
        topics = TopicManager(self._client.store, self._client.layout)
        return set((await topics.read(TopicName.parse(self.name), sync=True)).value.compacted_ids)

    async def until_no_others(self) -> None:
        """The owner deletes the former ledgers after it has named others."""
        while await self.ledgers_of_jobs() != await self.named():
            pass


@pytest.fixture
def topic(client: daybook.Client, pulsar_client: pulsar.Client) -> Topic:
    """A new one."""
    return Topic(client, pulsar_client)


def content(number: int) -> bytes:
    """A value of 128 bytes that does not become much smaller."""
    return hashlib.sha512(b"%d" % number).hexdigest().encode()


def messages(count: int, keys: int) -> list[Message]:
    """Every seventh deletes its key, every tenth has none."""
    return [
        (None if number % 10 == 9 else f"k{number % keys}", b"" if number % 7 == 6 else content(number))
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("batch", "compression"), [(1, "NONE"), (7, "LZ4"), (7, "ZSTD"), (7, "SNAPPY"), (5, "ZLib")]
)
async def test_rule_41_a_reader_receives_the_last_value_of_each_key_with_its_id_and_then_the_tail(
    topic: Topic, compact: Compact, batch: int, compression: str
) -> None:
    kind = getattr(pulsar.CompressionType, compression)
    await topic.publish(messages(60, 11), batch=batch, compression_type=kind)
    done = await asyncio.to_thread(compact, topic.name)
    assert done is not None
    assert done.ledgers > 1, "there are several parts"
    assert await topic.read() == last_of(topic.sent)
    await topic.publish([("k0", b"new"), ("k99", b"99"), ("k1", b"")], batch=batch)
    assert await topic.read() == [*last_of(topic.sent[:60]), *topic.sent[60:]]
    assert await topic.read(is_compacted=False) == topic.sent

    former = await topic.named()
    await asyncio.to_thread(compact, topic.name)
    assert await topic.read() == last_of(topic.sent)
    assert not await topic.named() & former
    await topic.until_no_others()
    assert await asyncio.to_thread(compact, topic.name) is None, "nothing came since"


async def test_keyless_messages_and_chunks_stay_or_go_as_the_setting_says(
    topic: Topic, compact: Compact
) -> None:
    large = b"".join(content(number) for number in range(90_000))
    await topic.publish([("k", large), (None, b"keyless")], chunking_enabled=True)
    await topic.publish([("k", large[::-1]), ("j", b"1"), (None, b"another")], chunking_enabled=True)
    settings = replace(SMALL, keeps_keyless=False)
    dry = await asyncio.to_thread(compact, topic.name, replace(settings, dry_run=True))
    assert dry is not None
    assert await topic.ledgers_of_jobs() == set(), "a dry run writes nothing"
    done = await asyncio.to_thread(compact, topic.name, settings)
    assert done is not None
    assert (done.keyed_kept, done.keyed_read) == (dry.keyed_kept, dry.keyed_read)
    found = [message for _, message in await topic.read()]
    assert found == [("k", large[::-1]), ("j", b"1")]


class KilledError(Exception):
    """The job ends here."""


def killed(*_: Any, **__: Any) -> None:
    raise KilledError


async def test_rule_41_a_job_that_ends_at_any_step_is_run_again_with_the_same_result(
    topic: Topic, compact: Compact, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topic.publish(messages(30, 7), batch=4)
    for step in ("places_that_stay", "_write"):
        with monkeypatch.context() as patch:
            patch.setattr(job, step, killed)
            with pytest.raises(KilledError):
                await asyncio.to_thread(compact, topic.name)
        assert await topic.named() == set()
        assert await topic.ledgers_of_jobs() == set(), f"a job that ends at {step} leaves no ledger"
        assert await topic.read() == topic.sent

    def answer_lost(*arguments: Any) -> None:
        commit_compaction(*arguments)
        monkeypatch.setattr(job, "commit_compaction", commit_compaction)
        raise AdminError("the connection is lost")

    monkeypatch.setattr(job, "commit_compaction", answer_lost)
    await asyncio.to_thread(compact, topic.name)
    assert await topic.ledgers_of_jobs() == await topic.named() != set()
    assert await topic.read() == last_of(topic.sent)


async def test_rule_41_a_job_that_is_interrupted_while_the_owner_names_its_ledgers_deletes_none(
    topic: Topic, compact: Compact, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topic.publish(messages(30, 7), batch=4)

    def interrupted(*arguments: Any) -> None:
        commit_compaction(*arguments)
        raise KilledError

    monkeypatch.setattr(job, "commit_compaction", interrupted)
    with pytest.raises(KilledError):
        await asyncio.to_thread(compact, topic.name)
    assert await topic.ledgers_of_jobs() == await topic.named() != set()
    assert await topic.read() == last_of(topic.sent)


async def test_rule_41_a_driver_that_is_killed_while_its_tasks_write_changes_nothing_and_the_next_run_compacts(
    topic: Topic, compact: Compact, cluster: LocalCluster, brokers: Brokers, tmp_path: Path
) -> None:
    del brokers
    await topic.publish(messages(30, 7), batch=4)
    program = (  # it never commits, however late it is killed
        "import threading; from daybook_spark.compact import job; from daybook.cli.main import app; "
        "job.commit_compaction = lambda *_: threading.Event().wait(); app(prog_name='daybook')"
    )
    command = [sys.executable, "-c", program]
    options = [
        "spark",
        "compaction",
        "--master",
        "local[1]",
        "--topic",
        topic.name,
        "--dir",
        str(cluster.directory),
    ]
    log = tmp_path / "driver.log"
    with log.open("wb") as out:
        driver = await asyncio.create_subprocess_exec(
            *command, *options, stdout=out, stderr=out, start_new_session=True
        )
    try:
        while not (written := await topic.ledgers_of_jobs()):
            assert driver.returncode is None, log.read_text()
            await is_set_within(asyncio.Event(), LOOK_MS)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # Spark's JVM and its workers, too
        await driver.wait()
    assert await topic.named() == set()
    assert await topic.read() == topic.sent

    await asyncio.to_thread(compact, topic.name)
    assert await topic.read() == last_of(topic.sent)
    assert not await topic.named() & written, "the ledgers of the killed run are retention's (rule 71)"


async def test_rule_38_a_topic_that_rolls_and_changes_its_owner_meanwhile_is_compacted_all_the_same(
    topic: Topic, compact: Compact, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topic.publish(messages(30, 7), batch=4)

    def later(admin: Admin, name: TopicName, asked: CompactionCommit) -> None:
        admin.ask_any(
            "PUT", f"/admin/v2/namespaces/{name.tenant}/{name.namespace}/unload"
        )  # the ledger of which the job has read a part is closed
        commit_compaction(admin, name, asked)

    monkeypatch.setattr(job, "commit_compaction", later)
    before = list(topic.sent)
    await asyncio.to_thread(compact, topic.name)
    await topic.publish([("k0", b"tail")])
    assert await topic.read() == [*last_of(before), *topic.sent[len(before) :]]


async def test_rule_41_what_is_compacted_by_somebody_else_meanwhile_is_a_conflict_and_leaves_no_ledger(
    topic: Topic, compact: Compact, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topic.publish(messages(30, 7), batch=4)

    def later(admin: Admin, name: TopicName, asked: CompactionCommit) -> None:
        monkeypatch.setattr(job, "commit_compaction", commit_compaction)
        compact(str(name))
        commit_compaction(admin, name, asked)

    monkeypatch.setattr(job, "commit_compaction", later)
    with pytest.raises(AdminError, match="read the topic's list and plan again") as refusal:
        await asyncio.to_thread(compact, topic.name)
    assert refusal.value.status == 409
    assert await topic.ledgers_of_jobs() == await topic.named()
    assert await topic.read() == last_of(topic.sent)


@pytest.fixture
def run(run_job: RunJob, cluster: LocalCluster, brokers: Brokers) -> Callable[..., tuple[int, Any]]:
    """Compact on the session that tests share: the exit code of the command, and what it printed."""
    del brokers
    return lambda *words: run_job(cluster, "compaction", *words)[:2]


async def test_the_command_compacts_the_topics_that_it_is_given_and_reports_each(
    client: daybook.Client, topic: Topic, run: Callable[..., tuple[int, Any]], tmp_path: Path
) -> None:
    name = TopicName.parse(topic.name)
    await topic.publish(messages(20, 3), batch=4)
    policies = PolicyManager(client.store, client.layout)
    drops = PolicyLayer(compaction=CompactionTerms(Timing("@daily"), keeps_keyless=False))
    await policies.set_topic(name, await policies.topic(name), drops)
    code, summary = await asyncio.to_thread(run, "--topic", topic.name, "--dry-run")
    (result,) = summary["results"]
    assert (code, result["succeeded"], await topic.named()) == (0, True, set())
    last = tmp_path / "last"
    code, summary = await asyncio.to_thread(run, "--topic", topic.name, "--termination-log", str(last))
    assert (code, summary["figures"]["ledgersWritten"]) == (0, len(await topic.named()))
    assert json.loads(last.read_text())["succeeded"] == 1
    assert await topic.read() == last_of(topic.sent, keeps_keyless=False)
    result = await JobResults(client.store, client.layout).read(name, "compaction")
    assert result is not None
    assert result.succeeded
    code, summary = await asyncio.to_thread(run, "--topic", topic.name)
    assert (code, summary["results"][0]["message"]) == (0, "nothing came since the last compaction")
    code, _ = await asyncio.to_thread(run)
    assert code == 1, "no topics are named"
