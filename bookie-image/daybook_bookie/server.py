"""The bookie's sockets: gRPC with a pool of threads for each kind of call, so that none can starve another.

A stream pins a worker for its life, a read for as long as its reader is slow, within a limit, a control call for a moment;
each kind waits only for its own. gRPC lets a handler name its pool and, for long polls, answer later from another thread
(`experimental_thread_pool`, `experimental_non_blocking`; tests pin both down).
"""

import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final

import grpc

from daybook.core.ids import MESSAGE_BYTES_MAX
from daybook.runtime.logs import get_logger
from daybook.runtime.ports import Address, check_port_free, parse_address, reachable
from daybook.wire import bookie_pb2 as pb
from daybook.wire import service
from daybook.wire.channel import SERVER_OPTIONS
from daybook_bookie.bookie import Bookie
from daybook_bookie.lane.listener import LaneListener
from daybook_bookie.lane.reading import LaneReads
from daybook_bookie.service.admission import Admission, CallPool, later, on
from daybook_bookie.service.append import AppendStream, MessageQueue
from daybook_bookie.service.deadlines import Deadlines
from daybook_bookie.service.roles import Gate
from daybook_bookie.settings import Enforcement

_LOG: Final = get_logger(__name__)
_REFUSING_WORKERS: Final = 8
"""Workers beyond the streams that may be open, and for all other calls: they refuse a call beyond the limit."""
_ANSWERS_A_READER: Final = 4
"""Answers that may be under way to clients for each read at once: a slow client holds a thread, but no place among the reads."""
_UPKEEP_WORKERS: Final = 2
_UPKEEP_WAITING_MAX: Final = 16


