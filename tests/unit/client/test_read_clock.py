"""What a reader knows of the time while its user takes long over a batch: no bookie is blamed for that (rule 63)."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing

import pytest

from daybook.client.reader import Reader
from daybook.client.transport.calls import BookieCalls, HasKey
from daybook.core.effects import SendRead
from daybook.core.errors import Code
from daybook.core.events import ReadAnswered
from daybook.core.format.entries import Entry
from daybook.core.ids import BookieId
from daybook.core.reader.reader import LedgerReader, ReadPolicy
from tests.unit.autorecovery.kit import FakeCluster, small_cluster
from tests.unit.client.handle_kit import turns

FIRST = 3


class Bookies:
    """Bookies whose answers a test gives, and a clock that it sets."""

    def __init__(self, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 1_000_000
        self.asked: list[tuple[SendRead, asyncio.Future[Code]]] = []
        self.ticked = asyncio.Event()
        calls_of, tick = cluster.channels.calls, LedgerReader._tick

        def calls(bookie: BookieId) -> BookieCalls | None:
            found = calls_of(bookie)
            return found and Held(found, self)

        def noted(reader: LedgerReader, now_ms: int) -> None:
            tick(reader, now_ms)
            self.ticked.set()

        monkeypatch.setattr(time, "clock_gettime_ns", lambda _: self.now_ms * 1_000_000)
        monkeypatch.setattr(cluster.channels, "calls", calls)
        monkeypatch.setattr(LedgerReader, "_tick", noted)

    async def answer(self, number: int, code: Code = Code.OK) -> None:
        """The request of that number is answered, once it is there."""
        while len(self.asked) <= number:
            await turns()
        self.asked[number][1].set_result(code)
        await turns()

    async def tick(self) -> None:
        """Nothing comes until the reader has a `Tick`."""
        self.ticked.clear()
        await self.ticked.wait()


class Held(BookieCalls):
    """The calls of one bookie, which are answered when the test says so."""

    def __init__(self, calls: BookieCalls, bookies: Bookies) -> None:
        self._calls = calls
        self._bookies = bookies

    async def read(self, of: HasKey, request: SendRead) -> ReadAnswered:
        answer: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        self._bookies.asked.append((request, answer))
        code = await answer
        if code is Code.OK:
            return await self._calls.read(of, request)
        return ReadAnswered(request.bookie, request.request_id, code)


def ids(batch: Sequence[Entry]) -> list[int]:
    return [entry.entry_id for entry in batch]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_rule_63_no_bookie_is_suspected_because_the_user_took_long(
    monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    """The next entry is asked for when the user is done, or before, and then again because a bookie is lost meanwhile."""
    cluster = await small_cluster()
    bookies = Bookies(cluster, monkeypatch)
    ledger_id = await cluster.ledger("b1", "b2", "b3")
    reader = Reader((await cluster.ledgers.read(ledger_id)).value, cluster)
    policy = ReadPolicy(piece_bytes=1, read_ahead_bytes=2 if is_lost else 1, entry_bytes_guess=1)
    async with aclosing(reader._read(FIRST, 9, unconfirmed=False, policy=policy)) as batches:
        following = asyncio.ensure_future(anext(batches))
        await bookies.answer(0)
        assert ids(await following) == [FIRST]
        bookies.now_ms += 10_000
        if is_lost:
            await bookies.answer(1, Code.CONNECTION_LOST)
        following = asyncio.ensure_future(anext(batches))
        await bookies.tick()
        await turns()
        asked = [request for request, _ in bookies.asked if request.first == FIRST + 1]
        assert len(asked) == 1 + is_lost, "nothing is asked for twice because time passed"
        await bookies.answer(1 + is_lost)
        assert ids(await following) == [FIRST + 1]
    suspected = [name for name in cluster.fakes if cluster.suspects.failures(name, bookies.now_ms)]
    assert suspected == [request.bookie for request in asked[:-1]]
