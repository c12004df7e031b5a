"""Two pools of real bookies: a ledger of the smaller pool stays there, whoever replaces a bookie of it (rule 69).

The other pool has spares all the time, so a decision that does not know the pool takes one of them.
"""

import asyncio
from collections.abc import Iterator
from contextlib import closing

import pulsar
import pytest

import daybook
from daybook.autorecovery.cycles import AuditCycles
from daybook.autorecovery.worker import RepairWorker
from daybook.core.ids import pool_of
from daybook.core.ledger.metadata import POOL_KEY
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import PolicyLayer
from daybook.core.topics.unnamed import SUBSCRIPTION_KEY
from daybook.metadata.policies import PolicyManager
from daybook.metadata.tasks import RepairTasks
from daybook.metadata.topics import TopicManager
from tests.fixtures.brokers import write_settings
from tests.fixtures.cluster import PooledCluster, connect_to
from tests.process.integration.kit import PATIENCE_S, SESSION_MS, off, until_gone
from tests.unit.autorecovery.healing import SETTINGS as AUTO_RECOVERY
from tests.unit.autorecovery.healing import faults

pytestmark = pytest.mark.integration

SMALL, LARGE = "data.small", "data.large"


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PooledCluster]:
    """Three bookies in the small pool, two in the large one; the last test harms them."""
    directory = tmp_path_factory.mktemp("pools")
    with PooledCluster(directory, {SMALL: 3, LARGE: 2}, session_timeout_ms=SESSION_MS) as started:
        write_settings(started)
        yield started


@pytest.fixture
def broker(pools: PooledCluster) -> Iterator[str]:
    """Where a broker of the two pools is reached."""
    yield pools.start_broker("broker-0").service_url
    pools.stop_brokers()


async def test_rule_69_messages_and_cursors_of_a_topic_lie_in_the_pool_of_its_policy(
    pools: PooledCluster, broker: str
) -> None:
    name = TopicName("public", "default", "kept-in-its-pool")

    def use(client: pulsar.Client) -> None:
        producer = client.create_producer(str(name))
        consumer = client.subscribe(str(name), "readers")
        for number in range(10):
            producer.send(b"%d" % number)
        for _ in range(10):
            consumer.acknowledge(consumer.receive(timeout_millis=int(1000 * PATIENCE_S)))

    async with connect_to(pools) as client:
        await TopicManager(client.store, client.layout).create(name)
        policies = PolicyManager(client.store, client.layout)
        await policies.set_topic(name, await policies.topic(name), PolicyLayer(pool=SMALL))
        with closing(pulsar.Client(broker, operation_timeout_seconds=int(PATIENCE_S))) as user:
            await off(use, user)
            async for node in client.store.watch_node(client.layout.cursor(name, "readers")):
                if node is not None and CursorRecord.from_json(node.value).cursor_ledger >= 0:
                    break
        ledgers = [found.value async for found in client.list_ledgers()]
        marks = {SUBSCRIPTION_KEY in ledger.custom_metadata for ledger in ledgers}
        assert marks == {False, True}, "of messages, and of the cursor"
        assert {ledger.pool for ledger in ledgers} == {SMALL}
        assert {pool_of(bookie) for ledger in ledgers for bookie in ledger.bookies()} == {SMALL}


async def test_rule_69_a_writer_and_a_repair_replace_within_the_pool_or_leave_it_with_the_reason(
    pools: PooledCluster,
) -> None:
    async with connect_to(pools) as client:
        await RepairTasks(client.store, client.layout).set_lost_bookie_delay_s(0)
        ledger = await client.create_ledger(
            ensemble_size=2, write_quorum=2, ack_quorum=1, custom_metadata={POOL_KEY: SMALL.encode()}
        )
        await ledger.append_many([b"%d" % n for n in range(100)])
        await ledger.replicated()
        first, second = ledger.ensemble()
        (spare,) = {f"{SMALL}-{n}" for n in range(3)} - {first, second}

        await off(pools.kill_bookie, first)
        while not ledger.ensemble_changes:  # a replacement waits for the next append
            await ledger.append(b"more")
        assert set(ledger.ensemble()) == {spare, second}, "the writer takes the pool's own spare"
        await ledger.replicated()
        await ledger.close()
        await until_gone(client, first)

        repair = await RepairWorker(client, AUTO_RECOVERY, name="a test").repair([ledger.id])
        assert repair.is_complete
        repaired = (await client.ledgers.read(ledger.id)).value
        assert repaired.bookies() == {spare, second}, "and so does the repair of the first fragment"
        assert await faults(client, ledger.id) == []

        await off(pools.kill_bookie, second)
        await until_gone(client, second)
        report = await AuditCycles(client, AUTO_RECOVERY, lost_delay_s=0).once(asyncio.Event(), full=True)
        assert ledger.id in report.found.below_write_quorum
        assert all(
            "the ledger stays in pool data.small, which has 1 of the 3" in why for why in report.found.blocked
        )
        await RepairWorker(client, AUTO_RECOVERY, name="a test").repair([ledger.id])
        left = (await client.ledgers.read(ledger.id)).value
        assert left == repaired, "it stays under-replicated rather than leave its pool"
        assert {pool_of(bookie) for bookie in client.bookies()} == {SMALL, LARGE}, "the other pool had room"
        with pytest.raises(daybook.NotEnoughBookiesError, match="raise that pool's replicas"):
            await client.create_ledger(
                ensemble_size=2, write_quorum=2, custom_metadata={POOL_KEY: SMALL.encode()}
            )
