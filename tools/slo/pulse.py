"""A steady writer that measures how long nothing was acknowledged, and what became of its entries in the end.

One small entry every few milliseconds, whether or not those before are acknowledged, and a new ledger when a handle
ends, as a user's program would. The longest time between two acknowledgements is what a loss costs a writer.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Final

import daybook
from daybook.core.errors import DaybookError
from daybook.core.ids import NO_ENTRY
from daybook.core.placement.policy import PlacementPolicy
from daybook.local.cluster import LocalCluster
from tests.fixtures.cluster import connect_to
from tests.process.integration.history import History
from tests.process.integration.kit import PATIENCE_S, persist
from tests.process.integration.workload import read_back

BEAT_S: Final = 0.005
STEADY_ENTRIES: Final = 40
"""So many acknowledgements in a row, and the writer goes on."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the entries."""

    acknowledged: int
    lost: int
    """Acknowledged, and afterwards not there, or not the same."""
    recovered_ms: float
    """From the moment the writer is gone until another process has recovered its ledger and read the last entry."""


class Pulse:
    """A writer; made by `pulsing`."""

    def __init__(self, client: daybook.Client, quorum: tuple[int, int, int]) -> None:
        """Nothing runs before `start`."""
        self.client = client
        self.ledger: daybook.Ledger
        self._quorum = quorum
        self._numbers = count()
        self._history = History()
        self._acknowledged = 0
        self._last_ack = 0.0
        self._longest_gap_s = 0.0
        self._progress = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin, and return once every bookie of the ensemble has the first entries (see `Workload.start`)."""
        self._task = asyncio.create_task(self._write())
        await self.steady()
        await asyncio.wait_for(self.ledger.replicated(), PATIENCE_S)
        self.mark()

    def mark(self) -> None:
        """Forget the gaps so far: what comes now is measured."""
        self._longest_gap_s = 0.0

    async def steady(self, patience_s: float = PATIENCE_S) -> float:
        """Wait until entries are acknowledged again, many in a row; the longest gap since `mark`, in milliseconds."""
        wanted = self._acknowledged + STEADY_ENTRIES
        async with asyncio.timeout(patience_s):
            while self._acknowledged < wanted:
                self._progress.clear()
                assert self._task is not None
                if self._task.done():
                    self._task.result()
                await self._progress.wait()
        return 1000 * self._longest_gap_s

    async def lose(self, reader: daybook.Client) -> Outcome:
        """Let the writer vanish, have `reader` recover its ledger, then read everything back and judge it."""
        await self.stop()
        await self.ledger.abandon()
        began = time.monotonic()
        found, last = await persist(lambda: _last_entry(reader, self.ledger.id))
        recovered_ms = 1000 * (time.monotonic() - began)
        end = found.metadata.last_entry  # −1 in a ledger that the writer had only just begun
        assert [entry.entry_id for entry in last] == ([] if end == NO_ENTRY else [end])
        await read_back(reader, self._history)
        violations = self._history.judge()
        return Outcome(self._history.acknowledged_entries, len(violations), recovered_ms)

    async def stop(self) -> None:
        """Write no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _write(self) -> None:
        while True:
            self.ledger = await persist(self._create)
            self._history.created(self.ledger.id)
            try:
                await self._fill(self.ledger)
            except DaybookError:
                await self.ledger.abandon()  # as after a crash: somebody recovers it, and reads what it holds

    async def _create(self) -> daybook.Ledger:
        ensemble, write, ack = self._quorum
        return await self.client.create_ledger(ensemble_size=ensemble, write_quorum=write, ack_quorum=ack)

    async def _fill(self, ledger: daybook.Ledger) -> None:
        while True:
            payload = b"%d" % next(self._numbers)
            self._history.submitted(ledger.id, [payload])
            answer = await ledger.submit([payload])
            answer.add_done_callback(lambda done: self._answered(ledger.id, done))
            await asyncio.sleep(BEAT_S)

    def _answered(self, ledger_id: int, answer: asyncio.Future[tuple[int, int]]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return
        self._history.acknowledged(ledger_id, *answer.result())
        now = time.monotonic()
        if self._acknowledged:
            self._longest_gap_s = max(self._longest_gap_s, now - self._last_ack)
        self._acknowledged += 1
        self._last_ack = now
        self._progress.set()


async def _last_entry(client: daybook.Client, ledger_id: int) -> tuple[daybook.Reader, list[daybook.Entry]]:
    """Recover a ledger and read its last entry; both fail for a while where its bookies have just been started again."""
    reader = await client.open_ledger(ledger_id)
    return reader, [entry async for entry in reader.read(max(reader.last_add_confirmed, 0))]


@asynccontextmanager
async def pulsing(
    cluster: LocalCluster,
    quorum: tuple[int, int, int] = (3, 3, 2),
    placement: PlacementPolicy | None = None,
) -> AsyncIterator[tuple[Pulse, daybook.Client]]:
    """A writer that has begun, and another client to look at what it wrote."""
    async with connect_to(cluster) as writing, connect_to(cluster) as reading:
        writing.placement = placement or writing.placement
        pulse = Pulse(writing, quorum)
        try:
            await pulse.start()
            yield pulse, reading
        finally:
            await pulse.stop()