class BookieServer:
    """Serves a bookie on an address."""

    def __init__(
        self,
        bookie: Bookie,
        address: Address,
        credentials: grpc.ServerCredentials | None = None,
        plain: Address | None = None,
        *,
        lane: Address | None = None,
        tls_context: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Listen on `address` (port 0: a free one), and on `plain` without TLS as well; nothing is answered before `start`.

        `lane` serves append streams and reads without gRPC, with TLS by `tls_context`. Raises PortInUseError.
        """
        check_port_free(address, "address")
        self._bookie = bookie
        settings = bookie.settings
        self._reading = threading.BoundedSemaphore(settings.read_workers)
        self._deadlines = Deadlines()
        self._append_pool = CallPool("append", settings.streams_max + _REFUSING_WORKERS, 0)
        self._read_pool = CallPool(
            "read", settings.read_workers * _ANSWERS_A_READER, settings.reads_waiting_max
        )
        self._recovery_pool = CallPool("recovery", settings.recovery_workers, settings.calls_waiting_max)
        self._control_pool = CallPool("control", settings.control_workers, settings.calls_waiting_max)
        self._upkeep_pool = CallPool("upkeep", _UPKEEP_WORKERS, _UPKEEP_WAITING_MAX)
        self._refusing = ThreadPoolExecutor(_REFUSING_WORKERS, "refuse")
        self._gate = Gate(
            settings.cluster,
            # who has not moved to TLS yet has no certificate, and must not be kept from repairing
            Enforcement.WARN if plain is not None and settings.roles is Enforcement.AUTO else settings.roles,
            bookie.metrics,
            certificate=settings.tls_certificate,
            asks_for_certificates=settings.tls_ca is not None,
        )
        self._server = grpc.server(self._refusing, options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((self._admission(),))
        text = str(address)
        port = (
            self._server.add_insecure_port(text)
            if credentials is None
            else self._server.add_secure_port(text, credentials)
        )
        self.address = Address(address.host, port)
        self.plain_address: Address | None = None
        if plain is not None:
            check_port_free(plain, "plain_address")
            self.plain_address = Address(plain.host, self._server.add_insecure_port(str(plain)))
        self._lane: LaneListener | None = None
        if lane is not None:
            self._lane = LaneListener(
                lane,
                bookie.streams,
                LaneReads(
                    bookie.reads.read_in_parts,
                    self._reading,
                    connections_max=settings.streams_max,
                    answers_bytes_max=settings.read_answers_bytes,
                    call_timeout_ms=settings.call_timeout_ms,
                ),
                self._hello,
                deadlines=self._deadlines,
                tls_context=tls_context,
                allows_plain=credentials is None or plain is not None,
            )

    @property
    def lane_address(self) -> Address | None:
        """Where append streams are served without gRPC."""
        return None if self._lane is None else self._lane.address

    @property
    def advertised_lane(self) -> str:
        """Where clients reach the lane: on the host that they use for the rest, unless a setting says otherwise; empty without one."""
        settings, lane = self._bookie.settings, self.lane_address
        if lane is None:
            return ""
        if settings.advertised_lane_address:
            return settings.advertised_lane_address
        if settings.advertised_address:
            return str(Address(parse_address(settings.advertised_address).host, lane.port))
        return reachable(lane)

    def _hello(self) -> pb.ServerControl:
        """What the bookie says first on an append stream."""
        hello = pb.ServerHello(
            bookie_id=self._bookie.settings.bookie_id,
            boot_id=self._bookie.boot_id,
            message_bytes_max=MESSAGE_BYTES_MAX,
            lane_address=self.advertised_lane,
            takes_lac_tables=True,
            takes_detach=True,
        )
        return pb.ServerControl(hello=hello)

    def start(self) -> None:
        """Begin to answer."""
        self._gate.tell(self.address)
        self._server.start()
        if self._lane is not None:
            self._lane.start()

    def stop(self, grace_s: float) -> None:
        """Take no more calls; wait up to `grace_s` for those under way."""
        if self._lane is not None:
            self._lane.stop()
        stopped = self._server.stop(grace_s)
        self._bookie.streams.close()
        stopped.wait()
        for pool in {*self._pools().values(), self._refusing}:
            pool.shutdown(wait=False, cancel_futures=True)
        self._deadlines.close()

    def _pools(self) -> dict[str, CallPool]:
        """Each call's workers. What may take long has its own, and so has what recoveries wait for."""
        slow = (service.SCRUB, service.COLLECT_GARBAGE, service.ACCEPT_ROLL_BACK)
        return {
            service.APPEND: self._append_pool,
            service.READ: self._read_pool,
            **{method.name: self._control_pool for method in service.UNARY_METHODS},
            **{method.name: self._upkeep_pool for method in slow},
            service.FENCE.name: self._recovery_pool,
            service.RECOVER.name: self._recovery_pool,
        }

    def _admission(self) -> Admission:
        settings, pools = self._bookie.settings, self._pools()
        control = self._bookie.control
        unary: dict[service.UnaryMethod, Callable[[Any, grpc.ServicerContext], Any]] = {
            service.FENCE: self._bookie.recoveries.fence,
            service.RECOVER: self._bookie.recoveries.recover,
            service.FORCE: control.force,
            service.GET_INFO: control.get_info,
            service.LIST_LEDGERS: control.list_ledgers,
            service.ENTRY_INTERVALS: control.entry_intervals,
            service.SET_READ_ONLY: control.set_read_only,
            service.SCRUB: control.scrub,
            service.LIST_LIMBO: control.list_limbo,
            service.CLEAR_LIMBO: control.clear_limbo,
            service.COLLECT_GARBAGE: control.collect_garbage,
            service.ACCEPT_ROLL_BACK: control.accept_roll_back,
        }
        handlers = service.bookie_handlers(
            on(pools[service.APPEND], self._append),
            on(pools[service.READ], self._read),
            later(pools[service.READ_LAC.name], control.read_lac),
            {
                method: on(pools[method.name], self._gate.guarded(method.name, handler))
                for method, handler in unary.items()
            },
        )
        return Admission(
            settings.bookie_id,
            self._bookie.boot_id,
            handlers,
            service.read_handlers(on(self._recovery_pool, self._read_to_recover)),
            pools,
            self._deadlines,
            settings.call_timeout_ms,
        )

    def _append(self, incoming: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        outgoing = MessageQueue()
        stream = self._bookie.streams.open(outgoing)
        if stream is None:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, self._bookie.streams.refusal)
        settings = self._bookie.settings
        assert stream is not None
        stream.send_control(self._hello())
        reasons: list[str] = []
        context.add_callback(stream.close)
        # what waits for the client to take a message would not see that the stream was ended
        cancel_later = partial(self._deadlines.after, settings.call_timeout_ms, context.cancel)
        stream.on_evicted = cancel_later
        if stream.evicted:
            stream.on_evicted()
        reader = threading.Thread(
            target=_receive,
            args=(stream, incoming, reasons, cancel_later),
            name=f"append-{stream.stream_id}",
            daemon=True,
        )
        reader.start()
        try:
            yield from outgoing
        finally:
            stream.close()
            self._bookie.streams.ended(stream)
        if stream.evicted:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, stream.evicted)
        if reasons:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, reasons[0])

    def _read(self, request: pb.ReadRequest, context: grpc.ServicerContext) -> Iterator[bytes]:
        """So many read at once; who waits for a client to take a message keeps nobody from reading."""
        messages = self._bookie.reads.read(request)
        while context.is_active():
            with self._reading:
                message = next(messages, None)
            if message is None:
                return
            yield message

    def _read_to_recover(self, request: pb.ReadRequest, context: grpc.ServicerContext) -> Iterator[bytes]:
        if not request.fence:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a read that fences nothing recovers nothing")
        for message in self._bookie.reads.read(request):
            yield message
            if not context.is_active():
                return


def _receive(
    stream: AppendStream,
    incoming: Iterator[bytes],
    reasons: list[str],
    cancel_later: Callable[[], object],
) -> None:
    """The reader thread of a stream. A client whose stream the bookie ends may not take what waits for it: the call is cancelled then."""
    if reason := stream.run(_until_gone(incoming)):
        reasons.append(reason)
        cancel_later()
    stream.close()


def _until_gone(incoming: Iterator[bytes]) -> Iterator[bytes]:
    """The messages of a client, until it ends the stream or its connection ends."""
    with suppress(grpc.RpcError):
        yield from incoming
