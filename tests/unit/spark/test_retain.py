"""One topic's part of a retention, on metadata alone: what is trimmed and deleted, what stays, and every point at which it may be killed (rule 71)."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from daybook_spark.jobs.result import Done
from daybook_spark.jobs.retain import LedgersStayError, RetentionTerms, retain
from daybook_spark.jobs.retention import plan_works

from daybook.client.broker_admin import AdminError, BrokerAdmin
from daybook.client.topic_reports import BrokerReport, Serving, SubscriptionReport, TopicPage, TopicReport
from daybook.core.errors import LedgerChangedError, LedgersNeededError, PlanOutdatedError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import TOPIC_KEY, LedgerState
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.job_selection import Selection
from daybook.core.topics.ledger_list import ListedLedger, Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.trim_plan import PlannedLedger, check_plan
from daybook.core.topics.unnamed import made_by, made_by_compaction_job
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.policies import PolicyManager
from daybook.metadata.store.store import MetadataStore
from daybook.metadata.topics import TopicManager
from daybook.metadata.tree import IncompleteListingError
from daybook.runtime.clock import unix_ms
from tests.unit.metadata.harness import LAYOUT, formatted, ledger, memory_opener

IDLE: Final = TopicName("public", "default", "idle")
GONE: Final = TopicName("public", "default", "gone")
FORMER, MINE = "former", "mine"
TERMS: Final = RetentionTerms()
DRY: Final = RetentionTerms(is_dry_run=True)


class KilledError(Exception):
    """The job's process ended here."""


