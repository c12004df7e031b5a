"""What the release before stored, this one reads: each kind of node, and the journals and stores of bookies that were killed.

`keep` says how the files of `before` were made. Each release replaces them (docs/upgrade.md), so that they are always the records of
N−1. The first tests read nodes with what reads them in production, over a store in memory; the last ones start bookies and a
broker of this release on what was kept.
"""

import asyncio
import json
import tarfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import pulsar
import pytest
from kazoo.client import KazooClient

from daybook.client.verify import verify_ledger
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState
from daybook.core.topics.ledger_list import ListState
from daybook.core.topics.name import TopicName
from daybook.core.topics.permissions import Action
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.local.zookeeper import EmbeddedZooKeeper
from daybook.metadata.bookies import BookieDirectory
from daybook.metadata.brokers import BrokerDirectory
from daybook.metadata.bundles import BundleDirectory
from daybook.metadata.creation import read_counter
from daybook.metadata.epoch_node import EpochNode
from daybook.metadata.instance import read_instance
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.manifests import ManifestManager, WrittenLedger
from daybook.metadata.partitions import PartitionManager
from daybook.metadata.policies import PolicyManager
from daybook.metadata.store.store import MetadataStore
from daybook.metadata.tasks import RepairTasks
from daybook.metadata.topics import TopicManager
from tests.fixtures.brokers import PATIENCE_S
from tests.fixtures.cluster import SETTINGS, connect_to
from tests.records import keep
from tests.unit.metadata.harness import memory_opener, stores

KEPT: Final = Path(__file__).with_name("before")
NODES: Final[dict[str, str]] = json.loads((KEPT / "nodes.json").read_text(encoding="utf-8"))
FACTS: Final[dict[str, Any]] = json.loads((KEPT / "facts.json").read_text(encoding="utf-8"))
LAYOUT: Final = Layout(CLUSTER_NAME)
TOPIC: Final = TopicName.parse(keep.TOPIC)
ENDED: Final = TopicName.parse(keep.ENDED)
LEDGERS: Final = {name: found["id"] for name, found in FACTS["ledgers"].items()}
CHUNK_BYTES: Final = 65_536

Check: TypeAlias = Callable[[MetadataStore], Coroutine[Any, Any, None]]


async def ledgers_are_read(store: MetadataStore) -> None:
    """Of each state and shape that there was."""
    found: dict[int, LedgerMetadata] = {
        each.value.ledger_id: each.value async for each in LedgerManager(store, LAYOUT).read_all()
    }
    assert set(LEDGERS.values()) <= set(found)
    assert {name: found[ledger_id].state for name, ledger_id in LEDGERS.items()} == {
        **dict.fromkeys(("closed", "striped", "password", "changed", "fenced"), LedgerState.CLOSED),
        "open": LedgerState.OPEN,
    }
    for name, ledger_id in LEDGERS.items():
        if name != "open":
            assert found[ledger_id].last_entry == FACTS["ledgers"][name]["entries"] - 1
            entries = keep.content(name, FACTS["ledgers"][name]["entries"])
            assert found[ledger_id].length == sum(map(len, entries))
    assert len(found[LEDGERS["changed"]].fragments) == 2
    assert dict(found[LEDGERS["password"]].custom_metadata) == {"owner": b"a test"}


async def counters_and_identity_are_read(store: MetadataStore) -> None:
    """The cluster's identity and counter, and the ledger of a Kubernetes object."""
    assert (await read_instance(store, LAYOUT)).instance_id
    assert (await read_counter(store, LAYOUT)).value > max(LEDGERS.values())
    assert await LedgerManager(store, LAYOUT).ledger_of_request(keep.REQUEST) == LEDGERS["closed"]


async def bookies_are_read(store: MetadataStore) -> None:
    """Registrations, cookies, claims, epochs and the topology."""
    directory = BookieDirectory(store, LAYOUT)
    registered = await directory.bookies()
    assert set(registered) == {f"bookie-{n}" for n in range(keep.BOOKIES)}
    assert all(info.writable and info.lane_address and info.capacity_bytes for info in registered.values())
    assert (registered["bookie-0"].zone, registered["bookie-1"].rack) == ("z", "rack-1")
    instance = await read_instance(store, LAYOUT)
    for bookie, info in registered.items():
        cookie = await directory.cookie(bookie)
        assert cookie is not None
        assert cookie.value.instance_id == instance.instance_id
        epochs = EpochNode(store, LAYOUT, bookie, info.boot_id)
        assert await epochs.read(cookie.value.incarnation) >= 1
        assert not await epochs.is_foreign()
        claim = json.loads((await store.get(LAYOUT.claim(bookie))).value)
        assert claim == {"formatVersion": 1, "bootId": info.boot_id}


