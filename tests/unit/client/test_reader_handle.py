"""A reader that was opened long ago: what it learns of a ledger that was written further (rule 59)."""

import pytest

from daybook.client.reader import Reader
from daybook.core.ledger.metadata import LedgerMetadata
from tests.unit.autorecovery.kit import FakeCluster, payload, small_cluster


@pytest.fixture
async def cluster() -> FakeCluster:
    """Bookies b1 to b5, in memory."""
    return await small_cluster()


async def open_ledger(cluster: FakeCluster) -> tuple[Reader, LedgerMetadata]:
    """A ledger of ten entries that is still written, on b1, b2 and b3, and a reader of it."""
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False)
    metadata = (await cluster.ledgers.read(ledger_id)).value
    reader = Reader(metadata, cluster)
    assert await reader.begin() == 9
    return reader, metadata


async def move_to(cluster: FakeCluster, reader: Reader, *bookies: str) -> None:
    """The writer changes its ensemble at entry 10, and writes ten entries more."""
    current = await cluster.ledgers.read(reader.id)
    length = sum(len(payload(n)) for n in range(10))
    await cluster.ledgers.cas(current, current.value.with_ensemble(10, length, bookies))
    for name in bookies:
        fake = cluster.fakes[name]
        fake.entries.setdefault(reader.id, {}).update({n: payload(n) for n in range(10, 20)})
        fake.confirm(reader.id, 19)


async def test_rule_59_a_refresh_is_not_told_an_old_lac_by_bookies_that_were_replaced(
    cluster: FakeCluster,
) -> None:
    """Two of the old three answer in good faith, which would be a quorum."""
    reader, _ = await open_ledger(cluster)
    await move_to(cluster, reader, "b1", "b4", "b5")
    cluster.fakes["b1"].confirm(reader.id, 9)
    assert await reader.refresh(lenient=False) == 19
    assert [entry.entry_id async for entry in reader.read()] == list(range(20))


async def test_rule_59_a_refresh_sees_the_close(cluster: FakeCluster) -> None:
    reader, _ = await open_ledger(cluster)
    current = await cluster.ledgers.read(reader.id)
    await cluster.ledgers.cas(current, current.value.closed(9, sum(len(payload(n)) for n in range(10))))
    assert await reader.refresh() == 9
    assert reader.metadata.is_closed


async def test_rule_59_a_read_that_meets_an_old_ensemble_tells_the_next_one(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3")
    reader = Reader((await cluster.ledgers.read(ledger_id)).value, cluster)
    current = await cluster.ledgers.read(ledger_id)
    moved = current.value
    for old, new in (("b1", "b4"), ("b2", "b5")):
        moved = moved.with_replica(0, old, new)
        current = await cluster.ledgers.cas(current, moved)
        cluster.fakes[new].entries[ledger_id] = cluster.fakes[old].entries.pop(ledger_id)
    cluster.fakes["b3"].down = True
    assert [entry.entry_id async for entry in reader.read()] == list(range(10))
    assert reader.metadata == moved
