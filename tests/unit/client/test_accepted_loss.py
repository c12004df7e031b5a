"""Closing a ledger that no recovery can close: what is kept of it, and who may come between (rule 61)."""

from typing import Any

import pytest

from daybook.client.accepted_loss import close_accepting_loss
from daybook.client.recovery import recover_ledger
from daybook.core.errors import DeletionRefusedError, MetadataError, RecoveryFailedError
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policies import make_policy
from daybook.core.recovery.deletion import DeletionPolicy
from tests.unit.autorecovery.kit import FakeCluster, payload, small_cluster


@pytest.fixture
async def cluster() -> FakeCluster:
    """Bookies b1 to b5, in memory."""
    return await small_cluster()


async def fails(metadata: LedgerMetadata) -> LedgerMetadata:
    """What a recovery says whose bookies have lost their disks."""
    raise RecoveryFailedError(f"ledger {metadata.ledger_id}: two of three bookies do not answer")


async def close(
    cluster: FakeCluster, ledger_id: int, recover: Any = fails
) -> tuple[LedgerMetadata, tuple[str, ...]]:
    return await close_accepting_loss(
        ledger_id, cluster, recover, policy=DeletionPolicy(lost_delay_ms=0, patience_ms=0)
    )


async def lose(cluster: FakeCluster, *names: str) -> None:
    """These bookies are gone, and answer nobody."""
    for name in names:
        cluster.fakes[name].down = True
    await cluster.unregister(*names)


async def test_rule_61_a_ledger_ends_at_the_highest_lac_that_is_left(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False)
    cluster.fakes["b3"].confirm(ledger_id, 6)
    await lose(cluster, "b1", "b2")
    closed, lost = await close(cluster, ledger_id)
    assert (closed.last_entry, closed.length) == (6, sum(len(payload(n)) for n in range(7)))
    assert lost == ("b1", "b2")
    assert cluster.fakes["b3"].fenced == {ledger_id}
    assert (await cluster.ledgers.read(ledger_id, sync=True)).value == closed
    assert await close(cluster, ledger_id) == (closed, ()), "a close is final"


async def test_rule_61_what_can_be_recovered_loses_nothing(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False)
    for name in ("b1", "b2", "b3"):
        cluster.fakes[name].confirm(ledger_id, 3)

    async def recover(_: LedgerMetadata) -> LedgerMetadata:
        return await recover_ledger(ledger_id, "00$key", cluster, placement=make_policy(), rng=cluster.rng)

    closed, lost = await close(cluster, ledger_id, recover)
    assert (closed.last_entry, lost) == (9, ())


async def test_rule_61_a_registered_bookie_that_does_not_answer_keeps_the_ledger_open(
    cluster: FakeCluster,
) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False)
    cluster.fakes["b1"].down = cluster.fakes["b2"].down = True
    with pytest.raises(DeletionRefusedError, match="b1: CONNECTION_LOST, b2: CONNECTION_LOST"):
        await close(cluster, ledger_id)
    assert not (await cluster.ledgers.read(ledger_id, sync=True)).value.is_closed


async def test_rule_11_who_closes_the_ledger_meanwhile_decides_where_it_ends(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False)
    cluster.fakes["b3"].confirm(ledger_id, 6)
    await lose(cluster, "b1", "b2")
    cas = cluster.ledgers.cas

    async def after_another(current: Any, new: LedgerMetadata, **options: Any) -> Any:
        if new.is_closed:
            await cas(current, current.value.closed(8, 100))
        return await cas(current, new, **options)

    cluster.ledgers.cas = after_another  # type: ignore[method-assign]  # what others do meanwhile
    closed, _ = await close(cluster, ledger_id)
    assert closed.last_entry == 8


async def test_a_ledger_that_never_stands_still_stays_open(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False)
    await lose(cluster, "b1", "b2")
    cas = cluster.ledgers.cas

    async def after_a_change(current: Any, new: LedgerMetadata, **options: Any) -> Any:
        if new.is_closed:
            await cas(current, current.value)
        return await cas(current, new, **options)

    cluster.ledgers.cas = after_a_change  # type: ignore[method-assign]  # what others do meanwhile
    with pytest.raises(MetadataError, match="changed 10 times"):
        await close(cluster, ledger_id)
