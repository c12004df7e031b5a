"""Every bookie this client talks to: where each is now, its append stream and its calls."""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Final, NamedTuple, Protocol, runtime_checkable

import grpc

from daybook.client.driver.flush_queue import FlushQueue
from daybook.client.driver.sink import AttachKey, FrameSink
from daybook.client.transport.calls import BookieCalls
from daybook.client.transport.connection_errors import ConnectionErrors
from daybook.client.transport.endpoint import endpoint
from daybook.client.transport.frame_sender import FrameSender
from daybook.client.transport.lane import LaneLink, lane_link, open_lane
from daybook.client.transport.link import AppendLink, LinkOwner, grpc_link
from daybook.client.transport.read_lane import ReadLane
from daybook.client.transport.round_trips import RoundTrips
from daybook.core.errors import Code, DaybookError
from daybook.core.ids import BookieId, LedgerId
from daybook.core.placement.policy import BookieInfo
from daybook.core.stream import StreamError
from daybook.runtime.logs import get_logger
from daybook.wire.channel import open_aio_channel
from daybook.wire.lane import READ_PREFACE
from daybook.wire.service import AioChannel, OpenChannel

RETIRE_GRACE_S: Final = 120.0
"""How long a channel that was replaced may still be used by who has it; above the longest poll."""
CONFIRM_TIMEOUT_S: Final = 5.0
"""How long the metadata store may take to say which process a bookie is."""
RENEWAL_PAUSE_S: Final = 1.0
"""How long a channel is used at least before other credentials replace it. Without it a source that returns new credentials at
every call would open a channel for each, and all of them would stay open for the grace."""

LANE_PAUSE_S: Final = 60.0
"""How long append streams use gRPC after the bookie's lane was not reached."""

log = get_logger(__name__)


@runtime_checkable
class HasSslContext(Protocol):
    """Credentials that also serve connections without gRPC: `daybook.runtime.tls.ClientCredentials`."""

    def ssl_context(self) -> ssl.SSLContext:
        """What such a connection is opened with now."""


class _Open(NamedTuple):
    """A channel for calls, and what it was opened with."""

    address: str
    boot_id: str
    credentials: grpc.ChannelCredentials | None
    opened_s: float
    channel: AioChannel
    calls: BookieCalls
    lane: ReadLane | None


