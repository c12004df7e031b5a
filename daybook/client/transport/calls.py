"""One request to one bookie and its answer as an event of the core; a failure is an answer too.

Whatever keeps a bookie from answering (no address, no connection, a time-out, bytes that are no answer) becomes a code
that proves nothing (rule 6); nothing here retries or chooses another bookie, which is the machine's part.
"""

import asyncio
from collections.abc import AsyncIterable, Callable
from contextlib import aclosing, suppress
from typing import Final, NamedTuple, Protocol

import grpc
import grpc.aio

from daybook.client.transport.gathering import RecoveryCalls
from daybook.client.transport.link import Message
from daybook.client.transport.read_answer import ReadAnswer
from daybook.client.transport.read_lane import LaneUnavailableError, ReadLane
from daybook.core.effects import ClearLimbo, ReadLimbo, SendLacRead, SendRead
from daybook.core.errors import Code, FrameError
from daybook.core.events import (
    FenceAnswered,
    ForceAnswered,
    LacAnswered,
    LimboCleared,
    LimboRead,
    ReadAnswered,
)
from daybook.core.ids import BookieId, LedgerId
from daybook.core.stream import StreamError
from daybook.wire import bookie_pb2 as pb
from daybook.wire.service import AioChannel, BookieStub

CALL_TIMEOUT_S: Final = 5.0


class ReadKey(NamedTuple):
    """A ledger and what its bookies compare with its password hash."""

    ledger_id: LedgerId
    key: str


class HasKey(Protocol):
    """A `ReadKey`, or a machine's driver."""

    @property
    def ledger_id(self) -> LedgerId:
        """The ledger."""

    @property
    def key(self) -> str:
        """What its bookies compare with its password hash."""


_CODES: Final = {
    grpc.StatusCode.DEADLINE_EXCEEDED: Code.TIMEOUT,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Code.UNAVAILABLE,
}


def code_of(error: grpc.aio.AioRpcError) -> Code:
    """What a failed call means; anything that is not clear is a lost connection."""
    return _CODES.get(error.code(), Code.CONNECTION_LOST)


def known_code(number: int) -> Code:
    """The code of an answer; one of another release proves nothing."""
    try:
        return Code(number)
    except ValueError:
        return Code.UNAVAILABLE


