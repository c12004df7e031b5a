"""A cluster in memory for auditors and workers: the real metadata code over `MemoryServer`, and the tests' bookies in memory.

Bookies answer at once and record what they were asked, so that a test can count copies and calls; everything between them
and the code under test (driver, machines, tasks, locks) is the real thing.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio

from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.client.driver.sink import FrameSink
from daybook.client.transport.calls import BookieCalls, HasKey
from daybook.client.transport.channels import ChannelPool
from daybook.core.bookie.ledger import LedgerRecord
from daybook.core.effects import ClearLimbo, ReadLimbo, SendFence, SendFrame, SendLacRead, SendRead
from daybook.core.errors import Code
from daybook.core.events import FenceAnswered, FrameAcked, LacAnswered, LimboCleared, LimboRead, ReadAnswered
from daybook.core.format.frame import decode_header, frame_entry_ids
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import Quorum, stripe_of
from daybook.core.reader.reader import Rank, nearness
from daybook.core.reader.suspects import Suspects
from daybook.metadata.bookies import BookieDirectory, Cookie, info_to_json
from daybook.metadata.instance import format_cluster
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.memory import MemoryServer, MemoryStore
from daybook.metadata.store.store import MetadataStore, NoNodeError
from daybook.metadata.tasks import RepairTasks
from daybook.wire import bookie_pb2 as pb
from tests.fixtures.memory_bookie import MemoryBookie, Request, failed

LAYOUT = Layout("test")
THREE = Quorum(3, 3, 2)
SETTINGS = AutoRecoverySettings(
    audit_interval_ms=50,
    full_audit_interval_ms=50,
    open_grace_ms=0,
    reads_per_second=100_000,
    bytes_per_second=0,
    retry_first_ms=20,
    stop_grace_ms=1_000,
)


class AskedBookie(MemoryBookie):
    """A bookie that records what it is asked, and that a test may stop or let others change before it answers."""

    def __init__(self, name: BookieId) -> None:
        super().__init__(name)
        self.asked: list[str] = []
        """The names of the calls that reached it."""
        self.writes: list[tuple[LedgerId, EntryId]] = []
        """The entries that were copied to it."""
        self.lies: list[pb.EntryInterval] = []
        """What it lists instead of what it has."""
        self.down = False
        self.writable = True
        self.before_answer: Callable[[str], None] = lambda _: None
        """Called with the name of each call before it is answered: what others do meanwhile."""

    def is_reached(self, name: str) -> bool:
        """Record a call; whether it is answered."""
        self.asked.append(name)
        self.before_answer(name)
        return not self.down

    @property
    def entries(self) -> dict[LedgerId, dict[EntryId, bytes]]:
        """What it holds."""
        return self.storage.entries

    @property
    def limbo(self) -> dict[LedgerId, str]:
        """The nonces of its limbo marks."""
        known = sorted(self.storage.known.items())
        return {
            ledger_id: record.limbo_nonce for ledger_id, record in known if record.limbo_nonce is not None
        }

    @property
    def fenced(self) -> set[LedgerId]:
        """The ledgers that are fenced."""
        return {ledger_id for ledger_id, record in self.storage.known.items() if record.fenced}

    def confirm(self, ledger_id: LedgerId, lac: EntryId) -> None:
        """Let it know no other LAC than `lac`."""
        record = self.storage.known.get(ledger_id, LedgerRecord(ledger_id))
        length = sum(len(payload(n)) for n in range(lac + 1))
        self.storage.known[ledger_id] = replace(record, last_add_confirmed=lac, length_at_lac=length)

    def append(self, stream: int, key: str, frame: bytes, metadata: LedgerMetadata | None) -> Code:
        code = super().append(stream, key, frame, metadata)
        if code is Code.OK:
            header = decode_header(frame)
            assert header.is_recovery, "auto-recovery writes past the fence, and says so (rule 10)"
            self.writes += [(header.ledger_id, entry) for entry in frame_entry_ids(frame, header)]
        return code


class MemoryCalls(BookieCalls):
    """Calls that a bookie in memory answers, knowing the metadata on `server`."""

    def __init__(self, bookie: AskedBookie, server: MemoryServer) -> None:
        self.bookie = bookie.name
        self.stub: Any = _Stub(bookie)
        self._asked = bookie
        self._server = server

    def answer(self, name: str, of: HasKey, request: Request) -> Any:
        """The bookie's answer, now."""
        if not self._asked.is_reached(name):
            return failed(request, Code.CONNECTION_LOST)
        return self._asked.serve(of.ledger_id, of.key, request, self._metadata(of.ledger_id))

    def _metadata(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        try:
            return LedgerMetadata.from_json(self._server.read(LAYOUT.ledger(ledger_id)).data)
        except NoNodeError:
            return None

    async def _ask(self, name: str, of: HasKey, request: Request) -> Any:
        await asyncio.sleep(0)
        return self.answer(name, of, request)

    async def read(self, of: HasKey, request: SendRead) -> ReadAnswered:
        return await self._ask("read", of, request)  # type: ignore[no-any-return]  # as the request

    async def fence(self, of: HasKey, request_id: int) -> FenceAnswered:
        return await self._ask("fence", of, SendFence(self.bookie, request_id))  # type: ignore[no-any-return]  # as the request

    async def read_lac(self, of: HasKey, request: SendLacRead) -> LacAnswered:
        return await self._ask("read_lac", of, request)  # type: ignore[no-any-return]  # as the request

    async def read_limbo(self, of: HasKey, request: ReadLimbo) -> LimboRead:
        return await self._ask("read_limbo", of, request)  # type: ignore[no-any-return]  # as the request

    async def clear_limbo(self, of: HasKey, request: ClearLimbo) -> LimboCleared:
        return await self._ask("clear_limbo", of, request)  # type: ignore[no-any-return]  # as the request


class _Stub:
    """The calls that the auditor makes itself."""

    def __init__(self, fake: AskedBookie) -> None:
        self._fake = fake

    async def _reach(self, name: str) -> None:
        await asyncio.sleep(0)
        if not self._fake.is_reached(name):
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "down"
            )

    async def entry_intervals(
        self, request: pb.EntryIntervalsRequest, **_: float
    ) -> pb.EntryIntervalsResponse:
        await self._reach("entry_intervals")
        ledger_id = request.ledger_id
        listed = IntervalSet()
        listed.add_ids(sorted(self._fake.entries.get(ledger_id, {})))
        items = [item for item in listed if item.last >= request.from_entry]
        return pb.EntryIntervalsResponse(
            intervals=self._fake.lies
            or [
                pb.EntryInterval(
                    first_entry=i.first,
                    last_entry=i.last,
                    stripe_period=i.stripe.period,
                    stripe_mask=i.stripe.mask,
                )
                for i in items[:2]
            ],
            more=len(items) > 2,  # small pages, so that every test turns them
            limbo=ledger_id in self._fake.limbo,
            damaged=sorted(self._fake.storage.damaged.get(ledger_id, ())),
            last_add_confirmed=self._fake.machine.lac(ledger_id).last_add_confirmed,
        )

    async def list_limbo(self, request: pb.ListLimboRequest, **_: float) -> pb.ListLimboResponse:
        await self._reach("list_limbo")
        marks = self._fake.limbo
        left = [i for i in marks if i > request.after_ledger]
        page = [pb.LimboLedger(ledger_id=i, nonce=marks[i]) for i in left[:2]]
        return pb.ListLimboResponse(ledgers=page, more=len(left) > 2)

    async def set_read_only(self, request: pb.SetReadOnlyRequest, **_: float) -> pb.SetReadOnlyResponse:
        await self._reach("set_read_only")
        self._fake.writable = not request.read_only
        return pb.SetReadOnlyResponse(writable=self._fake.writable)


