"""The owner of a topic names files of ledgers, gives replicas up, and reads the files: over real HTTP, with Pulsar's client (rule 70)."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import pytest
from daybook_broker.errors import NotReadyError
from daybook_broker.topics.ledger_reads import ReadDelayedError
from daybook_broker.topics.topic import CHANGE_S, Topic

from daybook.client import broker_topics
from daybook.client.broker_admin import Admin as Http
from daybook.client.broker_admin import AdminError
from daybook.core.errors import (
    MetadataUnavailableError,
    NoSuchLedgerError,
    NoSuchTopicError,
    NotOwnerError,
    PlanOutdatedError,
)
from daybook.core.topics.ledger_list import ListedLedger, ListState, Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.offload.changes import OffloadBegun, OffloadsWritten, WrittenFile
from daybook.core.topics.offload.record import Offload
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.local.cluster import LocalCluster
from daybook.metadata.topics import TopicManager
from daybook.offload.format import FORMAT_VERSION
from daybook.runtime.clock import monotonic_s
from tests.unit.broker.admin.kit import TOPICS, Admin, admins, new_namespace, owner_of
from tests.unit.broker.kit import LIMIT_S, until_gone, with_pulsar
from tests.unit.offload.kit import write

pytestmark = pytest.mark.integration

JOB, LATER_JOB = "0123456789abcdef", "fedcba9876543210"
PAYLOADS = [b"", b"\x00\xff", *(b"%d" % number * 1000 for number in range(5))]
SHORT: dict[str, Any] = {
    "ledger_entries_max": 2,
    "ledger_age_ms_min": 0,
    "cache_bytes": 0,
    "cursor_persist_ms": 10,
}
"""Ledgers are short, and nothing that was published is in memory."""


@dataclass
class Served:
    """A topic of three closed ledgers and an open one, a broker that is not its owner, and a folder for files."""

    name: TopicName
    owner: Admin
    http: Http
    folder: Path
    ids: Sequence[str]
    """Of the published messages."""

    async def topic(self) -> Topic:
        """On its owner."""
        return await self.owner.broker.registry.load(self.name, create=False)

    async def closed(self) -> Sequence[ListedLedger]:
        """The closed ledgers of the list."""
        return (await self.owner.broker.topics.read(self.name, sync=True)).value.ledgers[:-1]

    async def copy(self, ledger: ListedLedger, job: str = JOB) -> WrittenFile:
        """A file of a ledger."""
        client = self.owner.broker.client
        reader = await client.open_ledger(ledger.ledger_id, recover=False)
        payloads = [entry.data async for entry in reader.read(0, ledger.entries - 1)]
        place = f"file://{self.file_of(ledger, job)}"
        written = await asyncio.to_thread(write, place, payloads, ledger.ledger_id)
        plan = PlannedLedger(ledger.ledger_id, ledger.entries, ledger.size_bytes)
        return WrittenFile(plan, place, FORMAT_VERSION, written.size_bytes, written.crc)

    def file_of(self, ledger: ListedLedger, job: str = JOB) -> Path:
        """Where the file of a ledger is."""
        return self.folder / f"{ledger.ledger_id}-{job}.parquet"

    async def begin(self, job: str = JOB) -> None:
        """A run begins."""
        await asyncio.to_thread(broker_topics.begin_offload, self.http, self.name, job)

    async def commit(
        self, files: Iterable[WrittenFile], job: str = JOB, lag_ms: int | None = 0
    ) -> tuple[int, str]:
        """The status and the text of the answer."""
        ask = partial(broker_topics.commit_offload, self.http, self.name, job, files, lag_ms=lag_ms)
        try:
            await asyncio.to_thread(ask)
        except AdminError as error:
            return error.status, str(error)
        return 204, ""


@asynccontextmanager
async def served(cluster: LocalCluster, folder: Path, **changes: Any) -> AsyncIterator[Served]:
    """Two brokers and a topic."""
    name = TopicName(*new_namespace(), "orders")
    ids: list[str] = []

    def publish(client: pulsar.Client) -> None:
        producer = client.create_producer(str(name), batching_enabled=False)
        ids.extend(str(producer.send(payload)) for payload in PAYLOADS)

    async with admins(cluster, 2, **SHORT, **changes) as brokers:
        path = f"{TOPICS}/{name.tenant}/{name.namespace}/orders"
        await brokers[0].do("PUT", path)
        owner, (other,) = await owner_of(brokers, name)
        await other.do("PUT", f"{path}/subscription/s", "earliest")  # nothing is trimmed
        await with_pulsar(owner.broker, publish)
        yield Served(name, owner, Http([other.broker.admin_url]), folder, ids)


async def test_rule_70_a_topic_is_read_byte_for_byte_from_files_and_a_lost_one_is_no_end(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with served(cluster, tmp_path, trim_interval_ms=50) as found:
        ledgers = await found.closed()
        assert [ledger.entries for ledger in ledgers] == [2, 2, 2]
        await found.begin()
        assert await found.commit([await found.copy(ledger) for ledger in ledgers]) == (204, "")
        for ledger in ledgers:
            await until_gone(
                partial(found.owner.broker.client.ledgers.read, ledger.ledger_id), NoSuchLedgerError
            )
        lost = found.file_of(ledgers[0])
        lost.rename(tmp_path / "lost")
        reads = (await found.topic()).reads
        with pytest.raises(
            ReadDelayedError, match=r"is offloaded, and cannot .* does not exist: bring it back"
        ):
            await reads.read(Position(ledgers[0].ledger_id, 0), 10, 10**6)
        failures = found.owner.broker.metrics.registry
        assert (
            failures.get_sample_value("daybook_broker_offload_read_failures_total", {"reason": "file"}) == 2
        )
        consumers: list[pulsar.Consumer] = []

        def subscribe(client: pulsar.Client) -> list[tuple[bytes, str]]:
            consumer = client.subscribe(
                str(found.name), "all", initial_position=pulsar.InitialPosition.Earliest
            )
            consumers.append(consumer)
            (tmp_path / "lost").rename(lost)
            return [
                (message.data(), str(message.message_id()))
                for message in (consumer.receive(int(LIMIT_S * 1000)) for _ in PAYLOADS)
            ]

        received = await with_pulsar(found.owner.broker, subscribe)
        assert received == list(zip(PAYLOADS, found.ids, strict=True))
        internal = await found.owner.get(
            f"{TOPICS}/{found.name.tenant}/{found.name.namespace}/orders/internalStats"
        )
        assert [ledger["offloaded"] for ledger in internal["ledgers"]] == [True, True, True, False]


async def supersede(found: Served, file: WrittenFile) -> None:
    """Another owner takes the topic over, names the file, and gives the replicas of its ledger up."""
    topics, ledger_id = found.owner.broker.topics, file.ledger.ledger_id
    taken = await topics.read(found.name, sync=True)
    record = Offload(file.place, FORMAT_VERSION, file.size_bytes, file.ledger.entries, file.crc, 1, 1)
    for offload in (record, record.without_replicas):
        ledgers = tuple(
            replace(row, offload=offload) if row.ledger_id == ledger_id else row
            for row in taken.value.ledgers
        )
        new = replace(taken.value, ledgers=ledgers, owner_token="another")
        taken = await topics.cas(found.name, taken, new)
    await found.owner.broker.client.delete_ledger(ledger_id)


async def test_rule_70_a_superseded_owner_ends_and_skips_no_ledger_that_is_in_a_file_by_now(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with served(cluster, tmp_path, trim_interval_ms=600_000) as found:
        topic, ledgers = await found.topic(), await found.closed()
        await supersede(found, await found.copy(ledgers[1]))

        def receive(client: pulsar.Client) -> list[tuple[bytes, str]]:
            consumer = client.subscribe(str(found.name), "s")
            received: list[tuple[bytes, str]] = []
            while len(set(received)) < len(PAYLOADS):  # what came before the end comes again
                message = consumer.receive(int(LIMIT_S * 1000))
                received.append((message.data(), str(message.message_id())))
            return received

        received = await with_pulsar(found.owner.broker, receive)
        assert list(dict.fromkeys(received)) == list(zip(PAYLOADS, found.ids, strict=True))
        assert isinstance(topic.error, NotOwnerError), (
            "the former owner has ended, without a change of its list"
        )
        assert await found.topic() is not topic


async def test_a_missing_ledger_is_an_error_while_the_list_is_ours_or_cannot_be_read(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(cluster, tmp_path, trim_interval_ms=600_000) as found:
        topic, (first, *_) = await found.topic(), await found.closed()
        await found.owner.broker.client.delete_ledger(first.ledger_id)
        for _ in range(2):
            with pytest.raises(ReadDelayedError, match="is missing, and its topic still has it"):
                await topic.reads.read(Position(first.ledger_id, 0), 10, 10**6)
        topics = found.owner.broker.topics
        read = topics.read

        async def unreadable(name: TopicName, *, sync: bool = False) -> Any:
            if name == found.name:
                msg = "no answer"
                raise MetadataUnavailableError(msg)
            return await read(name, sync=sync)

        monkeypatch.setattr(topics, "read", unreadable)
        with pytest.raises(ReadDelayedError, match=r"list of topic .* cannot be read \(no answer\)"):
            await topic.reads.read(Position(first.ledger_id, 0), 10, 10**6)
        monkeypatch.undo()
        assert topic.error is None
        await topics.delete(found.name, await emptied(topics, found.name))
        with pytest.raises(NotReadyError, match="look it up again"):
            await topic.reads.read(Position(first.ledger_id, 0), 10, 10**6)
        assert isinstance(topic.error, NoSuchTopicError)


async def test_a_change_that_is_none_by_then_is_answered_at_once_and_the_later_of_two_runs_begins(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with served(cluster, tmp_path, trim_interval_ms=600_000) as found:
        topic = await found.topic()
        runs = [topic.offloads.begin(job) for job in (JOB, LATER_JOB)]
        assert (await asyncio.gather(*runs, return_exceptions=True))[1] is None
        assert topic.ledger_list.offload_job == LATER_JOB
        began_s = monotonic_s()
        none = OffloadsWritten(JOB, (), 1, 0)
        first = asyncio.create_task(topic.offloads.begin(JOB))
        behind = asyncio.create_task(topic.change_list(OffloadBegun(LATER_JOB), lambda: False))
        nothing = asyncio.create_task(topic.change_list(none, lambda: False))
        for task in (behind, nothing):
            with pytest.raises(PlanOutdatedError, match="was changed otherwise before"):
                await task
        await asyncio.gather(first, return_exceptions=True)
        with pytest.raises(PlanOutdatedError, match="was changed otherwise before"):
            await topic.change_list(none, lambda: False)
        assert monotonic_s() - began_s < CHANGE_S, "nobody has waited for a change that never comes"


async def emptied(topics: TopicManager, name: TopicName) -> int:
    """The version of the topic's list once it names no ledger."""
    found = await topics.read(name, sync=True)
    last = found.value.ledgers[-1]
    closed = replace(last, entries=1, closed_at_ms=1)
    new = replace(
        found.value,
        state=ListState.CLOSED,
        ledgers=(*found.value.ledgers[:-1], closed),
        last_confirmed=Position(last.ledger_id, 0),
    )
    found = await topics.cas(name, found, new)
    return (await topics.cas(name, found, replace(new, ledgers=()))).version


