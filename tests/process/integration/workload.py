"""Writers and readers that go on while things break, and the check that nothing acknowledged is lost.

The writer appends numbered batches at a steady pace and begins a new ledger when its handle ends, as a user's program
would. Each ledger has a tailing reader from its first entry on; another reader keeps opening ledgers and reads what is
confirmed. All of it goes into one history, which is judged at the end.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Final, Self

import daybook
from daybook.core.errors import DaybookError
from daybook.core.writer.policy import WriterPolicy
from daybook.local.cluster import LocalCluster
from tests.fixtures.cluster import connect_to
from tests.process.integration.history import History, Seen
from tests.process.integration.kit import PASSING, PATIENCE_S, PATIENT, persist

BATCH_ENTRIES: Final = 10
BATCHES_UNDER_WAY: Final = 8
PACE_S: Final = 0.01
CATCH_UP_PAUSE_S: Final = 0.1
RETRY_PAUSE_S: Final = 0.05
STRAGGLERS_S: Final = 2.0
NEVER: Final = 1_000_000


class Workload:
    """A writer and its readers. Made by `running`."""

    def __init__(
        self,
        writer: daybook.Client,
        reader: daybook.Client,
        *,
        quorum: tuple[int, int, int] = (3, 3, 2),
        roll_entries: int = NEVER,
        seed: int = 0,
    ) -> None:
        """Nothing runs before `start`."""
        self.history = History()
        self.ledger: daybook.Ledger
        """The one that is written now, or was last."""
        self.ends: list[DaybookError] = []
        """Why handles ended."""
        self.writer, self.reader = writer, reader
        self._quorum = quorum
        self._roll_entries = roll_entries
        self._rng = random.Random(seed)
        self._numbers = count()
        self._acknowledged = 0
        self._progress = asyncio.Event()
        self._stopping = False
        self._stragglers_s = STRAGGLERS_S
        self._tasks: list[asyncio.Task[None]] = []
        self._tails: list[asyncio.Task[None]] = []

    async def start(self) -> Self:
        """Begin, and return once every bookie of the ensemble has the first entries.

        A bookie takes its first one only after it read the ledger's metadata (rule 20), and might else be late for it.
        """
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._catch_up())]
        await self.acknowledge(BATCH_ENTRIES)
        await asyncio.wait_for(self.ledger.replicated(), PATIENCE_S)
        return self

    async def acknowledge(self, entries: int = 20 * BATCH_ENTRIES, patience_s: float = PATIENCE_S) -> None:
        """Wait until so many more entries are acknowledged. Raises TimeoutError."""
        wanted = self._acknowledged + entries
        async with asyncio.timeout(patience_s):
            while self._acknowledged < wanted:
                self._progress.clear()
                self._raise_failures()
                await self._progress.wait()

    async def end(self, *, stragglers_s: float = STRAGGLERS_S) -> None:
        """Stop writing, close or recover every ledger, read all of it back, and judge.

        Everything that is needed for recovery must run, or come back within the patience. The last ledger is closed once
        every bookie has its entries, after `stragglers_s` at the latest.
        """
        self._stragglers_s = stragglers_s
        self._stopping = True
        writing, catching_up = self._tasks
        async with asyncio.timeout(2 * PATIENCE_S):
            await writing
            await read_back(self.reader, self.history)
            await asyncio.gather(*self._tails)
            await catching_up
        assert self.history.acknowledged_entries == self._acknowledged > 0
        found = self.history.judge()
        assert not found, "\n".join(map(str, found[:20]))

    async def cancel(self) -> None:
        """Stop everything at once."""
        tasks = [*self._tasks, *self._tails]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _raise_failures(self) -> None:
        for task in (*self._tasks, *self._tails):
            if task.done():
                task.result()

    # The writer

    async def _write(self) -> None:
        while not self._stopping:
            try:
                self.ledger = await self._create()
            except PASSING:
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            self.history.created(self.ledger.id)
            self._tails.append(asyncio.create_task(self._tail(self.ledger.id)))
            try:
                await self._fill(self.ledger)
                with suppress(TimeoutError):  # a bookie may be away; then some copies are not whole
                    await asyncio.wait_for(self.ledger.replicated(), self._stragglers_s)
                await self.ledger.close()
            except DaybookError as error:
                self.ends.append(error)

    async def _create(self) -> daybook.Ledger:
        ensemble, write, ack = self._quorum
        return await self.writer.create_ledger(ensemble_size=ensemble, write_quorum=write, ack_quorum=ack)

    async def _fill(self, ledger: daybook.Ledger) -> None:
        room = asyncio.Semaphore(BATCHES_UNDER_WAY)
        for _ in range(0, self._roll_entries, BATCH_ENTRIES):
            await room.acquire()
            if self._stopping:
                return
            payloads = [self._payload() for _ in range(BATCH_ENTRIES)]
            self.history.submitted(ledger.id, payloads)
            future = await ledger.submit(payloads)
            future.add_done_callback(lambda done: self._answered(ledger.id, room, done))
            await asyncio.sleep(PACE_S)

    def _payload(self) -> bytes:
        number = next(self._numbers)
        return b"%d " % number + self._rng.randbytes(self._rng.randrange(200))

    def _answered(
        self, ledger_id: int, room: asyncio.Semaphore, answer: asyncio.Future[tuple[int, int]]
    ) -> None:
        room.release()
        if answer.cancelled() or answer.exception() is not None:
            return
        first, last = answer.result()
        self.history.acknowledged(ledger_id, first, last)
        self._acknowledged += last - first + 1
        self._progress.set()

    # Readers

    async def _tail(self, ledger_id: int) -> None:
        """Follow a ledger from its beginning to its close, over whatever happens."""
        following = 0
        while True:
            try:
                reader = await self.reader.open_ledger(ledger_id, recover=False)
                async for entry in reader.tail(following):
                    self.history.read("the tail", ledger_id, entry.entry_id, entry.data)
                    following = entry.entry_id + 1
            except PASSING:
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                return

    async def _catch_up(self) -> None:
        """Open ledgers again and again, and read what is confirmed."""
        rounds = count()
        while not self._stopping:
            await asyncio.sleep(CATCH_UP_PAUSE_S)
            ledger_id = self._rng.choice(list(self.history.ledgers) or [-1])
            if ledger_id < 0:
                continue
            name = f"catch-up reader {next(rounds)}"
            try:
                reader = await self.reader.open_ledger(ledger_id, recover=False)
                async for entry in reader.read():
                    self.history.read(name, ledger_id, entry.entry_id, entry.data)
            except PASSING:
                continue


@asynccontextmanager
async def running(
    cluster: LocalCluster,
    *,
    quorum: tuple[int, int, int] = (3, 3, 2),
    roll_entries: int = NEVER,
    seed: int = 0,
    zookeeper_hosts: tuple[str, str] = ("", ""),
    policy: WriterPolicy = PATIENT,
) -> AsyncIterator[Workload]:
    """A workload on `cluster` that has begun; its writer, which keeps `policy`, and its readers are clients of their own.

    `zookeeper_hosts`: where writer and readers reach ZooKeeper, if not where all do.
    """
    for_writer, for_readers = zookeeper_hosts
    writing = connect_to(cluster, for_writer, writer_policy=policy)
    async with writing as writer, connect_to(cluster, for_readers) as reader:
        work = Workload(writer, reader, quorum=quorum, roll_entries=roll_entries, seed=seed)
        try:
            yield await work.start()
        finally:
            await work.cancel()


async def read_back(client: daybook.Client, history: History) -> None:
    """Recover and read every ledger of `history`; what is found is added to it."""
    for ledger_id in history.ledgers:
        reader, entries = await read_closed(client, ledger_id)
        history.closed(ledger_id, reader.metadata.last_entry, reader.metadata.length, entries)


async def read_closed(client: daybook.Client, ledger_id: int) -> tuple[daybook.Reader, list[Seen]]:
    """Open a ledger, recovering it if need be, and read all of it; what passes is waited out."""

    async def attempt() -> tuple[daybook.Reader, list[Seen]]:
        reader = await client.open_ledger(ledger_id)
        return reader, [(entry.entry_id, entry.data) async for entry in reader.read()]

    return await persist(attempt)
