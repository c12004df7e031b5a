"""One topic's part of an offload, on metadata and a folder alone: what goes, what stays, and every point at which it may be killed (rule 70)."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from daybook_spark import asking
from daybook_spark.jobs import copying
from daybook_spark.jobs import offload_topic as part
from daybook_spark.jobs.copying import Copied, LedgerCopy, copied
from daybook_spark.jobs.offload_topic import OffloadIncompleteError, OffloadSettings, offload_topic
from daybook_spark.jobs.result import Done

from daybook.client.broker_admin import AdminError, BrokerAdmin
from daybook.core.errors import LedgersNeededError, PlanOutdatedError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerState
from daybook.core.topics.job_terms import DEFAULT_LAG_MS
from daybook.core.topics.ledger_list import LedgerList, ListedLedger, Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.offload.changes import OffloadBegun, OffloadsWritten, WrittenFile, check_files
from daybook.core.topics.offload.plan import OffloadLimits
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.store import MetadataStore
from daybook.metadata.topics import TopicManager
from daybook.offload.errors import OffloadError
from daybook.offload.store import delete_file
from daybook.offload.writing import EntriesWriter
from tests.unit.metadata.harness import LAYOUT, formatted, ledger, memory_opener
from tests.unit.offload.kit import entries_of, read_all

ORDERS: Final = TopicName("public", "default", "orders")
FIRST, SECOND, THIRD = (f"{digit}" * 32 for digit in "123")
NOW_MS: Final = 10**6
PAYLOADS: Final = (b"a", b"", b"c" * 8)


class KilledError(Exception):
    """The job's process ended here."""


class World(BrokerAdmin):
    """A cluster without bookies, with the owner of one topic; it ends the job before its `kill_at`-th step, or after it."""

    def __init__(self, store: MetadataStore, folder: Path) -> None:
        super().__init__(["http://broker"])
        self.store, self.layout, self.folder = store, LAYOUT, folder
        self.ledgers = LedgerManager(store, LAYOUT)
        self.topics = TopicManager(store, LAYOUT)
        self.kill_at, self.is_after = -1, False
        self.refusals: list[AdminError] = []
        self.bodies: list[Any] = []
        self.unreadable: set[LedgerId] = set()
        self.trimmed_on_copy = False
        self.loop = asyncio.get_running_loop()

    def bookies(self) -> dict[str, Any]:
        return {}

    # The owner, which is asked in another thread

    def ask_broker(self, method: str, url: str, path: str, body: object = None) -> Any:
        self.step()
        answer = asyncio.run_coroutine_threadsafe(self._answer(body), self.loop).result()
        self.step(is_done=True)
        return answer

    async def _answer(self, body: Any) -> None:
        self.bodies.append(body)
        if self.refusals:
            raise self.refusals.pop(0)
        found = await self.topics.read(ORDERS)
        if "ledgers" not in body:
            await self.topics.cas(ORDERS, found, OffloadBegun(body["job"]).applied(found.value))
            return
        files = tuple(
            WrittenFile(
                PlannedLedger(each["ledgerId"], each["entries"], each["size"]),
                *(each[name] for name in ("place", "formatVersion", "fileSize", "crc")),
            )
            for each in body["ledgers"]
        )
        written = OffloadsWritten(body["job"], files, NOW_MS, body["replicasForMs"])
        try:
            if not check_files(found.value, written):
                await self.topics.cas(ORDERS, found, written.applied(found.value))
        except (PlanOutdatedError, LedgersNeededError) as error:
            raise AdminError(str(error), 409) from error

    # The tasks

    def copy(self, copies: Sequence[LedgerCopy]) -> list[Copied]:
        self.step()
        results = [copied(each, self._runs(each)) for each in copies]
        if self.trimmed_on_copy:
            asyncio.run_coroutine_threadsafe(self.trim(), self.loop).result()
        self.step(is_done=True)
        return results

    def _runs(self, copy: LedgerCopy) -> Any:
        entries = entries_of(PAYLOADS)
        yield entries[:2]
        if copy.planned.ledger_id in self.unreadable:
            msg = "no bookie has entry 2"
            raise OffloadError(msg)
        yield entries[2:]

    def delete(self, place: str) -> None:
        self.step()
        delete_file(place)
        self.step(is_done=True)

    def step(self, *, is_done: bool = False) -> None:
        if self.kill_at == 0 and is_done == self.is_after:
            raise KilledError
        self.kill_at -= is_done

    # What tests do and see

    async def topic(self, policy: dict[str, Any] | None = None) -> None:
        """A topic of three closed ledgers: 0, 1, and 2 without entries."""
        current = await self.topics.create(ORDERS, policy)
        for count in (3, 3, 0):
            closed: dict[str, Any] = {
                "state": LedgerState.CLOSED,
                "last_entry": count - 1,
                "length": 3 * count,
            }
            made = await self.ledgers.create_ledger(partial(ledger, **closed))
            ledger_id = made.value.ledger_id
            listed = ListedLedger(ledger_id, 1, entries=count, size_bytes=3 * count, closed_at_ms=1)
            last = Position(ledger_id, count - 1) if count else current.value.last_confirmed
            grown = replace(
                current.value,
                ledgers=(*current.value.ledgers, listed),
                owner_token="owner",
                last_confirmed=last,
            )
            current = await self.topics.cas(ORDERS, current, grown)

    async def trim(self) -> None:
        """The owner drops the first ledger."""
        found = await self.topics.read(ORDERS)
        await self.topics.cas(ORDERS, found, replace(found.value, ledgers=found.value.ledgers[1:]))

    async def run(self, job: str = FIRST, **settings: Any) -> Done:
        asked = OffloadSettings(job, **{"to": f"file://{self.folder}", **settings})
        client: Any = self
        return await offload_topic(client, self, ORDERS, asked, self.copy)

    async def listed(self) -> LedgerList:
        return (await self.topics.read(ORDERS)).value

    async def places(self) -> dict[LedgerId, str]:
        """The named files, by ledger."""
        return {each.ledger_id: each.offload.place for each in (await self.listed()).ledgers if each.offload}

    def files(self) -> set[str]:
        """All files there are."""
        return {f"file://{path}" for path in self.folder.rglob("*") if path.is_file()}


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    _, opener = memory_opener()
    store = await opener()
    await formatted(store)
    made = World(store, tmp_path / "cold")
    monkeypatch.setattr(part, "delete_file", made.delete)
    monkeypatch.setattr(asking, "PAUSE_S", 0.0)
    yield made
    await store.close()


