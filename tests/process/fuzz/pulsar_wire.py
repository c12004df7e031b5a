"""A real broker process under hostile clients of Pulsar's protocol: others are served, it stays as large as it was, and nothing surprises it.

Usage: python -m tests.process.fuzz.pulsar_wire [--minutes N] [--seed S]. `make test` does it for some seconds (test_pulsar_wire.py).
"""

import argparse
import asyncio
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

from daybook.local.cluster import LocalCluster
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandAck, CommandConnect, CommandSubscribe
from tests.fixtures.brokers import Brokers, write_settings
from tests.process.chaos.records import commit, write_record
from tests.process.fuzz.pulsar_frames import ATTACKS, CONSUMER_ID, Attack, command, opening, session
from tests.process.fuzz.pulsar_greetings import GREETINGS, Greeting
from tests.unit.broker.kit import FrameClient

MIB: Final = 1 << 20
BROKER: Final = "broker-fuzz"
GROWTH_BYTES_MAX: Final = 128 * MIB
"""The tail cache (8 MiB), what is read ahead (8), what is pending (16), and what the allocator keeps of them."""
LAST_REQUEST: Final = 2**40
LINGER_S: Final = 0.5
"""How long an attacker listens for the answer to its last request; a frame that never ends has none."""
BYSTANDER_S: Final = 20.0
"""A limit on failure: how long one round of the bystander may take."""
SETTINGS: Final[dict[str, object]] = {
    "cache_bytes": 8 * MIB,
    "read_ahead_bytes": 8 * MIB,
    "pending_bytes": 16 * MIB,
    "connection_pending_bytes": 2 * MIB,
    "topics_max": 500,
    "session_timeout_ms": 10_000,
}