async def test_rule_70_the_owner_names_and_trusts_only_files_that_it_has_read(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with served(cluster, tmp_path, trim_interval_ms=600_000) as found:
        first, second, third = await found.closed()
        file = await found.copy(first)
        status, reason = await found.commit([file])
        assert (status, "another run has begun" in reason) == (409, True), "this one has not"
        await found.begin()
        path = found.file_of(first)
        whole = path.read_bytes()
        path.write_bytes(whole[:-9])
        status, reason = await found.commit([file])
        assert (status, path.name in reason) == (412, True)
        path.unlink()
        status, reason = await found.commit([file])
        assert (status, "does not exist" in reason) == (412, True)
        path.write_bytes(whole)
        wrong = file._replace(ledger=file.ledger._replace(size_bytes=1))
        assert (await found.commit([wrong]))[0] == 409
        other_crc = file._replace(crc=file.crc ^ 1)
        status, reason = await found.commit([other_crc])
        assert (status, "offload the ledger again" in reason) == (412, True)
        assert [ledger.offload for ledger in await found.closed()] == [None, None, None]
        assert await found.commit([file, await found.copy(second)]) == (204, "")
        assert await found.commit([await found.copy(third)], lag_ms=600_000) == (204, "")
        path.write_bytes(whole[:-9])  # after the list has named it
        topic = await found.topic()
        await topic.offloads.give_replicas_up()
        assert [ledger.has_replicas for ledger in await found.closed()] == [True, False, True]
        read = found.owner.broker.client.ledgers.read
        await until_gone(partial(read, second.ledger_id), NoSuchLedgerError)
        assert (await read(first.ledger_id)).value.is_closed
        await found.begin(LATER_JOB)
        again = await found.copy(first, LATER_JOB)
        assert await found.commit([again], LATER_JOB) == (204, "")
        await topic.offloads.give_replicas_up()
        assert [ledger.has_replicas for ledger in await found.closed()] == [False, False, True]
        status, reason = await found.commit([file._replace(place=again.place + "x")], LATER_JOB)
        assert (status, "its file is the only copy" in reason) == (409, True)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"job": "x"},
        {"job": JOB, "ledgers": []},
        {"job": JOB, "ledgers": 3},
        {"job": JOB, "ledgers": [3]},
        {"job": JOB, "ledgers": [{"ledgerId": 3}]},
        {"job": JOB, "replicasForMs": -1, "ledgers": []},
    ],
)
async def test_a_request_that_names_no_files_is_refused(cluster: LocalCluster, body: object) -> None:
    async with admins(cluster, 1) as (admin,):
        status, reason = await admin.refused("POST", f"{broker_topics.TOPICS_PATH}/t%2Fn%2Fx/offload", body)
        assert status == 400
        assert "the body is to" in reason


@pytest.mark.parametrize(
    ("change", "status", "what"),
    [
        ({"entries": 0}, 400, "the body is to"),
        ({"crc": 2**32}, 400, "the body is to"),
        ({"place": "s3://key:secret@bucket/x"}, 412, "has credentials in it"),
        ({"place": "/etc/passwd"}, 412, "no place for offloaded ledgers"),
    ],
)
async def test_a_file_that_no_list_can_name_is_refused(
    cluster: LocalCluster, change: dict[str, Any], status: int, what: str
) -> None:
    row: dict[str, Any] = {
        "ledgerId": 3,
        "entries": 1,
        "size": 1,
        "place": "file:///cold/x",
        "formatVersion": 1,
        "fileSize": 9,
        "crc": 7,
    }
    async with admins(cluster, 1) as (admin,):
        found = await admin.refused(
            "POST",
            f"{broker_topics.TOPICS_PATH}/t%2Fn%2Fx/offload",
            {"job": JOB, "ledgers": [row | change]},
        )
        assert (found[0], what in found[1]) == (status, True)