class World(BrokerAdmin):
    """A cluster without bookies, with one owner of all topics; it ends the job before its `kill_at`-th change or question, or after it."""

    def __init__(self, store: MetadataStore) -> None:
        super().__init__(["http://broker"])
        self.store, self.layout = store, LAYOUT
        self.ledgers = LedgerManager(store, LAYOUT)
        self.topics = TopicManager(store, LAYOUT)
        self.marks: dict[str, Position] = {}
        self.asked: list[str] = []
        self.kill_at, self.is_after = -1, False
        self.refusal: AdminError | None = None
        self.loop = asyncio.get_running_loop()
        self.turn = asyncio.Lock()

    # What the job uses of a client

    def list_ledgers(self) -> Any:
        return self.ledgers.read_all()

    async def delete_ledger(self, ledger_id: LedgerId, *, version: int | None = None) -> None:
        self._live()
        found = await self.ledgers.read(ledger_id)
        if version is not None and found.version != version:
            msg = f"ledger {ledger_id} has changed"
            raise LedgerChangedError(msg)
        await self.ledgers.delete(ledger_id, found.version)
        self._live(step=True)

    # The owner, which is asked in another thread

    def ask_broker(self, method: str, url: str, path: str, body: object = None) -> Any:
        self._live()
        answer = asyncio.run_coroutine_threadsafe(self._in_turn(method, body), self.loop).result()
        self._live(step=True)
        return answer

    async def _in_turn(self, method: str, body: Any) -> Any:
        async with self.turn:  # an owner makes one change of its list at a time
            return await self._answer(method, body)

    async def _answer(self, method: str, body: Any) -> Any:
        self.asked.append(method)
        if method == "GET":
            subscriptions = tuple(
                SubscriptionReport(name=name, mark_delete=str(mark)) for name, mark in self.marks.items()
            )
            report = TopicReport(topic=str(IDLE), serving=Serving.SERVED, subscriptions=subscriptions)
            page = TopicPage(broker=BrokerReport(broker="b"), topics=(report,))
            return page.model_dump(by_alias=True, mode="json")
        if self.refusal is not None:
            raise self.refusal
        found = await self.topics.read(IDLE)
        planned = [PlannedLedger(each["ledgerId"], each["entries"], each["size"]) for each in body["ledgers"]]
        retention = (await PolicyManager(self.store, LAYOUT).of(IDLE)).retention
        try:
            end = check_plan(found.value, planned, self.marks, retention, unix_ms())
        except (PlanOutdatedError, LedgersNeededError) as error:
            raise AdminError(str(error), 409 if isinstance(error, PlanOutdatedError) else 412) from error
        left = tuple(each for each in found.value.ledgers if each.last_position > end)
        await self.topics.cas(IDLE, found, replace(found.value, ledgers=left))
        for each in planned:  # the owner deletes what it has dropped
            await self.ledgers.delete(each.ledger_id, 0)
        return None

    def _live(self, *, step: bool = False) -> None:
        if self.kill_at == 0 and step == self.is_after:
            raise KilledError
        self.kill_at -= step

    # What tests do and see

    async def made(self, custom: Mapping[str, bytes], age_ms: int = 10**12, **changes: Any) -> LedgerId:
        """A ledger of that age with these marks."""
        values = {"custom_metadata": dict(custom), "created_at_ms": max(0, unix_ms() - age_ms), **changes}
        found = await self.ledgers.create_ledger(lambda ledger_id: ledger(ledger_id, **values))
        return found.value.ledger_id

    async def idle_topic(
        self, policy: Mapping[str, Any] | None = None, **cursors: CursorRecord
    ) -> list[LedgerId]:
        """A topic of three closed ledgers of 10 bytes, one entry each, whose owner is MINE."""
        closed: dict[str, Any] = {"state": LedgerState.CLOSED, "last_entry": 0, "length": 10}
        ids = [await self.made(made_by(str(IDLE), MINE), **closed) for _ in range(3)]
        current = await self.topics.create(IDLE, policy)
        for ledger_id in ids:
            listed = ListedLedger(ledger_id, 1, entries=1, size_bytes=10, closed_at_ms=1)
            grown = replace(
                current.value,
                ledgers=(*current.value.ledgers, listed),
                owner_token=MINE,
                last_confirmed=Position(ledger_id, 0),
            )
            current = await self.topics.cas(IDLE, current, grown)
        for name, record in cursors.items():
            await self.topics.create_cursor(IDLE, name, record, list_version=current.version)
            self.marks[name] = record.mark_delete
        return ids

    async def run(self, terms: RetentionTerms = TERMS, selection: Selection | None = None) -> list[Done]:
        """The whole job without Spark: every topic's part."""
        client: Any = self
        works = await plan_works(client, selection or Selection(), terms.grace_ms)
        return [await retain(client, self, work, terms) for work in works]

    async def listed(self) -> list[LedgerId]:
        return [each.ledger_id for each in (await self.topics.read(IDLE)).value.ledgers]

    async def existing(self) -> set[LedgerId]:
        return {found.value.ledger_id async for found in self.ledgers.read_all()}

    async def state(self) -> tuple[list[LedgerId], set[LedgerId]]:
        return await self.listed(), await self.existing()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    _, opener = memory_opener()
    store = await opener()
    await formatted(store)
    yield World(store)
    await store.close()


AT_SECOND: Final = CursorRecord(Position(1, 0))


async def test_rule_38_an_idle_topics_owner_drops_what_is_past_the_retention(world: World) -> None:
    ids = await world.idle_topic(s=AT_SECOND)
    (done,) = await world.run(DRY)
    assert done.figures == {"ledgersToTrim": 2, "bytesToTrim": 20}
    assert (world.asked, await world.listed()) == ([], ids), (
        "a dry run changes nothing, and takes no topic over"
    )
    (done,) = await world.run()
    assert done == Done("2 ledgers with 20 bytes were trimmed", {"ledgersTrimmed": 2, "bytesTrimmed": 20})
    assert await world.state() == (ids[2:], {ids[2]})
    (done,) = await world.run()
    assert done == Done("nothing to do")
    assert world.asked == ["GET", "POST"]


