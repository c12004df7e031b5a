"""Fences and recovery reads of many ledgers leave in one call, and nobody waits for another ledger's answer for long."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from daybook.client.transport import gathering
from daybook.client.transport.calls import BookieCalls, ReadKey
from daybook.core.effects import SendRead
from daybook.core.errors import Code
from daybook.core.events import FenceAnswered
from daybook.core.format.checksums import entry_crcs
from daybook.core.format.frame import encode_frame
from daybook.wire import bookie_pb2 as pb
from daybook.wire import service
from daybook.wire.channel import open_aio_channel
from daybook.wire.messages import ReadHeader, encode_read
from tests.unit.client.scripted_bookie import ScriptedBookie

WAIT_S = 40.0


def key(ledger_id: int) -> ReadKey:
    return ReadKey(ledger_id, "h")


def nothing(ledger_id: int = 1) -> bytes:
    """The answer to a read of a ledger that has an entry 0 alone."""
    frame = encode_frame(ledger_id, 0, [b"x"], entry_crcs(ledger_id, [0], [b"x"]))
    return encode_read(ReadHeader(Code.OK, through=9), [frame])


class Stub:
    """A stub whose calls are counted, and answered once `go` is set."""

    def __init__(self, recover: Callable[[pb.RecoverRequest], pb.RecoverResponse] | None = None) -> None:
        self.go = asyncio.Event()
        self.go.set()
        self.called: list[str] = []
        self.came = asyncio.Event()
        self._recover = recover or self.answer_all

    @staticmethod
    def answer_all(request: pb.RecoverRequest) -> pb.RecoverResponse:
        return pb.RecoverResponse(
            fences=[pb.FenceResponse(last_add_confirmed=each.ledger_id) for each in request.fences],
            reads=[pb.RecoveryRead(messages=[nothing(each.ledger_id)]) for each in request.reads],
        )

    async def _call(self, name: str) -> None:
        self.called.append(name)
        self.came.set()
        await self.go.wait()

    async def fence(self, request: pb.FenceRequest, **_: float) -> pb.FenceResponse:
        await self._call(f"fence {request.ledger_id}")
        return pb.FenceResponse(last_add_confirmed=request.ledger_id)

    async def recover(self, request: pb.RecoverRequest, **_: float) -> pb.RecoverResponse:
        await self._call(f"recover {len(request.fences)} {len(request.reads)}")
        return self._recover(request)

    async def recovery_read(self, request: pb.ReadRequest, **_: float) -> Any:
        await self._call(f"read {request.ledger_id}")
        yield nothing(request.ledger_id)


def calls_of(stub: Stub) -> gathering.RecoveryCalls:
    return gathering.RecoveryCalls(stub, WAIT_S)  # type: ignore[arg-type]  # it answers what is asked here


def fence(calls: gathering.RecoveryCalls, ledger_id: int) -> asyncio.Task[pb.FenceResponse]:
    return asyncio.ensure_future(calls.fence(pb.FenceRequest(ledger_id=ledger_id)))


def read(calls: gathering.RecoveryCalls, ledger_id: int) -> asyncio.Task[Any]:
    return asyncio.ensure_future(calls.read(pb.ReadRequest(ledger_id=ledger_id)))


async def test_what_is_asked_in_one_turn_is_asked_in_one_call() -> None:
    stub = Stub()
    calls = calls_of(stub)
    answers = await asyncio.gather(fence(calls, 1), read(calls, 2), fence(calls, 3), read(calls, 4))
    assert [answers[0].last_add_confirmed, answers[2].last_add_confirmed] == [1, 3]
    assert [list(answers[1]), list(answers[3])] == [[nothing(2)], [nothing(4)]]
    assert stub.called == ["recover 2 2"]


async def test_a_lone_question_has_a_call_of_its_own_and_those_that_come_meanwhile_share_the_next() -> None:
    stub = Stub()
    stub.go.clear()
    calls = calls_of(stub)
    first = fence(calls, 1)
    await stub.came.wait()
    others = [fence(calls, 2), read(calls, 3)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert stub.called == ["fence 1"]
    stub.go.set()
    await asyncio.gather(first, *others)
    assert stub.called == ["fence 1", "recover 1 1"]


async def test_rule_07_a_call_without_an_answer_does_not_keep_others_waiting() -> None:
    stub = Stub()
    stub.go.clear()
    calls = calls_of(stub)
    first = fence(calls, 1)
    await stub.came.wait()
    stub.came.clear()
    second = fence(calls, 2)
    await asyncio.wait_for(stub.came.wait(), WAIT_S)
    assert stub.called == ["fence 1", "fence 2"]
    stub.go.set()
    await asyncio.gather(first, second)


async def test_who_has_given_up_is_not_asked_for() -> None:
    stub = Stub()
    calls = calls_of(stub)
    gone, stays = fence(calls, 1), fence(calls, 2)
    await asyncio.sleep(0)
    gone.cancel()
    assert (await stays).last_add_confirmed == 2
    assert stub.called == ["fence 2"]


async def test_what_the_bookie_left_out_is_asked_for_alone() -> None:
    def recover(request: pb.RecoverRequest) -> pb.RecoverResponse:
        return pb.RecoverResponse(reads=[pb.RecoveryRead() for _ in request.reads])

    stub = Stub(recover)
    calls = calls_of(stub)
    fenced, found = await asyncio.gather(fence(calls, 1), read(calls, 2))
    assert (fenced.last_add_confirmed, list(found)) == (1, [nothing(2)])
    assert stub.called == ["recover 1 1", "fence 1", "read 2"]


async def test_more_than_one_call_may_hold_is_asked_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "RECOVER_MAX", 2)
    stub = Stub()
    calls = calls_of(stub)
    await asyncio.gather(*(fence(calls, ledger_id) for ledger_id in range(5)))
    assert stub.called == ["recover 2 0", "recover 2 0", "fence 4"]


async def test_an_error_of_the_call_is_the_answer_to_all_of_it() -> None:
    def recover(_: pb.RecoverRequest) -> pb.RecoverResponse:
        metadata = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, metadata, metadata, details="late")

    calls = calls_of(Stub(recover))
    for each in await asyncio.gather(fence(calls, 1), read(calls, 2), return_exceptions=True):
        assert isinstance(each, grpc.aio.AioRpcError)


# Over a socket


async def test_a_bookie_that_does_not_know_recover_is_asked_by_single_calls() -> None:
    unary = {"Fence": pb.FenceResponse(last_add_confirmed=5)}
    async with (
        ScriptedBookie(unary=unary, read=[nothing()]) as bookie,
        open_aio_channel(bookie.address) as channel,
    ):
        calls = BookieCalls("b0", channel)
        for _ in range(2):
            first, second, found = await asyncio.gather(
                calls.fence(key(1), 1),
                calls.fence(key(2), 2),
                calls.read(key(1), SendRead("b0", 3, 0, 9, 1 << 20, fence=True)),
            )
            assert (first, second) == (
                FenceAnswered("b0", 1, Code.OK, 5),
                FenceAnswered("b0", 2, Code.OK, 5),
            )
            assert [entry.entry_id for entry in found.entries] == [0]


async def test_who_asks_together_is_answered_together_by_a_bookie_that_knows_recover() -> None:
    answer = pb.RecoverResponse(
        fences=[pb.FenceResponse(code=Code.UNAUTHORIZED)],
        reads=[pb.RecoveryRead(messages=[b"no answer"])],
    )
    async with (
        ScriptedBookie(unary={service.RECOVER.name: answer}) as bookie,
        open_aio_channel(bookie.address) as channel,
    ):
        calls = BookieCalls("b0", channel)
        fenced, found = await asyncio.gather(
            calls.fence(key(1), 1), calls.read(key(2), SendRead("b0", 2, 0, 9, 1 << 20, fence=True))
        )
    assert fenced.code is Code.UNAUTHORIZED
    assert found.code is Code.IO_ERROR, "bytes that are no answer concern the ledger that they were for"


async def test_a_channel_that_is_closed_cancels_who_waits() -> None:
    async with ScriptedBookie(unary={service.RECOVER.name: asyncio.Event()}) as bookie:
        channel = open_aio_channel(bookie.address)
        calls = BookieCalls("b0", channel)
        waiting = [asyncio.ensure_future(calls.fence(key(number), number)) for number in (1, 2)]
        await asyncio.wait_for(bookie.asked.wait(), WAIT_S)
        await channel.close()
        await asyncio.wait(waiting, timeout=WAIT_S)
        assert all(each.cancelled() for each in waiting)
