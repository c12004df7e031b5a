"""Fences and recovery reads of one bookie: those of many ledgers in one call (Recover), as they come.

A client that takes over thousands of ledgers recovers many side by side, and six calls for each were most of what that cost.
A question leaves at once while no other is under way; those that are asked meanwhile leave together when the answer is there,
and after a short time in any case, because one ledger whose bookie waits for a disk or for ZooKeeper must not delay the
others (rule 7). A lone question uses a call of its own, and so do all of them where the bookie does not know Recover.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import grpc
import grpc.aio

from daybook.wire import bookie_pb2 as pb
from daybook.wire.service import RECOVER_MAX, BookieStub

GATHER_S: Final = 0.02
"""How long questions wait at most for the call that is under way."""

T = TypeVar("T")


class _Question(Generic[T]):
    """What was asked, and who waits for the answer."""

    def __init__(self, message: pb.FenceRequest | pb.ReadRequest, alone: Callable[[], Awaitable[T]]) -> None:
        """`alone` asks by a call of its own."""
        self.message = message
        self.alone = alone
        self.answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()


class RecoveryCalls:
    """Asks one process of a bookie."""

    def __init__(self, stub: BookieStub, timeout_s: float) -> None:
        """Nothing is under way. `timeout_s` bounds each call."""
        self._stub = stub
        self._timeout_s = timeout_s
        self._waiting: list[_Question[Any]] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._wake: asyncio.Handle | None = None
        self._knows_recover = True
        """Until the bookie says that it does not."""

    async def fence(self, message: pb.FenceRequest) -> pb.FenceResponse:
        """Fence a ledger. Raises AioRpcError."""

        async def alone() -> pb.FenceResponse:
            answer: pb.FenceResponse = await self._stub.fence(message, timeout=self._timeout_s)
            return answer

        return await self._ask(_Question(message, alone))

    async def read(self, message: pb.ReadRequest) -> Sequence[bytes]:
        """The messages of the answer to a read that fences. Raises AioRpcError."""

        async def alone() -> Sequence[bytes]:
            return [part async for part in self._stub.recovery_read(message, timeout=self._timeout_s)]

        return await self._ask(_Question(message, alone))

    async def _ask(self, question: _Question[T]) -> T:
        self._waiting.append(question)
        if not self._knows_recover:
            self._send()
        elif self._wake is None:
            loop = asyncio.get_running_loop()
            self._wake = (
                loop.call_later(GATHER_S, self._send) if self._under_way else loop.call_soon(self._send)
            )
        return await question.answer

    def _send(self) -> None:
        """Ask all that wait."""
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        waiting = [each for each in self._waiting if not each.answer.done()]
        self._waiting.clear()
        size = RECOVER_MAX if self._knows_recover else 1
        for begin in range(0, len(waiting), size):
            part = waiting[begin : begin + size]
            task = asyncio.get_running_loop().create_task(self._call(part))
            self._under_way.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if self._waiting and not self._under_way:
            self._send()

    async def _call(self, questions: Sequence[_Question[Any]]) -> None:
        """Ask `questions`, each of which has its answer or an error then."""
        try:
            if len(questions) == 1:
                await _ask_alone(questions)
            else:
                await _ask_alone(await self._recover(questions))
        except asyncio.CancelledError:  # the channel was closed: so ends who awaits a call of it
            for each in questions:
                each.answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, they wait for it
            for each in questions:
                if not each.answer.done():
                    each.answer.set_exception(error)

    async def _recover(self, questions: Sequence[_Question[Any]]) -> Sequence[_Question[Any]]:
        """Ask `questions` in one call; those that have to be asked alone. Raises AioRpcError."""
        fences = [
            (each, message) for each in questions if isinstance(message := each.message, pb.FenceRequest)
        ]
        reads = [(each, message) for each in questions if isinstance(message := each.message, pb.ReadRequest)]
        request = pb.RecoverRequest(
            fences=[message for _, message in fences], reads=[message for _, message in reads]
        )
        try:
            answer: pb.RecoverResponse = await self._stub.recover(request, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            self._knows_recover = False
            return questions
        for (fence, _), fenced in zip(fences, answer.fences, strict=False):
            _answer(fence, fenced)
        for (read, _), found in zip(reads, answer.reads, strict=False):
            if found.messages:
                _answer(read, found.messages)
        return [each for each in questions if not each.answer.done()]


def _answer(question: _Question[T], answer: T) -> None:
    if not question.answer.done():
        question.answer.set_result(answer)


async def _ask_alone(questions: Sequence[_Question[Any]]) -> None:
    """Ask each of `questions` by a call of its own, all at once."""

    async def ask(question: _Question[Any]) -> None:
        try:
            _answer(question, await question.alone())
        except grpc.aio.AioRpcError as error:
            if not question.answer.done():
                question.answer.set_exception(error)

    await asyncio.gather(*map(ask, questions))
