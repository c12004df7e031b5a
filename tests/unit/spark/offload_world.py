"""A topic that is offloaded on metadata and a folder alone, with its owner, and a job that may be killed at each of its steps."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from daybook_spark import asking
from daybook_spark.jobs import offload_topic as part
from daybook_spark.jobs.copying import Copied, LedgerCopy, copied
from daybook_spark.jobs.offload_topic import OffloadSettings, offload_topic
from daybook_spark.jobs.result import Done

from daybook.client.broker_admin import AdminError, BrokerAdmin
from daybook.core.errors import LedgersNeededError, NoSuchTopicError, PlanOutdatedError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerState
from daybook.core.topics.ledger_list import LedgerList, ListedLedger, Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.offload.changes import OffloadBegun, OffloadsWritten, WrittenFile, check_files
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.store import MetadataStore
from daybook.metadata.topics import TopicManager
from daybook.offload.errors import OffloadError
from daybook.offload.store import delete_file, move_file
from tests.unit.metadata.harness import LAYOUT, formatted, ledger, memory_opener
from tests.unit.offload.kit import entries_of

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
        try:
            found = await self.topics.read(ORDERS)
        except NoSuchTopicError as error:
            raise AdminError(str(error), 404) from error
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

    def move(self, place: str, to: str) -> None:
        self.step()
        move_file(place, to)
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

    async def delete_topic(self) -> None:
        """The owner drops all ledgers, and the topic."""
        found = await self.topics.read(ORDERS)
        emptied = await self.topics.cas(ORDERS, found, replace(found.value, ledgers=()))
        await self.topics.delete(ORDERS, emptied.version)

    async def run(self, job: str = FIRST, **settings: Any) -> Done:
        asked = OffloadSettings(job, **{"to": f"file://{self.folder}", **settings})
        client: Any = self
        return await offload_topic(client, self, ORDERS, asked, self.copy)

    async def run_killed_at(self, kill_at: int, *, is_after: bool, **settings: Any) -> bool:
        """A run beside files of a former one is killed at a step and followed by another; whether there was such a step."""
        self.kill_at = 2
        with pytest.raises(KilledError):
            await self.run(FIRST, **settings)
        self.kill_at, self.is_after = kill_at, is_after
        was_killed = False
        try:
            await self.run(SECOND, **settings)
        except KilledError:
            was_killed = True
        self.kill_at = -1
        await self.run(THIRD, **settings)
        return was_killed

    async def listed(self) -> LedgerList:
        return (await self.topics.read(ORDERS)).value

    async def places(self) -> dict[LedgerId, str]:
        """The named files, by ledger."""
        return {each.ledger_id: each.offload.place for each in (await self.listed()).ledgers if each.offload}

    def files(self) -> set[str]:
        """All files there are."""
        return {f"file://{path}" for path in self.folder.rglob("*") if path.is_file()}


@asynccontextmanager
async def made_world(folder: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A world whose folder does not exist yet."""
    _, opener = memory_opener()
    store = await opener()
    await formatted(store)
    shutil.rmtree(folder, ignore_errors=True)
    world = World(store, folder)
    patch.setattr(part, "delete_file", world.delete)
    patch.setattr(part, "move_file", world.move)
    patch.setattr(asking, "PAUSE_S", 0.0)
    try:
        yield world
    finally:
        await store.close()
