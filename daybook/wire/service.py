"""The gRPC service of a bookie: its methods, a client's callables and a server's handlers, in one table.

Append and Read transfer raw bytes (without a serializer, so that nothing copies or parses them); the other methods use
protobuf. Both ends use the same table, so they cannot differ in a name or a type.

Each call of a client names the bookie that it is meant for, and the process that is registered as that bookie. An address can
outlive its bookie, and a process its registration; the answer of another process would then count as the answer of the
bookie that the client meant (rule 6, rule 57).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

import grpc
from google.protobuf.message import Message

from daybook.core.ids import BookieId
from daybook.wire import bookie_pb2 as pb

SERVICE: Final = "daybook.bookie.v1.Bookie"
APPEND: Final = "Append"
READ: Final = "Read"
BOOKIE_METADATA: Final = "daybook-bookie"
"""The key, in a call's metadata, of the bookie that the call is meant for."""
BOOT_METADATA: Final = "daybook-boot"
"""The key of the boot id in that bookie's registration."""
RECOVERY_METADATA: Final = "daybook-recovery"
"""The key of the flag that a Read fences: the bookie runs such reads on separate workers. Old clients do not set it."""


@dataclass(frozen=True, slots=True)
class UnaryMethod:
    """A protobuf call with one request and one response."""

    name: str
    request: type[Message]
    response: type[Message]


READ_LAC: Final = UnaryMethod("ReadLac", pb.ReadLacRequest, pb.ReadLacResponse)
FENCE: Final = UnaryMethod("Fence", pb.FenceRequest, pb.FenceResponse)
RECOVER: Final = UnaryMethod("Recover", pb.RecoverRequest, pb.RecoverResponse)
RECOVER_MAX: Final = 256
"""Fences and reads of one call of Recover."""
FORCE: Final = UnaryMethod("Force", pb.ForceRequest, pb.ForceResponse)
GET_INFO: Final = UnaryMethod("GetInfo", pb.GetInfoRequest, pb.GetInfoResponse)
LIST_LEDGERS: Final = UnaryMethod("ListLedgers", pb.ListLedgersRequest, pb.ListLedgersResponse)
ENTRY_INTERVALS: Final = UnaryMethod("EntryIntervals", pb.EntryIntervalsRequest, pb.EntryIntervalsResponse)
SET_READ_ONLY: Final = UnaryMethod("SetReadOnly", pb.SetReadOnlyRequest, pb.SetReadOnlyResponse)
SCRUB: Final = UnaryMethod("Scrub", pb.ScrubRequest, pb.ScrubResponse)
LIST_LIMBO: Final = UnaryMethod("ListLimbo", pb.ListLimboRequest, pb.ListLimboResponse)
CLEAR_LIMBO: Final = UnaryMethod("ClearLimbo", pb.ClearLimboRequest, pb.ClearLimboResponse)
COLLECT_GARBAGE: Final = UnaryMethod("CollectGarbage", pb.CollectGarbageRequest, pb.CollectGarbageResponse)
ACCEPT_ROLL_BACK: Final = UnaryMethod("AcceptRollBack", pb.AcceptRollBackRequest, pb.AcceptRollBackResponse)

UNARY_METHODS: Final = (
    READ_LAC,
    FENCE,
    RECOVER,
    FORCE,
    GET_INFO,
    LIST_LEDGERS,
    ENTRY_INTERVALS,
    SET_READ_ONLY,
    SCRUB,
    LIST_LIMBO,
    CLEAR_LIMBO,
    COLLECT_GARBAGE,
    ACCEPT_ROLL_BACK,
)


class AnyChannel(Protocol):
    """The methods that `grpc.Channel` and `grpc.aio.Channel` share."""

    def unary_unary(
        self, method: str, request_serializer: Any = ..., response_deserializer: Any = ...
    ) -> Any:
        """A callable for one request and one response."""

    def unary_stream(
        self, method: str, request_serializer: Any = ..., response_deserializer: Any = ...
    ) -> Any:
        """A callable for one request and many responses."""

    def stream_stream(
        self, method: str, request_serializer: Any = ..., response_deserializer: Any = ...
    ) -> Any:
        """A callable for many of both."""


class AioChannel(AnyChannel, Protocol):
    """The part of `grpc.aio.Channel` that a client on an event loop uses."""

    async def close(self) -> None:
        """End the channel's calls: their awaiting tasks are cancelled."""

    async def __aenter__(self) -> Self:
        """Itself."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> bool | None:
        """Close it."""


OpenChannel: TypeAlias = Callable[[str, grpc.ChannelCredentials | None, str | None], AioChannel]
"""Creates a channel to an address, with these credentials or in plaintext; the name, if any, is that in the server's certificate."""


