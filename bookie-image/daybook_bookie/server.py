"""The bookie's sockets: gRPC with a pool of threads for each kind of call, so that none can starve another.

A stream pins a worker for its life, a read for as long as its reader is slow, a control call for a moment; each kind
waits only for its own. gRPC lets a handler name its pool and, for long polls, answer later from another thread
(`experimental_thread_pool`, `experimental_non_blocking`; tests pin both down).
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import grpc

from daybook.core.ids import MESSAGE_BYTES_MAX, BookieId
from daybook.runtime.logs import get_logger
from daybook.runtime.ports import Address, check_port_free
from daybook.wire import bookie_pb2 as pb
from daybook.wire import service
from daybook.wire.channel import SERVER_OPTIONS
from daybook_bookie.bookie import Bookie
from daybook_bookie.roles import Gate

_LOG: Final = get_logger(__name__)
_READ_METHOD: Final = f"/{service.SERVICE}/{service.READ}"
_REFUSING_WORKERS: Final = 8
"""Workers beyond the streams that may be open: they tell the others that there are too many."""


class BookieServer:
    """Serves a bookie on an address."""

    def __init__(
        self, bookie: Bookie, address: Address, credentials: grpc.ServerCredentials | None = None
    ) -> None:
        """Listen on `address` (port 0: a free one); nothing is answered before `start`. Raises PortInUseError."""
        check_port_free(address, "address")
        self._bookie = bookie
        settings = bookie.settings
        self._read_pool = _CountingPool(settings.read_workers, "read")
        self._pools: dict[str, ThreadPoolExecutor] = {
            "append": ThreadPoolExecutor(settings.streams_max + _REFUSING_WORKERS, "append"),
            "read": self._read_pool,
            "control": ThreadPoolExecutor(settings.control_workers, "control"),
        }
        self._gate = Gate(
            settings.cluster,
            settings.roles,
            bookie.metrics,
            certificate=settings.tls_certificate,
            asks_for_certificates=settings.tls_ca is not None,
        )
        self._server = grpc.server(self._pools["control"], options=SERVER_OPTIONS)
        admission = _Admission(self._handlers(), settings.bookie_id, bookie.boot_id, self._too_many_reads)
        self._server.add_generic_rpc_handlers((admission,))
        text = str(address)
        port = (
            self._server.add_insecure_port(text)
            if credentials is None
            else self._server.add_secure_port(text, credentials)
        )
        self.address = Address(address.host, port)

    def start(self) -> None:
        """Begin to answer."""
        self._gate.tell(self.address)
        self._server.start()

    def stop(self, grace_s: float) -> None:
        """Take no more calls; wait up to `grace_s` for those under way."""
        stopped = self._server.stop(grace_s)
        for stream in self._bookie.open_stream_list():
            stream.close()
        stopped.wait()
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def _handlers(self) -> grpc.GenericRpcHandler:
        control = self._bookie.control
        unary: dict[service.UnaryMethod, Callable[[Any, grpc.ServicerContext], Any]] = {
            service.FENCE: control.fence,
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
        return service.bookie_handlers(
            _on(self._pools["append"], self._append),
            _on(self._pools["read"], self._read),
            _later(self._pools["control"], control.read_lac),
            {method: self._gate.guarded(method.name, handler) for method, handler in unary.items()},
        )

    def _too_many_reads(self) -> bool:
        pool, settings = self._read_pool, self._bookie.settings
        return pool.pending > settings.read_workers + settings.reads_waiting_max

    def _append(self, incoming: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        stream = self._bookie.open_stream()
        if stream is None:
            limit = self._bookie.settings.streams_max
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{limit} append streams are open, which is the limit: use one for each process, or raise streams_max",
            )
        assert stream is not None
        hello = pb.ServerHello(
            bookie_id=self._bookie.settings.bookie_id,
            boot_id=self._bookie.boot_id,
            message_bytes_max=MESSAGE_BYTES_MAX,
        )
        stream.send_control(pb.ServerControl(hello=hello))
        reasons: list[str] = []
        context.add_callback(stream.close)
        reader = threading.Thread(
            target=_read_stream,
            args=(stream, incoming, reasons),
            name=f"append-{stream.stream_id}",
            daemon=True,
        )
        reader.start()
        try:
            yield from stream.outgoing()
        finally:
            stream.close()
            self._bookie.stream_ended(stream)
        if reasons:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, reasons[0])

    def _read(self, request: pb.ReadRequest, context: grpc.ServicerContext) -> Iterator[bytes]:
        for message in self._bookie.reads.read(request):
            yield message
            if not context.is_active():
                return


class _CountingPool(ThreadPoolExecutor):
    """Knows how many calls wait or run."""

    def __init__(self, workers: int, name: str) -> None:
        """`workers` threads that are called after `name`."""
        super().__init__(workers, name)
        self._lock = threading.Lock()
        self.pending = 0

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See ThreadPoolExecutor."""
        with self._lock:
            self.pending += 1
        future = super().submit(call, *args, **kwargs)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _: Future[Any]) -> None:
        with self._lock:
            self.pending -= 1


