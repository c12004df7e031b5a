"""Drivers of jobs, killed before each change that they make to the metadata: what is stored then is all of a job or nothing of it.

What a killed job leaves behind is found by whoever comes next: a sweep, the stream that repeats its batch, the next audit.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pytest
from daybook_spark.audit.job import mark_tasks
from daybook_spark.write.job import Job, abort_job, commit_job
from daybook_spark.write.sweep import sweep

from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerState
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.manifests import ManifestManager, WrittenLedger
from tests.unit.autorecovery.kit import SETTINGS, small_cluster
from tests.unit.metadata.harness import LAYOUT, formatted, ledger, memory_opener
from tests.unit.spark.dying_store import DyingStore, Killed

if TYPE_CHECKING:
    from daybook.client.client import Client
    from daybook.metadata.store.store import MetadataStore

EARLIER = Job("earlier", "daily", 0)
JOB = Job("job", "daily", 0)
ENTRIES = 7
LATER_MS = 10**15


def client_on(store: Any) -> Any:
    """A client without bookies: what it deletes is gone from the metadata."""
    ledgers = LedgerManager(store, LAYOUT)

    async def delete_ledger(ledger_id: LedgerId, *, password: bytes) -> None:
        del password
        await ledgers.delete(ledger_id, (await ledgers.read(ledger_id)).version)

    return SimpleNamespace(
        store=store,
        layout=LAYOUT,
        ledgers=ledgers,
        delete_ledger=delete_ledger,
        list_ledgers=ledgers.read_all,
    )


class World:
    """A manifest that names a ledger of an earlier job, and what the tasks of a job have left."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.named: list[LedgerId] = []
        self.written: list[WrittenLedger] = []

    @classmethod
    async def make(cls) -> "World":
        _, opener = memory_opener()
        store = await opener()
        await formatted(store)
        world = cls(client_on(store))
        first = await world.closed(EARLIER)
        await commit_job(world.client, EARLIER, [first], password=b"", query="query", batch=1)
        world.named = [first.ledger_id]
        world.written = [await world.closed(JOB) for _ in range(2)]
        await world.closed(JOB)  # of a task that was repeated: no message names it
        return world

    async def closed(self, job: Job) -> WrittenLedger:
        """A ledger that a task of a job has closed."""
        made = await self.client.ledgers.create_ledger(
            lambda ledger_id: replace(
                ledger(ledger_id),
                custom_metadata=job.tags("0.0"),
                state=LedgerState.CLOSED,
                last_entry=ENTRIES - 1,
                length=70,
            )
        )
        return WrittenLedger(made.value.ledger_id, ENTRIES, 70)

    async def manifest(self) -> list[LedgerId]:
        """The ledgers that readers are shown, all of which exist."""
        found = await ManifestManager(self.client.store, LAYOUT).read("daily")
        assert found is not None
        ledger_ids = [written.ledger_id for written in found.value.ledgers]
        assert set(ledger_ids) <= set(await self.existing())
        return ledger_ids

    async def existing(self) -> list[LedgerId]:
        """Every ledger that there is."""
        return [ledger_id async for ledger_id in self.client.ledgers.ids()]

    async def sweep(self) -> None:
        await sweep(self.client, b"", now_ms=LATER_MS)


Work: TypeAlias = Callable[[Any, World], Awaitable[Any]]


async def at_every_step(work: Work) -> AsyncIterator[World]:
    """The world after `work` was killed before its first change, its second one, and so on; at last it was not killed."""
    for changes in count():
        world = await World.make()
        was_killed = False
        try:
            await work(client_on(DyingStore(world.client.store, changes)), world)
        except Killed:
            was_killed = True
        yield world
        await world.client.store.close()
        if not was_killed:
            assert changes > 1, "a job of several steps"
            return


@pytest.mark.parametrize("overwrite", [False, True])
async def test_rule_66_a_commit_that_is_killed_at_any_step_names_all_of_a_job_or_nothing(
    overwrite: bool,
) -> None:
    async def commit(client: Any, world: World) -> None:
        await commit_job(client, JOB, world.written, password=b"", overwrite=overwrite)

    outcomes = []
    async for world in at_every_step(commit):
        new = [written.ledger_id for written in world.written]
        after = new if overwrite else [*world.named, *new]
        outcomes.append(await world.manifest())
        assert outcomes[-1] in (world.named, after)
        await world.sweep()
        assert await world.manifest() == outcomes[-1] == await world.existing(), (
            "a sweep leaves what is named"
        )
    assert outcomes[0] != outcomes[-1]


async def test_rule_66_a_batch_whose_driver_was_killed_in_its_commit_is_named_once_after_it_is_repeated() -> (
    None
):
    async def commit(client: Any, world: World) -> None:
        await commit_job(client, JOB, world.written, password=b"", query="query", batch=2)

    async for world in at_every_step(commit):
        again = Job("job again", "daily", 0)
        repeated = [await world.closed(again) for _ in range(2)]
        await commit_job(world.client, again, repeated, password=b"", query="query", batch=2)
        named = await world.manifest()
        assert len(named) == 3
        assert named[1:] in [[written.ledger_id for written in each] for each in (world.written, repeated)]
        await world.sweep()
        assert await world.manifest() == named == await world.existing()


async def test_an_abort_and_a_sweep_that_are_killed_at_any_step_are_finished_by_the_next_sweep() -> None:
    async def abort(client: Any, _world: World) -> None:
        await abort_job(client, JOB, b"")

    async def sweeping(client: Any, _world: World) -> None:
        await sweep(client, b"", now_ms=LATER_MS)

    for work in (abort, sweeping):
        async for world in at_every_step(work):
            assert await world.manifest() == world.named
            await world.sweep()
            assert await world.manifest() == world.named == await world.existing()


async def test_an_audit_that_is_killed_while_it_marks_is_completed_by_the_next_one() -> None:
    stop = asyncio.Event()
    for changes in count():
        fake = await small_cluster(4)
        ledger_ids = [await fake.ledger("b1", "b2", "b3") for _ in range(3)]
        await fake.unregister("b1")
        with fake.another() as dying:
            dying.store = cast("MetadataStore", DyingStore(fake.store, changes))
            was_killed = False
            try:
                await mark_tasks(cast("Client", dying), stop, lost_delay_s=0, settings=SETTINGS)
            except Killed:
                was_killed = True
        marked = await fake.task_ids()
        assert marked == ledger_ids[: len(marked)]
        await mark_tasks(cast("Client", fake), stop, lost_delay_s=0, settings=SETTINGS)
        assert await fake.task_ids() == ledger_ids
        if not was_killed:
            assert changes >= len(ledger_ids), "at least a change for each ledger"
            return
