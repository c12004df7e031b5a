"""What happens to a bookie's disks and to its session: lost, copied, restored, cut off; and a replacement of it."""

import asyncio
import shutil
from pathlib import Path

from daybook.core.errors import Code
from daybook.metadata.bookies import BookieDirectory
from daybook.metadata.layout import Layout
from daybook.metadata.store.memory import MemoryServer, MemoryStore, MemoryTransport
from daybook.wire import bookie_pb2 as pb
from tests.unit.bookie.server_kit import RunningBookie, frame_of
from tests.unit.bookie.stream_kit import WAIT_S

DIRECTORIES = ("journal", "store")


def fill(bookie: RunningBookie) -> None:
    """Ledger 1 with two entries."""
    stream = bookie.open_stream()
    assert stream.attach(1) is Code.OK
    assert stream.add(frame_of(1, 0, [b"a", b"b"], lac=-1)) == {}


def limbo_of(bookie: RunningBookie) -> list[int]:
    """The ledgers that it does not vouch for."""
    marks = bookie.stub.list_limbo(pb.ListLimboRequest(after_ledger=-1), timeout=WAIT_S).ledgers
    return [mark.ledger_id for mark in marks]


def authorise(server: MemoryServer) -> None:
    """Let bookie b0 be replaced, as an administrator does who takes the old process for dead."""

    async def work() -> None:
        store = MemoryStore(server)
        await BookieDirectory(store, Layout("test")).authorise_replacement("b0", by="test", now_ms=0)
        await store.close()

    asyncio.run(work())


# -- disks


def wipe(bookie: RunningBookie, *names: str) -> None:
    """Lose disks of a stopped bookie, all of them by default."""
    for name in names or DIRECTORIES:
        shutil.rmtree(bookie.directory / name)
        (bookie.directory / name).mkdir()


def replaceable(bookie: RunningBookie) -> RunningBookie:
    """The bookie after it served two entries of ledger 1, stopped and lost its disks; a replacement is authorised."""
    fill(bookie)
    bookie.stop()
    authorise(bookie.metadata)
    wipe(bookie)
    return bookie


def snapshot(bookie: RunningBookie, into: Path) -> None:
    """Copy the directories of a bookie as they are."""
    for name in DIRECTORIES:
        shutil.copytree(bookie.directory / name, into / name)


def restore(bookie: RunningBookie, source: Path, *names: str) -> None:
    """Replace directories of a stopped bookie by their copies."""
    for name in names or DIRECTORIES:
        shutil.rmtree(bookie.directory / name)
        shutil.copytree(source / name, bookie.directory / name)


# -- sessions


def _transport_of(bookie: RunningBookie) -> MemoryTransport:
    transport = bookie.link.store._transport  # type: ignore[attr-defined]  # a ResolvingStore's
    assert isinstance(transport, MemoryTransport)
    return transport


def cut_off(bookie: RunningBookie) -> None:
    """The bookie no longer reaches the metadata server, which ends its session."""

    async def cut() -> None:
        _transport_of(bookie).connection_changed(connected=False)
        bookie.metadata.end_session(_transport_of(bookie).session.session_id)

    bookie.link.run(cut())


def let_back(bookie: RunningBookie) -> None:
    """The bookie reaches the metadata server again, and learns that its session expired."""

    async def back() -> None:
        _transport_of(bookie).session_expired()
        _transport_of(bookie).connection_changed(connected=True)

    bookie.link.run(back())
