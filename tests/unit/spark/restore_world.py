"""A topic whose ledgers lie in files alone, on metadata and a folder, and a job that restores them and may be killed at each of its steps."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from daybook_spark import asking
from daybook_spark.jobs import restore_topic as part
from daybook_spark.jobs.restore_topic import RestoreSettings, restore_topic
from daybook_spark.jobs.restoring import CopyWritten, LedgerRestore
from daybook_spark.jobs.result import Done
from daybook_spark.write import job as written_jobs

from daybook.client.broker_admin import AdminError
from daybook.core.errors import LedgersNeededError, PlanOutdatedError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerState
from daybook.core.topics.offload.changes import ReplicasUnneeded
from daybook.core.topics.offload.restore import LedgersRestored, RestoredLedger, check_restored
from daybook.core.topics.retention_plan import MarkedLedger
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.core.topics.unnamed import NamedLedgers, made_by_restore_job
from daybook.offload.store import delete_file
from daybook.runtime.clock import unix_ms
from tests.unit.metadata.harness import formatted, ledger, memory_opener
from tests.unit.spark.offload_world import ORDERS, KilledError, World


class RestoreWorld(World):
    """The owner names copies, too. A job that was killed does nothing any more."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.is_dead = False
        self.answers_are_lost = False
        """Whether the job learns nothing of the next change that it asks for."""
        self.attempts = 1
        """How many copies the tasks write of each ledger; the last one is reported."""
        self.jobs = 0

    def step(self, *, is_done: bool = False) -> None:
        if self.is_dead:
            raise KilledError
        try:
            super().step(is_done=is_done)
        except KilledError:
            self.is_dead = True
            raise

    # The owner

    async def _answer(self, body: Any) -> None:
        if "fileForMs" not in body:
            await super()._answer(body)
            return
        self.bodies.append(body)
        if self.refusals:
            raise self.refusals.pop(0)
        found = await self.topics.read(ORDERS)
        ledgers = tuple(
            RestoredLedger(
                PlannedLedger(each["ledgerId"], each["entries"], each["size"]),
                *(each[name] for name in ("place", "crc", "storedAs")),
            )
            for each in body["ledgers"]
        )
        restored = LedgersRestored(body["job"], ledgers, unix_ms(), body["fileForMs"])
        try:
            if not check_restored(found.value, restored):
                await self.topics.cas(ORDERS, found, restored.applied(found.value))
        except (PlanOutdatedError, LedgersNeededError) as error:
            raise AdminError(str(error), 409) from error
        if self.answers_are_lost:
            self.answers_are_lost = False
            raise AdminError("no answer came")

    # The tasks

    def restore(self, restores: Sequence[LedgerRestore]) -> list[CopyWritten]:
        self.step()

        async def all_of_them() -> list[CopyWritten]:
            return [await self._copy(each) for each in restores]

        found = asyncio.run_coroutine_threadsafe(all_of_them(), self.loop).result()
        if self.trimmed_on_copy:
            asyncio.run_coroutine_threadsafe(self.trim(), self.loop).result()
        self.step(is_done=True)
        return found

    async def _copy(self, asked: LedgerRestore) -> CopyWritten:
        ledger_id, entries, size_bytes = asked.planned
        made = -1
        for attempt in range(self.attempts):
            closed: dict[str, Any] = {
                "state": LedgerState.CLOSED,
                "last_entry": entries - 1,
                "length": size_bytes,
                "quorum": asked.quorum,
                "custom_metadata": made_by_restore_job(
                    asked.topic, ledger_id, asked.job, f"{ledger_id}.{attempt}", pool=asked.pool
                ),
            }
            made = (await self.ledgers.create_ledger(partial(ledger, **closed))).value.ledger_id
        if ledger_id in self.unreadable:
            return CopyWritten(ledger_id, None, "the file is damaged")
        return CopyWritten(ledger_id, made)

    async def delete_ledger(self, ledger_id: LedgerId, **_: Any) -> None:
        """As the client does; the job's step."""
        self.step()
        await self.drop(ledger_id)
        self.step(is_done=True)

    def delete(self, place: str) -> None:
        self.step()
        delete_file(place)
        self.step(is_done=True)

    # What tests do and see

    async def offloaded(self) -> None:
        """Ledgers 0 and 1 are in files alone."""
        await self.topic()
        await self.run()
        await self.gone()
        self.bodies.clear()

    async def gone(self) -> None:
        """The owner gives up all replicas of what has a file."""
        found = await self.topics.read(ORDERS)
        gone = ReplicasUnneeded({row.ledger_id: row.offload for row in found.value.ledgers if row.offload})
        changed = await self.topics.cas(ORDERS, found, gone.applied(found.value))
        for ledger_id in found.value.named_ids - changed.value.named_ids:
            await self.drop(ledger_id)

    async def drop(self, ledger_id: LedgerId) -> None:
        """Delete a ledger."""
        await self.ledgers.delete(ledger_id, (await self.ledgers.read(ledger_id)).version)

    async def run_restore(self, **settings: Any) -> Done:
        self.jobs += 1
        client: Any = self
        asked = RestoreSettings(**{"lag_ms": 0, **settings})
        return await restore_topic(client, self, ORDERS, f"{self.jobs:032x}", asked, self.restore)

    async def existing(self) -> set[LedgerId]:
        """All ledgers that there are."""
        return {ledger_id async for ledger_id in self.ledgers.ids()}

    async def collect(self) -> None:
        """What a retention job does a day later (rule 71)."""
        names = NamedLedgers(await self.listed())
        for ledger_id in await self.existing():
            marked = MarkedLedger.of((await self.ledgers.read(ledger_id)).value)
            if marked is not None and marked.is_old(0, unix_ms()) and marked.never_named(names):
                await self.drop(ledger_id)

    async def copies(self) -> dict[LedgerId, LedgerId | None]:
        """Of the ledgers that were restored."""
        return {row.ledger_id: row.stored_as for row in (await self.listed()).ledgers if row.restored}


@asynccontextmanager
async def made_restore_world(folder: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[RestoreWorld]:
    """A world whose topic is offloaded."""
    _, opener = memory_opener()
    store = await opener()
    await formatted(store)
    shutil.rmtree(folder, ignore_errors=True)
    world = RestoreWorld(store, folder)
    patch.setattr(part, "delete_file", world.delete)
    patch.setattr(written_jobs, "_DELETIONS_AT_A_TIME", 1)
    patch.setattr(asking, "PAUSE_S", 0.0)
    try:
        await world.offloaded()
        yield world
    finally:
        await store.close()
