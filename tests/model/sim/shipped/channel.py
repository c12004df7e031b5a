"""A channel as gRPC's, over the simulated network: calls that are answered late, twice or never, and streams that break.

A call that is lost runs into its deadline. A bookie that is not there refuses the connection, or is silent, as a host
that is gone does. Closing a channel cancels its calls, which is what gRPC does to who awaits them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import grpc
import grpc.aio

from daybook.wire.service import BOOKIE_METADATA, BOOT_METADATA, RECOVERY_METADATA
from tests.model.sim.shipped.append_call import AppendCall
from tests.model.sim.shipped.servant import Payload, serve
from tests.model.sim.world import MS

if TYPE_CHECKING:
    from tests.model.sim.shipped.process import ShippedProcess

_REFUSED_US: Final = 20 * MS
_SILENT_HOSTS: Final = 0.3


def rpc_error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """What a call raises."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


class SimChannel:
    """A channel of `process` to the bookie at `address`: `daybook.wire.service.AioChannel`."""

    def __init__(self, process: "ShippedProcess", address: str) -> None:
        self._process = process
        self._bookie = process.cluster.twins.at(address)
        self._closed = False
        self._waiting: dict[int, asyncio.Future[Payload]] = {}
        self._streams: list[AppendCall] = []
        self._numbers = 0
        self._rng = process.channel_rng

    # What a stub is made of

    def unary_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        """See AnyChannel."""

        def call(request: Any, *, timeout: float, metadata: object) -> Coroutine[Any, Any, Any]:
            meant = self._meant(metadata)
            return self._one(method, request_serializer(request), timeout, meant, response_deserializer)

        return call

    def unary_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
    ) -> Callable[..., AsyncIterator[bytes]]:
        """See AnyChannel."""

        def call(request: Any, *, timeout: float, metadata: object) -> AsyncIterator[bytes]:
            return self._many(method, request_serializer(request), timeout, self._meant(metadata))

        return call

    def stream_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
    ) -> Callable[..., AppendCall]:
        """See AnyChannel."""

        def call(*, metadata: object) -> AppendCall:
            self._meant(metadata)
            stream = AppendCall(self._process, self._bookie)
            self._streams.append(stream)
            return stream

        return call

    def _meant(self, metadata: object) -> str | None:
        """The boot id of the process that a call is meant for; None: whichever is that bookie."""
        assert isinstance(metadata, tuple)
        meant: dict[str, str] = dict(metadata)
        assert meant.pop(BOOKIE_METADATA) == self._bookie.name
        boot_id = meant.pop(BOOT_METADATA, None)
        meant.pop(RECOVERY_METADATA, None)  # whose workers answer is nothing here: there are no threads
        assert not meant
        return boot_id

    # Calls

    async def _one(
        self,
        method: str,
        request: bytes,
        timeout_s: float,
        boot_id: str | None,
        read: Callable[[bytes], Any],
    ) -> Any:
        (answer,) = await self._ask(method, request, timeout_s, boot_id)
        return read(answer)

    async def _many(
        self, method: str, request: bytes, timeout_s: float, boot_id: str | None
    ) -> AsyncIterator[bytes]:
        for message in await self._ask(method, request, timeout_s, boot_id):
            yield message

    async def _ask(
        self, method: str, request: bytes, timeout_s: float, boot_id: str | None
    ) -> tuple[bytes, ...]:
        """The messages of one answer. Raises AioRpcError."""
        if self._closed:
            raise asyncio.CancelledError
        self._numbers += 1
        number = self._numbers
        future: asyncio.Future[Payload] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._send(method.rpartition("/")[2], request, number, boot_id)
        try:
            async with asyncio.timeout(timeout_s):
                payload = await future
        except TimeoutError:
            raise rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        finally:
            self._waiting.pop(number, None)
        if isinstance(payload, grpc.StatusCode):
            raise rpc_error(payload, f"bookie {self._bookie.name} is not there")
        return payload

    def _send(self, method: str, request: bytes, number: int, boot_id: str | None) -> None:
        process, bookie, network = self._process, self._bookie, self._process.cluster.network
        if not bookie.alive:
            if self._rng.random() >= _SILENT_HOSTS:
                delay_us = int(_REFUSED_US * self._rng.random())
                process.later(delay_us, self._answered, number, grpc.StatusCode.UNAVAILABLE)
            return
        if method in ("Fence", "Recover") and network.loses_fence():
            return
        respond = partial(network.call, bookie, process, self._answered, number)
        network.call(process, bookie, serve, bookie, boot_id, method, request, respond)

    def _answered(self, number: int, payload: Payload) -> None:
        future = self._waiting.get(number)
        if future is not None and not future.done():
            future.set_result(payload)

    # Its end

    async def close(self) -> None:
        self._closed = True
        for future in self._waiting.values():
            future.cancel()
        for stream in self._streams:
            stream.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        await self.close()