async def repair_is_read(store: MetadataStore) -> None:
    """Tasks, due and set aside, a worker's lock, and the two switches."""
    tasks = RepairTasks(store, LAYOUT)
    found = {task.value.ledger_id: task.value async for task in tasks.read_all()}
    due, aside = found[LEDGERS["closed"]], found[LEDGERS["striped"]]
    assert (due.reasons, due.bookies, due.attempts) == (("lost bookie",), (keep.LOST,), 0)
    assert (aside.attempts, aside.why_not, aside.not_before_ms > 0) == (1, "no bookie to copy to", True)
    assert await tasks.locked() == {LEDGERS["closed"]: "worker-1"}
    assert await tasks.disabled()
    assert await tasks.lost_bookie_delay_s() == 90.0


async def topics_are_read(store: MetadataStore) -> None:
    """Lists, epochs, cursors, policies, and the number of partitions."""
    topics, policies = TopicManager(store, LAYOUT), PolicyManager(store, LAYOUT)
    assert set(await topics.topics("public", "default")) == {TOPIC, ENDED}
    for name in (TOPIC, ENDED):
        facts = FACTS["topics"][str(name)]
        found = (await topics.read(name)).value
        assert found.state is ListState(facts["state"])
        assert [ledger.ledger_id for ledger in found.ledgers] == facts["ledgers"]
        assert sum(ledger.entries for ledger in found.ledgers) == facts["entries"]
        assert str(found.last_confirmed) == facts["last"]
        assert await topics.epoch(name) == facts["epoch"]
        for subscription, (mark_delete, ranges) in facts["cursors"].items():
            cursor = (await topics.read_cursor(name, subscription)).value
            assert (str(cursor.mark_delete), len(cursor.ranges)) == (mark_delete, ranges)
    policy = await policies.of(TOPIC)
    assert (policy.retention_ms, policy.retention_bytes, policy.ttl_ms) == (36_000_000, -1, 86_400_000)
    layer = (await policies.namespace("public", "default")).value
    assert layer.permissions == {"reader": frozenset({Action.CONSUME})}
    partitioned = await PartitionManager(store, LAYOUT).read(keep.GROWN)
    assert partitioned is not None
    assert partitioned.value.partitions == 3


async def brokers_are_read(store: MetadataStore) -> None:
    """The registration, who leads, and who owns a bundle."""
    view = await BrokerDirectory(store, LAYOUT).view()
    assert (set(view.brokers), view.leader) == ({"broker-0"}, "broker-0")
    assert view.brokers["broker-0"].urls.plain.startswith("pulsar://")
    owners = await BundleDirectory(store, LAYOUT).owners("public", "default")
    assert {owner.broker for owner in owners.values()} == {"broker-0"}


async def manifests_are_read(store: MetadataStore) -> None:
    """What jobs wrote."""
    manifests = ManifestManager(store, LAYOUT)
    assert await manifests.names() == [keep.MANIFEST]
    found = await manifests.read(keep.MANIFEST)
    assert found is not None
    assert found.value.ledgers == (WrittenLedger(LEDGERS["closed"], 50, 1234),)
    assert (found.value.batches, found.value.abandoned) == ({"query-1": 7}, ("job-2",))


CHECKS: Final[dict[Check, tuple[str, ...]]] = {
    ledgers_are_read: (LAYOUT.ledgers,),
    counters_and_identity_are_read: (LAYOUT.instance, LAYOUT.idgen, LAYOUT.requests),
    bookies_are_read: (
        LAYOUT.available,
        LAYOUT.cookies,
        LAYOUT.claims,
        LAYOUT.epochs,
        LAYOUT.topology,
    ),
    repair_is_read: (LAYOUT.under_replicated,),
    topics_are_read: (LAYOUT.topics, f"{LAYOUT.root}/partitioned"),
    brokers_are_read: (LAYOUT.brokers, LAYOUT.broker_leader, f"{LAYOUT.root}/bundles"),
    manifests_are_read: (LAYOUT.manifests,),
}
"""What reads the records below some nodes."""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_record_of_the_release_before_is_read(check: Check) -> None:
    _, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await store.create("/daybook")
        for path, data in NODES.items():
            await store.create(f"{LAYOUT.root}{path}", data.encode())
        await check(store)