@pytest.mark.parametrize(
    ("policy", "trimmed"),
    [
        ({}, 3),
        ({"retentionBytes": 10}, 2),
        ({"retentionBytes": 10, "retentionMs": -1}, 2),
        ({"retentionMs": 1000, "retentionBytes": -1}, 3),
        ({"retentionMs": 10**13, "retentionBytes": -1}, 0),
        ({"retentionMs": -1, "retentionBytes": -1}, 0),
    ],
)
async def test_time_and_size_are_the_topics_policys(
    world: World, policy: dict[str, int], trimmed: int
) -> None:
    ids = await world.idle_topic(policy)
    await world.run()
    assert await world.listed() == ids[trimmed:]


async def test_the_owner_knows_more_of_a_cursor_than_its_node(world: World) -> None:
    ids = await world.idle_topic(s=CursorRecord(Position(0, 0), cursor_ledger=77))
    (done,) = await world.run(DRY)
    assert "the owner knows more" in done.message
    world.marks["s"] = Position(1, 0)
    await world.run()
    assert await world.listed() == ids[2:]


async def test_what_the_owner_refuses_is_no_failure_and_what_it_cannot_do_is_one(world: World) -> None:
    await world.idle_topic()
    world.refusal = AdminError("its retention keeps 7 days", 412)
    assert (await world.run())[0].message == "the owner keeps its ledgers: its retention keeps 7 days"
    world.refusal = AdminError("plan again", 409)
    assert "its owner trims it by itself" in (await world.run())[0].message
    world.refusal = AdminError("role 'x' may not", 403)
    with pytest.raises(AdminError, match="may not"):
        await world.run()


async def left_behind(world: World) -> tuple[set[LedgerId], set[LedgerId]]:
    """Ledgers that go, and ledgers that stay, beside those of the idle topic."""
    cursor = await world.made(made_by(str(IDLE), FORMER, "s"))
    ids = await world.idle_topic(
        {"retentionMs": -1, "retentionBytes": -1}, s=CursorRecord(cursor_ledger=cursor)
    )
    goes = {
        await world.made(made_by(str(IDLE), FORMER)),
        await world.made(made_by(str(IDLE), FORMER, "s")),
        await world.made(made_by(str(GONE), FORMER)),
        await world.made(made_by_compaction_job(str(IDLE), "job", "0")),
        await world.made(made_by_compaction_job(str(GONE), "job", "0")),
    }
    stays = {
        cursor,
        *ids,
        await world.made({}),
        await world.made({"app": b"mine"}),
        await world.made({TOPIC_KEY: str(GONE).encode(), "app": b"mine"}),
        await world.made(made_by(str(IDLE), MINE, "s")),
        await world.made(made_by(str(IDLE), FORMER), age_ms=1000),
        await world.made(made_by_compaction_job(str(IDLE), "job", "1"), age_ms=1000),
    }
    return goes, stays


async def test_rule_71_what_nothing_names_goes_and_all_else_stays(world: World) -> None:
    goes, stays = await left_behind(world)
    found = await world.run(DRY)
    assert sum(done.figures.get("ledgersToDelete", 0) for done in found) == len(goes)
    assert await world.existing() == goes | stays
    found = await world.run()
    assert sum(done.figures.get("ledgersDeleted", 0) for done in found) == len(goes)
    assert await world.existing() == stays
    assert any("may still name them" in done.message for done in found)


@pytest.mark.parametrize(
    ("selection", "deleted"),
    [
        (Selection(topics=(IDLE,)), 3),
        (Selection(namespaces=(("public", "default"),)), 5),
        (Selection(pool="data.fast"), 0),
        (Selection(pool="data.fast", with_poolless=True), 5),
    ],
)
async def test_a_selection_bounds_what_is_deleted(world: World, selection: Selection, deleted: int) -> None:
    goes, stays = await left_behind(world)
    await world.run(selection=selection)
    assert len(goes | stays) - len(await world.existing()) == deleted


