"""The reader without Spark: a client process that reads the ledgers one after the other. `python -m bench.spark.plain JSON`.

It prints one line of JSON. It reads entries, so of a topic it unpacks nothing.
"""

import asyncio
import json
import sys
import time

import daybook


async def read(zookeeper: str, cluster: str, ledgers: list[int]) -> dict[str, float]:
    """Seconds for all entries, each checked, and how many there were."""
    entries = 0
    async with daybook.connect(zookeeper, cluster=cluster) as client:
        begin = time.perf_counter()
        for ledger_id in ledgers:
            ledger = await client.open_ledger(ledger_id, recover=False)
            async for batch in ledger.read_batches():
                entries += len(batch)
        seconds = time.perf_counter() - begin
    return {"seconds": seconds, "entries": entries}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(read(**json.loads(sys.argv[1])))))