class MemoryChannels(ChannelPool):
    """Leads to bookies in memory, as far as they are registered."""

    def __init__(self, server: MemoryServer, fakes: Mapping[BookieId, AskedBookie]) -> None:
        super().__init__("test")
        self._answering = {name: MemoryCalls(fake, server) for name, fake in fakes.items()}

    def calls(self, bookie: BookieId) -> BookieCalls | None:
        return self._answering[bookie] if bookie in self._bookies else None

    def send_frame(self, bookie: BookieId, sink: FrameSink, send_id: int, frame: bytes) -> None:
        request = SendFrame(bookie, send_id, frame)

        def answer() -> None:
            answered = self._answering[bookie].answer("frame", sink, request)
            if isinstance(answered, FrameAcked) and bookie in self._bookies:
                sink.frame_acked(bookie, send_id, answered.boot_id)
            else:
                sink.frame_failed(bookie, send_id, Code.CONNECTION_LOST)

        asyncio.get_running_loop().call_soon(answer)

    def forget(self, sink: FrameSink) -> None:
        pass


class FakeCluster:
    """What a client is to auditors and workers; several may share a server and its bookies."""

    def __init__(self, server: MemoryServer, fakes: Mapping[BookieId, AskedBookie], **session: float) -> None:
        self.server = server
        self.fakes = fakes
        self.memory = MemoryStore(server, **session)
        self.store: MetadataStore = self.memory
        self.layout = LAYOUT
        self.ledgers = LedgerManager(self.store, LAYOUT)
        self.directory = BookieDirectory(self.store, LAYOUT)
        self.tasks = RepairTasks(self.store, LAYOUT)
        self.channels = MemoryChannels(server, fakes)
        self.rng = random.Random(1)
        self.suspects = Suspects()
        self.racks: dict[BookieId, str] = {}
        """Where bookies stand that are registered from now on; each in a rack of its own, otherwise."""
        self._seen: Mapping[BookieId, BookieInfo] = {}

    def bookies(self) -> Mapping[BookieId, BookieInfo]:
        return self._seen

    def rank(self) -> Rank:
        return nearness("", "", self._seen)

    @contextmanager
    def another(self, **session: float) -> Iterator["FakeCluster"]:
        """A second client of the same cluster, with a session of its own."""
        yield FakeCluster(self.server, self.fakes, **session)

    # What a test does to the cluster.

    async def register(self, *names: BookieId, boot_id: str = "") -> None:
        """These bookies are there (again)."""
        for name in names:
            rack = self.racks.get(name, f"rack-{name}")
            info = BookieInfo(name, address=f"{name}:1", rack=rack, boot_id=boot_id)
            writable = self.fakes[name].writable
            path = LAYOUT.registration(name, writable=writable)
            await self.store.create(path, info_to_json(info), parents=True)
            if await self.directory.cookie(name) is None:
                cookie = Cookie(name, "i", "1", ())
                await self.store.multi(self.directory.stamping(cookie, over=None, leave=None))
        await self.refresh()

    async def unregister(self, *names: BookieId) -> None:
        """These bookies are gone from the lists."""
        for name in names:
            for writable in (True, False):
                try:
                    await self.store.delete(LAYOUT.registration(name, writable=writable))
                except NoNodeError:
                    continue
        await self.refresh()

    async def refresh(self) -> None:
        """Know who is there, as a client's watch would."""
        self._seen = await self.directory.bookies()
        self.channels.bookies_changed(self._seen)

    async def ledger(
        self,
        *bookies: BookieId,
        entries: int = 10,
        quorum: Quorum = THREE,
        closed: bool = True,
        then: tuple[tuple[EntryId, tuple[BookieId, ...]], ...] = (),
        without: Mapping[BookieId, set[EntryId]] | None = None,
    ) -> LedgerId:
        """A ledger with its entries on its bookies, but for those they are `without`.

        Its first fragment is on `bookies`; `then` gives first entry and bookies of those that follow.
        """
        lengths = [len(payload(n)) for n in range(entries)]
        fragments = [Fragment(first, sum(lengths[:first]), names) for first, names in ((0, bookies), *then)]

        def make(ledger_id: LedgerId) -> LedgerMetadata:
            metadata = LedgerMetadata(
                ledger_id, quorum, tuple(fragments), password_hash="00$key", writer_token="w"
            )
            return metadata.closed(entries - 1, sum(lengths)) if closed else metadata

        created = await self.ledgers.create_ledger(make)
        ledger_id = created.value.ledger_id
        ends = [fragment.first_entry for fragment in fragments[1:]] + [entries]
        for fragment, end in zip(fragments, ends, strict=True):
            for position, name in enumerate(fragment.bookies):
                stripe, lacking = stripe_of(quorum, position), (without or {}).get(name, set())
                held = self.fakes[name].entries.setdefault(ledger_id, {})
                wanted = (n for n in range(fragment.first_entry, end) if stripe.holds(n) and n not in lacking)
                held.update({n: payload(n) for n in wanted})
                self.fakes[name].confirm(ledger_id, entries - 1)
        return ledger_id

    async def is_whole(self, ledger_id: LedgerId) -> bool:
        """Whether every bookie that metadata names has every byte of what it owes."""
        metadata = (await self.ledgers.read(ledger_id)).value
        for fragment_index, fragment in enumerate(metadata.fragments):
            end = metadata.fragment_end(fragment_index)
            assert end is not None
            for position, name in enumerate(fragment.bookies):
                stripe = stripe_of(metadata.quorum, position)
                fake = self.fakes[name]
                for n in range(fragment.first_entry, end + 1):
                    if stripe.holds(n) and fake.entries.get(ledger_id, {}).get(n) != payload(n):
                        return False
                if fake.storage.damaged.get(ledger_id):
                    return False
        return True

    async def task_ids(self) -> list[LedgerId]:
        """The ledgers that have a task."""
        return [ledger_id async for ledger_id in self.tasks.ids()]

    def copies(self) -> int:
        """Entries that were copied to any bookie."""
        return sum(len(fake.writes) for fake in self.fakes.values())


def payload(entry_id: EntryId) -> bytes:
    """What an entry holds."""
    return b"entry %d " % entry_id * (entry_id % 7)


async def small_cluster(number: int = 5) -> FakeCluster:
    """Registered bookies b1, b2, …; nothing is lost before it is away for an hour."""
    fakes = {f"b{n}": AskedBookie(f"b{n}") for n in range(1, number + 1)}
    cluster = FakeCluster(MemoryServer(), fakes)
    await format_cluster(cluster.store, LAYOUT, created_at_ms=0)
    await cluster.tasks.set_lost_bookie_delay_s(3600)
    await cluster.register(*fakes)
    return cluster


async def until(condition: Callable[[], bool]) -> None:
    """Let others run until `condition` holds; the test's own time limit ends it otherwise."""
    while not condition():  # noqa: ASYNC110 - what is waited for is any state of the fakes
        await asyncio.sleep(0)
