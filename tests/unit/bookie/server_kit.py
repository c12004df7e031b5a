"""A whole bookie in this process, with real sockets and files, over a metadata store in memory; and a plain client."""

import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any, Self

import grpc
import pytest
from daybook_bookie.bookie import Bookie
from daybook_bookie.disk.watch import Usage
from daybook_bookie.identity.boot import open_storage
from daybook_bookie.identity.metadata_link import MetadataLink
from daybook_bookie.journal.format import Position
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.server import BookieServer
from daybook_bookie.settings import BookieSettings
from prometheus_client import CollectorRegistry

from daybook.core.bookie.life import BookieLife
from daybook.core.errors import Code
from daybook.core.format.checksums import entry_crcs
from daybook.core.format.entries import Entry, decode_entries
from daybook.core.format.frame import encode_frame, split_message
from daybook.core.ledger.metadata import Fragment, LedgerMetadata, LedgerState
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import DENSE, Quorum, Stripe
from daybook.metadata.instance import ensure_cluster
from daybook.metadata.layout import Layout
from daybook.metadata.store.memory import MemoryServer, MemoryStore
from daybook.metadata.store.store import Versioned
from daybook.runtime.ports import Address
from daybook.wire import bookie_pb2 as pb
from daybook.wire.channel import open_channel
from daybook.wire.messages import ReadHeader, decode_read
from daybook.wire.service import BookieStub
from tests.unit.bookie.stream_kit import KEY, WAIT_S, GrpcPipe, LanePipe, LaneReader, Stream

MIB = 1024 * 1024
ROOMY = [Usage("journal", 100, 90), Usage("store", 100, 90)]


def settings_for(directory: Path, **changes: Any) -> BookieSettings:
    """Settings of a small bookie under `directory`; nothing happens by itself unless a test asks for it."""
    values: dict[str, Any] = {
        "bookie_id": "b0",
        "zookeeper": "memory",
        "cluster": "test",
        "journal_dir": directory / "journal",
        "store_dir": directory / "store",
        "journal_file_bytes": 32 * MIB,
        "store_map_bytes": 256 * MIB,
        "write_cache_bytes": 32 * MIB,
        "flush_bytes": 16 * MIB,
        "flush_interval_ms": 3_600_000,
        "gc_interval_ms": 3_600_000,
        "scrub_interval_ms": 3_600_000,
        "streams_max": 8,
        "drain_ms": 500,
    }
    return BookieSettings(**{**values, **changes})


def formatted_store(server: MemoryServer) -> Callable[[], Any]:
    """Opens a store of its own on `server`, in a cluster that is there."""

    async def open_store() -> MemoryStore:
        store = MemoryStore(server, operation_timeout_s=1.0)
        await ensure_cluster(store, Layout("test"), created_at_ms=0)
        return store

    return open_store


def eventually(condition: Callable[[], bool], patience_s: float = WAIT_S) -> bool:
    """Whether `condition` comes to hold in time, for what tells nobody that it happened."""
    deadline = monotonic() + patience_s
    pause = threading.Event()
    while not condition():
        if monotonic() > deadline:
            return False
        pause.wait(0.01)
    return True