class _Admission(grpc.GenericRpcHandler):
    """Refuses calls that are meant for another bookie, or for another process of this one, and reads while too many wait,
    before they cost anything.
    """

    def __init__(
        self,
        handlers: grpc.GenericRpcHandler,
        bookie: BookieId,
        boot_id: str,
        too_many_reads: Callable[[], bool],
    ) -> None:
        self._handlers = handlers
        self._bookie = bookie
        self._boot_id = boot_id
        self._too_many_reads = too_many_reads

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """See grpc.GenericRpcHandler."""
        for key, meant in details.invocation_metadata or ():
            if key == service.BOOKIE_METADATA and meant != self._bookie:
                return grpc.unary_stream_rpc_method_handler(partial(_refuse_other, self._bookie, meant))
            if key == service.BOOT_METADATA and meant != self._boot_id:
                refuse = partial(_refuse_other_process, self._bookie, self._boot_id, meant)
                return grpc.unary_stream_rpc_method_handler(refuse)
        if details.method == _READ_METHOD and self._too_many_reads():
            return grpc.unary_stream_rpc_method_handler(_refuse_read)
        return self._handlers.service(details)


def _refuse_other(
    bookie: BookieId, meant: str | bytes, _: bytes, context: grpc.ServicerContext
) -> Iterator[bytes]:
    context.abort(
        grpc.StatusCode.FAILED_PRECONDITION,
        f"here answers bookie {bookie}, not {meant!r}: the address is from before another bookie got it",
    )


def _refuse_other_process(
    bookie: BookieId, boot_id: str, meant: str | bytes, _: bytes, context: grpc.ServicerContext
) -> Iterator[bytes]:
    context.abort(
        grpc.StatusCode.FAILED_PRECONDITION,
        f"here answers process {boot_id} of bookie {bookie}, registered is {meant!r}: it is not registered yet, or no more",
    )


def _refuse_read(_: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
    context.abort(
        grpc.StatusCode.RESOURCE_EXHAUSTED, "too many reads wait: try another replica, or again later"
    )


def _read_stream(stream: Any, incoming: Iterator[bytes], reasons: list[str]) -> None:
    """The reader thread of a stream."""
    try:
        reason = stream.run(incoming)
    except grpc.RpcError:
        reason = None  # the client went away
    except Exception:  # noqa: BLE001 - a thread has nobody else to tell
        _LOG.exception("a stream failed", client=stream.client)
        reason = "the bookie failed to process a message; its log says why"
    if reason:
        _LOG.warning("a client broke the rules of the stream", client=stream.client, reason=reason)
        reasons.append(reason)
    stream.close()


def _on(pool: ThreadPoolExecutor, handler: Callable[..., Any]) -> Callable[..., Any]:
    """`handler` on threads of `pool`."""

    def run(*args: Any) -> Any:
        return handler(*args)

    run.experimental_thread_pool = pool  # type: ignore[attr-defined]  # gRPC looks for this attribute
    return run


def _later(pool: ThreadPoolExecutor, handler: Callable[..., None]) -> Callable[..., None]:
    """`handler(request, context, send)` on threads of `pool`; it may return before it has answered."""

    def run(
        request: Any, context: grpc.ServicerContext, send_response_callback: Callable[[Any], None]
    ) -> None:
        handler(request, context, send_response_callback)

    run.experimental_thread_pool = pool  # type: ignore[attr-defined]  # gRPC looks for these attributes
    run.experimental_non_blocking = True  # type: ignore[attr-defined]  # see above
    return run
