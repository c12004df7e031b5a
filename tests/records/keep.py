"""Keeps what a release stores, so that the next one is tested with it: each kind of node in ZooKeeper, and whole bookies.

It is run with the code of a release, in a checkout of that release, and uses only what releases have in common:

    .venv/bin/python -m tests.records.keep NEW_CHECKOUT/tests/records/before

In that folder `nodes.json` has every node of a cluster that was in use, `facts.json` what that release itself read from them, and
`bookies.tar.gz` the journals and stores of its bookies, which were killed: what they flushed is in the store, the rest in the
journal alone, and one of them lost its disk before and is in limbo.
"""

import asyncio
import json
import sys
import tarfile
import tempfile
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pulsar
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import daybook
from daybook.core.topics.name import TopicName
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.metadata.bookies import BookieDirectory, Location
from daybook.metadata.layout import Layout
from daybook.metadata.manifests import ManifestManager, WrittenLedger
from daybook.metadata.partitions import PartitionManager
from daybook.metadata.tasks import RepairTasks
from daybook.metadata.topics import TopicManager
from daybook.runtime.clock import unix_ms

BOOKIES: Final = 4
LOST: Final = "bookie-3"
"""It loses its disk, and is replaced."""
PASSWORD: Final = b"secret"
TOPIC: Final = "persistent://public/default/kept"
ENDED: Final = "persistent://public/default/ended"
GROWN: Final = TopicName.parse("persistent://public/default/grown")
MANIFEST: Final = "kept table"
REQUEST: Final = "6d1b1a52-0c5c-4a43-9bb1-7e9d7a3a6c35"
"""The UID of a Kubernetes object."""
SETTINGS: Final[dict[str, object]] = {
    "flush_interval_ms": 3_600_000,
    "journal_file_bytes": 33_554_432,
    "session_timeout_ms": 4000,
}
"""A bookie flushes when it stops, and at no other time."""

Facts = dict[str, Any]


def content(ledger: str, count: int) -> list[bytes]:
    """The entries of a ledger: short ones, and some that fill a block."""
    return [f"{ledger} {n} ".encode() * (1 if n % 10 else 2000) for n in range(count)]


async def write_ledgers(cluster: LocalCluster, facts: Facts) -> None:
    """The kinds of ledgers whose entries are in the store afterwards."""
    async with _connect(cluster) as client:
        for name, ledger in (
            ("closed", await client.create_ledger()),
            ("striped", await client.create_ledger(ensemble_size=4, write_quorum=2)),
            ("password", await client.create_ledger(password=PASSWORD, custom_metadata={"owner": b"a test"})),
        ):
            await ledger.append_many(content(name, 50))
            await ledger.close()
            facts["ledgers"][name] = {"id": ledger.id, "entries": 50}


async def write_more(cluster: LocalCluster, facts: Facts) -> None:
    """The kinds whose entries stay in the journal: a change of the ensemble, an open ledger, a fenced one."""
    async with _connect(cluster) as client:
        changed = await client.create_ledger()
        await changed.append_many(content("changed", 20))
        victim = (await client.ledgers.read(changed.id)).value.fragments[-1].bookies[0]
        await asyncio.to_thread(cluster.kill_bookie, victim)
        for entry in content("changed", 40)[20:]:
            await changed.append(entry)
        await changed.close()
        await asyncio.to_thread(cluster.start_bookie, victim)
        facts["ledgers"]["changed"] = {"id": changed.id, "entries": 40}
        open_one = await client.create_ledger()
        await open_one.append_many(content("open", 30))
        facts["ledgers"]["open"] = {"id": open_one.id, "entries": 30}
        fenced = await client.create_ledger()
        await fenced.append_many(content("fenced", 30))
        async with _connect(cluster) as other:
            await other.open_ledger(fenced.id)
        facts["ledgers"]["fenced"] = {"id": fenced.id, "entries": 30}
        for ledger in (open_one, fenced):
            await ledger.abandon()


