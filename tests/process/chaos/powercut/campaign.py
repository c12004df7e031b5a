"""One power cut after the other: write, stop everything in its tracks, restore a drawn state, start, look for what was lost.

Most ledgers keep each entry on one bookie only, so that no other copy can hide that a bookie forgot what it
acknowledged. Some cuts come while bookies start after the cut before. What was read back once is read again after later
cuts, until its ledger is deleted, so that garbage collection and the reuse of pages happen under cuts as well.
"""

import asyncio
import math
import random
import time
from collections import Counter
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

import daybook
from daybook.local.cluster_file import ClusterError
from tests.fixtures.cluster import connect_to
from tests.process.chaos.bookies import Bookies
from tests.process.chaos.powercut.disk import Faults
from tests.process.integration.history import History
from tests.process.integration.kit import PATIENCE_S, off, persist
from tests.process.integration.workload import read_closed

QUORUMS: Final = ((1, 1, 1), (3, 1, 1), (2, 2, 2), (3, 3, 2))
IN_FLIGHT: Final = 4
KEPT_LEDGERS: Final = 6
START_CUT_CHANCE: Final = 0.35
ACKNOWLEDGED: Final = (1, 100, 500, 1500)
"""So many entries in a round before its cut, at least."""
LATE_ANSWERS_S: Final = 0.05


class Campaign:
    """Cuts on one cluster, drawn from a seed."""

    def __init__(self, directory: Path, library: Path, seed: int) -> None:
        """`run` does it."""
        self.bookies = Bookies(directory, library, 3, seed=seed)
        self.seed = seed
        self.disks_lie = False
        """Disks forget what was synced as well; that must be found out."""
        self.counts = Counter({"bookies without a lane": self.bookies.without_lane})
        self.violations: list[str] = []
        self._history = History()
        self._progress = asyncio.Event()
        self._numbers = count()

    async def run(self, cuts: int, minutes: float = math.inf) -> None:
        """At least so many cuts, or as many as the time allows; ends at the first violation, which is in `violations`."""
        ends_at = time.monotonic() + 60 * minutes
        self._progress = asyncio.Event()  # of the loop that runs now
        for number in count():
            if self.counts["cuts"] >= cuts or time.monotonic() > ends_at:
                return
            rng = random.Random(f"{self.seed}/{number}")
            before = self.counts.copy()
            async with connect_to(self.bookies.cluster) as client:
                await self._write_until_the_cut(client, rng)
            await self._restore(rng)
            await self._look(rng)
            if self.violations:
                self.violations.insert(0, f"seed {self.seed}, round {number}: {dict(self.counts - before)}")
                return

    async def _write_until_the_cut(self, client: daybook.Client, rng: random.Random) -> None:
        delay_us = rng.choice((0, 0, 2_000, 20_000))
        for disk in self.bookies.disks.values():
            disk.set_faults(Faults(sync_delay_us=delay_us, sync_lies=int(self.disks_lie)))
        ledgers = [await persist(partial(_create, client, quorum)) for quorum in QUORUMS]
        writing = [
            asyncio.create_task(self._write(ledger, random.Random(rng.random()))) for ledger in ledgers
        ]
        try:
            await self._acknowledge(rng.choice(ACKNOWLEDGED))
        except TimeoutError:
            self.violations.append(f"nothing is acknowledged for {PATIENCE_S} s although every bookie runs")
        done, _ = await asyncio.wait(writing, timeout=rng.uniform(0, 0.3))
        await off(self.bookies.kill)
        await asyncio.wait(writing, timeout=LATE_ANSWERS_S)
        for task in writing:
            task.cancel()
        results = await asyncio.gather(*writing, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, daybook.DaybookError):
                raise result
        if done:
            self.violations.append(f"writers ended before the cut: {results}")

    async def _acknowledge(self, entries: int) -> None:
        """Wait for so many more acknowledgements."""
        wanted = self.counts["acknowledged entries"] + entries
        async with asyncio.timeout(PATIENCE_S):
            while self.counts["acknowledged entries"] < wanted:
                self._progress.clear()
                await self._progress.wait()

    async def _write(self, ledger: daybook.Ledger, rng: random.Random) -> None:
        """Append until cancelled; everything that is acknowledged goes into the history."""
        self._history.created(ledger.id)
        room = asyncio.Semaphore(IN_FLIGHT)
        size = rng.choice((30, 300, 5_000, 60_000))

        def answered(future: asyncio.Future[tuple[int, int]]) -> None:
            room.release()
            if not future.cancelled() and future.exception() is None:
                first, last = future.result()
                self._history.acknowledged(ledger.id, first, last)
                self.counts["acknowledged entries"] += last - first + 1
                self._progress.set()

        while True:
            await room.acquire()
            payloads = [
                b"%d " % next(self._numbers) + rng.randbytes(rng.randrange(size))
                for _ in range(rng.randint(1, 20))
            ]
            self._history.submitted(ledger.id, payloads)
            (await ledger.submit(payloads)).add_done_callback(answered)

    async def _restore(self, rng: random.Random) -> None:
        """Cut, and start; sometimes the next cut comes before they serve."""
        self._cut(rng)
        while rng.random() < START_CUT_CHANCE:
            starting = asyncio.create_task(off(self.bookies.start))
            await asyncio.wait({starting}, timeout=rng.uniform(0.1, 2.5))
            cut_short = not starting.done()
            await off(self.bookies.kill)
            try:
                await starting
            except ClusterError as error:
                if not cut_short:
                    self.violations.append(f"a bookie does not start: {error}")
                    return
            await off(self.bookies.kill)  # who was started while others were killed
            self._cut(rng)
            self.counts["cuts while starting"] += cut_short
        try:
            await off(self.bookies.start)
        except ClusterError as error:
            self.violations.append(f"a bookie does not start: {error}")

    def _cut(self, rng: random.Random) -> None:
        for disk in self.bookies.disks.values():
            disk.set_faults(Faults())
            self.counts += disk.cut(rng)
        self.counts["cuts"] += 1

    async def _look(self, rng: random.Random) -> None:
        """Recover and read every ledger, judge, and delete some."""
        self.violations += [f"called corruption: {line}" for line in self.bookies.complaints()]
        if self.violations:
            return
        async with connect_to(self.bookies.cluster) as client:
            for ledger_id, ledger in self._history.ledgers.items():
                try:
                    reader, entries = await read_closed(client, ledger_id)
                except daybook.DaybookError as error:
                    self.violations.append(f"ledger {ledger_id} cannot be read: {error!r}")
                    return
                ledger.closes = ledger.closes[:1]
                self._history.closed(ledger_id, reader.metadata.last_entry, reader.metadata.length, entries)
                self.counts["entries read"] += len(entries)
            self.violations += map(str, self._history.judge())
            self.violations += [f"called corruption: {line}" for line in self.bookies.complaints()]
            while len(self._history.ledgers) > KEPT_LEDGERS and not self.violations:
                ledger_id = rng.choice(sorted(self._history.ledgers))
                await client.delete_ledger(ledger_id)
                del self._history.ledgers[ledger_id]
                self.counts["ledgers deleted"] += 1


async def _create(client: daybook.Client, quorum: tuple[int, int, int]) -> daybook.Ledger:
    ensemble, write, ack = quorum
    return await client.create_ledger(ensemble_size=ensemble, write_quorum=write, ack_quorum=ack)