def test_every_record_that_was_kept_is_read_by_a_check() -> None:
    read = [path for paths in CHECKS.values() for path in paths]
    for path, data in NODES.items():
        absolute = f"{LAYOUT.root}{path}"
        assert not data or any(absolute == each or absolute.startswith(f"{each}/") for each in read), path
    for each in read:
        assert any(data and f"{LAYOUT.root}{path}".startswith(each) for path, data in NODES.items()), each


# Bookies and a broker.


def unpack(directory: Path) -> None:
    """The directories of the bookies; what was never written of a journal stays a hole."""
    with tarfile.open(KEPT / "bookies.tar.gz") as archive:
        for member in archive:
            path = directory / member.name
            data = archive.extractfile(member)
            if data is None:
                path.mkdir(parents=True)
                continue
            with path.open("wb") as file:
                while chunk := data.read(CHUNK_BYTES):
                    if chunk.strip(b"\0"):
                        file.write(chunk)
                    else:
                        file.seek(len(chunk), 1)
                file.truncate(member.size)


def write_nodes(directory: Path) -> None:
    """A ZooKeeper with what outlives sessions, where the cluster's own will start."""
    own = (LAYOUT.available, LAYOUT.claims, LAYOUT.brokers, LAYOUT.broker_leader, LAYOUT.task_locks)
    of_sessions = [f"{each}/".removeprefix(LAYOUT.root) for each in (*own, f"{LAYOUT.root}/bundles/public")]
    switch = LAYOUT.repair_disabled.removeprefix(LAYOUT.root)
    with EmbeddedZooKeeper(directory) as server:
        client = KazooClient(server.connect_string)
        client.start()
        client.create("/daybook")
        for path, data in NODES.items():
            if path != switch and not path.startswith(tuple(of_sessions)):
                client.create(f"{LAYOUT.root}{path}", data.encode())
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """The cluster of the release before, by the code of this one."""
    directory = tmp_path_factory.mktemp("before")
    unpack(directory)
    write_nodes(directory / "zookeeper")
    with LocalCluster(directory, bookies=keep.BOOKIES, brokers=1, settings=SETTINGS) as cluster:
        yield cluster


@pytest.mark.integration
async def test_every_entry_of_the_release_before_is_read_from_its_journals_and_stores(
    restarted: LocalCluster,
) -> None:
    async with connect_to(restarted) as client:
        for name, facts in FACTS["ledgers"].items():
            password = keep.PASSWORD if name == "password" else b""
            reader = await client.open_ledger(facts["id"], password=password)
            entries = [entry.data async for entry in reader.read()]
            assert entries == keep.content(name, facts["entries"]), name


@pytest.mark.integration
async def test_every_copy_of_the_release_before_is_where_the_metadata_says(
    restarted: LocalCluster,
) -> None:
    """Those of the bookie that had lost its disk are gone; the others are in stores alone."""
    async with connect_to(restarted) as client:
        for name in ("closed", "striped"):  # the client ended before a third copy of the one after them
            report = await verify_ledger(client, LEDGERS[name])
            assert {copy.bookie for copy in report.copies if not copy.is_whole} <= {keep.LOST}, name


@pytest.mark.integration
async def test_subscriptions_continue_where_the_release_before_left_them(restarted: LocalCluster) -> None:
    received = await asyncio.to_thread(_receive, restarted)
    assert sorted(received) == sorted(
        [b"batch %d" % n for n in range(20)] + [b"alone %d" % n for n in range(0, 20, 2)]
    )


def _receive(cluster: LocalCluster) -> list[bytes]:
    client = pulsar.Client(cluster.brokers[0].service_url, operation_timeout_seconds=PATIENCE_S)
    try:
        shared = pulsar.ConsumerType.Shared
        everything = client.subscribe(keep.TOPIC, "everything", consumer_type=shared)
        holes = client.subscribe(keep.TOPIC, "holes in it", consumer_type=shared)
        found = [holes.receive(PATIENCE_S * 1000).data() for _ in range(30)]
        producer = client.create_producer(keep.TOPIC)
        producer.send(b"of this release")
        for consumer in (everything, holes):
            assert consumer.receive(PATIENCE_S * 1000).data() == b"of this release"
        return found
    finally:
        client.close()
