"""The index of a cluster's ledgers: read once, then kept by what changes, in passes that cost little however many there are."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

import pytest
from daybook_operator.clusters import ledger_index as module
from daybook_operator.clusters.ledger_index import LedgerIndex
from daybook_operator.reconcile.pool_survey import Asker, Surveys
from hypothesis import given, settings
from hypothesis import strategies as st

from daybook.core.errors import MetadataUnavailableError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import POOL_KEY, Fragment, LedgerMetadata, LedgerState
from daybook.core.placement.policies import PlacementSettings
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import Quorum
from daybook.metadata.bookies import Location
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.store import MetadataStore, Versioned
from daybook.metadata.tasks import RepairTasks
from tests.unit.metadata.harness import formatted, memory_opener

WAIT_MS = 10_000
READ_MS = 1
FAILED_READ_MS = 20
"""What reads of metadata cost, by the clock of these tests, which nothing else advances."""


class Clock:
    """The time of these tests."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._advanced = asyncio.Event()

    def advance(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self._advanced.set()

    async def is_set_within(self, event: asyncio.Event, timeout_ms: float) -> bool:
        """As the function of this name, by this clock."""
        end_ms = self.now_ms + timeout_ms
        while not event.is_set() and self.now_ms < end_ms:
            self._advanced.clear()
            waits = [asyncio.create_task(each.wait()) for each in (event, self._advanced)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in waits:
                each.cancel()
        await asyncio.sleep(0)
        return event.is_set()


class Counting(LedgerManager):
    """Records whose metadata is read; fails while `is_unavailable`."""

    def __init__(self, store: MetadataStore, layout: Layout, clock: Clock) -> None:
        super().__init__(store, layout)
        self.reads: list[LedgerId] = []
        self.is_unavailable = False
        self._clock = clock
        self._more = asyncio.Event()

    async def was_read(self, ledger_id: LedgerId) -> None:
        """Return once somebody has read the ledger."""
        while ledger_id not in self.reads:
            self._more.clear()
            await self._more.wait()

    async def read(self, ledger_id: LedgerId, *, sync: bool = False) -> Versioned[LedgerMetadata]:
        self.reads.append(ledger_id)
        self._more.set()
        self._clock.advance(FAILED_READ_MS if self.is_unavailable else READ_MS)
        if self.is_unavailable:
            raise MetadataUnavailableError("ZooKeeper is unavailable")
        return await super().read(ledger_id, sync=sync)


@dataclass
class Cluster:
    """A metadata store in memory, and the index over it."""

    store: MetadataStore
    layout: Layout
    ledgers: Counting
    tasks: RepairTasks
    index: LedgerIndex
    whole: asyncio.Event

    async def make(self, *bookies: str, is_closed: bool = True, pool: str = "") -> LedgerId:
        def first(ledger_id: LedgerId) -> LedgerMetadata:
            quorum = Quorum(len(bookies), len(bookies), max(1, len(bookies) - 1))
            custom = {POOL_KEY: pool.encode()} if pool else {}
            made = LedgerMetadata(ledger_id, quorum, (Fragment(0, 0, bookies),), custom_metadata=custom)
            return replace(made, state=LedgerState.CLOSED) if is_closed else made

        return (await self.ledgers.create_ledger(first)).value.ledger_id

    async def move(self, ledger_id: LedgerId, *bookies: str) -> None:
        """A worker has copied its entries to others."""
        found = await LedgerManager.read(self.ledgers, ledger_id)
        moved = replace(found.value, fragments=(Fragment(0, 0, bookies),))
        await self.store.put(self.layout.ledger(ledger_id), moved.to_json(), found.version)

    async def pass_(self) -> list[LedgerId]:
        """Whose metadata a pass reads."""
        self.ledgers.reads.clear()
        assert await self.index.fresh(age_ms=0, wait_ms=WAIT_MS)
        return sorted(self.ledgers.reads)

    def named(self) -> dict[str, set[LedgerId]]:
        return {bookie: set(ids) for bookie, ids in self.index.of_bookie.items() if ids}


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    _, opener = memory_opener()
    store = await opener()
    layout = await formatted(store)
    clock = Clock()
    ledgers, tasks = Counting(store, layout, clock), RepairTasks(store, layout)
    whole = asyncio.Event()
    made = Cluster(
        store, layout, ledgers, tasks, LedgerIndex(store, layout, ledgers, tasks, whole.set), whole
    )

    async def run() -> None:
        while True:
            with suppress(MetadataUnavailableError):  # as a link does
                await made.index.run()
            await asyncio.sleep(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "monotonic_ms", lambda: clock.now_ms)
        patch.setattr(module, "is_set_within", clock.is_set_within)
        running = asyncio.create_task(run())
        try:
            yield made
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await store.close()


@pytest.fixture
async def made() -> AsyncIterator[Cluster]:
    async with cluster() as opened:
        yield opened


async def test_a_pass_reads_what_is_new_or_open_or_has_a_task(
    made: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLICE", 0)
    closed = [await made.make("a", "b") for _ in range(50)]
    writing = await made.make("b", "c", is_closed=False)
    assert await made.pass_() == [*closed, writing]
    assert await made.pass_() == [writing], "and not what cannot have changed"
    new = await made.make("c", "d")
    await made.tasks.mark(closed[3], reasons=["lost b"], bookies=["b"], now_ms=0)
    assert await made.pass_() == [closed[3], writing, new]
    await made.move(closed[3], "a", "d")
    task = await made.tasks.read(closed[3])
    assert task is not None
    await made.tasks.done(closed[3], task.version)
    assert await made.pass_() == [closed[3], writing], "its task is gone, and it may have changed before"
    assert made.named()["d"] == {closed[3], new}
    assert closed[3] not in made.named()["b"]
    await made.ledgers.delete(new, 0)
    await made.pass_()
    assert made.named()["d"] == {closed[3]}
    await made.move(closed[4], "a", "d")
    made.index.doubt(closed[4])  # its task came and went between two passes
    made.ledgers.is_unavailable = True
    assert not await made.index.fresh(age_ms=0, wait_ms=20)
    made.ledgers.is_unavailable = False
    await made.pass_()
    assert made.named()["d"] == {closed[3], closed[4]}


async def test_what_somebody_changed_by_hand_is_found_in_turn(
    made: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLICE", 10)
    closed = [await made.make("a", "b") for _ in range(25)]
    await made.pass_()
    await made.move(closed[-1], "a", "c")
    turns = [await made.pass_() for _ in range(3)]
    assert sorted(ledger_id for turn in turns for ledger_id in turn) != []
    assert all(len(turn) <= 10 for turn in turns)
    assert set().union(*map(set, turns)) == set(closed)
    assert made.named()["c"] == {closed[-1]}


async def test_a_reconcile_waits_no_longer_than_asked_and_the_first_pass_continues(made: Cluster) -> None:
    await made.make("a", "b")
    made.ledgers.is_unavailable = True
    assert not await made.index.fresh(age_ms=0, wait_ms=20)
    assert not made.index.is_whole
    made.ledgers.is_unavailable = False
    assert await made.index.fresh(age_ms=0, wait_ms=WAIT_MS)
    assert made.index.is_whole
    made.ledgers.is_unavailable = True
    await made.make("a", "c")
    assert not await made.index.fresh(age_ms=0, wait_ms=20), "it is not as young as asked for"
    assert await made.index.fresh(age_ms=60_000, wait_ms=20), "and whole all the same"
    assert made.named()["a"] == {0}, "what is known stays as it was"


async def test_a_ledger_that_cannot_be_read_is_reported_and_what_is_known_stays(
    made: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSE_MS", 0)
    bad = await made.make("a", "b")
    whole = (await made.store.get(made.layout.ledger(bad))).value
    await made.store.put(made.layout.ledger(bad), b"{", None)
    async with asyncio.timeout(WAIT_MS / 1000):
        assert not await made.index.fresh(age_ms=0, wait_ms=60 * WAIT_MS), (
            "it returns once the error is known"
        )
        assert not await made.index.fresh(age_ms=0, wait_ms=60 * WAIT_MS), "and at once from then on"
    asker = Asker(frozenset({"a"}), frozenset(), PlacementSettings("rack"))
    told = await Surveys().of(made.index, asker, registered={}, locations={}, is_whole=False)
    assert told.read_error.startswith(f"ledger {bad}: "), "a person must repair it, and has to know which"
    await made.store.put(made.layout.ledger(bad), whole, None)
    async with asyncio.timeout(WAIT_MS / 1000):
        await made.whole.wait()
    assert made.index.read_error == ""
    await made.pass_()
    made.whole.clear()
    await made.store.put(made.layout.ledger(bad), b"{", None)
    assert not await made.index.fresh(age_ms=0, wait_ms=WAIT_MS)
    assert made.index.is_whole, "what is known stays"
    await made.store.put(made.layout.ledger(bad), whole, None)
    async with asyncio.timeout(WAIT_MS / 1000):
        await made.whole.wait()  # whoever did not wait observes again


async def test_a_caller_that_cannot_wait_for_a_pass_gets_the_one_before_and_another_is_made(
    made: Cluster,
) -> None:
    for _ in range(100):
        await made.make("a", "b", is_closed=False)
    await made.pass_()
    await made.pass_()
    new = await made.make("c", "d")
    made.ledgers.reads.clear()
    assert await made.index.fresh(age_ms=0, wait_ms=1)
    async with asyncio.timeout(WAIT_MS / 1000):
        await made.ledgers.was_read(new)


async def test_a_survey_contains_what_concerns_the_pool(made: Cluster) -> None:
    for ensemble in (("a", "b"), ("a", "c"), ("b", "c", "d")):
        await made.make(*ensemble)
    surveys = Surveys()
    asker = Asker(frozenset({"a"}), frozenset({"c"}), PlacementSettings("rack"))
    racks = {"a": "1", "b": "1", "c": "2", "d": "3"}
    registered = {b: BookieInfo(b, boot_id="x") for b in racks}
    locations = {b: Location("", "", rack, f"node-{b}") for b, rack in racks.items()}
    before = await surveys.of(made.index, asker, registered=registered, locations=locations, is_whole=False)
    assert (before.is_whole, before.ledgers) == (False, 0)
    await made.pass_()
    found = await surveys.of(made.index, asker, registered=registered, locations=locations, is_whole=True)
    assert (found.ledgers, found.ledgers_of) == (3, {"a": 2, "b": 2, "c": 2, "d": 1})
    assert found.naming == {"c": (1, 2)}
    assert found.ack_quorum_of == {"a": 1, "b": 1, "c": 1, "d": 2}
    assert (found.ensemble_max, found.ensemble_max_ledger, found.write_quorum_min) == (3, 2, 2)
    assert found.misplaced_count == 1
    assert found.misplaced[0].startswith("ledger 0: ")
    locations["b"] = Location("", "", "2", "node-b")
    moved = await surveys.of(made.index, asker, registered=registered, locations=locations, is_whole=True)
    assert moved.misplaced_count == 0, "judged again once a bookie has another location"


async def test_rule_69_a_survey_counts_the_ledgers_that_stay_in_the_pool_apart(made: Cluster) -> None:
    await made.make("q-0", "r-0", "r-1")
    await made.make("q-0", "q-1", pool="q")
    await made.make("q-0", "r-0", pool="q")
    await made.make("r-0")
    await made.pass_()
    asker = Asker(frozenset({"q-0", "q-1"}), frozenset(), PlacementSettings("random"), "q")
    registered = {name: BookieInfo(name) for name in ("q-0", "q-1", "r-0", "r-1")}
    found = await Surveys().of(made.index, asker, registered=registered, locations={}, is_whole=True)
    assert (found.ensemble_max, found.ensemble_max_ledger) == (3, 0)
    assert (found.own_ensemble_max, found.own_ensemble_max_ledger) == (2, 1)
    assert found.write_quorum_min == 2, "a ledger of other bookies counts for nothing"
    assert found.misplaced == ("ledger 2: r-0 is not of pool q",)


BOOKIES = st.lists(st.sampled_from("abcd"), min_size=2, max_size=3, unique=True)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("make"), BOOKIES),
        st.tuples(st.just("open"), BOOKIES),
        st.tuples(st.just("move"), BOOKIES),
        st.tuples(st.sampled_from(["delete", "pass"]), st.just(["a", "b"])),
    ),
    max_size=30,
)


@settings(max_examples=50, deadline=None)
@given(EVENTS)
async def test_after_a_pass_the_index_is_what_a_listing_says(events: list[tuple[str, list[str]]]) -> None:
    async with cluster() as made:
        ledgers: list[LedgerId] = []
        for number, (what, bookies) in enumerate(events):
            if what in {"make", "open"}:
                ledgers.append(await made.make(*bookies, is_closed=what == "make"))
            elif what == "delete" and ledgers:
                await made.store.delete(made.layout.ledger(ledgers.pop(number % len(ledgers))))
            elif what == "move" and ledgers:
                ledger_id = ledgers[number % len(ledgers)]
                found = await LedgerManager.read(made.ledgers, ledger_id)
                if found.value.quorum.ensemble_size == len(bookies):
                    await made.move(ledger_id, *bookies)
            elif what == "pass":
                await made.pass_()
        await made.pass_()
        assert made.named() == await listed(made)
        assert sorted(ids_in(made.index.groups.values())) == sorted(ledgers)


async def listed(made: Cluster) -> dict[str, set[LedgerId]]:
    named: dict[str, set[LedgerId]] = {}
    async for found in made.ledgers.read_all():
        for bookie in found.value.bookies():
            named.setdefault(bookie, set()).add(found.value.ledger_id)
    return named


def ids_in(groups: Iterable[set[LedgerId]]) -> list[LedgerId]:
    return [ledger_id for ids in groups for ledger_id in ids]
