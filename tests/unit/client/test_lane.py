"""A client's append streams: over the bookie's lane where it is reached, over gRPC where it is not."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest

from daybook.client.transport import channels
from daybook.client.transport.channels import ChannelPool
from daybook.core.ids import BookieId
from daybook.core.placement.policy import BookieInfo
from daybook.runtime.ports import HeldPort
from tests.unit.bookie.server_kit import RunningBookie, eventually, frame_of
from tests.unit.bookie.stream_kit import KEY
from tests.unit.client.sink_kit import RecordingSink


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[RunningBookie]:
    """A bookie with the open ledger 1."""
    running = RunningBookie(tmp_path)
    running.create_ledger(1)
    yield running
    running.stop()


@pytest.fixture
async def pool() -> AsyncIterator[ChannelPool]:
    """A client's channels."""
    made = ChannelPool("test")
    yield made
    await made.close()


def info_of(bookie: RunningBookie, lane_address: str | None = None) -> dict[BookieId, BookieInfo]:
    """The bookie's registration."""
    lane = str(bookie.server.lane_address) if lane_address is None else lane_address
    return {"b0": BookieInfo("b0", bookie.address, lane_address=lane)}


async def append(pool: ChannelPool, entry: int) -> tuple[object, ...]:
    """What becomes of a frame."""
    sink = RecordingSink(key=KEY)
    pool.send_frame("b0", sink, entry, frame_of(1, entry, [b"x"]))
    return await sink.events.get()


async def has_lanes(count: int) -> bool:
    """Whether so many connections of lanes are left in this process, once those of other tests have ended."""

    def is_so() -> bool:
        return sum(thread.name == "lane-read" for thread in threading.enumerate()) == count

    return await asyncio.to_thread(eventually, is_so)


async def test_streams_use_the_lane(bookie: RunningBookie, pool: ChannelPool) -> None:
    pool.bookies_changed(info_of(bookie))
    assert await append(pool, 0) == (0, bookie.bookie.boot_id)
    assert await has_lanes(1)
    assert [entry.data for entry in bookie.read(1, 0, 9)[1]] == [b"x"]


async def test_a_lane_that_is_not_reached_is_left_alone_for_a_while_and_named_once(
    bookie: RunningBookie, pool: ChannelPool, caplog: pytest.LogCaptureFixture
) -> None:
    with HeldPort() as nobody:
        pool.bookies_changed(info_of(bookie, str(nobody.address)))
        for entry in range(2):
            assert await append(pool, entry) == (entry, bookie.bookie.boot_id)
            await pool.streams["b0"].close()
    assert await has_lanes(0)
    assert sum("lane is not reached" in record.message for record in caplog.records) == 1


async def test_credentials_of_grpc_alone_keep_a_client_off_the_lane(bookie: RunningBookie) -> None:
    pool = ChannelPool("test", lambda: grpc.local_channel_credentials(grpc.LocalConnectionType.LOCAL_TCP))
    pool.bookies_changed(info_of(bookie))
    opened: list[str] = []

    async def never(*arguments: object) -> None:
        opened.append(str(arguments))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channels, "lane_link", never)
        assert await append(pool, 0) == (0, bookie.bookie.boot_id)
    assert not opened
    await pool.close()


async def test_another_bookies_lane_is_not_used(
    bookie: RunningBookie, tmp_path: Path, pool: ChannelPool
) -> None:
    other = RunningBookie(tmp_path / "other", bookie_id="b9")
    try:
        pool.bookies_changed(info_of(bookie, str(other.server.lane_address)))
        assert await append(pool, 0) == (0, bookie.bookie.boot_id)
        assert await asyncio.to_thread(eventually, lambda: other.bookie.streams.count == 0)
    finally:
        other.stop()


async def test_a_lane_that_moved_by_a_restart_is_found_in_the_registration(
    bookie: RunningBookie, pool: ChannelPool
) -> None:
    async def registered(_: BookieId) -> BookieInfo:
        return info_of(bookie)["b0"]

    with HeldPort() as nobody:
        pool.bookies_changed(info_of(bookie, str(nobody.address)))
        pool.read_registration = registered
        assert await append(pool, 0) == (0, bookie.bookie.boot_id)
    assert await has_lanes(1)
