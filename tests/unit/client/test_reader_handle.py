"""What a reader learns of a ledger that is written further (rule 59): one that was opened long ago, and one of the own handle."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest

from daybook.client.reader import Reader
from daybook.client.transport.calls import BookieCalls, HasKey
from daybook.core.effects import SendRead
from daybook.core.errors import CorruptEntryError, DaybookError, NoSuchEntryError
from daybook.core.events import ReadAnswered
from daybook.core.ids import BookieId, EntryId
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
    async with asyncio.timeout(40), aclosing(reader.tail()) as tail:
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


async def closed_reader(cluster: FakeCluster) -> Reader:
    """A reader of a closed ledger with ten entries on b1, b2 and b3."""
    ledger_id = await cluster.ledger("b1", "b2", "b3")
    return Reader((await cluster.ledgers.read(ledger_id)).value, cluster)


async def test_a_batch_has_what_fits_and_at_least_one_entry(cluster: FakeCluster) -> None:
    reader = await closed_reader(cluster)

    async def ids(first: int, last: int | None = None, **limits: int) -> list[EntryId]:
        batch = await reader.read_batch(first, last, **limits)
        assert [entry.data for entry in batch] == [payload(entry.entry_id) for entry in batch]
        return [entry.entry_id for entry in batch]

    assert await ids(0) == list(range(10))
    assert await ids(3, 7) == [3, 4, 5, 6, 7]
    assert await ids(3, entries_max=2) == [3, 4]
    assert await ids(3, bytes_max=1) == [3]
    assert await ids(3, bytes_max=len(payload(3)) + len(payload(4))) == [3, 4]
    assert {len(fake.asked) for fake in cluster.fakes.values()} <= {0, 1, 2, 3, 4, 5}
    assert sum(len(fake.asked) for fake in cluster.fakes.values()) == 5, "one request for each batch"
    for first, last in ((10, None), (0, 10), (5, 4), (-1, 3)):
        with pytest.raises(NoSuchEntryError):
            await reader.read_batch(first, last)
    for limits in ({"entries_max": 0}, {"bytes_max": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            await reader.read_batch(0, **limits)


async def test_rule_63_a_batch_comes_from_other_replicas_and_the_next_one_begins_there(
    cluster: FakeCluster,
) -> None:
    reader = await closed_reader(cluster)
    cluster.fakes["b1"].down = True
    for first in range(10):
        (entry,) = await reader.read_batch(first, first)
        assert entry == (first, payload(first))
    assert cluster.suspects.failures("b1", 0)
    assert not cluster.suspects.failures("b2", 0)


async def test_a_batch_that_only_the_machine_can_read(cluster: FakeCluster) -> None:
    """One bookie has a gap, and another one a damaged entry behind it."""
    reader = await closed_reader(cluster)
    for fake in cluster.fakes.values():
        if reader.id in fake.entries:
            del fake.entries[reader.id][4]
    cluster.fakes["b3"].entries[reader.id][4] = payload(4)
    assert [entry.entry_id for entry in await reader.read_batch(0)] == [0, 1, 2, 3]
    assert [entry.entry_id for entry in await reader.read_batch(4)][:1] == [4]
    del cluster.fakes["b3"].entries[reader.id][4]
    with pytest.raises(CorruptEntryError, match="entry 4"):
        await reader.read_batch(4)


async def test_rule_63_a_batch_does_not_wait_for_a_silent_bookie(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = await closed_reader(cluster)
    monkeypatch.setattr("daybook.client.reader.SPECULATE_MS", 10)
    silent: list[BookieId] = []
    calls_of = cluster.channels.calls

    class Silent(BookieCalls):
        """It is asked once, and never answers."""

        def __init__(self, bookie: BookieId) -> None:
            self.bookie = bookie

        async def read(self, of: HasKey, request: SendRead) -> ReadAnswered:
            silent.append(self.bookie)
            await asyncio.Event().wait()
            raise AssertionError

    def calls(bookie: BookieId) -> BookieCalls | None:
        return calls_of(bookie) if silent and bookie != silent[0] else Silent(bookie)

    monkeypatch.setattr(cluster.channels, "calls", calls)
    for _ in range(20):
        assert (await reader.read_batch(0, 0))[0] == (0, payload(0))
    assert len(silent) == 1


async def test_a_batch_of_a_client_that_is_closed_fails_and_a_cancelled_one_is_cancelled(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC cancels the calls of a channel that is closed, as if their task had been cancelled."""
    reader = await closed_reader(cluster)
    closed: asyncio.Future[ReadAnswered] = asyncio.get_running_loop().create_future()

    class Closing(BookieCalls):
        def __init__(self) -> None:
            pass

        async def read(self, of: HasKey, request: SendRead) -> ReadAnswered:
            return await closed

    monkeypatch.setattr(cluster.channels, "calls", lambda _: Closing())
    cancelled = asyncio.ensure_future(reader.read_batch(0, 0))
    reading = asyncio.ensure_future(reader.read_batch(0, 0))
    await turns()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    closed.cancel()
    with pytest.raises(DaybookError, match="the client was closed"):
        await reading