class BookieCalls:
    """The calls of one bookie besides Append."""

    def __init__(
        self,
        bookie: BookieId,
        channel: AioChannel,
        report_error: Callable[[str], None] = lambda _: None,
        *,
        boot_id: str = "",
        lane: ReadLane | None = None,
    ) -> None:
        """`channel` and `lane` are closed by whoever opened them; `report_error` gets the reason why a call got no answer.

        Only the process with `boot_id` answers, if that is known (rule 57).
        """
        self.bookie = bookie
        self.stub = BookieStub(channel, bookie, boot_id)
        self._report_error = report_error
        self._lane = lane
        self._recoveries = RecoveryCalls(self.stub, CALL_TIMEOUT_S)

    def _failed(self, error: grpc.aio.AioRpcError) -> Code:
        self._report_error(error.details() or "")
        return code_of(error)

    async def read(self, of: HasKey, request: SendRead) -> ReadAnswered:
        """Read a range; entries come with their checksums verified, those that fail are `damaged` (rule 44)."""
        message = pb.ReadRequest(
            ledger_id=of.ledger_id,
            first_entry=request.first,
            last_entry=request.last,
            bytes_max=request.bytes_max,
            key=of.key,
            fence=request.fence,
        )
        try:
            if self._lane is not None and self._lane.has_room and not request.fence:
                with suppress(LaneUnavailableError):
                    return await self._read_over(self._lane, message, request)
            answer = ReadAnswer(self.bookie, of.ledger_id, request)
            if not request.fence:
                return await _gather(self.stub.read(message, timeout=CALL_TIMEOUT_S), answer)
            for part in await self._recoveries.read(message):
                answer.take(part)
            return answer.whole()
        except grpc.aio.AioRpcError as error:
            return ReadAnswered(self.bookie, request.request_id, self._failed(error))
        except (FrameError, StreamError):
            return ReadAnswered(self.bookie, request.request_id, Code.IO_ERROR)

    async def _read_over(self, lane: ReadLane, message: pb.ReadRequest, request: SendRead) -> ReadAnswered:
        """Read over the bookie's lane. Raises LaneUnavailableError, FrameError, StreamError."""
        asked = pb.ReadRequest(payloads_last=True)
        asked.MergeFrom(message)
        try:
            async with (
                asyncio.timeout(CALL_TIMEOUT_S),
                aclosing(lane.messages(asked.SerializeToString())) as answer,
            ):
                return await _gather(answer, ReadAnswer(self.bookie, message.ledger_id, request))
        except TimeoutError:
            return ReadAnswered(self.bookie, request.request_id, Code.TIMEOUT)
        except ConnectionError as error:
            self._report_error(str(error))
            return ReadAnswered(self.bookie, request.request_id, Code.CONNECTION_LOST)

    async def fence(self, of: HasKey, request_id: int) -> FenceAnswered:
        """Fence the ledger and read its LAC."""
        try:
            answer = await self._recoveries.fence(pb.FenceRequest(ledger_id=of.ledger_id, key=of.key))
        except grpc.aio.AioRpcError as error:
            return FenceAnswered(self.bookie, request_id, self._failed(error))
        return FenceAnswered(
            self.bookie,
            request_id,
            known_code(answer.code),
            answer.last_add_confirmed,
            answer.length_at_lac,
            limbo=answer.limbo,
        )

    async def force(self, of: HasKey, request_id: int) -> ForceAnswered:
        """Sync what was sent deferred."""
        try:
            answer = await self.stub.force(pb.ForceRequest(ledger_id=of.ledger_id), timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            return ForceAnswered(self.bookie, request_id, self._failed(error))
        return ForceAnswered(self.bookie, request_id, known_code(answer.code), answer.boot_id)

    async def read_limbo(self, of: HasKey, request: ReadLimbo) -> LimboRead:
        """The nonce of the ledger's limbo mark, if it has one, and the bookie's boot id (rule 29)."""
        page = pb.ListLimboRequest(after_ledger=of.ledger_id - 1, limit=1, only=True)
        try:
            listed = await self.stub.list_limbo(page, timeout=CALL_TIMEOUT_S)
            boot_id = listed.boot_id
            if not boot_id:  # a bookie of an older release
                boot_id = (await self.stub.get_info(pb.GetInfoRequest(), timeout=CALL_TIMEOUT_S)).boot_id
        except grpc.aio.AioRpcError as error:
            return LimboRead(self.bookie, request.request_id, self._failed(error))
        nonces = {mark.ledger_id: mark.nonce for mark in listed.ledgers}
        return LimboRead(self.bookie, request.request_id, Code.OK, nonces.get(of.ledger_id), boot_id=boot_id)

    async def clear_limbo(self, of: HasKey, request: ClearLimbo) -> LimboCleared:
        """Clear the limbo mark if it still carries the nonce (rule 29)."""
        try:
            answer = await self.stub.clear_limbo(
                pb.ClearLimboRequest(ledger_id=of.ledger_id, nonce=request.nonce), timeout=CALL_TIMEOUT_S
            )
        except grpc.aio.AioRpcError as error:
            return LimboCleared(self.bookie, request.request_id, self._failed(error))
        return LimboCleared(self.bookie, request.request_id, known_code(answer.code), cleared=answer.cleared)

    async def read_lac(self, of: HasKey, request: SendLacRead) -> LacAnswered:
        """The LAC as the bookie knows it, at once or by a long poll; fences nothing."""
        try:
            answer = await self.stub.read_lac(
                pb.ReadLacRequest(
                    ledger_id=of.ledger_id,
                    known_lac=request.known_lac,
                    known_fenced=request.known_fenced,
                    timeout_ms=request.wait_ms,
                    key=of.key,
                ),
                timeout=CALL_TIMEOUT_S + request.wait_ms / 1000,
            )
        except grpc.aio.AioRpcError as error:
            return LacAnswered(self.bookie, request.request_id, self._failed(error))
        return LacAnswered(
            self.bookie,
            request.request_id,
            known_code(answer.code),
            answer.last_add_confirmed,
            limbo=answer.limbo,
            fenced=answer.fenced,
        )


async def _gather(messages: AsyncIterable[Message], answer: ReadAnswer) -> ReadAnswered:
    """The answer, once all its messages are there. Raises FrameError, StreamError, AioRpcError."""
    async for message in messages:
        answer.take(message)
    return answer.whole()
