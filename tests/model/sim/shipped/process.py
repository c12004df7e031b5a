"""A process of what ships: its loop, its connections, and what the rest of the simulator asks of any client.

It crashes as a process does: what it had under way is lost, and only its servers still know of it. It pauses as a
process does: everything that comes meanwhile waits, and its clock has gone on.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import grpc

from daybook.client.client import Client
from daybook.core.bookie.ledger import Purpose
from daybook.core.errors import Code
from daybook.core.ids import LedgerId
from daybook.core.stream import StreamAnswer
from daybook.core.writer.policy import WriterPolicy
from daybook.metadata.store.resolving import ResolvingStore
from daybook.metadata.store.store import MetadataStore
from tests.model.sim.client_process import ClientProcess
from tests.model.sim.metadata_model import Session
from tests.model.sim.network import Stream
from tests.model.sim.shipped.append_call import AppendCall
from tests.model.sim.shipped.channel import SimChannel
from tests.model.sim.shipped.connection import SimTransport
from tests.model.sim.shipped.loop import SimLoop
from tests.model.sim.shipped.zookeeper import LAYOUT, TreeStore

if TYPE_CHECKING:
    from tests.model.sim.cluster import Cluster


class ShippedProcess(ClientProcess):
    """One process; `work` is what it does from its start to its end."""

    ledger_id: LedgerId = -1
    client_class: type[Client] = Client

    def __init__(self, cluster: "Cluster", name: str) -> None:
        super().__init__(cluster.world, name)
        assert isinstance(cluster.store, TreeStore)
        self.cluster = cluster
        self.store = cluster.store
        self.loop = SimLoop(self)
        self.streams: dict[int, AppendCall] = {}
        self.done = False
        self.winding_up = asyncio.Event()
        """Set once nothing goes wrong any more: what is begun is brought to its end, and nothing else begun."""
        self.given: set[LedgerId] = set()
        """The ledgers that its users got as their creations."""
        self.is_unsure = False
        """One of them got the error that a creation has no known outcome."""
        self.channel_rng = self.world.rng(f"{name}/channels")
        self._transport: SimTransport | None = None
        self._nobody = Session(-1, self)
        cluster.add_client(self)

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin."""
        self.note("starts, as it ships")
        self._main = self.loop.create_task(self._live(work))

    async def _live(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await self.watched(work())
        self.note("ends in order")
        self.done = True

    async def watched(self, work: Coroutine[Any, Any, None]) -> None:
        """Let `work` end the run at once if it ends with an error, whatever its neighbours are at."""
        try:
            await work
        except Exception as error:
            first: BaseException = error
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            self.loop.failed = self.loop.failed or first
            raise

    # What production is given in the place of sockets

    def client(self, policy: WriterPolicy | None = None) -> Client:
        """A client of the cluster, as `daybook.client.connecting.connect` makes it."""
        return self.client_class(
            self.open_store,
            cluster=LAYOUT.cluster,
            placement=self.cluster.placement,
            writer_policy=policy or WriterPolicy(),
            credentials=lambda: None,
            zone="",
            rack="",
            name=self.name,
            open_channel=self._open_channel,
        )

    async def open_store(self) -> MetadataStore:
        """A connected store."""
        self._transport = SimTransport(self, self.store)
        await self._transport.open()
        return ResolvingStore(self._transport)

    def _open_channel(
        self, address: str, _credentials: grpc.ChannelCredentials | None, _server_name: str | None
    ) -> SimChannel:
        return SimChannel(self, address)

    # Streams

    def attached(self, stream: Stream, ledger_id: LedgerId, purpose: Purpose, code: Code) -> None:
        """A bookie answers on a stream."""
        if call := self.streams.get(stream.number):
            call.attached(ledger_id, purpose, code)

    def answered(self, stream: Stream, answer: StreamAnswer, _boot_id: str) -> None:
        """A bookie answers on a stream."""
        if call := self.streams.get(stream.number):
            call.answered(answer)

    def stream_lost(self, stream: Stream) -> None:
        """A stream broke."""
        if call := self.streams.get(stream.number):
            call.lost()

    # What the simulator asks of a client

    def session_now(self) -> Session:
        """Its present session at ZooKeeper."""
        transport = self._transport
        return (transport and transport.server_session) or self._nobody

    def wind_up(self) -> None:
        """Bring to an end what is begun."""
        self.winding_up.set()

    def crash(self) -> None:
        """The process dies; hosts reset its connections, and its session expires by silence."""
        self.note("crashes")
        self.done = True
        self.stop()
        for number in list(self.streams):
            self.streams[number].end()
        self.loop.detach()
