"""An address outlives its bookie: another one may answer there, and must not be taken for it.

A pod's address or a port is given to the next process. Its "not found" would count as a second witness, and a recovery
would close a ledger short of what was acknowledged (rule 6).
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from daybook.client.transport.calls import BookieCalls, ReadKey
from daybook.core.effects import ClearLimbo, ReadLimbo, SendLacRead, SendRead
from daybook.core.errors import Code
from daybook.wire import bookie_pb2 as pb
from daybook.wire.channel import open_aio_channel
from daybook.wire.service import BookieStub
from tests.unit.bookie.server_kit import RunningBookie, frame_of
from tests.unit.bookie.stream_kit import KEY, WAIT_S


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[RunningBookie]:
    """The bookie b0, which has an open ledger 1."""
    running = RunningBookie(tmp_path / "b0")
    running.create_ledger(1)
    yield running
    running.stop()


async def answers_of(name: str, address: str) -> list[Code]:
    """What every call to the bookie `name` at `address` comes to; the last one is a recovery read."""
    key = ReadKey(1, KEY)
    async with open_aio_channel(address) as channel:
        calls = BookieCalls(name, channel)
        answers: list[Any] = [
            await calls.read_lac(key, SendLacRead(name, 1)),
            await calls.force(key, 2),
            await calls.read(key, SendRead(name, 3, 0, 9, 1 << 20)),
            await calls.read_limbo(key, ReadLimbo(name, 4)),
            await calls.clear_limbo(key, ClearLimbo(name, 5, "00" * 16)),
            await calls.fence(key, 6),
            await calls.read(key, SendRead(name, 7, 0, 9, 1 << 20, fence=True)),
        ]
        return [answer.code for answer in answers]


def test_rule_06_a_bookie_does_not_answer_for_another(bookie: RunningBookie) -> None:
    assert asyncio.run(answers_of("b1", bookie.address)) == [Code.CONNECTION_LOST] * 7
    stream = bookie.open_stream()
    stream.attach(1)
    assert stream.add(frame_of(1, 0, [b"x"])) == {}, "and it was not fenced"
    assert asyncio.run(answers_of("b0", bookie.address)) == [Code.OK] * 7


def test_the_refusal_says_who_answers(bookie: RunningBookie) -> None:
    stub = BookieStub(bookie.channel, bookie="b1")
    calls: list[Callable[[], object]] = [
        lambda: stub.get_info(pb.GetInfoRequest(), timeout=WAIT_S),
        lambda: list(stub.read(pb.ReadRequest(ledger_id=1), timeout=WAIT_S)),
        lambda: list(stub.append(iter([b"x"]), timeout=WAIT_S)),
    ]
    for call in calls:
        with pytest.raises(grpc.RpcError, match=r"bookie b0.*b1") as refused:
            call()
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_rule_57_a_process_does_not_answer_for_another_of_its_bookie(bookie: RunningBookie) -> None:
    own = BookieStub(bookie.channel, "b0", bookie.bookie.boot_id)
    assert own.get_info(pb.GetInfoRequest(), timeout=WAIT_S).boot_id == bookie.bookie.boot_id
    with pytest.raises(grpc.RpcError, match="not registered yet, or no more") as refused:
        BookieStub(bookie.channel, "b0", "another").get_info(pb.GetInfoRequest(), timeout=WAIT_S)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
