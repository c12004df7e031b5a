"""The gRPC service of a bookie: its methods, a client's callables and a server's handlers, in one table.

Append and Read move raw bytes (no serializer, so that nothing copies or parses them); the rest is protobuf. Both ends
are made from the same table, so they cannot differ in a name or a type.

A client names the bookie that it means with each call, and the process that is registered as that bookie: an address
outlives its bookie, a process its registration, and what another one says there would count as testimony of the one that
was asked (rule 6, rule 57).
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
"""The key of a call's metadata under which it names the bookie that it is meant for."""
BOOT_METADATA: Final = "daybook-boot"
"""The key under which it names the boot id of that bookie's registration."""
RECOVERY_METADATA: Final = "daybook-recovery"
"""The key under which a Read says that it fences: such reads have workers of their own. Not all clients say it."""


@dataclass(frozen=True, slots=True)
class UnaryMethod:
    """A protobuf call with one request and one response."""

    name: str
    request: type[Message]
    response: type[Message]


READ_LAC: Final = UnaryMethod("ReadLac", pb.ReadLacRequest, pb.ReadLacResponse)
FENCE: Final = UnaryMethod("Fence", pb.FenceRequest, pb.FenceResponse)
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
    """What `grpc.Channel` and `grpc.aio.Channel` have in common."""

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
    """What a client on an event loop needs of a channel: `grpc.aio.Channel`'s part that is used."""

    async def close(self) -> None:
        """End its calls: whoever awaits one is cancelled."""

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


OpenChannel: TypeAlias = Callable[[str, grpc.ChannelCredentials | None], AioChannel]
"""Makes a channel to an address, with these credentials or in plaintext."""


class BookieStub:
    """A client's callables over a channel, blocking or asyncio as the channel is.

    `append` takes and gives bytes (see daybook/wire/messages.py), `read` takes a ReadRequest and gives bytes, and so does
    `recovery_read`, for those that fence; the others are named after their method in snake case and take and give the
    messages of bookie.proto.
    """

    def __init__(self, channel: AnyChannel, bookie: BookieId | None = None, boot_id: str = "") -> None:
        """Make the callables; nothing is sent.

        Calls fail with FAILED_PRECONDITION where another one than `bookie` answers, None takes whoever does; or another
        process of it than the one with `boot_id`, if that is given.
        """
        self.append: Any = channel.stream_stream(_path(APPEND))
        self.read: Any = channel.unary_stream(
            _path(READ), request_serializer=pb.ReadRequest.SerializeToString
        )
        self.read_lac: Any = _unary(channel, READ_LAC)
        self.fence: Any = _unary(channel, FENCE)
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

    `read_lac(request, context, send)` calls `send` with one response and then with None, now or later: for gRPC it is
    a stream of one response, which a client cannot tell from a unary call.
    """
    assert set(unary) == set(UNARY_METHODS) - {READ_LAC}, "every method has a handler"
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