class ChannelPool:
    """Channels to bookies by id, opened when first needed.

    `credentials` is asked for each connection, so that renewed certificates are used without a restart: new calls
    leave a channel of the old ones, which is closed when its calls have had the time to end. An append stream under way
    continues, as the bookie's side of it does; it has a channel of its own, and the next stream takes the new certificates.
    While `credentials` raises, for example in the middle of a rotation, open channels stay in use, and the client does not
    reach a bookie that has none.
    """

    def __init__(
        self,
        client_name: str,
        credentials: Callable[[], grpc.ChannelCredentials | None] = lambda: None,
        open_channel: OpenChannel = open_aio_channel,
    ) -> None:
        """Know no bookie yet."""
        self._open_channel = open_channel
        self._client_name = client_name
        self._credentials = credentials
        self._bookies: Mapping[BookieId, BookieInfo] = {}
        self.read_registration: Callable[[BookieId], Awaitable[BookieInfo | None]] = self._as_known
        """How to ask the metadata store, once there is one."""
        self.streams: Final[dict[BookieId, FrameSender]] = {}
        """The append streams that were opened, by bookie. Drivers hold it too: one that finds a stream needs no `send_frame`."""
        self._users: Counter[AttachKey] = Counter()
        """How many machines write with an attachment, or may."""
        self._calls: dict[BookieId, _Open] = {}
        self._closed = asyncio.Event()
        self.connection_errors = ConnectionErrors()
        self.round_trips = RoundTrips()
        self.unsealed = FlushQueue(self._is_idle, self._attaching)
        """The writers of this client that have entries to seal."""
        self._avoided_lanes: set[BookieId] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._why_no_credentials = ""

    def bookies_changed(self, bookies: Mapping[BookieId, BookieInfo]) -> None:
        """Where the registered bookies are now. One that vanished keeps its channels: it may serve on (rule 46)."""
        self._bookies = {**self._bookies, **bookies}
        for name, info in bookies.items():
            if name in self.streams and info.boot_id:
                self.streams[name].registered_as(info.boot_id)

    async def confirm(self, bookie: BookieId) -> bool:
        """Make sure to talk to the process that is registered as `bookie` now, or was later; False if none is (rule 57).

        What happened to a ledger before this call, as far as this client has read it in the metadata, that process knows.
        """
        try:
            async with asyncio.timeout(CONFIRM_TIMEOUT_S):
                info = await self.read_registration(bookie)
        except (DaybookError, TimeoutError) as error:
            log.warning("a bookie's registration cannot be read", bookie=bookie, why=str(error))
            return False
        if info is not None:
            self.bookies_changed({bookie: info})
        return info is not None

    async def _is_registered(self, bookie: BookieId, boot_id: str) -> bool:
        """Whether the process with `boot_id` is the bookie: one that just registered is asked for, not refused."""
        if self._bookies[bookie].boot_id not in ("", boot_id):
            await self.confirm(bookie)
        return self._bookies[bookie].boot_id in ("", boot_id)

    async def _as_known(self, bookie: BookieId) -> BookieInfo | None:
        return self._bookies.get(bookie)

    def send_frame(self, bookie: BookieId, sink: FrameSink, send_id: int, frame: bytes) -> None:
        """Send `frame`; the sink receives its outcome, never from inside this call."""
        stream = self.streams.get(bookie) or self._open_stream(bookie)
        if stream is None:
            asyncio.get_running_loop().call_soon(sink.frame_failed, bookie, send_id, Code.CONNECTION_LOST)
        else:
            stream.send(sink, send_id, frame)

    def publish_lac(self, bookie: BookieId, sink: FrameSink, row: bytes) -> None:
        """Send `row` of a table of LACs; the sink is notified where it may have vanished, never from inside this call."""
        stream = self.streams.get(bookie) or self._open_stream(bookie)
        if stream is not None:
            stream.publish_lac(sink, row)

    def _open_stream(self, bookie: BookieId) -> FrameSender | None:
        """A stream to `bookie`; None if it was never registered or the pool is closed."""
        if self._closed.is_set() or bookie not in self._bookies:
            return None
        stream = self.streams[bookie] = FrameSender(
            bookie,
            partial(self._open_link, bookie),
            partial(self._is_registered, bookie),
            partial(self.unsealed.room, bookie),
            partial(self._note, bookie),
            self.round_trips,
        )
        return stream

    def calls(self, bookie: BookieId) -> BookieCalls | None:
        """The calls of `bookie`; None if it was never registered, there are no credentials to reach it with, or the
        pool is closed.

        One that restarted gets a new channel: the old one would wait out its back-off first.
        """
        info = self._bookies.get(bookie)
        if info is None or self._closed.is_set():
            return None
        known = self._calls.get(bookie)
        now_s = asyncio.get_running_loop().time()
        address = info.address_for(secure=self.is_secure)
        is_there = known is not None and (known.address, known.boot_id) == (address, info.boot_id)
        try:
            credentials = self._current_credentials()
        except ConnectionError as error:
            self._note(bookie, str(error))
            return known.calls if known is not None and is_there else None
        if known is not None:
            is_young = now_s - known.opened_s < RENEWAL_PAUSE_S
            if is_there and (is_young or known.credentials is credentials):
                return known.calls
            self._retire(known.channel)
        channel = self._channel(info, address, credentials)
        lane = self._read_lane(bookie, info, secure=credentials is not None)
        calls = BookieCalls(bookie, channel, partial(self._note, bookie), boot_id=info.boot_id, lane=lane)
        self._calls[bookie] = _Open(address, info.boot_id, credentials, now_s, channel, calls, lane)
        return calls

    def _channel(
        self, info: BookieInfo, address: str, credentials: grpc.ChannelCredentials | None
    ) -> AioChannel:
        """A channel to `address` of the bookie that `info` describes."""
        where = endpoint(info, address)
        return self._open_channel(where.address, credentials, where.server_name)

    @asynccontextmanager
    async def _open_link(self, bookie: BookieId, owner: LinkOwner) -> AsyncIterator[AppendLink]:
        """An append stream's connection to where the bookie is now: its lane if there is one, else gRPC.

        Raises ConnectionError while there are no credentials.
        """
        credentials = self._current_credentials()
        info = self._bookies[bookie]
        async with AsyncExitStack() as stack:
            link = None
            if info.lane_address and bookie not in self._avoided_lanes:
                link = await self._try_lane(stack, bookie, owner, secure=credentials is not None)
            if link is None:
                address = info.address_for(secure=credentials is not None)
                channel = self._channel(info, address, credentials)
                link = await stack.enter_async_context(grpc_link(channel, bookie, self._client_name, owner))
            yield link

    async def _try_lane(
        self, stack: AsyncExitStack, bookie: BookieId, owner: LinkOwner, *, secure: bool
    ) -> AppendLink | None:
        """A link over the lane; None if this client cannot use it: the bookie is reached by gRPC then."""
        context = None
        if secure:
            if not isinstance(self._credentials, HasSslContext):
                return None
            context = self._credentials.ssl_context()
        while True:
            info = self._bookies[bookie]
            address = info.lane_address
            try:
                return await stack.enter_async_context(
                    lane_link(bookie, endpoint(info, address), context, self._client_name, owner)
                )
            except (OSError, StreamError, TimeoutError) as error:
                why = str(error) or type(error).__name__
            await self.confirm(bookie)
            if self._bookies[bookie].lane_address in ("", address):  # it has not moved by a restart
                break
        log.warning("the bookie's lane is not reached, gRPC is used", bookie=bookie, address=address, why=why)
        self._avoid_lane(bookie)
        return None

    def _read_lane(self, bookie: BookieId, info: BookieInfo, *, secure: bool) -> ReadLane | None:
        """The connections for reads over the lane of the bookie that `info` describes; None if this client cannot use it."""
        if not info.lane_address or (secure and not isinstance(self._credentials, HasSslContext)):
            return None

        async def open_link(owner: LinkOwner) -> LaneLink:
            context = None
            if secure:
                assert isinstance(self._credentials, HasSslContext)
                context = self._credentials.ssl_context()
            where = endpoint(info, info.lane_address)
            return await open_lane(bookie, where, context, self._client_name, owner, READ_PREFACE)

        return ReadLane(bookie, info.boot_id, open_link)

    def _avoid_lane(self, bookie: BookieId) -> None:
        """Do not try the lane again for a while: a firewall in between would cost each new stream a time-out."""
        self._avoided_lanes.add(bookie)
        asyncio.get_running_loop().call_later(LANE_PAUSE_S, self._avoided_lanes.discard, bookie)

    def _current_credentials(self) -> grpc.ChannelCredentials | None:
        """What a connection is opened with now. Raises ConnectionError when whoever gives them cannot."""
        try:
            credentials = self._credentials()
        except Exception as error:
            why = f"there are no TLS credentials: {error}"
            if why != self._why_no_credentials:
                self._why_no_credentials = why
                log.warning("no new connections to bookies", why=why)
            raise ConnectionError(why) from error
        self._why_no_credentials = ""
        return credentials

    def use(self, sink: FrameSink) -> None:
        """`sink` may attach its ledger to streams, until it is forgotten."""
        self._users[sink.attach_key] += 1

    def forget(self, sink: FrameSink) -> None:
        """Drop what `sink` has queued anywhere, and its attachments, unless another one uses them."""
        key = sink.attach_key
        self._users[key] -= 1
        is_last = not self._users[key]
        if is_last:
            del self._users[key]
        for stream in self.streams.values():
            stream.forget(sink)
            if is_last:
                stream.detach(key)

    async def close(self) -> None:
        """Close every channel. Whatever still runs then, such as a recovery that is notified of its lost streams, finds no bookie any more."""
        self._closed.set()
        streams = list(self.streams.values())
        self.streams.clear()
        for stream in streams:
            await stream.close()
        for known in self._calls.values():
            if known.lane is not None:
                known.lane.close()
            await known.channel.close()
        if self._closing:
            await asyncio.wait(self._closing)

    @property
    def is_secure(self) -> bool:
        """Whether connections use TLS."""
        try:
            return self._current_credentials() is not None
        except ConnectionError:
            return True  # who has none to give has some at other times

    def _note(self, bookie: BookieId, details: str) -> None:
        secure = self.is_secure
        address = self._bookies[bookie].address_for(secure=secure)
        self.connection_errors.note(bookie, address, details, secure=secure)

    def _retire(self, channel: AioChannel) -> None:
        """Close `channel` when nobody can use it any more: at once would cancel its calls, and who awaits them."""

        async def close() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(RETIRE_GRACE_S):
                    await self._closed.wait()
            await channel.close()

        task = asyncio.get_running_loop().create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _is_idle(self, bookie: BookieId) -> bool:
        stream = self.streams.get(bookie)
        return stream is None or stream.is_idle

    def _attaching(self, bookie: BookieId) -> AbstractSet[LedgerId]:
        stream = self.streams.get(bookie)
        return frozenset() if stream is None else stream.attaching
