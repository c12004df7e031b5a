"""A writer's handle with bookies that a test plays by hand: nothing is sent, and answers come when the test says so."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from daybook.client.driver.shared import Shared
from daybook.client.driver.sink import FrameSink
from daybook.client.driver.timers import Timers
from daybook.client.ledger import Ledger
from daybook.client.transport.channels import ChannelPool
from daybook.core.ids import BookieId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import Quorum
from daybook.core.reader.reader import Rank
from daybook.core.reader.suspects import Suspects
from daybook.core.writer.policy import WriterPolicy
from daybook.core.writer.writer import LedgerWriter
from daybook.metadata.instance import ensure_cluster
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.memory import MemoryServer, MemoryStore


@dataclass
class Surroundings:
    """What a handle needs around it."""

    channels: ChannelPool
    ledgers: LedgerManager
    known: Mapping[BookieId, BookieInfo]
    suspects: Suspects = field(default_factory=Suspects)

    def bookies(self) -> Mapping[BookieId, BookieInfo]:
        return self.known

    def rank(self) -> Rank:
        return lambda _: 0


class SilentBookies(ChannelPool):
    """Keeps what is sent; a test answers it."""

    def __init__(self, timers: Timers) -> None:
        super().__init__("test")
        self.timers = timers
        self.sent: list[tuple[BookieId, FrameSink, int]] = []
        self.published: list[BookieId] = []

    def send_frame(self, bookie: BookieId, sink: FrameSink, send_id: int, frame: bytes) -> None:
        self.sent.append((bookie, sink, send_id))

    def publish_lac(self, bookie: BookieId, sink: FrameSink, row: bytes) -> None:
        self.published.append(bookie)

    def acknowledge(self) -> None:
        """Everything that was sent so far."""
        sent, self.sent = self.sent, []
        for bookie, sink, send_id in sent:
            sink.frame_acked(bookie, send_id, "boot")


@asynccontextmanager
async def open_handle(
    *,
    explicit_ids: bool = False,
    policy: WriterPolicy | None = None,
    shared: Shared | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Ledger, SilentBookies]]:
    """A handle on a ledger of three bookies; `settings` are the handle's own."""
    store = MemoryStore(MemoryServer())
    layout = Layout("test")
    await ensure_cluster(store, layout, created_at_ms=0)
    manager = LedgerManager(store, layout)
    names = ("b0", "b1", "b2")
    created = await manager.create_ledger(
        lambda number: LedgerMetadata(
            number, Quorum(3, 3, 2), (Fragment(0, 0, names),), writer_token="token", password_hash="h"
        )
    )
    infos = {name: BookieInfo(name, "nowhere:1") for name in names}
    writer = LedgerWriter(
        created.value,
        created.version,
        placement=make_policy(),
        rng=random.Random(1),
        bookies=infos,
        explicit_ids=explicit_ids,
        policy=policy or WriterPolicy(),
    )
    shared = shared or Shared(0)
    bookies = SilentBookies(shared.timers)
    ended: list[Ledger] = []
    ledger = Ledger(
        writer,
        "h",
        surroundings=Surroundings(bookies, manager, infos),
        on_end=ended.append,
        on_quarantine=lambda *_: None,
        shared=shared,
        **settings,
    )
    try:
        yield ledger, bookies
    finally:
        await ledger.abandon()
        await store.close()


async def turns(count: int = 5) -> None:
    """Let everything that is ready happen."""
    for _ in range(count):
        await asyncio.sleep(0)
