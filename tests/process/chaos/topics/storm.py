"""A cluster of brokers and bookies under drawn faults while Pulsar's own clients publish and consume; then everything heals and is judged."""

import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from signal import SIGCONT, SIGSTOP, SIGTERM
from typing import Final

import pulsar

from daybook.local.child import wait_for_exit
from daybook.local.cluster import LocalCluster
from tests.process.chaos.faults import Deck
from tests.process.chaos.topics.again import acknowledge_all, publish_new, receive_new, stats_of
from tests.process.chaos.topics.judge import Received, TopicHistory
from tests.process.chaos.topics.load import OPERATION_S, Consuming, Producing, Worker, read_back

BOOKIES: Final = 4
BROKERS: Final = 3
BROKER_SETTINGS: Final[dict[str, object]] = {
    "session_timeout_ms": 3000,
    "cursor_persist_ms": 200,
    "load_report_ms": 1000,
    "ledger_entries_max": 2000,
    "ledger_age_ms_min": 0,
    "retention_ms": -1,
    "retention_bytes": -1,
}
"""Ledgers roll and cursors are persisted often, and everything stays to be read back."""
BOOKIE_SETTINGS: Final[dict[str, object]] = {"session_timeout_ms": 2000, "store_map_bytes": 256 << 20}
EXIT_WAIT_MS: Final = 30_000
ORDERED: Final = "persistent://public/default/ordered"
SPREAD: Final = "persistent://public/default/spread"
TOPICS: Final[dict[str, tuple[tuple[str, pulsar.ConsumerType, int], ...]]] = {
    ORDERED: (
        ("exclusive", pulsar.ConsumerType.Exclusive, 1),
        ("failover", pulsar.ConsumerType.Failover, 2),
    ),
    SPREAD: (("shared", pulsar.ConsumerType.Shared, 3),),
}
"""Topics, and their subscriptions with how many consumers each has."""