class BookieStub:
    """A client's callables over a channel, blocking or asyncio as the channel is.

    `append` takes and returns bytes (see daybook/wire/messages.py). `read` takes a ReadRequest and returns bytes, and so does
    `recovery_read`, for reads that fence. The others are named after their method in snake case; they take and return
    messages of bookie.proto.
    """

    def __init__(self, channel: AnyChannel, bookie: BookieId | None = None, boot_id: str = "") -> None:
        """Create the callables; this sends nothing.

        Calls fail with FAILED_PRECONDITION if another bookie than `bookie` answers (None accepts any), or another process
        than the one with `boot_id`, if that is given.
        """
        self.append: Any = channel.stream_stream(_path(APPEND))
        self.read: Any = channel.unary_stream(
            _path(READ), request_serializer=pb.ReadRequest.SerializeToString
        )
        self.read_lac: Any = _unary(channel, READ_LAC)
        self.fence: Any = _unary(channel, FENCE)
        self.recover: Any = _unary(channel, RECOVER)
        self.force: Any = _unary(channel, FORCE)
        self.get_info: Any = _unary(channel, GET_INFO)
        self.list_ledgers: Any = _unary(channel, LIST_LEDGERS)
        self.entry_intervals: Any = _unary(channel, ENTRY_INTERVALS)
        self.set_read_only: Any = _unary(channel, SET_READ_ONLY)
        self.scrub: Any = _unary(channel, SCRUB)
        self.list_limbo: Any = _unary(channel, LIST_LIMBO)
        self.clear_limbo: Any = _unary(channel, CLEAR_LIMBO)
        self.collect_garbage: Any = _unary(channel, COLLECT_GARBAGE)
        self.accept_roll_back: Any = _unary(channel, ACCEPT_ROLL_BACK)
        meant: tuple[tuple[str, str], ...] = () if bookie is None else ((BOOKIE_METADATA, bookie),)
        if meant and boot_id:
            meant = (*meant, (BOOT_METADATA, boot_id))
        if meant:
            for name, call in list(vars(self).items()):
                setattr(self, name, partial(call, metadata=meant))
        self.recovery_read: Any = partial(self.read, metadata=(*meant, (RECOVERY_METADATA, "1")))


def bookie_handlers(
    append: Callable[[Iterator[bytes], grpc.ServicerContext], Iterable[bytes]],
    read: Callable[[pb.ReadRequest, grpc.ServicerContext], Iterable[bytes]],
    read_lac: Callable[..., None],
    unary: Mapping[UnaryMethod, Callable[[Any, grpc.ServicerContext], Any]],
) -> grpc.GenericRpcHandler:
    """A server's handlers; `unary` must have one for each of UNARY_METHODS but READ_LAC.

    `read_lac(request, context, send)` calls `send` with one response and then with None, now or later. For gRPC it is
    a stream of one response, which looks like a unary call to a client.
    """
    assert set(unary) == set(UNARY_METHODS) - {READ_LAC}, "every method needs a handler"
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        APPEND: grpc.stream_stream_rpc_method_handler(append),
        READ: grpc.unary_stream_rpc_method_handler(read, request_deserializer=pb.ReadRequest.FromString),
        READ_LAC.name: grpc.unary_stream_rpc_method_handler(
            read_lac,
            request_deserializer=pb.ReadLacRequest.FromString,
            response_serializer=pb.ReadLacResponse.SerializeToString,
        ),
    }
    for method, handler in unary.items():
        handlers[method.name] = grpc.unary_unary_rpc_method_handler(
            handler,
            request_deserializer=method.request.FromString,
            response_serializer=method.response.SerializeToString,
        )
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


def read_handlers(
    read: Callable[[pb.ReadRequest, grpc.ServicerContext], Iterable[bytes]],
) -> grpc.GenericRpcHandler:
    """A server's handler of Read alone."""
    handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_stream_rpc_method_handler(
        read, request_deserializer=pb.ReadRequest.FromString
    )
    return grpc.method_handlers_generic_handler(SERVICE, {READ: handler})


def _path(name: str) -> str:
    return f"/{SERVICE}/{name}"


def _unary(channel: AnyChannel, method: UnaryMethod) -> Any:
    return channel.unary_unary(
        _path(method.name),
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )
