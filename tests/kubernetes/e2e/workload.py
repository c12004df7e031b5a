"""The writer and the checker that run all along: what was acknowledged is read back, again and again, and compared.

A process of its own in the cluster's network. It writes ledgers one after the other, each entry saying which it is, and
reads closed ones back meanwhile. On `check` it reads everything that was ever acknowledged; on `stop` it ends. Each
answer is one line of JSON. Only an acknowledged entry that is gone or changed counts as lost: a ledger that cannot be
read now is tried again.

It also watches ZooKeeper, because it can: `holders` says who has held the locks of ledgers under repair since it was
asked last, `naming BOOKIE` which ledgers name a bookie, but for the one that is being written.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import daybook
from daybook.core.errors import DaybookError
from daybook.metadata.tasks import RepairTasks
from daybook.runtime.log_output import configure_logs

ENTRIES_PER_LEDGER: Final = 500
BATCH: Final = 5
PAUSE_S: Final = 0.1
RETRY_S: Final = 1.0
PATIENCE_S: Final = 120.0
RECONCILE_S: Final = 0.2
PAYLOAD_BYTES: Final = 200


def payload(ledger_id: int, entry_id: int) -> bytes:
    """What entry `entry_id` of the ledger must be, for ever."""
    return f"{ledger_id}:{entry_id}:".encode().ljust(PAYLOAD_BYTES, b"x")


@dataclass(slots=True)
class Tally:
    """What happened so far."""

    acknowledged: int = 0
    ledgers: int = 0
    failed_writes: int = 0
    read_back: int = 0
    lost: int = 0
    changed: int = 0
    unreadable: int = 0


class Workload:
    """Writes and reads by one client."""

    def __init__(self, client: daybook.Client) -> None:
        """Nothing is written yet."""
        self._client = client
        self._acknowledged: dict[int, int] = {}
        """The last entry of each ledger that was acknowledged; all before it were, too."""
        self._closed: list[int] = []
        self._holders: dict[str, set[int]] = {}
        self.tally = Tally()
        self.stop = asyncio.Event()

    async def write(self) -> None:
        """Write one ledger after the other until asked to stop."""
        while not self.stop.is_set():
            try:
                await self._write_ledger()
            except DaybookError as error:
                self.tally.failed_writes += 1
                print(f"writer: {error}", file=sys.stderr, flush=True)
                await asyncio.sleep(RETRY_S)

    async def _write_ledger(self) -> None:
        ledger = await self._client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        self._acknowledged[ledger.id] = -1
        self.tally.ledgers += 1
        try:
            for first in range(0, ENTRIES_PER_LEDGER, BATCH):
                if self.stop.is_set():
                    break
                entries = [payload(ledger.id, first + number) for number in range(BATCH)]
                _, last = await ledger.append_many(entries)
                self.tally.acknowledged += last - self._acknowledged[ledger.id]
                self._acknowledged[ledger.id] = last
                await asyncio.sleep(PAUSE_S)
            await ledger.close()
        finally:
            self._closed.append(ledger.id)  # by us, or by who reads it with recovery

    async def check_all_along(self) -> None:
        """Read closed ledgers back, the newest first, until asked to stop."""
        at = 0
        while not self.stop.is_set():
            if at < len(self._closed):
                await self._compare(self._closed[at], patience_s=RETRY_S)
                at += 1
            await asyncio.sleep(RETRY_S)

    async def check_everything(self) -> dict[str, Any]:
        """Read all that was acknowledged in ledgers that are done."""
        before = self.tally.read_back
        for ledger_id in list(self._closed):
            if not await self._compare(ledger_id, patience_s=PATIENCE_S):
                self.tally.unreadable += 1
        return {**asdict(self.tally), "checked": self.tally.read_back - before}

    async def _compare(self, ledger_id: int, patience_s: float) -> bool:
        """Compare a ledger with what was acknowledged; whether it could be read in time."""
        deadline = asyncio.get_running_loop().time() + patience_s
        while True:
            try:
                found = {entry_id: data async for entry_id, data in self._entries(ledger_id)}
            except DaybookError as error:
                print(f"checker: ledger {ledger_id}: {error}", file=sys.stderr, flush=True)
                if asyncio.get_running_loop().time() > deadline:
                    return False
                await asyncio.sleep(RETRY_S)
                continue
            wanted = range(self._acknowledged[ledger_id] + 1)
            self.tally.lost += sum(entry_id not in found for entry_id in wanted)
            self.tally.changed += sum(
                data != payload(ledger_id, entry_id) for entry_id, data in found.items()
            )
            self.tally.read_back += len(found)
            return True

    async def watch_repairs(self) -> None:
        """Note who holds the locks of ledgers under repair, until asked to stop."""
        tasks = RepairTasks(self._client.store, self._client.layout)
        while not self.stop.is_set():
            try:
                for ledger_id, holder in (await tasks.locked()).items():
                    self._holders.setdefault(holder, set()).add(ledger_id)
            except DaybookError as error:
                print(f"watcher: {error}", file=sys.stderr, flush=True)
            await asyncio.sleep(RECONCILE_S)

    def take_holders(self) -> dict[str, list[int]]:
        """Who held locks since this was asked last, and of which ledgers."""
        taken, self._holders = self._holders, {}
        return {holder: sorted(ids) for holder, ids in taken.items()}

    async def naming(self, bookie: str) -> list[int]:
        """The ledgers that name the bookie and are not being written."""
        written = self._acknowledged.keys() - set(self._closed)
        return [
            found.value.ledger_id
            async for found in self._client.list_ledgers()
            if bookie in found.value.bookies() and found.value.ledger_id not in written
        ]

    async def _entries(self, ledger_id: int) -> AsyncIterator[tuple[int, bytes]]:
        reader = await self._client.open_ledger(ledger_id, recover=True)
        if reader.last_add_confirmed >= 0:
            async for entry in reader.read(0, reader.last_add_confirmed):
                yield entry.entry_id, bytes(entry.data)


async def commands() -> AsyncIterator[str]:
    """The lines of standard input."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        yield line.decode().strip()


async def main() -> None:
    """`workload ZOOKEEPER CLUSTER`."""
    configure_logs("ERROR")
    zookeeper, cluster = sys.argv[1:]
    async with daybook.connect(zookeeper, cluster=cluster) as client:
        workload = Workload(client)
        work = (workload.write(), workload.check_all_along(), workload.watch_repairs())
        running = [asyncio.create_task(each) for each in work]
        print(json.dumps({"started": True}), flush=True)
        async for command in commands():
            print(json.dumps(await answer(workload, command)), flush=True)
            if command == "stop":
                await asyncio.gather(*running)
                return


async def answer(workload: Workload, command: str) -> Any:
    """Carry out a command."""
    match command.split():
        case ["status"]:
            return asdict(workload.tally)
        case ["holders"]:
            return workload.take_holders()
        case ["naming", bookie]:
            return await workload.naming(bookie)
        case ["stop"]:
            workload.stop.set()
    return await workload.check_everything()


if __name__ == "__main__":
    asyncio.run(main())