async def test_closed_ledgers_with_entries_are_copied_and_named_once(world: World) -> None:
    await world.topic()
    dry = await world.run(is_dry_run=True)
    assert dry.figures == {"ledgersToOffload": 2, "bytesToOffload": 18, "filesToDelete": 0}
    assert (world.bodies, world.files()) == ([], set()), "a dry run changes nothing"
    done = await world.run()
    places = await world.places()
    assert set(places) == {0, 1}
    assert world.files() == set(places.values())
    assert all(read_all(place, 3, ledger_id) == list(PAYLOADS) for ledger_id, place in places.items())
    sizes = sum(each.offload.size_bytes for each in (await world.listed()).ledgers if each.offload)
    figures = {"ledgersOffloaded": 2, "bytesOffloaded": 18, "fileBytes": sizes, "filesDeleted": 0}
    assert done.figures == figures
    assert len(world.bodies) == 3, "a run begins, and each ledger is named"
    assert await world.run(SECOND) == Done("nothing to do")
    assert len(world.bodies) == 3


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
        _, opener = memory_opener()
        store = await opener()
        await formatted(store)
        shutil.rmtree(tmp_path / "cold", ignore_errors=True)
        world = World(store, tmp_path / "cold")
        monkeypatch.setattr(part, "delete_file", world.delete)
        await world.topic()
        world.kill_at = 2
        with pytest.raises(KilledError):  # there are files of a former run
            await world.run(FIRST)
        world.kill_at, world.is_after = kill_at, is_after
        was_killed = False
        try:
            await world.run(SECOND)
        except KilledError:
            was_killed = True
        world.kill_at = -1
        await world.run(THIRD)
        places = await world.places()
        assert set(places) == {0, 1}, (kill_at, is_after)
        assert world.files() == set(places.values()), (kill_at, is_after)
        assert all(read_all(place, 3, ledger_id) == list(PAYLOADS) for ledger_id, place in places.items())
        assert await world.run("4" * 32) == Done("nothing to do")
        await store.close()
        return was_killed

    for is_after in (False, True):
        kill_at = 0
        while await outcome(kill_at, is_after=is_after):
            kill_at += 1
        assert kill_at == 6, "a run begins, copies, two ledgers are named, two files deleted"
