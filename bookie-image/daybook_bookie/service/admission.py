"""Admission: a call gets a worker, waits for one in a bounded queue, or is refused at once.

Each kind of call has workers of its own, so that none can starve another; in particular recoveries, which fence and read
to take a ledger from its writer, wait neither for readers nor for long calls. A queue is bounded: what
waits beyond it would be answered to a client that has long given up.

gRPC has a worker wait for a call's request, and for a client to take its answer, without a limit. So the
request is awaited here, and both within a limit, after which the call is cancelled: a client that does nothing at all
would otherwise hold a worker for ever.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeAlias

import grpc

from daybook.core.ids import BookieId
from daybook.wire import service
from daybook_bookie.service.deadlines import Deadlines

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class CallPool(ThreadPoolExecutor):
    """Workers for one kind of call, which knows how many calls wait or run."""

    def __init__(self, name: str, workers: int, waiting_max: int) -> None:
        """`workers` threads that are called after `name`; more than `waiting_max` calls should not wait."""
        super().__init__(workers, name)
        self.name: Final = name
        self._pending_max = workers + waiting_max
        self._lock = threading.Lock()
        self._pending = 0

    @property
    def is_full(self) -> bool:
        """Whether another call should be refused."""
        return self._pending >= self._pending_max

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See ThreadPoolExecutor."""
        with self._lock:
            self._pending += 1
        try:
            future = super().submit(call, *args, **kwargs)
        except BaseException:
            self._ended(None)
            raise
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _: Future[Any] | None) -> None:
        with self._lock:
            self._pending -= 1


class Admission(grpc.GenericRpcHandler):
    """Refuses, before they cost anything, calls that are meant for another bookie, or for another process of this one, and
    those whose pool is full.
    """

    def __init__(
        self,
        bookie: BookieId,
        boot_id: str,
        handlers: grpc.GenericRpcHandler,
        recovery_reads: grpc.GenericRpcHandler,
        pools: Mapping[str, CallPool],
        deadlines: Deadlines,
        timeout_ms: int,
    ) -> None:
        """`recovery_reads` handles the reads that say so in their metadata; `pools` are those of calls by name.

        `timeout_ms` bounds how long a client may take to send its request, and to take all of a read's answer.
        """
        self._bookie = bookie
        self._boot_id = boot_id
        self._deadlines = deadlines
        self._timeout_ms = timeout_ms
        self._handlers = handlers
        self._recovery_reads = recovery_reads
        self._pools = {f"/{service.SERVICE}/{name}": pool for name, pool in pools.items()}
        self._read = f"/{service.SERVICE}/{service.READ}"
        self._of_recovery = pools[service.FENCE.name]

    def service(self, details: grpc.HandlerCallDetails) -> "Handler | None":
        """See grpc.GenericRpcHandler."""
        handlers, pool = self._handlers, self._pools.get(details.method)
        for key, value in details.invocation_metadata or ():
            if key == service.BOOKIE_METADATA and value != self._bookie:
                return grpc.stream_stream_rpc_method_handler(partial(_refuse_other, self._bookie, value))
            if key == service.BOOT_METADATA and value != self._boot_id:
                refuse = partial(_refuse_other_process, self._bookie, self._boot_id, value)
                return grpc.stream_stream_rpc_method_handler(refuse)
            if key == service.RECOVERY_METADATA and details.method == self._read:
                handlers, pool = self._recovery_reads, self._of_recovery
        if pool is not None and pool.is_full:
            return grpc.stream_stream_rpc_method_handler(partial(_refuse_for_now, pool.name))
        handler = handlers.service(details)
        return None if handler is None else self._bounded(handler)

    def _bounded(self, handler: Handler) -> Handler:
        """`handler`, taking its request as a stream of one, so that it is called before that is there."""
        if handler.request_streaming:
            return handler
        if handler.unary_unary is not None:
            return grpc.stream_unary_rpc_method_handler(
                self._bounded_request(handler.unary_unary),
                handler.request_deserializer,
                handler.response_serializer,
            )
        behaviour = handler.unary_stream
        assert behaviour is not None
        is_later = getattr(behaviour, "experimental_non_blocking", False)
        return grpc.stream_stream_rpc_method_handler(
            self._bounded_request(behaviour) if is_later else self._bounded_answer(behaviour),
            handler.request_deserializer,
            handler.response_serializer,
        )

    def _bounded_request(self, behaviour: Callable[..., Any]) -> Callable[..., Any]:
        def run(requests: Iterator[Any], context: grpc.ServicerContext, *rest: Any, **named: Any) -> Any:
            with self._deadlines.within(self._timeout_ms, context.cancel):
                request = _only(requests, context)
            return behaviour(request, context, *rest, **named)

        return _same_threads(behaviour, run)

    def _bounded_answer(self, behaviour: Callable[..., Any]) -> Callable[..., Any]:
        def run(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            with self._deadlines.within(self._timeout_ms, context.cancel):
                yield from behaviour(_only(requests, context), context)

        return _same_threads(behaviour, run)


def _only(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
    """The one request of a call."""
    request = next(requests, None)
    if request is None:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call without a request")
    return request


def _same_threads(one: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    """`other`, run as gRPC would run `one`."""
    for name in ("experimental_thread_pool", "experimental_non_blocking"):
        if hasattr(one, name):
            setattr(other, name, getattr(one, name))
    return other


def _refuse_other(
    bookie: BookieId, meant: str | bytes, _: Iterator[bytes], context: grpc.ServicerContext
) -> Iterator[bytes]:
    context.abort(
        grpc.StatusCode.FAILED_PRECONDITION,
        f"here answers bookie {bookie}, not {meant!r}: the address is from before another bookie got it",
    )


def _refuse_other_process(
    bookie: BookieId, boot_id: str, meant: str | bytes, _: Iterator[bytes], context: grpc.ServicerContext
) -> Iterator[bytes]:
    context.abort(
        grpc.StatusCode.FAILED_PRECONDITION,
        f"here answers process {boot_id} of bookie {bookie}, registered is {meant!r}: it is not registered yet, or no more",
    )


def _refuse_for_now(kind: str, _: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    context.abort(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f"too many calls wait for a worker ({kind}): try another replica, or again later",
    )


def on(pool: ThreadPoolExecutor, handler: Callable[..., Any]) -> Callable[..., Any]:
    """`handler` on threads of `pool`."""

    def run(*args: Any) -> Any:
        return handler(*args)

    run.experimental_thread_pool = pool  # type: ignore[attr-defined]  # gRPC looks for this attribute
    return run


def later(pool: ThreadPoolExecutor, handler: Callable[..., None]) -> Callable[..., None]:
    """`handler(request, context, send)` on threads of `pool`; it may return before it has answered."""

    def run(
        request: Any, context: grpc.ServicerContext, send_response_callback: Callable[[Any], None]
    ) -> None:
        handler(request, context, send_response_callback)

    run.experimental_thread_pool = pool  # type: ignore[attr-defined]  # gRPC looks for these attributes
    run.experimental_non_blocking = True  # type: ignore[attr-defined]  # see above
    return run
