"""One topic's part of a restore, on metadata and a folder alone: what comes back, what stays, and every point at which it may be killed (rule 72)."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from daybook_spark import asking
from daybook_spark.jobs import restore_topic as part
from daybook_spark.jobs.restore_topic import FILE_LAG_MS, RestoreIncompleteError
from daybook_spark.jobs.result import Done

from daybook.client.broker_admin import AdminError
from daybook.core.topics.offload.plan import OffloadLimits
from daybook.core.topics.offload.restore import RestoreLimits
from tests.unit.spark.offload_world import ORDERS, SECOND, THIRD, KilledError
from tests.unit.spark.restore_world import RestoreWorld, made_restore_world


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RestoreWorld]:
    async with made_restore_world(tmp_path / "cold", monkeypatch) as made:
        yield made


async def test_ledgers_come_back_once_and_their_files_stay_for_the_lag(world: RestoreWorld) -> None:
    files = world.files()
    assert await world.existing() == {2}
    dry = await world.run_restore(is_dry_run=True)
    assert dry.figures == {
        "ledgersToRestore": 2,
        "bytesToRestore": 18,
        "ledgersToKeep": 0,
        "filesToDelete": 0,
    }
    assert (world.bodies, await world.existing()) == ([], {2}), "a dry run changes nothing"
    done = await world.run_restore(lag_ms=FILE_LAG_MS)
    assert done.figures == {"ledgersRestored": 2, "bytesRestored": 18, "ledgersKept": 0, "filesDeleted": 0}
    assert await world.copies() == {0: 3, 1: 4}
    assert await world.existing() == (await world.listed()).named_ids == {2, 3, 4}
    assert world.files() == files
    assert [each["storedAs"] for body in world.bodies for each in body["ledgers"]] == [3, 4]
    assert (await world.run_restore()).message == "nothing to do"
    assert (await world.run(SECOND)).message == "nothing to do", "an offload leaves them where they are"
    assert (len(world.bodies), world.files()) == (2, files)


async def test_files_go_once_the_lag_is_over_by_this_run_or_by_an_offload(world: RestoreWorld) -> None:
    assert (await world.run_restore()).figures["filesDeleted"] == 2
    assert world.files() == set()
    assert (await world.run_restore()).message == "nothing to do"


async def test_an_offload_deletes_the_files_of_restored_ledgers_as_all_that_nobody_names(
    world: RestoreWorld,
) -> None:
    await world.run_restore(limits=RestoreLimits(ledger_ids=(0,)), lag_ms=FILE_LAG_MS)
    assert (await world.copies(), len(world.files())) == ({0: 3}, 2)
    assert (await world.run(SECOND)).message == "nothing to do"
    found = await world.topics.read(ORDERS)
    first, *others = found.value.ledgers
    assert first.restored is not None
    over = replace(first, restored=replace(first.restored, file_until_ms=0))
    await world.topics.cas(ORDERS, found, replace(found.value, ledgers=(over, *others)))
    assert (await world.run(THIRD)).figures["filesDeleted"] == 1
    assert world.files() == set((await world.places()).values())


async def test_files_that_nobody_restored_are_left_to_the_offload(world: RestoreWorld) -> None:
    (place, *_) = world.files()
    folder = Path(place.removeprefix("file://")).parent
    other = folder / f"0-{THIRD}-0.parquet"
    other.write_bytes(b"of a run that may still name it")
    await world.run_restore(limits=RestoreLimits(ledger_ids=(1,)))
    assert world.files() == {(await world.places())[0], f"file://{other}"}


async def test_what_was_restored_is_offloaded_again_where_somebody_asks_for_it(world: RestoreWorld) -> None:
    await world.run_restore()
    assert (await world.run(SECOND)).message == "nothing to do"
    done = await world.run(THIRD, limits=OffloadLimits(with_restored=True))
    assert done.figures["ledgersOffloaded"] == 2
    assert await world.copies() == {0: 3, 1: 4}, "the copies stay for the lag"
    done = await world.run_restore()
    assert (done.figures["ledgersKept"], await world.places()) == (2, {})
    assert (await world.copies(), world.files()) == ({0: 3, 1: 4}, set())


async def test_rule_72_a_former_file_outlives_another_offload_and_no_copy_is_made_before_it_may_go(
    world: RestoreWorld,
) -> None:
    former = world.files()
    await world.run_restore(lag_ms=FILE_LAG_MS)
    await world.run(SECOND, limits=OffloadLimits(with_restored=True))
    await world.gone()
    assert (await world.run(THIRD)).message == "nothing to do"
    assert world.files() == former | set((await world.places()).values())
    with pytest.raises(RestoreIncompleteError, match=r"2 could not be: ledger 0: .* has to stay until"):
        await world.run_restore()
    assert await world.existing() == {2}


async def test_a_ledger_that_cannot_be_restored_holds_up_no_other_and_its_file_stays(
    world: RestoreWorld,
) -> None:
    world.unreadable = {0}
    with pytest.raises(RestoreIncompleteError, match="1 could not be: ledger 0: the file is damaged"):
        await world.run_restore()
    assert await world.copies() == {1: 4}
    assert await world.existing() == {2, 4}, "the copy that was not whole is gone"
    assert world.files() == {(await world.places())[0]}


async def test_copies_of_repeated_tasks_go_at_the_end(world: RestoreWorld) -> None:
    world.attempts = 3
    await world.run_restore()
    assert await world.existing() == (await world.listed()).named_ids
    assert len(await world.copies()) == 2


async def test_rule_72_a_copy_that_the_owner_was_asked_to_name_is_not_deleted_whatever_it_answers(
    world: RestoreWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.answers_are_lost = True
    assert (await world.run_restore()).figures["ledgersRestored"] == 2, "it is asked again"
    assert len(world.bodies) == 4
    for refusal in (AdminError("it is no copy", 412), AdminError("no answer came")):
        await world.run(SECOND if refusal.status else THIRD, limits=OffloadLimits(with_restored=True))
        await world.gone()
        monkeypatch.setattr(asking, "ASK_S", -1.0)
        world.refusals = [refusal]
        before = await world.existing()
        with pytest.raises(RestoreIncompleteError, match=f"ledger 0: {refusal}"):
            await world.run_restore()
        named = (await world.listed()).named_ids
        assert len((await world.existing()) - before) == 2
        assert len((await world.existing()) - named) == 1
        monkeypatch.undo()
        monkeypatch.setattr(asking, "PAUSE_S", 0.0)
        await world.run_restore()
        await world.collect()
        assert await world.existing() == (await world.listed()).named_ids


async def test_two_runs_at_once_restore_each_ledger_once(world: RestoreWorld) -> None:
    client: Any = world
    copy = world.restore

    def slow(restores: Any) -> Any:
        found = copy(restores)
        asyncio.run_coroutine_threadsafe(world.run_restore(), world.loop).result()
        return found

    settings = part.RestoreSettings(lag_ms=0)
    with pytest.raises(RestoreIncompleteError, match=r"2 could not be: ledger 0: .* is not in the file"):
        await part.restore_topic(client, world, ORDERS, "f" * 32, settings, slow)
    assert await world.copies() == {0: 5, 1: 6}
    await world.collect()
    assert await world.existing() == {2, 5, 6}


async def test_a_ledger_that_is_trimmed_meanwhile_is_no_failure(world: RestoreWorld) -> None:
    world.trimmed_on_copy = True
    done = await world.run_restore()
    assert done.message.endswith("1 ledgers were trimmed meanwhile")
    assert (done.figures["ledgersRestored"], await world.copies()) == (1, {1: 4})
    await world.collect()
    assert await world.existing() == {2, 4}


async def test_a_topic_that_is_gone_is_no_error(world: RestoreWorld) -> None:
    found = await world.topics.read(ORDERS)
    emptied = await world.topics.cas(ORDERS, found, replace(found.value, ledgers=()))
    await world.topics.delete(ORDERS, emptied.version)
    assert await world.run_restore() == Done("the topic was deleted meanwhile")


async def test_rule_72_killed_before_or_after_each_of_its_steps_and_run_again_the_result_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def outcome(kill_at: int, *, is_after: bool) -> bool:
        """Whether the run was killed there."""
        async with made_restore_world(tmp_path / "cold", monkeypatch) as world:
            world.attempts = 2
            world.kill_at, world.is_after = kill_at, is_after
            was_killed = False
            try:
                await world.run_restore()
            except KilledError:
                was_killed = True
            assert was_killed == world.is_dead
            listed = await world.listed()
            assert listed.named_ids <= await world.existing(), (kill_at, is_after)
            in_files = {row.offload.place for row in listed.ledgers if row.offload}
            assert in_files <= world.files(), (kill_at, is_after)
            world.kill_at, world.is_dead = -1, False
            await world.run_restore()
            assert set(await world.copies()) == {0, 1}, (kill_at, is_after)
            assert (await world.places(), world.files()) == ({}, set()), (kill_at, is_after)
            await world.collect()
            assert await world.existing() == (await world.listed()).named_ids, (kill_at, is_after)
            assert (await world.run_restore()).message == "nothing to do"
        return was_killed

    for is_after in (False, True):
        kill_at = 0
        while await outcome(kill_at, is_after=is_after):
            kill_at += 1
        assert kill_at == 8, "it copies, two are named, two copies deleted, a run begins, two files deleted"
