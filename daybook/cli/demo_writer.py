"""Writes lines into ledgers and says what was acknowledged; in the demo also as a process of its own, to be killed."""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, Self

import daybook
from daybook.cli.demo_input import batches, input_files, lines

LEDGER_ENTRIES: Final = 100_000
BATCHES_IN_FLIGHT: Final = 16
REPORT_S: Final = 0.05


@dataclass(slots=True)
class Written:
    """What was acknowledged so far. Latencies are of batches, in ms."""

    entries: int = 0
    payload_bytes: int = 0
    seconds: float = 0.0
    ensemble_changes: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    ledgers: list[int] = field(default_factory=list)

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Read what the writing process printed."""
        return cls(**json.loads(line))


async def write_lines(
    client: daybook.Client, source: Iterator[bytes], on_progress: Callable[[Written], None]
) -> Written:
    """Write `source` into ledgers of LEDGER_ENTRIES each; every one is closed before the next begins."""
    written = Written()
    latencies: list[float] = []
    begin = told = time.perf_counter()

    def report() -> None:
        ordered = sorted(latencies)
        if ordered:
            written.p50_ms = 1e3 * ordered[len(ordered) // 2]
            written.p99_ms = 1e3 * ordered[int(len(ordered) * 0.99)]
        written.seconds = time.perf_counter() - begin
        on_progress(written)

    for first in source:
        ledger = await client.create_ledger()
        written.ledgers.append(ledger.id)
        changes = written.ensemble_changes
        room = asyncio.Semaphore(BATCHES_IN_FLIGHT)

        def done(
            future: asyncio.Future[Any], batch: list[bytes], sent: float, room: asyncio.Semaphore = room
        ) -> None:
            room.release()
            if not future.cancelled() and future.exception() is None:
                latencies.append(time.perf_counter() - sent)
                written.entries += len(batch)
                written.payload_bytes += sum(map(len, batch))

        for batch in batches(_chain(first, islice(source, LEDGER_ENTRIES - 1))):
            await room.acquire()
            sent = time.perf_counter()
            future = await ledger.submit(batch)
            future.add_done_callback(
                lambda future, batch=batch, sent=sent, done=done: done(future, batch, sent)
            )
            written.ensemble_changes = changes + ledger.ensemble_changes
            if sent - told >= REPORT_S:
                told = sent
                report()
        await ledger.close()
    report()
    return written


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


async def main() -> None:
    """`demo_writer ZOOKEEPER CLUSTER [INPUT]`: write everything, a line of JSON for each report on standard output."""
    zookeeper, cluster, *rest = sys.argv[1:]

    def tell(written: Written) -> None:
        print(json.dumps(asdict(written)), flush=True)

    async with daybook.connect(zookeeper, cluster=cluster) as client:
        await write_lines(client, lines(input_files(Path(rest[0]) if rest else None)), tell)


if __name__ == "__main__":
    asyncio.run(main())
