"""A client's reads: over connections of the bookie's lane where it is reached, over gRPC where it is not."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from daybook.client.transport import calls as calls_module
from daybook.client.transport import read_lane
from daybook.client.transport.calls import BookieCalls, ReadKey
from daybook.client.transport.channels import ChannelPool
from daybook.client.transport.read_lane import ReadLane
from daybook.core.effects import SendRead
from daybook.core.errors import Code
from daybook.core.events import ReadAnswered
from daybook.core.format.entries import payloads_of
from daybook.core.format.payload_run import PayloadRun
from daybook.core.ids import BookieId
from daybook.core.placement.policy import BookieInfo
from daybook.runtime.ports import HeldPort
from daybook.runtime.tls import ClientCredentials, TlsContexts, server_credentials
from daybook.wire import bookie_pb2 as pb
from tests.unit.bookie.server_kit import RunningBookie, eventually, frame_of, read_connections
from tests.unit.bookie.stream_kit import KEY, WAIT_S, LanePipe, Stream
from tests.unit.runtime.certificates import new_authority

ENTRIES = [b"%d" % n * 50_000 for n in range(20)]
OF = ReadKey(1, KEY)


def fill(bookie: RunningBookie, stream: Stream) -> None:
    """Put ENTRIES into ledger 1."""
    bookie.create_ledger(1)
    assert stream.attach(1) is Code.OK
    for n, data in enumerate(ENTRIES):
        assert stream.add(frame_of(1, n, [data])) == {}
    stream.close()


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[RunningBookie]:
    """A bookie with entries."""
    running = RunningBookie(tmp_path)
    fill(running, running.open_stream())
    yield running
    running.stop()


@pytest.fixture
async def pool() -> AsyncIterator[ChannelPool]:
    """A client's channels."""
    made = ChannelPool("test")
    yield made
    await made.close()


def info_of(
    bookie: RunningBookie, lane_address: str | None = None, boot_id: str = ""
) -> dict[BookieId, BookieInfo]:
    """The bookie's registration."""
    lane = str(bookie.server.lane_address) if lane_address is None else lane_address
    return {"b0": BookieInfo("b0", bookie.address, lane_address=lane, boot_id=boot_id)}


def calls_of(pool: ChannelPool) -> BookieCalls:
    """The calls of the bookie."""
    calls = pool.calls("b0")
    assert calls is not None
    return calls


def lane_of(pool: ChannelPool) -> ReadLane:
    """The connections for reads of the bookie."""
    lane = pool._calls["b0"].lane
    assert lane is not None
    return lane


async def read(calls: BookieCalls, first: int = 0, last: int = 19, *, fence: bool = False) -> ReadAnswered:
    """Read a range."""
    return await calls.read(OF, SendRead("b0", 7, first, last, 1 << 24, fence=fence))


def is_right(answer: ReadAnswered, first: int = 0, last: int = 19) -> bool:
    """Whether all entries of the range came."""
    return answer.code is Code.OK and [entry.data for entry in answer.entries] == ENTRIES[first : last + 1]


async def test_reads_use_a_connection_one_after_the_other_and_more_side_by_side(
    bookie: RunningBookie, pool: ChannelPool
) -> None:
    pool.bookies_changed(info_of(bookie, boot_id=bookie.bookie.boot_id))
    calls = calls_of(pool)
    for first in range(5):
        assert is_right(await read(calls, first), first)
    assert read_connections(bookie) == 1
    answers = await asyncio.gather(*(read(calls, n, n + 1) for n in range(4)))
    assert all(is_right(answer, n, n + 1) for n, answer in enumerate(answers))
    assert read_connections(bookie) == 4


async def test_entries_that_somebody_holds_do_not_change_with_later_reads(
    tmp_path: Path, pool: ChannelPool
) -> None:
    """They are views of messages that are received in the same memory once nobody holds any."""
    bookie = RunningBookie(tmp_path)
    bookie.create_ledger(1)
    stream = bookie.open_stream()
    assert stream.attach(1) is Code.OK
    sent = [b"%4d" % n * 64 for n in range(4000)]
    for first in range(0, len(sent), 400):
        assert stream.add(frame_of(1, first, sent[first : first + 400])) == {}
    assert bookie.flush()
    pool.bookies_changed(info_of(bookie))
    calls = calls_of(pool)
    held = [await read(calls, first, first + 999) for first in range(0, 4000, 1000)]
    for first, answer in enumerate(held):
        assert [entry.data for entry in answer.entries] == sent[1000 * first : 1000 * first + 1000]
        payloads = payloads_of(answer.entries)
        assert isinstance(payloads, PayloadRun)
        (only,) = payloads.parts
        assert isinstance(only, memoryview), "nothing was copied"
    assert read_connections(bookie) == 1
    bookie.stop()


