"""Files of deleted topics, in a local folder and in an S3: which go, what stays, and every point at which a run may be killed (rule 73)."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import pytest
from daybook_spark.jobs import gone_files as job
from daybook_spark.jobs import topics
from daybook_spark.jobs.result import Done

from daybook.core.topics.ledger_list import ListedLedger, Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.offload.record import Offload
from daybook.metadata.hold import CollectionHeldError, CollectionHold
from daybook.metadata.instance import read_instance
from daybook.metadata.store.store import MetadataStore
from daybook.metadata.topics import TopicManager
from daybook.metadata.tree import IncompleteListingError
from daybook.offload.errors import OffloadError
from daybook.offload.gone_topics import found_in, note_uri, place_of, topics_below
from daybook.offload.rows import published_rows, topic_files, waiting_rows
from daybook.offload.store import delete_file, file_uri, make_folder, topic_folder
from daybook.runtime.clock import unix_ms
from tests.unit.metadata.harness import LAYOUT, formatted, memory_opener
from tests.unit.offload.kit import write

KEPT, GONE = TopicName("public", "default", "kept"), TopicName("a=b", "default", "gone 1")
RUN: Final = "1" * 32
DAY_MS: Final = 24 * 3600 * 1000


class KilledError(Exception):
    """The job's process ended here."""


class World:
    """A cluster's metadata, and the place of its files."""

    def __init__(self, store: MetadataStore, place: str, cluster: str) -> None:
        self.store, self.layout, self.place, self.cluster = store, LAYOUT, place, cluster
        self.topics = TopicManager(store, LAYOUT)

    def folder(self, topic: TopicName) -> str:
        return topic_folder(self.place, self.cluster, topic)

    def write(self, topic: TopicName, ledger_id: int, *, rows: bool = False) -> str:
        """A file of the topic, with rows that are published and rows that wait."""
        uri = file_uri(self.folder(topic), f"{ledger_id}-{RUN}-0.parquet")
        make_folder(file_uri(self.folder(topic), "rows"))
        for each in (uri, published_rows(uri), waiting_rows(uri)) if rows else (uri,):
            write(each, [b"x"], ledger_id)
        return uri

    async def name(self, topic: TopicName, *files: str) -> None:
        """A topic whose list names these files."""
        current = await self.topics.create(topic)
        closed = tuple(ListedLedger(at, 1, 1, 1, closed_at_ms=1) for at, _ in enumerate(files))
        newest = Position(len(files) - 1, 0) if files else current.value.last_confirmed
        listed = replace(current.value, ledgers=closed, last_confirmed=newest)
        current = await self.topics.cas(topic, current, listed)
        rows = tuple(
            replace(row, offload=Offload(uri, 1, 1, 1, 0, 1, None))
            for row, uri in zip(closed, files, strict=True)
        )
        await self.topics.cas(topic, current, replace(current.value, ledgers=rows))

    async def run(self, grace_ms: int = 0, *, is_dry_run: bool = False) -> Done:
        client: Any = self
        return await job.delete_gone_files(client, [self.place], grace_ms, is_dry_run=is_dry_run)

    def files(self, topic: TopicName) -> list[str]:
        return list(topic_files(self.folder(topic)))


@pytest.fixture
async def world(store: str) -> AsyncIterator[World]:
    _, opener = memory_opener()
    opened = await opener()
    await formatted(opened)
    yield World(opened, store, (await read_instance(opened, LAYOUT)).instance_id)
    await opened.close()


def age_notes(monkeypatch: pytest.MonkeyPatch, by_ms: int) -> None:
    """Let so much time pass since the notes that are there, and those that come."""
    monkeypatch.setattr(job, "unix_ms", lambda: unix_ms() + by_ms)


