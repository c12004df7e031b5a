"""Deleting a ledger whose disks are lost: what is fenced, what is refused, and who may come between (rule 61)."""

import asyncio
from typing import Any

import pytest

from daybook.client import deletion
from daybook.client.deletion import delete_without_recovery
from daybook.client.recovery import recover_ledger
from daybook.core.errors import DeletionRefusedError, MetadataError, NoSuchLedgerError
from daybook.core.ledger.metadata import TOPIC_KEY, Fragment, LedgerMetadata
from daybook.core.placement.policies import make_policy
from daybook.core.recovery.deletion import DeletionPolicy
from tests.unit.autorecovery.kit import THREE, FakeCluster, small_cluster, until


@pytest.fixture
async def cluster() -> FakeCluster:
    """Bookies b1 to b5, in memory."""
    return await small_cluster()


async def delete(cluster: FakeCluster, ledger_id: int, **options: Any) -> tuple[str, ...]:
    return await delete_without_recovery(
        ledger_id, cluster, **{"policy": DeletionPolicy(lost_delay_ms=0), "force": False, **options}
    )


async def lose(cluster: FakeCluster, *names: str) -> None:
    """These bookies are gone, and answer nobody."""
    for name in names:
        cluster.fakes[name].down = True
    await cluster.unregister(*names)


async def come_back(cluster: FakeCluster, name: str) -> None:
    """It answers again, and is registered."""
    cluster.fakes[name].down = False
    await cluster.register(name)


async def is_gone(cluster: FakeCluster, ledger_id: int) -> bool:
    try:
        await cluster.ledgers.read(ledger_id, sync=True)
    except NoSuchLedgerError:
        return True
    return False


async def test_rule_61_a_ledger_whose_disks_are_lost_is_fenced_where_it_can_be_and_deleted(
    cluster: FakeCluster,
) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False)
    await lose(cluster, "b1", "b2")
    assert await delete(cluster, ledger_id) == ("b1", "b2")
    assert cluster.fakes["b3"].fenced == {ledger_id}
    assert await is_gone(cluster, ledger_id)
    assert (await cluster.ledger("b3", "b4", "b5")) == ledger_id + 1, "an id is never given again"


async def test_rule_61_bookies_that_are_away_for_less_than_the_delay_keep_it(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False)
    await lose(cluster, "b1", "b2")
    deleting = asyncio.ensure_future(delete(cluster, ledger_id, policy=DeletionPolicy(3_600_000)))
    await until(lambda: bool(cluster.fakes["b3"].fenced))
    assert not deleting.done()
    await come_back(cluster, "b2")
    assert await deleting == (), "one that came back was fenced"
    assert cluster.fakes["b2"].fenced == {ledger_id}


async def test_rule_61_a_bookie_that_comes_back_at_the_last_moment_is_fenced(cluster: FakeCluster) -> None:
    """It registered after the last look at the list, and before the deletion."""
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False)
    await lose(cluster, "b1", "b2")
    listed = cluster.directory.bookies
    looks = 0

    async def bookies() -> Any:
        nonlocal looks
        looks += 1
        if looks == 2:
            await come_back(cluster, "b1")
        return await listed()

    cluster.directory.bookies = bookies  # type: ignore[method-assign]  # what others do meanwhile
    assert await delete(cluster, ledger_id) == ()
    assert cluster.fakes["b1"].fenced == {ledger_id}
    assert await is_gone(cluster, ledger_id)


async def test_rule_56_a_recovery_that_closes_the_ledger_meanwhile_is_noticed(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False)
    delete_node, others = cluster.ledgers.delete, 0

    async def after_a_recovery(ledger_id: int, version: int) -> None:
        nonlocal others
        if not others:
            others += 1
            await recover_ledger(ledger_id, "00$key", cluster, placement=make_policy(), rng=cluster.rng)
        await delete_node(ledger_id, version)

    cluster.ledgers.delete = after_a_recovery  # type: ignore[method-assign]  # what others do meanwhile
    await delete(cluster, ledger_id)
    assert others == 1
    assert await is_gone(cluster, ledger_id)


async def test_a_ledger_that_never_stands_still_is_not_deleted(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False)
    delete_node = cluster.ledgers.delete

    async def after_a_change(ledger_id: int, version: int) -> None:
        current = await cluster.ledgers.read(ledger_id)
        await cluster.ledgers.cas(current, current.value)
        await delete_node(ledger_id, version)

    cluster.ledgers.delete = after_a_change  # type: ignore[method-assign]  # what others do meanwhile
    with pytest.raises(MetadataError, match="changed 10 times"):
        await delete(cluster, ledger_id)
    assert deletion.DELETE_ATTEMPTS == 10


async def test_rule_61_a_ledger_that_a_topic_names_is_kept_unless_it_is_forced(cluster: FakeCluster) -> None:
    created = await cluster.ledgers.create_ledger(
        lambda ledger_id: LedgerMetadata(
            ledger_id,
            THREE,
            (Fragment(0, 0, ("b1", "b2", "b3")),),
            password_hash="00$key",
            custom_metadata={TOPIC_KEY: b"persistent://public/default/orders"},
        )
    )
    ledger_id = created.value.ledger_id
    with pytest.raises(DeletionRefusedError, match="public/default/orders"):
        await delete(cluster, ledger_id)
    assert (await cluster.ledgers.read(ledger_id)).version == 0, "it was left as it is"
    await delete(cluster, ledger_id, force=True)
    assert await is_gone(cluster, ledger_id)


async def test_rule_61_a_registered_bookie_that_does_not_answer_stops_it(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False)
    cluster.fakes["b1"].down = cluster.fakes["b2"].down = True
    with pytest.raises(DeletionRefusedError, match="b1: CONNECTION_LOST, b2: CONNECTION_LOST"):
        await delete(cluster, ledger_id, policy=DeletionPolicy(0, patience_ms=0))