class Target:
    """The broker's process."""

    def __init__(self, brokers: Brokers) -> None:
        entry = brokers.entry(BROKER)
        self._brokers = brokers
        self._pid = entry.pid
        self._log = brokers.log_file(BROKER)
        self._checked = 0
        self.service_url = entry.service_url
        self.size_bytes = self.rss_bytes()

    def rss_bytes(self) -> int:
        """Memory of its own that is resident."""
        for line in Path(f"/proc/{self._pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(self._brokers.log(BROKER))

    def check(self) -> None:
        """Raise AssertionError unless it is as large as it was, and was surprised by nothing."""
        grown = self.rss_bytes() - self.size_bytes
        assert grown < GROWTH_BYTES_MAX, f"it grew by {grown // MIB} MiB"
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        checked, self._checked = self._checked, len(lines)
        found = [line for line in lines[checked:] if "Traceback" in line]
        assert not found, found[0][:4000].replace("\\n", "\n")


@contextmanager
def attacked_broker(cluster: LocalCluster) -> Iterator[Target]:
    """A broker of its own, which ends in order."""
    brokers = Brokers(cluster, (BROKER,))
    write_settings(cluster, (BROKER,), **SETTINGS)
    brokers.whole()
    try:
        yield Target(brokers)
    finally:
        brokers.stop(BROKER)


@asynccontextmanager
async def dial(url: str) -> AsyncIterator[FrameClient]:
    """A client that is connected."""
    host, _, port = url.rpartition("://")[2].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    client = FrameClient(reader, writer)
    try:
        hello = CommandConnect(client_version="by hand", protocol_version=21)
        await client.ask(BaseCommand(type=BaseCommand.CONNECT, connect=hello))
        yield client
    finally:
        client.close()


class Bystander:
    """A client that publishes, consumes and acknowledges, one message at a time."""

    def __init__(self) -> None:
        self.rounds = 0
        self._went_round = asyncio.Event()

    async def run(self, url: str, stop: asyncio.Event) -> None:
        """Until `stop` is set. Raises TimeoutError, EOFError, AssertionError if it is disturbed."""
        topic = f"persistent://public/{uuid.uuid4().hex}/bystander"
        async with dial(url) as client:
            for each in opening(topic):
                if each.type == BaseCommand.SUBSCRIBE:
                    each.subscribe.subType = CommandSubscribe.Exclusive
                answer = await client.ask(each)
                assert answer.type != BaseCommand.ERROR, answer
            client.send(command("FLOW", "flow", consumer_id=CONSUMER_ID, messagePermits=1_000_000))
            while not stop.is_set():
                async with asyncio.timeout(BYSTANDER_S):
                    await self._round(client)
                self.rounds += 1
                self._went_round.set()

    async def more(self, rounds: int) -> None:
        """Wait for so many rounds more."""
        for _ in range(rounds):
            self._went_round.clear()
            await self._went_round.wait()

    async def _round(self, client: FrameClient) -> None:
        payload = b"%d" % self.rounds
        client.publish(payload, self.rounds)
        found = set[int]()
        while found != {BaseCommand.SEND_RECEIPT, BaseCommand.MESSAGE}:
            answer = await client.receive()
            assert answer.type in {BaseCommand.SEND_RECEIPT, BaseCommand.MESSAGE}, answer
            found.add(answer.type)
            if answer.type == BaseCommand.SEND_RECEIPT:
                assert answer.send_receipt.sequence_id == self.rounds
            else:
                assert bytes(client.entry).endswith(payload)
                ack = command("ACK", "ack", consumer_id=CONSUMER_ID, ack_type=CommandAck.Individual)
                ack.ack.message_id.add().CopyFrom(answer.message.message_id)
                client.send(ack)


async def attack_once(url: str, attack: Attack, topic: str, random: Random) -> int:
    """One hostile session; how many frames it had."""
    frames = attack(session(topic, random), random)
    try:
        async with dial(url) as client:
            for each in opening(topic):
                await client.ask(each)
            client.write(b"".join(frames))
            client.send(
                command("CLOSE_CONSUMER", "close_consumer", consumer_id=CONSUMER_ID, request_id=LAST_REQUEST)
            )
            async with asyncio.timeout(LINGER_S):
                while (await client.receive()).success.request_id != LAST_REQUEST:
                    pass
    except (TimeoutError, EOFError, ConnectionError):
        pass  # the broker may end a session that makes no sense, and waits for the end of a frame that has none
    return len(frames)


async def greet_once(url: str, greeting: Greeting, random: Random) -> int:
    """Connections that are no sessions, at the same time; how many. Raises TimeoutError, AssertionError unless a newcomer is served beside them."""
    host, _, port = url.rpartition("://")[2].rpartition(":")
    writers: list[asyncio.StreamWriter] = []
    try:
        for data in greeting(random):
            _, writer = await asyncio.open_connection(host, int(port), limit=1)
            writers.append(writer)
            writer.write(data)
            if random.random() < 0.3:
                with suppress(OSError):  # the broker may have ended it
                    writer.write_eof()
        async with asyncio.timeout(BYSTANDER_S), dial(url) as newcomer:
            answer = await newcomer.ask(command("PING", "ping"))
            assert answer.type == BaseCommand.PONG, answer
    finally:
        for writer in writers:
            writer.transport.abort()
    return len(writers)


async def withstand(target: Target, names: list[str], random: Random, seconds: float) -> Counter[str]:
    """Attack for some time, in the given ways in turn, while a bystander works; the frames sent in each way. Raises AssertionError."""
    counts, bystander, stop = Counter[str](), Bystander(), asyncio.Event()
    namespace = f"persistent://public/{uuid.uuid4().hex}"
    async with asyncio.TaskGroup() as group:
        group.create_task(bystander.run(target.service_url, stop))
        began = monotonic()
        while monotonic() - began < seconds or bystander.rounds == 0:
            for name in names:
                topic = f"{namespace}/{random.randrange(5)}"
                url = target.service_url
                if name in GREETINGS:
                    counts[name] += await greet_once(url, GREETINGS[name], random)
                else:
                    counts[name] += await attack_once(url, ATTACKS[name], topic, random)
            target.check()
        await bystander.more(3)
        stop.set()
    target.check()
    counts["rounds of the bystander"] = bystander.rounds
    return counts


def main() -> int:
    """See the module; 1 if the broker did not withstand an attack."""
    parser = argparse.ArgumentParser(prog="python -m tests.process.fuzz.pulsar_wire", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random, counts, violations = Random(options.seed), Counter[str](), 0
    began, made_at = monotonic(), commit()
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(Path(directory), bookies=3, racks=["a", "b", "c"]) as cluster,
        attacked_broker(cluster) as target,
    ):
        try:
            counts = asyncio.run(withstand(target, [*ATTACKS, *GREETINGS], random, 60 * options.minutes))
        except* (AssertionError, EOFError, TimeoutError) as errors:
            violations = len(errors.exceptions)
            print("\n".join(repr(error) for error in errors.exceptions))
    seconds = monotonic() - began
    file = write_record(
        "fuzz: a broker over the wire", options.seed, counts, violations, seconds, made_at=made_at
    )
    print(f"{dict(sorted(counts.items()))}\nviolations: {violations}, noted in {file}")
    return violations


if __name__ == "__main__":
    sys.exit(main())