async def test_rule_73_files_of_a_deleted_topic_go_and_those_of_others_stay(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, gone = world.write(KEPT, 9, rows=True), world.write(GONE, 0, rows=True)
    await world.name(KEPT, kept)
    before = {topic: world.files(topic) for topic in (KEPT, GONE)}
    assert await world.run(DAY_MS, is_dry_run=True) == Done(
        f"files of 1 deleted topics wait for the grace, such as {GONE}"
    )
    assert world.files(GONE) == before[GONE], "a dry run writes no note"

    assert "wait for the grace" in (await world.run(DAY_MS)).message
    assert world.files(GONE) == sorted([*before[GONE], note_uri(world.folder(GONE))])
    assert await world.run(DAY_MS) == Done("nothing to do"), "the note is there"
    age_notes(monkeypatch, DAY_MS + 60_000)
    assert (await world.run(DAY_MS, is_dry_run=True)).figures == {"filesToDelete": 3}
    assert await world.run(DAY_MS) == Done("3 files of deleted topics were deleted", {"filesDeleted": 3})
    assert (world.files(GONE), world.files(KEPT)) == ([], before[KEPT])
    assert gone not in before[KEPT]
    assert await world.run(DAY_MS) == Done("nothing to do")


async def test_the_places_of_lists_are_known(world: World) -> None:
    await world.name(KEPT, world.write(KEPT, 9))
    world.write(GONE, 0)
    client: Any = world
    done = await job.delete_gone_files(client, [], 0, is_dry_run=False)
    assert done.figures == {"filesDeleted": 1}
    assert list(topics_below(world.place, world.cluster))[-1] == KEPT
    assert place_of(world.files(KEPT)[0]) == world.place


async def test_rule_73_a_topic_that_was_created_again_keeps_all_files_and_the_grace_begins_anew(
    world: World,
) -> None:
    old = world.write(GONE, 0)
    await world.run(DAY_MS)
    new = world.write(GONE, 5)
    await world.name(GONE, new)
    assert await world.run(0) == Done("nothing to do")
    assert world.files(GONE) == sorted([old, new])
    assert found_in(world.folder(GONE), GONE)[0].noted_ms is None


async def test_rule_73_a_topic_is_read_again_before_a_file_goes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = sorted(world.write(GONE, ledger_id) for ledger_id in range(3))
    delete = delete_file

    def delete_and_create(uri: str) -> None:
        delete(uri)
        asyncio.run_coroutine_threadsafe(world.name(GONE), loop).result()

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(job, "delete_file", delete_and_create)
    assert (await world.run()).figures == {"filesDeleted": 1}
    assert world.files(GONE) == files[1:]


async def test_rule_73_what_the_list_of_another_topic_names_stays(world: World) -> None:
    named, unnamed = world.write(GONE, 0, rows=True), world.write(GONE, 1)
    other = named.replace("?region=us-east-1&scheme=http", "?scheme=http&region=us-east-1")
    await world.name(KEPT, other)
    assert (await world.run()).figures == {"filesDeleted": 1}
    assert unnamed not in world.files(GONE)
    assert {named, published_rows(named), waiting_rows(named)} <= set(world.files(GONE))


async def test_rule_73_a_listing_that_is_not_whole_deletes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [world.write(GONE, 0)]

    async def refused(*_: object) -> None:
        msg = "the topics cannot be listed"
        raise IncompleteListingError(msg)

    monkeypatch.setattr(topics, "list_directory", refused)
    with pytest.raises(IncompleteListingError):
        await world.run()
    assert world.files(GONE) == files


async def test_a_place_that_cannot_be_listed_holds_up_no_other(world: World) -> None:
    world.write(GONE, 0)
    client: Any = world
    with pytest.raises(
        OffloadError,
        match=r"1 files of deleted topics were deleted; 1 places could not be judged: hdfs://x/y",
    ):
        await job.delete_gone_files(client, ["hdfs://x/y", world.place], 0, is_dry_run=False)
    assert world.files(GONE) == []


async def test_rule_68_after_a_restore_no_file_goes(world: World) -> None:
    files = [world.write(GONE, 0)]
    hold = CollectionHold(is_held=True, at_ms=1, exported_at_ms=1, token="t")
    await world.store.create(LAYOUT.collection_hold, hold.to_json())
    with pytest.raises(CollectionHeldError):
        await world.run()
    assert world.files(GONE) == files


async def test_rule_73_a_run_that_is_killed_at_any_step_is_run_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file and the note are a step; the note goes last, so that what is left keeps its grace."""
    delete, steps = delete_file, 0
    for kill_at in range(9):
        for ledger_id in range(3):
            world.write(GONE, ledger_id)
        left = kill_at

        def delete_or_die(uri: str) -> None:
            nonlocal left
            if left == 0:
                raise KilledError
            left -= 1
            delete(uri)

        monkeypatch.setattr(job, "delete_file", delete_or_die)
        try:
            await world.run()
        except KilledError:
            steps += 1
            left = -1
            await world.run()
        assert world.files(GONE) == []
    assert steps == 4