async def write_the_rest(cluster: LocalCluster, facts: Facts) -> None:
    """What operators, jobs and auto-recovery store."""
    async with _connect(cluster) as client:
        store, layout = client.store, client.layout
        tasks = RepairTasks(store, layout)
        ledgers = {name: found["id"] for name, found in facts["ledgers"].items()}
        await tasks.mark(ledgers["closed"], reasons=["lost bookie"], bookies=[LOST], now_ms=unix_ms())
        await tasks.mark(ledgers["striped"], reasons=["lost bookie"], bookies=[LOST], now_ms=unix_ms())
        aside = await tasks.read(ledgers["striped"])
        assert aside is not None
        await tasks.set_aside(aside, until_ms=unix_ms() + 60_000, why="no bookie to copy to")
        await tasks.set_disabled(True)
        await tasks.set_lost_bookie_delay_s(90.0)
        await BookieDirectory(store, layout).set_locations(
            {"bookie-0": Location(region="r", zone="z", rack="k", node="n")}
        )
        manifests = ManifestManager(store, layout)
        written = WrittenLedger(ledgers["closed"], 50, 1234)
        await manifests.add(MANIFEST, "job-1", (written,), query="query-1", batch=7)
        await manifests.abandon(MANIFEST, "job-2")
        await PartitionManager(store, layout).create(GROWN, 3)
        found = await client.ledgers.read(ledgers["closed"])
        await client.ledgers.adopt(REQUEST, found)


async def use_topics(cluster: LocalCluster) -> None:
    """A topic with policy, epoch and cursors of every shape, and one that ended."""
    await asyncio.to_thread(_produce_and_acknowledge, cluster)
    admin = f"{cluster.brokers[0].admin_url}/admin/v2"
    policy = {"retentionTimeInMinutes": 600, "retentionSizeInMB": -1}
    for method, path, body in (
        ("POST", "namespaces/public/default/permissions/reader", ["consume"]),
        ("POST", "namespaces/public/default/messageTTL", 86400),
        ("POST", "persistent/public/default/kept/retention", policy),
        ("POST", "persistent/public/default/ended/terminate", None),
    ):
        await asyncio.to_thread(_ask, f"{admin}/{path}", method, body)


def _produce_and_acknowledge(cluster: LocalCluster) -> None:
    client = pulsar.Client(cluster.brokers[0].service_url)
    try:
        everything = client.subscribe(TOPIC, "everything", consumer_type=pulsar.ConsumerType.Shared)
        holes = client.subscribe(TOPIC, "holes in it", consumer_type=pulsar.ConsumerType.Shared)
        only = pulsar.ProducerAccessMode.Exclusive
        producer = client.create_producer(
            TOPIC, batching_enabled=True, batching_max_publish_delay_ms=5, access_mode=only
        )
        for n in range(20):
            producer.send_async(b"batch %d" % n, None, partition_key=f"key {n % 3}")
        producer.flush()
        producer.close()
        producer = client.create_producer(TOPIC)
        for n in range(20):
            producer.send(b"alone %d" % n)
        for _ in range(40):
            everything.acknowledge(everything.receive(40_000))
        for n in range(40):
            message = holes.receive(40_000)
            if n >= 20 and n % 2:
                holes.acknowledge(message)
        ended = client.create_producer(ENDED)
        ended.send(b"the last one")
    finally:
        client.close()


def _ask(url: str, method: str, body: object) -> None:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    urllib.request.urlopen(request, timeout=40).close()


async def replace_lost(cluster: LocalCluster) -> None:
    """One bookie starts on empty disks, in limbo for every ledger that names it."""
    cluster.stop_bookies(LOST)
    cluster.erase_bookie(LOST)
    async with _connect(cluster) as client:
        directory = BookieDirectory(client.store, client.layout)
        async for bookies in directory.watch_bookies():
            if LOST not in bookies:
                break
        await directory.authorise_replacement(LOST, by="a test", now_ms=unix_ms())
    cluster.start_bookie(LOST)


