"""Writes lines into ledgers and reports what was acknowledged; in the demo also as a separate process, which is killed."""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, Self

import daybook
from daybook.cli.demo_input import batches, input_files, lines
from daybook.runtime.log_output import configure_logs

LEDGER_ENTRIES: Final = 100_000
BATCHES_IN_FLIGHT: Final = 64
REPORT_S: Final = 0.05


@dataclass(slots=True)
class Written:
    """The acknowledged entries so far. Latencies are of batches, in ms."""

    entries: int = 0
    payload_bytes: int = 0
    seconds: float = 0.0
    ensemble_changes: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    ledgers: list[int] = field(default_factory=list)

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Parse a line that the writing process printed."""
        return cls(**json.loads(line))


class LineWriter:
    """Writes lines into ledgers of LEDGER_ENTRIES each; every one is closed before the next begins."""

    def __init__(self, client: daybook.Client, on_progress: Callable[[Written], None]) -> None:
        """`on_progress` receives what is acknowledged, about every REPORT_S and at the end."""
        self.written = Written()
        self._client = client
        self._on_progress = on_progress
        self._latencies_s: list[float] = []
        self._begin = self._told = time.perf_counter()

    async def write(self, source: Iterator[bytes]) -> Written:
        """Write all of `source`."""
        for first in source:
            await self._write_ledger(chain([first], islice(source, LEDGER_ENTRIES - 1)))
        self._report()
        return self.written

    async def _write_ledger(self, source: Iterator[bytes]) -> None:
        ledger = await self._client.create_ledger()
        self.written.ledgers.append(ledger.id)
        changes_before = self.written.ensemble_changes
        room = asyncio.Semaphore(BATCHES_IN_FLIGHT)
        for batch in batches(source):
            await room.acquire()
            sent = time.perf_counter()
            future = await ledger.submit(batch)
            future.add_done_callback(partial(self._acknowledged, batch, sent, room))
            self.written.ensemble_changes = changes_before + ledger.ensemble_changes
            if sent - self._told >= REPORT_S:
                self._told = sent
                self._report()
        await ledger.close()

    def _acknowledged(
        self, batch: list[bytes], sent: float, room: asyncio.Semaphore, future: asyncio.Future[Any]
    ) -> None:
        room.release()
        if not future.cancelled() and future.exception() is None:
            self._latencies_s.append(time.perf_counter() - sent)
            self.written.entries += len(batch)
            self.written.payload_bytes += sum(map(len, batch))

    def _report(self) -> None:
        ordered = sorted(self._latencies_s)
        if ordered:
            self.written.p50_ms = 1e3 * ordered[len(ordered) // 2]
            self.written.p99_ms = 1e3 * ordered[int(len(ordered) * 0.99)]
        self.written.seconds = time.perf_counter() - self._begin
        self._on_progress(self.written)


async def main() -> None:
    """`demo_writer ZOOKEEPER CLUSTER [INPUT]`: write everything, a line of JSON for each report on standard output."""
    configure_logs("ERROR")
    zookeeper, cluster, *rest = sys.argv[1:]

    def report(written: Written) -> None:
        print(json.dumps(asdict(written)), flush=True)

    async with daybook.connect(zookeeper, cluster=cluster) as client:
        await LineWriter(client, report).write(lines(input_files(Path(rest[0]) if rest else None)))


if __name__ == "__main__":
    asyncio.run(main())