class TopicStorm:
    """One run, drawn from a seed."""

    def __init__(self, directory: Path, seed: int) -> None:
        """`run` does it."""
        self.cluster = LocalCluster(
            directory,
            bookies=BOOKIES,
            settings=BOOKIE_SETTINGS,
            brokers=BROKERS,
            broker_settings=BROKER_SETTINGS,
        )
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self._rng = random.Random(seed)
        self._histories = [TopicHistory(topic) for topic in TOPICS]
        self._faults: dict[str, Callable[[], None]] = {
            "kill a broker": self._kill_broker,
            "pause a broker": self._pause_broker,
            "stop a broker": self._stop_broker,
            "kill a bookie": self._kill_bookie,
            "pause a bookie": self._pause_bookie,
            "kill ZooKeeper": self._kill_zookeeper,
            "pause ZooKeeper": self._pause_zookeeper,
            "unload a topic": self._unload,
        }
        self._deck = Deck(sorted(self._faults), self._rng)

    def run(self, minutes: float) -> None:
        """Faults for so long, then none; `violations` says what was wrong."""
        with self.cluster:
            producing, consuming = self._load()
            producers = [Worker(each.name, each.work) for each in producing]
            consumers = [Worker(each.name, each.work) for each in consuming]
            ends_at = time.monotonic() + 60 * minutes
            while time.monotonic() < ends_at:
                kind = self._deck.deal()
                self._faults[kind]()
                self.counts[f"fault: {kind}"] += 1
                self._pass(0.2, 2.0)
            for workers in (producers, consumers):
                self.violations += [wrong for worker in workers if (wrong := worker.join())]
            self.violations += [f"not acknowledged: {each}" for one in producing for each in one.failed[:5]]
            client = self._client()
            for history in self._histories:
                read_back(client, history)
            try:
                self._receive_nothing_again(client)
            except (AssertionError, OSError, pulsar.PulsarException) as error:
                self.violations.append(f"after the faults: {error!r}")
            client.close()
        for history in self._histories:
            self.violations += history.judge()
            self.counts["acknowledged messages"] += len(history.receipts)
            self.counts["stored twice"] += history.duplicates
            self.counts["received"] += sum(len(each.messages) for each in history.received)
            self.counts["received twice"] += sum(each.repeated for each in history.received)

    def _receive_nothing_again(self, client: pulsar.Client) -> None:
        """What is acknowledged and persisted stays so, over a hand-over and the death of the next owner."""
        admin = self.cluster.brokers[0].admin_url
        kinds = {name: kind for each in TOPICS.values() for name, kind, _ in each}
        for history in self._histories:
            for each in history.received:
                acknowledge_all(client, history, each, kinds[each.name], admin)
            _unload(admin, history.topic)
            owner = stats_of(admin, history.topic)["ownerBroker"]
            self.cluster.signal_broker(owner)
            self.cluster.start_broker(owner)
            publish_new(client, history.topic)
            for each in history.received:
                receive_new(client, history, each, kinds[each.name])

    def _load(self) -> tuple[list[Producing], list[Consuming]]:
        producers: list[Producing] = []
        consumers: list[Consuming] = []
        for number, history in enumerate(self._histories):
            producers += [
                Producing(f"producer-{number}-{n}", self._client, history, batches=bool(n)) for n in range(2)
            ]
            for name, kind, count in TOPICS[history.topic]:
                received, lock = Received(name, kind != pulsar.ConsumerType.Shared), threading.Lock()
                history.received.append(received)
                consumers += [Consuming(self._client, history, received, kind, lock) for _ in range(count)]
        return producers, consumers

    def _client(self) -> pulsar.Client:
        hosts = ",".join(entry.service_url.removeprefix("pulsar://") for entry in self.cluster.brokers)
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self.cluster.directory / "clients.log"))
        return pulsar.Client(f"pulsar://{hosts}", operation_timeout_seconds=OPERATION_S, logger=logger)

    # Faults

    def _pass(self, least_s: float, most_s: float) -> None:
        """Let time pass: what a fault does to the clients is seen by no event here."""
        time.sleep(self._rng.uniform(least_s, most_s))

    def _broker(self) -> str:
        return self._rng.choice([entry.id for entry in self.cluster.brokers])

    def _bookie(self) -> str:
        return self._rng.choice([entry.id for entry in self.cluster.bookies])

    def _kill_broker(self) -> None:
        broker = self._broker()
        self.cluster.signal_broker(broker)
        self._pass(0.0, 5.0)
        self.cluster.start_broker(broker)

    def _pause_broker(self) -> None:
        """For less than its session, or for longer: then it wakes up as a former owner."""
        broker = self._broker()
        self.cluster.signal_broker(broker, SIGSTOP)
        self._pass(0.1, 6.0)
        self.cluster.signal_broker(broker, SIGCONT)

    def _stop_broker(self) -> None:
        broker = self._broker()
        pid = self.cluster.file.broker(broker).pid
        self.cluster.signal_broker(broker, SIGTERM)
        if not wait_for_exit(pid, EXIT_WAIT_MS):
            self.violations.append(f"{broker} did not stop within {EXIT_WAIT_MS} ms of SIGTERM")
            self.cluster.signal_broker(broker)
        self.cluster.start_broker(broker)

    def _kill_bookie(self) -> None:
        bookie = self._bookie()
        self.cluster.kill_bookie(bookie)
        self._pass(0.0, 4.0)
        self.cluster.start_bookie(bookie)

    def _pause_bookie(self) -> None:
        bookie = self._bookie()
        self.cluster.kill_bookie(bookie, SIGSTOP)
        self._pass(0.1, 4.0)
        self.cluster.kill_bookie(bookie, SIGCONT)

    def _kill_zookeeper(self) -> None:
        """Its sessions outlive it, for as long as each had asked for once it serves again."""
        self.cluster.zookeeper.kill()
        self._pass(0.0, 4.0)
        self.cluster.zookeeper.start()

    def _pause_zookeeper(self) -> None:
        self.cluster.zookeeper.pause()
        self._pass(0.1, 5.0)
        self.cluster.zookeeper.resume()

    def _unload(self) -> None:
        """Gracefully, by the admin API of any broker."""
        topic = self._rng.choice(list(TOPICS))
        admin = self.cluster.file.broker(self._broker()).admin_url
        try:
            self.counts["unloaded"] += _unload(admin, topic)
        except OSError as error:  # a broker that just started, or no owner yet: as a person would see it
            self.counts[f"unload refused: {json.dumps(str(error))[:60]}"] += 1


def _unload(admin: str, topic: str) -> bool:
    return _put(f"{admin}/admin/v2/{topic.replace('://', '/')}/unload")


def _put(url: str) -> bool:
    """PUT, also to where the broker that was asked sends it: urllib follows no redirect of a PUT by itself."""
    request = urllib.request.Request(url, method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=EXIT_WAIT_MS / 1000) as answer:
            return bool(answer.status < HTTPStatus.MULTIPLE_CHOICES)
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.TEMPORARY_REDIRECT:
            raise
        return _put(error.headers["Location"])