class RunningBookie:
    """A bookie that serves; `stop` or `crash` ends it, `restart` starts it again on the same directories."""

    def __init__(
        self,
        directory: Path,
        server: MemoryServer | None = None,
        *,
        usages: list[Usage] | None = None,
        credentials: grpc.ServerCredentials | None = None,
        tls_context: ssl.SSLContext | None = None,
        over: str = "grpc",
        **changes: Any,
    ) -> None:
        """Start. `usages`: what the disk watch sees. `over`: what append streams use, gRPC or the lane."""
        self.directory = directory
        self.metadata = server or MemoryServer()
        self.usages = usages or ROOMY
        self.failures: list[str] = []
        self.failed = threading.Event()
        self._changes = changes
        self._credentials = credentials
        self._tls_context = None if tls_context is None else lambda: tls_context
        self._over = over
        self._runs = False
        for name in ("journal", "store"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        self._start()

    def flush(self) -> bool:
        """Whether the store thread has stored, in time, all that is cached now and removed what was deleted.

        Two whole cycles pass: the one under way may have begun before the newest frame came.
        """
        refusals, wanted = self.bookie.table.machine.refusals, self.bookie.table.flush_wanted
        stored, done, left = refusals.stored, threading.Event(), 3

        def count(refused: int) -> None:
            nonlocal left
            stored(refused)
            left -= 1
            (wanted if left > 0 else done).set()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(refusals, "stored", count)
            wanted.set()
            return done.wait(WAIT_S)

    def _start(self) -> None:
        settings = settings_for(self.directory, **self._changes)
        self.link = MetadataLink(formatted_store(self.metadata), settings.cluster, settings.bookie_id)
        try:
            life = BookieLife(settings.bookie_id)
            storage = open_storage(settings, self.link, life)
        except BaseException:
            self.link.close()
            raise
        self.registry = CollectorRegistry()
        self.bookie = Bookie(
            settings,
            storage,
            self.link,
            BookieMetrics(self.registry),
            life=life,
            on_end=self._on_end,
            look_at_space=lambda: self.usages,
        )
        self.server = BookieServer(
            self.bookie,
            Address("127.0.0.1", 0),
            self._credentials,
            lane=Address("127.0.0.1", 0),
            tls_context=self._tls_context,
        )
        self.bookie.start()
        self.server.start()
        self._runs = True
        self.address = str(self.server.address)
        self.channel = open_channel(self.address)
        self.stub = BookieStub(self.channel)

    def _on_end(self, reason: str) -> None:
        self.failures.append(reason)
        self.failed.set()

    def register(self) -> None:
        """Register, and wait for it."""
        done = threading.Event()
        self.bookie.register(BookieInfo("b0", self.address), done.set)
        assert done.wait(WAIT_S)

    def stop(self) -> None:
        """Stop gracefully, if it runs."""
        if not self._runs:
            return
        self._runs = False
        self.channel.close()
        self.link.unregister()
        self.server.stop(0.5)
        self.bookie.stop()

    def restart(self) -> None:
        """Stop and start again."""
        self.stop()
        self._start()

    # Metadata

    def create_ledger(
        self,
        ledger_id: int = 1,
        *,
        state: LedgerState = LedgerState.OPEN,
        bookies: Sequence[str] = ("b0",),
        key: str = KEY,
    ) -> None:
        """Put a ledger into the metadata."""

        filler = tuple(f"elsewhere-{n}" for n in range(len(bookies)))  # ids are given out in order

        async def create() -> None:
            manager = self.link.ledgers
            while True:
                made: Versioned[LedgerMetadata] = await manager.create_ledger(
                    lambda number: LedgerMetadata(
                        number,
                        Quorum(len(bookies), len(bookies), 1),
                        (Fragment(0, 0, tuple(bookies) if number == ledger_id else filler),),
                        state,
                        password_hash=key,
                    )
                )
                if made.value.ledger_id >= ledger_id:
                    assert made.value.ledger_id == ledger_id
                    return

        self.link.run(create())

    def delete_ledger(self, ledger_id: int) -> None:
        """Take it out again."""

        async def delete() -> None:
            current = await self.link.ledgers.read(ledger_id)
            await self.link.ledgers.delete(ledger_id, current.version)

        self.link.run(delete())

    # Calls

    def open_stream(self) -> "Stream":
        """A new append stream, past its hello."""
        if self._over == "grpc":
            return Stream(GrpcPipe(self.stub))
        assert self.server.lane_address is not None
        return Stream(LanePipe(self.server.lane_address))

    def read(
        self,
        ledger_id: int,
        first: int,
        last: int,
        *,
        key: str = KEY,
        fence: bool = False,
        bytes_max: int = MIB,
    ) -> tuple[ReadHeader, list[Entry], list[int]]:
        """The last header, the entries of first … last, and the damaged ids of a read."""
        request = pb.ReadRequest(
            ledger_id=ledger_id, first_entry=first, last_entry=last, bytes_max=bytes_max, key=key, fence=fence
        )
        entries: list[Entry] = []
        damaged: list[int] = []
        header = ReadHeader(Code.UNAVAILABLE)
        for message in self._read_messages(request):
            header, frames = decode_read(message)
            damaged += [entry for a, b in header.damaged for entry in range(a, b + 1)]
            for frame, offset in split_message(frames):
                good, bad = decode_entries(frames, frame, offset)
                entries += good
                damaged += bad
        return header, [entry for entry in entries if first <= entry.entry_id <= last], damaged

    def _read_messages(self, request: pb.ReadRequest) -> Iterator[bytes | bytearray]:
        """The messages of an answer; a read that fences goes over gRPC."""
        if self._over == "grpc" or request.fence:
            yield from self.stub.read(request, timeout=WAIT_S)
        else:
            assert self.server.lane_address is not None
            with closing(LaneReader(self.server.lane_address)) as reader:
                yield from reader.read(request)

    def fence(self, ledger_id: int, key: str = KEY) -> pb.FenceResponse:
        """Fence a ledger."""
        answer: pb.FenceResponse = self.stub.fence(
            pb.FenceRequest(ledger_id=ledger_id, key=key), timeout=WAIT_S
        )
        return answer

    def metric(self, name: str, **labels: str) -> float:
        """A sample's value; 0 if there is none yet."""
        return self.registry.get_sample_value(f"daybook_bookie_{name}", labels) or 0.0


class StalledJournal:
    """While it is entered, no sync of the journal ends. `reached` is set once one has begun."""

    def __init__(self, running: RunningBookie) -> None:
        """Of this bookie."""
        self._journal = running.bookie.storage.journal
        self._sync = self._journal.sync
        self._release = threading.Event()
        self.reached = threading.Event()

    def __enter__(self) -> Self:
        """Stall it."""
        self._journal.sync = self._wait  # type: ignore[method-assign]  # a disk that hangs
        return self

    def __exit__(self, *_: object) -> None:
        """Let it go on."""
        self._journal.sync = self._sync  # type: ignore[method-assign]  # see above
        self._release.set()

    def _wait(self) -> Position:
        self.reached.set()
        assert self._release.wait(WAIT_S)
        return self._sync()


READ_ALL = pb.ReadRequest(ledger_id=1, first_entry=0, last_entry=99, bytes_max=1 << 30, key=KEY)
READ_ONE = pb.ReadRequest(ledger_id=1, first_entry=0, last_entry=0, bytes_max=1, key=KEY)
"""Of a bookie that is `filled`: everything at once, and its first entry."""


def filled(bookie: RunningBookie) -> RunningBookie:
    """With 12 MiB in ledger 1: more than flow control, or the kernel, takes for a client that does not read."""
    bookie.create_ledger(1)
    stream = bookie.open_stream()
    assert stream.attach(1) is Code.OK
    for first in range(30):
        assert stream.add(frame_of(1, first, [bytes(400_000)])) == {}
    stream.close()
    return bookie


def read_connections(bookie: RunningBookie) -> int:
    """How many connections of the lane for reads the bookie has."""
    lane = bookie.server._lane
    assert lane is not None
    return lane._reads.count


OVER_BOTH = pytest.mark.parametrize("over", ["grpc", "lane"], indirect=True)
"""For tests of append streams: each runs over gRPC and over the lane."""


def frame_of(
    ledger_id: int,
    first: int,
    payloads: Sequence[bytes],
    *,
    lac: int = -1,
    length: int = 0,
    flags: int = 0,
    stripe: Stripe = DENSE,
    entry_ids: Sequence[int] | None = None,
) -> bytes:
    """A frame as a writer makes it."""
    ids = entry_ids or range(first, first + len(payloads))
    return encode_frame(
        ledger_id,
        first,
        payloads,
        entry_crcs(ledger_id, ids, payloads),
        last_add_confirmed=lac,
        length_at_lac=length,
        flags=flags,
        stripe=stripe,
        entry_ids=entry_ids,
    )
