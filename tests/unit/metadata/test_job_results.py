"""Results of jobs beside topics."""

import asyncio

import pytest

from daybook.core.errors import MetadataError, NoSuchTopicError
from daybook.core.topics.job_result import JobResult
from daybook.core.topics.name import TopicName
from daybook.metadata.backup.snapshot import open_snapshot, read_snapshot
from daybook.metadata.job_results import JobResults
from daybook.metadata.store.store import Create, Operation
from daybook.metadata.topics import TopicManager
from tests.unit.metadata.harness import Opener, formatted, memory_opener, stores

ORDERS = TopicName("public", "default", "orders")


def result(job: str = "compaction", ended_ms: int = 2, error: str = "") -> JobResult:
    return JobResult.of(job, 1, ended_ms, error=error, figures={"topics": ended_ms})


async def test_the_last_result_of_each_job_is_kept_and_ends_with_the_topic(opener: Opener) -> None:
    async with stores(opener, 2) as (store, other):
        layout = await formatted(store)
        topics, results = TopicManager(store, layout), JobResults(store, layout)
        with pytest.raises(NoSuchTopicError, match="does not exist"):
            await results.write(ORDERS, result())
        assert await topics.tenants() == (), "no result creates a topic"
        created = await topics.create(ORDERS)
        assert await results.read(ORDERS, "compaction") is None
        assert await results.jobs(ORDERS) == ()
        await asyncio.gather(
            results.write(ORDERS, result()), JobResults(other, layout).write(ORDERS, result("offload"))
        )
        failed = result(ended_ms=3, error="no bucket")
        await results.write(ORDERS, failed)
        assert await results.read(ORDERS, "compaction") == failed
        assert await results.read(ORDERS, "offload") == result("offload")
        assert await results.jobs(ORDERS) == ("compaction", "offload")
        await store.put(layout.job_result(ORDERS, "offload"), b"x", None)
        with pytest.raises(MetadataError, match="no result of a job"):
            await results.read(ORDERS, "offload")
        await topics.delete(ORDERS, created.version)
        assert await results.jobs(ORDERS) == ()
        with pytest.raises(NoSuchTopicError):
            await results.write(ORDERS, result())
        assert (await topics.create(ORDERS)).version == 0, "the name is free again"


async def test_a_result_that_is_left_while_its_topic_is_deleted_goes_as_well() -> None:
    _, opener = memory_opener()
    async with stores(opener, 2) as (store, other):
        layout = await formatted(store)
        topics, results = TopicManager(store, layout), JobResults(other, layout)
        created = await topics.create(ORDERS)
        multi = store.multi
        left: list[Operation] = []

        async def with_a_job(operations: list[Operation]) -> None:
            if not left:
                left.append(Create("", b""))
                await results.write(ORDERS, result())
            await multi(operations)

        store.multi = with_a_job  # type: ignore[method-assign,assignment]  # a job that is quicker
        await topics.delete(ORDERS, created.version)
        assert await topics.topics("public", "default") == ()


async def test_results_are_in_a_backup() -> None:
    _, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        layout = await formatted(store)
        await TopicManager(store, layout).create(ORDERS)
        await JobResults(store, layout).write(ORDERS, result())
        with open_snapshot() as snapshot:
            await read_snapshot(store, layout, snapshot)
            found = dict(snapshot)
        assert JobResult.from_json(found[layout.job_result(ORDERS, "compaction")]) == result()
