"""Messages of topics that a step creates: published once, read back in order, and the ledgers that were made for them.

A process of its own in the cluster's network. `write TOPIC` publishes messages and waits for their receipts; `read TOPIC` reads all of them from
the beginning; `ledgers TOPIC` names the ledgers whose metadata says that they were made for the topic, or for one of its partitions. Each
answer is one line of JSON; "" where all is as it should be.
"""

import asyncio
import json
import sys
from collections.abc import Iterable
from typing import Final

import pulsar

import daybook
from daybook.core.ledger.metadata import TOPIC_KEY
from daybook.runtime.log_output import configure_logs

MESSAGES: Final = 200
READ_MS: Final = 30_000
OPERATION_S: Final = 30


class Messages:
    """A client for each way to look at a topic, made when it is asked for: most of the time there is no topic."""

    def __init__(self, service_url: str, zookeeper: str, cluster: str) -> None:
        self._service_url = service_url
        self._zookeeper = zookeeper
        self._cluster = cluster

    def write(self, topic: str) -> str:
        """Publish the messages 0, 1, …; "" once all are acknowledged. No producer stays."""
        client = self._client()
        refused: list[str] = []
        producer = client.create_producer(topic, send_timeout_millis=0, block_if_queue_full=True)
        for number in range(MESSAGES):
            producer.send_async(
                b"%d" % number,
                lambda result, _id: None if result == pulsar.Result.Ok else refused.append(str(result)),
            )
        producer.flush()
        client.close()
        return ", ".join(refused[:5])

    def read(self, topic: str) -> str:
        """Read every partition from its beginning; "" if each message is there once, and those of a partition in order."""
        client = self._client()
        found: list[int] = []
        wrong = ""
        for partition in client.get_topic_partitions(topic):
            reader = client.create_reader(partition, pulsar.MessageId.earliest)
            numbers: list[int] = []
            while reader.has_message_available():
                numbers.append(int(reader.read_next(READ_MS).data()))
            reader.close()
            wrong = wrong or ("" if numbers == sorted(numbers) else f"{partition} has another order")
            found += numbers
        client.close()
        return wrong or ("" if sorted(found) == list(range(MESSAGES)) else f"{len(found)} of {MESSAGES}")

    def ledgers(self, topic: str) -> list[int]:
        """The ledgers that were made for the topic: of its messages, and of its cursors."""
        return asyncio.run(self._ledgers(topic))

    async def _ledgers(self, topic: str) -> list[int]:
        async with daybook.connect(self._zookeeper, cluster=self._cluster) as client:
            return [
                each.value.ledger_id
                async for each in client.list_ledgers()
                if _is_of(topic, each.value.custom_metadata.get(TOPIC_KEY, b"").decode())
            ]

    def _client(self) -> pulsar.Client:
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/stderr")
        return pulsar.Client(self._service_url, operation_timeout_seconds=OPERATION_S, logger=logger)


def _is_of(topic: str, named: str) -> bool:
    return named == topic or named.startswith(f"{topic}-partition-")


def _answer(messages: Messages, commands: Iterable[str]) -> None:
    acts = {"write": messages.write, "read": messages.read, "ledgers": messages.ledgers}
    for line in commands:
        act, topic = line.split()
        print(json.dumps(acts[act](topic)), flush=True)


def main() -> None:
    """`messages SERVICE_URL ZOOKEEPER CLUSTER`."""
    configure_logs("ERROR")
    messages = Messages(*sys.argv[1:])
    print(json.dumps({"started": True}), flush=True)
    _answer(messages, sys.stdin)


if __name__ == "__main__":
    main()