async def read_facts(cluster: LocalCluster, facts: Facts) -> None:
    """What this release makes of its topics."""
    async with _connect(cluster) as client:
        topics = TopicManager(client.store, client.layout)
        for topic in (TOPIC, ENDED):
            name = TopicName.parse(topic)
            found = (await topics.read(name)).value
            cursors = {}
            for subscription in await topics.cursors(name):
                cursor = (await topics.read_cursor(name, subscription)).value
                cursors[subscription] = [str(cursor.mark_delete), len(cursor.ranges)]
            facts["topics"][topic] = {
                "state": found.state.value,
                "ledgers": [ledger.ledger_id for ledger in found.ledgers],
                "entries": sum(ledger.entries for ledger in found.ledgers),
                "last": str(found.last_confirmed),
                "epoch": await topics.epoch(name),
                "cursors": cursors,
            }


def dump(client: KazooClient, path: str, into: dict[str, str]) -> None:
    """All nodes from `path` on, as text: every record is JSON."""
    with suppress(NoNodeError):
        data, _ = client.get(path)
        into[path.removeprefix(Layout(CLUSTER_NAME).root)] = data.decode()
        for name in client.get_children(path):
            dump(client, f"{path}/{name}", into)


async def keep(out: Path, directory: Path) -> None:
    """Use a cluster in `directory`, and keep what it stored in `out`."""
    facts: Facts = {"ledgers": {}, "topics": {}}
    cluster = LocalCluster(
        directory, bookies=BOOKIES, brokers=1, settings=SETTINGS, broker_settings={"cursor_persist_ms": 200}
    )
    await asyncio.to_thread(cluster.start)
    try:
        await write_ledgers(cluster, facts)
        await use_topics(cluster)
        cluster.stop_brokers()
        cluster.stop_bookies()
        for n in range(BOOKIES):
            cluster.start_bookie(f"bookie-{n}")
        await replace_lost(cluster)
        await write_more(cluster, facts)
        await write_the_rest(cluster, facts)
        await read_facts(cluster, facts)
        cluster.start_brokers("broker-0")
        client = KazooClient(cluster.zookeeper.connect_string)
        client.start()
        await asyncio.to_thread(_use_again, cluster)
        nodes: dict[str, str] = {}
        async with _connect(cluster) as holder:
            tasks = RepairTasks(holder.store, holder.layout)
            assert await tasks.lock(facts["ledgers"]["closed"]["id"], "worker-1") is not None
            dump(client, Layout(CLUSTER_NAME).root, nodes)
        cluster.signal_broker("broker-0")
        for n in range(BOOKIES):
            cluster.kill_bookie(f"bookie-{n}")
        dump(client, Layout(CLUSTER_NAME).root, nodes)  # again what persists: nobody changes it any more
        client.stop()
        client.close()
    finally:
        cluster.stop()
    for name, record in (("nodes", nodes), ("facts", facts)):
        text = json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False)
        (out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    with tarfile.open(out / "bookies.tar.gz", "w:gz") as archive:
        for n in range(BOOKIES):
            for part in ("journal", "store"):
                archive.add(directory / f"bookie-{n}" / part, f"bookie-{n}/{part}", filter=_as_kept)


def _as_kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Every file but those that are made anew at each start; and nobody's."""
    if member.name.endswith((".tmp", "/lock.mdb")):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _use_again(cluster: LocalCluster) -> None:
    """Have a broker own a bundle of the topic, without a change of the topic."""
    client = pulsar.Client(cluster.brokers[0].service_url)
    client.get_topic_partitions(TOPIC)
    consumer = client.subscribe(ENDED, "reads", initial_position=pulsar.InitialPosition.Earliest)
    consumer.acknowledge(consumer.receive(40_000))
    client.close()


def _connect(cluster: LocalCluster) -> daybook.Client:
    return daybook.connect(cluster.zookeeper.connect_string, cluster=CLUSTER_NAME)


if __name__ == "__main__":
    target = Path(sys.argv[1]).resolve()
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(keep(target, Path(scratch)))