async def test_a_read_that_fences_and_those_beyond_the_bound_use_grpc(
    bookie: RunningBookie, pool: ChannelPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_lane, "CONNECTIONS_MAX", 2)
    pool.bookies_changed(info_of(bookie))
    calls = calls_of(pool)
    assert is_right(await read(calls, fence=True))
    assert read_connections(bookie) == 0
    answers = await asyncio.gather(*(read(calls) for _ in range(6)))
    assert all(map(is_right, answers))
    assert read_connections(bookie) <= 2


async def test_a_lane_that_is_not_reached_is_left_alone_for_a_while_and_named_once(
    bookie: RunningBookie, pool: ChannelPool, caplog: pytest.LogCaptureFixture
) -> None:
    with HeldPort() as nobody:
        pool.bookies_changed(info_of(bookie, str(nobody.address)))
        calls = calls_of(pool)
        for _ in range(3):
            assert is_right(await read(calls))
    assert sum("not reached for reads" in record.message for record in caplog.records) == 1


async def test_rule_57_another_process_is_not_read_from_over_the_lane(
    bookie: RunningBookie, pool: ChannelPool
) -> None:
    pool.bookies_changed(info_of(bookie, boot_id="another"))
    assert (await read(calls_of(pool))).code is not Code.OK
    assert eventually(lambda: read_connections(bookie) == 0)


async def test_a_connection_that_the_bookie_ended_while_it_was_idle_is_replaced(
    bookie: RunningBookie, pool: ChannelPool
) -> None:
    pool.bookies_changed(info_of(bookie))
    calls = calls_of(pool)
    assert is_right(await read(calls))
    (idle,) = lane_of(pool)._idle
    lane = bookie.server._lane
    assert lane is not None
    for connection in list(lane._reads._open):
        connection.close()
    assert is_right(await read(calls)), "the client may not know of the end yet"
    assert idle not in lane_of(pool)._idle


async def test_what_is_idle_is_closed(
    bookie: RunningBookie, pool: ChannelPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_lane, "IDLE_S", 0.05)
    pool.bookies_changed(info_of(bookie))
    assert is_right(await read(calls_of(pool)))
    assert await asyncio.to_thread(eventually, lambda: read_connections(bookie) == 0)
    assert is_right(await read(calls_of(pool)))


@pytest.mark.parametrize("end", ["cancelled", "timed out", "client closed", "bookie gone"])
async def test_a_read_that_ends_early_ends_its_connection(
    bookie: RunningBookie, pool: ChannelPool, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hang(request: pb.ReadRequest, *_: object) -> Iterator[bytes]:
        reached.set()
        assert go_on.wait(WAIT_S)
        yield from bookie.bookie.reads.read(request)

    lane = bookie.server._lane
    assert lane is not None
    monkeypatch.setattr(lane._reads, "_read", hang)
    if end == "timed out":
        monkeypatch.setattr(calls_module, "CALL_TIMEOUT_S", 1.0)  # in which the request arrives
    pool.bookies_changed(info_of(bookie))
    reading = asyncio.ensure_future(read(calls_of(pool)))
    assert await asyncio.to_thread(reached.wait, WAIT_S)
    if end == "cancelled":
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    elif end == "timed out":
        assert (await reading).code is Code.TIMEOUT
    elif end == "client closed":
        await pool.close()
        assert (await reading).code is Code.CONNECTION_LOST
    else:
        closing = asyncio.ensure_future(asyncio.to_thread(lane._reads.close))
        assert (await reading).code is Code.CONNECTION_LOST
        assert not closing.done(), "the bookie still looks at what it reads"
        go_on.set()
        await closing
        assert read_connections(bookie) == 0
    go_on.set()
    assert await asyncio.to_thread(eventually, lambda: read_connections(bookie) == 0)


async def test_reads_travel_over_tls(tmp_path: Path) -> None:
    authority = new_authority()
    files, own = authority.issue(tmp_path, "server"), authority.issue(tmp_path, "client")
    running = RunningBookie(
        tmp_path / "b0",
        credentials=server_credentials(files),
        tls_context=TlsContexts(files, server_side=True).current(),
    )
    lane = running.server.lane_address
    assert lane is not None
    fill(running, Stream(LanePipe(lane, TlsContexts(own, server_side=False).current())))
    pool = ChannelPool("test", ClientCredentials(own))
    pool.bookies_changed(info_of(running))
    try:
        assert is_right(await read(calls_of(pool)))
        assert read_connections(running) == 1
    finally:
        await pool.close()
        running.stop()