async def test_the_ledgers_of_a_pool_whose_topic_is_gone_are_that_pools(world: World) -> None:
    _, there, nowhere = [
        await world.made(made_by(str(GONE), FORMER, pool=pool)) for pool in ("a.b", "a.c", "")
    ]
    await world.run(selection=Selection(pool="a.b"))
    assert await world.existing() == {there, nowhere}
    await world.run(selection=Selection(pool="a.b", with_poolless=True))
    assert await world.existing() == {there}


async def test_runs_of_two_pools_at_once_do_once_what_is_to_be_done_for_no_pool(world: World) -> None:
    ids = await world.idle_topic(s=AT_SECOND)
    await world.made(made_by(str(GONE), FORMER))
    runs = (world.run(selection=Selection(pool=pool, with_poolless=True)) for pool in ("a.b", "a.c"))
    found = [done for dones in await asyncio.gather(*runs) for done in dones]
    assert sum(done.figures.get("ledgersTrimmed", 0) for done in found) == 2
    assert sum(done.figures.get("ledgersDeleted", 0) for done in found) == 1
    assert await world.state() == (ids[2:], {ids[2]})


async def test_rule_71_a_listing_that_is_not_whole_deletes_nothing(world: World) -> None:
    goes, stays = await left_behind(world)
    (cursor,) = await world.topics.cursors(IDLE)
    await world.store.delete(LAYOUT.cursor(IDLE, cursor))
    await world.store.delete(LAYOUT.cursors(IDLE))
    client: Any = world
    for work in await plan_works(client, Selection(topics=(IDLE,)), TERMS.grace_ms):
        with pytest.raises(IncompleteListingError):
            await retain(client, world, work, TERMS)
    assert await world.existing() == goes | stays
    await world.store.create(f"{LAYOUT.ledgers}/nonsense")
    with pytest.raises(IncompleteListingError):
        await world.run()
    assert not world.asked


async def test_rule_71_a_ledger_that_changes_before_its_deletion_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody closes it after it was judged and read again: its deletion is meant for what it was (rule 56)."""
    ledger_id = await world.made(made_by(str(GONE), FORMER))
    delete = world.delete_ledger

    async def changed_meanwhile(_: LedgerId, *, version: int | None = None) -> None:
        found = await world.ledgers.read(ledger_id)
        await world.ledgers.cas(found, replace(found.value, state=LedgerState.IN_RECOVERY))
        await delete(ledger_id, version=version)

    monkeypatch.setattr(world, "delete_ledger", changed_meanwhile)
    with pytest.raises(LedgersStayError, match="stay for the next run: ledger 0: ledger 0 has changed"):
        await world.run()
    assert await world.existing() == {ledger_id}
    monkeypatch.undo()
    await world.run()
    assert await world.existing() == set()


async def test_killed_before_or_after_each_of_its_steps_and_run_again_the_result_is_the_same() -> None:
    async def outcome(kill_at: int, *, is_after: bool) -> tuple[bool, tuple[list[LedgerId], set[LedgerId]]]:
        _, opener = memory_opener()
        store = await opener()
        await formatted(store)
        world = World(store)
        await world.idle_topic(s=CursorRecord(Position(1, 0)))
        for topic in (IDLE, GONE):
            for subscription in (None, "s"):
                await world.made(made_by(str(topic), FORMER, subscription))
        world.kill_at, world.is_after = kill_at, is_after
        was_killed = False
        try:
            await world.run()
        except KilledError:
            was_killed = True
        world.kill_at = -1
        await world.run()
        found = await world.state()
        await store.close()
        return was_killed, found

    _, whole = await outcome(-1, is_after=False)
    assert whole == ([2], {2})
    for is_after in (False, True):
        kill_at = 0
        while (killed := await outcome(kill_at, is_after=is_after))[0]:
            assert killed[1] == whole, f"killed {'after' if is_after else 'before'} step {kill_at}"
            kill_at += 1
        assert kill_at == 6, "a report, a trim, four deletions"
