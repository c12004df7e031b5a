"""A topic of keys that jobs work on: who writes it, who follows it all along, and what its readers find, over the unmodified client of Pulsar.

A process of its own in the cluster's network. `write` publishes messages and waits for their receipts; `followed` says whether the subscription has
received each message once and each key's in order; `all` reads everything from the beginning, and `latest` what readers of the compacted topic
get. Each answer is one line of JSON; "" where it is as it should be.
"""

import json
import sys
import threading
from collections.abc import Iterable
from typing import Final

import pulsar

TOPIC: Final = "persistent://public/default/accounts"
KEYS: Final = 40
MESSAGES: Final = 2_000
"""Of each `write`."""
PARTITIONS: Final = 4
FOLLOW_S: Final = 120.0
RECEIVE_MS: Final = 1_000
READ_MS: Final = 30_000
OPERATION_S: Final = 30


class Accounts:
    """One producer, one durable subscription, and what was acknowledged by the key."""

    def __init__(self, service_url: str) -> None:
        """Subscribe, and follow from now on."""
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/stderr")
        self._client = pulsar.Client(service_url, operation_timeout_seconds=OPERATION_S, logger=logger)
        self._sent: dict[str, list[int]] = {f"account-{number}": [] for number in range(KEYS)}
        self._followed: dict[str, list[int]] = {key: [] for key in self._sent}
        self._received = threading.Condition()
        self._next = 0
        self._producer = self._client.create_producer(TOPIC, send_timeout_millis=0, block_if_queue_full=True)
        self._consumer = self._client.subscribe(
            TOPIC, "followers", initial_position=pulsar.InitialPosition.Earliest
        )
        threading.Thread(target=self._follow, name="followers", daemon=True).start()

    def _follow(self) -> None:
        while True:
            try:
                message = self._consumer.receive(RECEIVE_MS)
            except pulsar.Timeout:
                continue
            with self._received:
                self._followed[message.partition_key()].append(int(message.data()))
                self._received.notify()
            self._consumer.acknowledge(message)

    def write(self) -> str:
        """Publish the next messages, and wait until all are acknowledged."""
        refused: list[str] = []
        for _ in range(MESSAGES):
            key = f"account-{self._next % KEYS}"
            number = self._next
            self._producer.send_async(
                b"%d" % number,
                lambda result, _id: None if result == pulsar.Result.Ok else refused.append(str(result)),
                partition_key=key,
            )
            self._sent[key].append(number)
            self._next += 1
        self._producer.flush()
        return ", ".join(refused[:5])

    def followed(self) -> str:
        """Wait until the subscription has received as many messages as were sent; "" if each came once and in order."""
        with self._received:
            self._received.wait_for(lambda: sum(map(len, self._followed.values())) >= self._next, FOLLOW_S)
        return _difference("the subscription", self._sent, self._followed)

    def all(self) -> str:
        """Read everything."""
        found, _ = self._read(is_compacted=False)
        return _difference("a reader", self._sent, found)

    def latest(self) -> str:
        """Read what a compaction leaves: the last message of each key, and what came later; "" if it left no other one of them all."""
        found, count = self._read(is_compacted=True)
        wrong = [key for key, numbers in found.items() if numbers[-1:] != self._sent[key][-1:]]
        if wrong:
            return f"the last message of {wrong[:3]} is another one"
        return "" if count == KEYS else f"{count} messages were left, of {KEYS} keys"

    def _read(self, *, is_compacted: bool) -> tuple[dict[str, list[int]], int]:
        found: dict[str, list[int]] = {key: [] for key in self._sent}
        count = 0
        for partition in range(PARTITIONS):
            reader = self._client.create_reader(
                f"{TOPIC}-partition-{partition}", pulsar.MessageId.earliest, is_read_compacted=is_compacted
            )
            while reader.has_message_available():
                message = reader.read_next(READ_MS)
                found[message.partition_key()].append(int(message.data()))
                count += 1
            reader.close()
        return found, count


def _difference(who: str, sent: dict[str, list[int]], found: dict[str, list[int]]) -> str:
    wrong = [key for key, numbers in sent.items() if numbers != found[key]]
    return (
        f"{who} found {len(found[wrong[0]])} of {len(sent[wrong[0]])} messages of {wrong[0]}" if wrong else ""
    )


def _answer(accounts: Accounts, commands: Iterable[str]) -> None:
    acts = {
        "write": accounts.write,
        "followed": accounts.followed,
        "all": accounts.all,
        "latest": accounts.latest,
    }
    for line in commands:
        print(json.dumps(acts[line.strip()]()), flush=True)


def main() -> None:
    """`accounts SERVICE_URL`."""
    (service_url,) = sys.argv[1:]
    accounts = Accounts(service_url)
    print(json.dumps({"started": True}), flush=True)
    _answer(accounts, sys.stdin)


if __name__ == "__main__":
    main()
