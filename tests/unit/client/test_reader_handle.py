"""What a reader learns of a ledger that is written further (rule 59): one that was opened long ago, and one of the own handle."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest

from daybook.client.reader import Reader
from daybook.core.errors import NoSuchEntryError
from daybook.core.ids import EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from tests.unit.autorecovery.kit import FakeCluster, payload, small_cluster
from tests.unit.client.handle_kit import open_handle, turns


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


@dataclass
class Handle:
    """A writer's handle that a test plays by hand."""

    metadata: LedgerMetadata
    last_add_confirmed: EntryId = -1
    is_over: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def confirm(self, last: EntryId) -> None:
        self.last_add_confirmed = last
        self.changed.set()

    def end(self) -> None:
        self.is_over = True
        self.changed.set()

    async def risen(self, above: EntryId) -> None:
        while self.last_add_confirmed <= above and not self.is_over:
            self.changed.clear()
            await self.changed.wait()


async def own_reader(cluster: FakeCluster) -> tuple[Reader, Handle]:
    """A reader of the own handle on a ledger whose bookies have ten entries, of which none is confirmed."""
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False)
    handle = Handle((await cluster.ledgers.read(ledger_id)).value)
    return Reader(handle.metadata, cluster, handle), handle


async def test_rule_59_the_own_handle_is_read_up_to_its_lac_and_asks_nobody_for_it(
    cluster: FakeCluster,
) -> None:
    reader, handle = await own_reader(cluster)
    assert [entry async for entry in reader.read()] == []
    handle.confirm(4)
    assert await reader.refresh(lenient=False) == 4
    assert [entry.entry_id async for entry in reader.read()] == list(range(5))
    with pytest.raises(NoSuchEntryError, match="up to entry 4"):
        [entry async for entry in reader.read(0, 5)]
    asked = {what for fake in cluster.fakes.values() for what in fake.asked}
    assert asked == {"read"}


async def test_rule_59_a_tail_of_the_own_handle_follows_it_and_then_the_bookies(cluster: FakeCluster) -> None:
    """The handle is given up after entry 4; another client closes the ledger at entry 9."""
    reader, handle = await own_reader(cluster)
    async with asyncio.timeout(10), aclosing(reader.tail()) as tail:
        for last in (1, 4):
            following = asyncio.ensure_future(anext(tail))
            await turns()
            assert not following.done()
            handle.confirm(last)
            first = (await following).entry_id
            assert [first, *[(await anext(tail)).entry_id for _ in range(first, last)]] == [
                *range(first, last + 1)
            ]
        handle.end()
        current = await cluster.ledgers.read(reader.id)
        length = sum(len(payload(n)) for n in range(10))
        await cluster.ledgers.cas(current, current.value.closed(9, length))
        assert [entry.entry_id async for entry in tail] == list(range(5, 10))
    assert reader.metadata.is_closed


async def test_rule_59_the_own_handle_shows_nothing_that_is_only_sent() -> None:
    async with open_handle() as (ledger, bookies):
        reader = ledger.reader()
        appended = asyncio.ensure_future(ledger.append(b"x"))
        await turns()
        assert bookies.sent
        assert reader.last_add_confirmed == -1
        with pytest.raises(NoSuchEntryError, match="up to entry -1"):
            [entry async for entry in reader.read(0, 0)]
        bookies.acknowledge()
        assert await appended == reader.last_add_confirmed == 0
