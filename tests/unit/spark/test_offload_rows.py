"""Rows beside the entries of an offloaded topic, on metadata and a folder alone: who asks for them, when others see them, when they go."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from daybook_spark.jobs import copying
from daybook_spark.jobs import offload_topic as part
from daybook_spark.jobs.offload_topic import OffloadIncompleteError
from daybook_spark.jobs.result import Done
from pyarrow import parquet

from daybook.offload.errors import OffloadError
from daybook.offload.rows import RowsWriter, published_rows, waiting_rows
from daybook.offload.store import move_file
from tests.unit.spark.offload_world import (
    FIRST,
    PAYLOADS,
    SECOND,
    THIRD,
    KilledError,
    World,
    made_world,
)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with made_world(tmp_path / "cold", monkeypatch) as made:
        yield made


async def with_rows(world: World) -> set[str]:
    """The named files and their rows."""
    places = (await world.places()).values()
    return {*places, *map(published_rows, places)}


def plain(world: World) -> list[dict[str, Any]]:
    """What a program without Daybook reads of the topic."""
    (folder,) = world.folder.rglob("rows")
    found: list[dict[str, Any]] = parquet.read_table(folder).to_pylist()
    return found


@pytest.mark.parametrize("by_policy", [False, True])
async def test_a_run_asks_for_rows_or_the_policy_does(world: World, *, by_policy: bool) -> None:
    policy = {"schedule": "@daily", "to": f"file://{world.folder}", "withRows": by_policy}
    await world.topic({"offload": policy})
    done = await world.run(with_rows=not by_policy)
    assert done.figures["rowsWritten"] == 6
    assert world.files() == await with_rows(world)
    found = plain(world)
    assert [(row["ledger_id"], row["entry_id"], row["value"]) for row in found] == [
        (ledger_id, entry_id, payload) for ledger_id in (0, 1) for entry_id, payload in enumerate(PAYLOADS)
    ]
    assert {(row["topic"], row["partition"]) for row in found} == {
        ("persistent://public/default/orders", None)
    }
    assert all(row["error"] for row in found), "these payloads are no messages"
    assert await world.run(SECOND) == Done("nothing to do")


async def test_a_ledger_that_was_offloaded_without_rows_gets_none(world: World) -> None:
    await world.topic()
    await world.run()
    assert await world.run(SECOND, with_rows=True) == Done("nothing to do")
    assert world.files() == set((await world.places()).values())


async def test_rows_go_with_the_file_of_a_ledger_that_was_trimmed(world: World) -> None:
    await world.topic()
    await world.run(with_rows=True)
    await world.trim()
    assert (await world.run(SECOND, is_dry_run=True)).figures["filesToDelete"] == 2
    done = await world.run(SECOND)
    assert (set(await world.places()), done.figures["filesDeleted"]) == ({1}, 2)
    assert world.files() == await with_rows(world)


async def test_a_ledger_whose_rows_are_not_read_back_is_not_offloaded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lossy(RowsWriter):
        def add(self, batch: Any) -> None:
            super().add(batch)
            self.count += 1

    await world.topic()
    monkeypatch.setattr(copying, "RowsWriter", Lossy)
    with pytest.raises(
        OffloadIncompleteError, match="was read back with 3 rows, and was written with 4 rows"
    ):
        await world.run(with_rows=True)
    assert (await world.places(), world.files()) == ({}, set())


async def test_a_ledger_that_cannot_be_read_leaves_no_rows(world: World) -> None:
    await world.topic()
    world.unreadable = {0}
    with pytest.raises(OffloadIncompleteError, match="1 could not be: ledger 0: no bookie has entry 2"):
        await world.run(with_rows=True)
    assert set(await world.places()) == {1}
    assert world.files() == await with_rows(world)


async def test_rows_that_cannot_be_published_wait_for_the_next_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(_place: str, _to: str) -> None:
        msg = "access denied"
        raise OffloadError(msg)

    await world.topic()
    with monkeypatch.context() as patch:
        patch.setattr(part, "move_file", unable)
        with pytest.raises(
            OffloadIncompleteError, match="the rows of 2 wait for the next run: access denied; access denied"
        ):
            await world.run(with_rows=True)
    places = (await world.places()).values()
    assert world.files() == {*places, *map(waiting_rows, places)}
    dry = await world.run(SECOND, is_dry_run=True)
    assert (dry.figures["rowsToPublish"], dry.figures["filesToDelete"]) == (2, 0)
    await world.run(SECOND)
    assert world.files() == await with_rows(world)


async def test_rows_that_another_run_has_published_are_no_failure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(place: str, to: str) -> None:
        move_file(place, to)
        move_file(place, to)

    await world.topic()
    monkeypatch.setattr(part, "move_file", late)
    await world.run(with_rows=True)
    assert world.files() == await with_rows(world)


async def test_others_never_see_rows_of_a_file_that_is_not_named_whenever_a_run_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def outcome(kill_at: int, *, is_after: bool) -> bool:
        """Whether the run was killed there."""
        async with made_world(tmp_path / "cold", monkeypatch) as world:
            await world.topic()
            world.kill_at, world.is_after = kill_at, is_after
            was_killed = False
            try:
                await world.run(FIRST, with_rows=True)
            except KilledError:
                was_killed = True
            named = set(map(published_rows, (await world.places()).values()))
            assert {place for place in world.files() if "/rows/" in place} <= named, (kill_at, is_after)
            world.kill_at = -1
            await world.run(THIRD)
            assert {place for place in world.files() if "/rows/" in place} >= named
        return was_killed

    for is_after in (False, True):
        kill_at = 0
        while await outcome(kill_at, is_after=is_after):
            kill_at += 1
        assert kill_at == 6, "a run begins, copies, two ledgers are named and their rows published"


async def test_killed_before_or_after_each_of_its_steps_and_run_again_the_rows_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def outcome(kill_at: int, *, is_after: bool) -> bool:
        """Whether the run was killed there."""
        async with made_world(tmp_path / "cold", monkeypatch) as world:
            await world.topic()
            was_killed = await world.run_killed_at(kill_at, is_after=is_after, with_rows=True)
            assert world.files() == await with_rows(world), (kill_at, is_after)
            assert len(plain(world)) == 6, (kill_at, is_after)
            assert await world.run("4" * 32) == Done("nothing to do")
        return was_killed

    for is_after in (False, True):
        kill_at = 0
        while await outcome(kill_at, is_after=is_after):
            kill_at += 1
        assert kill_at == 10, (
            "a run begins, copies, two ledgers are named, their rows published, four files deleted"
        )
