"""A writer as a process that can be killed at any moment: says on standard output what it does, before and after.

Lines: `ledger ID`, `submit COUNT` (before so many more entries are handed over), `ack FIRST LAST`.
"""

import asyncio
import sys
from hashlib import sha256
from typing import Final

from daybook.client.connecting import connect
from daybook.local.cluster import CLUSTER_NAME
from tests.process.integration.history import History

BATCH_ENTRIES: Final = 7
BATCHES_UNDER_WAY: Final = 16


def payload(ledger_id: int, entry_id: int) -> bytes:
    """What the writer appends as this entry."""
    digest = sha256(b"%d %d" % (ledger_id, entry_id)).digest()
    return digest * (1 + digest[0] % 16)


def parse(said: str) -> History:
    """The history that the writer reported; its last line may have been cut off by the kill."""
    history = History()
    ledger_id = submitted = 0
    for line in said.splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        match line.split():
            case ["ledger", number]:
                ledger_id, submitted = int(number), 0
                history.created(ledger_id)
            case ["submit", count]:
                entries = range(submitted, submitted + int(count))
                history.submitted(ledger_id, [payload(ledger_id, entry_id) for entry_id in entries])
                submitted += int(count)
            case ["ack", first, last]:
                history.acknowledged(ledger_id, int(first), int(last))
            case _:
                raise AssertionError(f"the writer said {line!r}")
    return history


def say(*words: object) -> None:
    """One line, at once: whatever is killed next, this was said."""
    print(*words, flush=True)


async def write(zookeeper: str) -> None:
    """Write for ever."""
    async with connect(zookeeper, cluster=CLUSTER_NAME) as client:
        ledger = await client.create_ledger()
        say("ledger", ledger.id)
        room = asyncio.Semaphore(BATCHES_UNDER_WAY)
        submitted = 0

        def answered(done: asyncio.Future[tuple[int, int]]) -> None:
            room.release()
            say("ack", *done.result())

        while True:
            await room.acquire()
            entries = range(submitted, submitted + BATCH_ENTRIES)
            say("submit", BATCH_ENTRIES)
            future = await ledger.submit([payload(ledger.id, entry_id) for entry_id in entries])
            future.add_done_callback(answered)
            submitted += BATCH_ENTRIES


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1]))
