"""One topic's part of an offload, on metadata and a folder alone: what goes, what stays, and every point at which it may be killed (rule 70)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from daybook_spark import asking
from daybook_spark.jobs import copying
from daybook_spark.jobs import offload_topic as part
from daybook_spark.jobs.copying import Copied, LedgerCopy, copied
from daybook_spark.jobs.offload_topic import OffloadIncompleteError, OffloadSettings, offload_topic
from daybook_spark.jobs.result import Done

from daybook.client.broker_admin import AdminError
from daybook.core.topics.job_terms import DEFAULT_LAG_MS
from daybook.core.topics.offload.plan import OffloadLimits
from daybook.offload.errors import OffloadError
from daybook.offload.writing import EntriesWriter
from tests.unit.offload.kit import entries_of, read_all
from tests.unit.spark.offload_world import (
    FIRST,
    ORDERS,
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


async def test_closed_ledgers_with_entries_are_copied_and_named_once(world: World) -> None:
    await world.topic()
    dry = await world.run(is_dry_run=True)
    assert dry.figures == {
        "ledgersToOffload": 2,
        "bytesToOffload": 18,
        "filesToDelete": 0,
        "rowsToPublish": 0,
    }
    assert (world.bodies, world.files()) == ([], set()), "a dry run changes nothing"
    done = await world.run()
    places = await world.places()
    assert set(places) == {0, 1}
    assert world.files() == set(places.values())
    assert all(read_all(place, 3, ledger_id) == list(PAYLOADS) for ledger_id, place in places.items())
    sizes = sum(each.offload.size_bytes for each in (await world.listed()).ledgers if each.offload)
    figures = {
        "ledgersOffloaded": 2,
        "bytesOffloaded": 18,
        "fileBytes": sizes,
        "filesDeleted": 0,
        "rowsWritten": 0,
    }
    assert done.figures == figures
    assert len(world.bodies) == 3, "a run begins, and each ledger is named"
    assert await world.run(SECOND) == Done("nothing to do")
    assert len(world.bodies) == 3


async def test_rule_70_a_run_that_spells_the_place_otherwise_deletes_no_named_file(world: World) -> None:
    """The list names the files by the URI of the run that wrote them, and may name nothing else any more."""
    await world.topic()
    await world.run()
    places = await world.places()
    stray = world.folder.joinpath(next(iter(places.values())).removeprefix(f"file://{world.folder}/"))
    stray.with_name(f"2-{FIRST}-0.parquet").write_bytes(b"a former copy")
    respelled = f"file://{world.folder.parent}//{world.folder.name}/"
    done = await world.run(SECOND, to=respelled)
    assert done.figures["filesDeleted"] == 1
    assert world.files() == set(places.values())


async def test_what_is_new_or_recent_stays_on_bookies(world: World) -> None:
    await world.topic()
    assert (await world.run(limits=OffloadLimits(keep_ms=10**15))).message == "nothing to do"
    await world.run(limits=OffloadLimits(keep_bytes=9))
    assert set(await world.places()) == {0}


@pytest.mark.parametrize(("asked_ms", "lag_ms"), [(None, 5), (0, 0), (7, 7)])
@pytest.mark.parametrize("is_place_asked", [False, True])
async def test_place_and_lag_are_the_policys_unless_the_run_says_others(
    world: World, tmp_path: Path, asked_ms: int | None, lag_ms: int, *, is_place_asked: bool
) -> None:
    await world.topic({"offload": {"schedule": "@daily", "to": f"file://{tmp_path}/by-policy", "lagMs": 5}})
    there = f"file://{tmp_path}/asked"
    await world.run(to=there if is_place_asked else "", lag_ms=asked_ms)
    found = (await world.places()).values()
    assert {place.startswith(there) for place in found} == {is_place_asked}
    assert [body.get("replicasForMs") for body in world.bodies] == [None, lag_ms, lag_ms]


async def test_without_a_policy_the_lag_is_the_default_and_the_place_has_to_be_given(world: World) -> None:
    await world.topic()
    with pytest.raises(OffloadError, match="set `offload` in the policy, or give --to"):
        await world.run(to="")
    await world.run()
    assert world.bodies[-1]["replicasForMs"] == DEFAULT_LAG_MS


async def test_a_topic_that_is_gone_is_no_error(world: World) -> None:
    assert await world.run() == Done("the topic was deleted meanwhile")


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("ftp://cold", "use file:///folder or s3://"),
        ("s3://key:secret@cold", "put them into the environment"),
    ],
)
async def test_a_place_that_is_none_changes_nothing(world: World, to: str, says: str) -> None:
    await world.topic()
    with pytest.raises(OffloadError, match=says):
        await world.run(to=to)
    assert world.bodies == []


async def test_a_folder_that_cannot_be_made_changes_nothing(world: World) -> None:
    await world.topic()
    world.folder.write_text("a file, and no folder")
    with pytest.raises(OffloadError, match="check the place"):
        await world.run()
    assert world.bodies == []


async def test_a_ledger_that_cannot_be_read_holds_up_no_other_and_keeps_a_former_copy(world: World) -> None:
    await world.topic()
    world.kill_at = 2
    with pytest.raises(KilledError):
        await world.run()
    former = world.files()
    assert len(former) == 2
    world.kill_at, world.unreadable = -1, {0}
    with pytest.raises(OffloadIncompleteError, match="1 could not be: ledger 0: no bookie has entry 2"):
        await world.run(SECOND)
    places = await world.places()
    assert set(places) == {1}
    assert world.files() == {places[1], *(each for each in former if "/0-" in each)}
    world.unreadable = set()
    await world.run(THIRD)
    assert world.files() == set((await world.places()).values())


async def test_an_owner_that_refuses_is_asked_for_no_more_copies(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.topic()
    monkeypatch.setattr(part, "LEDGERS_AT_ONCE", 1)
    world.kill_at = 1  # the run begins, and has copied nothing
    with pytest.raises(KilledError):
        await world.run()
    world.kill_at, refusal = -1, AdminError("the file cannot be read", 412)

    def copy_and_refuse(copies: Sequence[LedgerCopy]) -> list[Copied]:
        world.refusals.append(refusal)
        return [copied(each, [entries_of(PAYLOADS)]) for each in copies]

    monkeypatch.setattr(world, "copy", copy_and_refuse)
    with pytest.raises(OffloadIncompleteError, match="ledger 0: the file cannot be read"):
        await world.run(SECOND)
    assert len(world.files()) == 1
    monkeypatch.undo()
    monkeypatch.setattr(asking, "PAUSE_S", 0.0)
    await world.run(THIRD)
    assert world.files() == set((await world.places()).values())


async def test_an_owner_that_changes_is_asked_again(world: World) -> None:
    await world.topic()
    world.refusals = [AdminError("the topic moves", 503), AdminError("no answer")]
    await world.run()
    assert len(world.bodies) == 5
    assert set(await world.places()) == {0, 1}


async def test_a_ledger_that_is_trimmed_meanwhile_is_no_failure_and_its_file_goes_later(world: World) -> None:
    await world.topic()
    world.trimmed_on_copy = True
    done = await world.run()
    assert done.message.endswith("1 ledgers were trimmed meanwhile")
    places = await world.places()
    assert (set(places), len(world.files())) == ({1}, 2)
    world.trimmed_on_copy = False
    assert (await world.run(SECOND)).figures["filesDeleted"] == 1
    assert world.files() == set(places.values())


async def test_rule_70_files_of_a_run_that_another_one_follows_are_not_named(world: World) -> None:
    await world.topic()
    client: Any = world
    asked = OffloadSettings(FIRST, to=f"file://{world.folder}")

    def slow(copies: Sequence[LedgerCopy]) -> list[Copied]:
        found = [copied(each, [entries_of(PAYLOADS)]) for each in copies]
        asyncio.run_coroutine_threadsafe(world.run(SECOND), world.loop).result()
        return found

    with pytest.raises(OffloadIncompleteError, match="another run has begun"):
        await offload_topic(client, world, ORDERS, asked, slow)
    places = set((await world.places()).values())
    assert all(SECOND in place for place in places)
    assert world.files() == places


async def test_rule_73_files_of_a_topic_that_is_deleted_during_the_run_stay(world: World) -> None:
    """One of them was the only copy, and a restore of the metadata may bring back the list that names it."""
    await world.topic()
    await world.run(limits=OffloadLimits(keep_bytes=9))
    named = set((await world.places()).values())
    client: Any = world
    asked = OffloadSettings(SECOND, to=f"file://{world.folder}")

    def copy_until_it_is_gone(copies: Sequence[LedgerCopy]) -> list[Copied]:
        found = [copied(each, [entries_of(PAYLOADS)]) for each in copies]
        asyncio.run_coroutine_threadsafe(world.delete_topic(), world.loop).result()
        return found

    done = await offload_topic(client, world, ORDERS, asked, copy_until_it_is_gone)
    assert done.figures["filesDeleted"] == 0
    assert len(named) == 1
    assert named < world.files()


async def test_rule_70_a_copy_is_read_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store says that it has written the file, and has not written all of it."""

    class Lossy(EntriesWriter):
        def written(self) -> Any:
            found = super().written()
            path = Path(self._uri.removeprefix("file://"))
            whole = path.read_bytes()
            path.write_bytes(whole[:40] + bytes(4) + whole[44:])
            return found

    await world.topic()
    monkeypatch.setattr(copying, "EntriesWriter", Lossy)
    with pytest.raises(
        OffloadIncompleteError, match=r"2 could not be: ledger 0: .* CRC checksum verification failed"
    ):
        await world.run()
    assert (await world.places(), world.files()) == ({}, set())


async def test_rule_70_killed_before_or_after_each_of_its_steps_and_run_again_the_result_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def outcome(kill_at: int, *, is_after: bool) -> bool:
        """Whether the run was killed there."""
        async with made_world(tmp_path / "cold", monkeypatch) as world:
            await world.topic()
            was_killed = await world.run_killed_at(kill_at, is_after=is_after)
            places = await world.places()
            assert set(places) == {0, 1}, (kill_at, is_after)
            assert world.files() == set(places.values()), (kill_at, is_after)
            assert all(read_all(place, 3, ledger_id) == list(PAYLOADS) for ledger_id, place in places.items())
            assert await world.run("4" * 32) == Done("nothing to do")
        return was_killed

    for is_after in (False, True):
        kill_at = 0
        while await outcome(kill_at, is_after=is_after):
            kill_at += 1
        assert kill_at == 6, "a run begins, copies, two ledgers are named, two files deleted"
