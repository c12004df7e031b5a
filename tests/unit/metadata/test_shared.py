"""One request for all who want the same: rule 46 and rule 57 need an answer of after the call."""

import asyncio

import pytest

from daybook.metadata.store.memory import Fault, FaultKind
from daybook.metadata.store.shared import SharedRequest
from tests.unit.metadata.harness import memory_opener, soon, stores


class Requests:
    """Requests that a test answers."""

    def __init__(self) -> None:
        self.sent: list[asyncio.Future[int]] = []

    def send(self) -> "asyncio.Future[int]":
        self.sent.append(asyncio.get_running_loop().create_future())
        return self.sent[-1]

    async def request(self) -> int:
        return await self.send()


async def turns(count: int = 3) -> None:
    """Let everything that is ready happen."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_rule_46_an_answer_is_to_a_request_that_began_after_the_call() -> None:
    requests = Requests()
    shared = SharedRequest(requests.request)
    first = [asyncio.create_task(shared.answer()) for _ in range(3)]
    await turns()
    later = [asyncio.create_task(shared.answer()) for _ in range(2)]
    await turns()
    assert len(requests.sent) == 1
    requests.sent[0].set_result(10)
    assert await asyncio.gather(*first) == [10, 10, 10]
    await turns()
    assert len(requests.sent) == 2
    assert not any(task.done() for task in later)
    requests.sent[1].set_result(20)
    assert await asyncio.gather(*later) == [20, 20]
    last = asyncio.create_task(shared.answer())
    await turns()
    requests.sent[2].set_result(30)
    assert await last == 30


async def test_an_error_is_the_answer_of_everybody_who_waits() -> None:
    requests = Requests()
    shared = SharedRequest(requests.request)
    first = asyncio.create_task(shared.answer())
    await turns()
    behind = asyncio.create_task(shared.answer())
    await turns()
    requests.sent[0].set_exception(ConnectionError("gone"))
    for task in (first, behind):
        with pytest.raises(ConnectionError, match="gone"):
            await task
    again = asyncio.create_task(shared.answer())
    await turns()
    requests.sent[1].set_result(1)
    assert await again == 1


async def test_who_is_cancelled_takes_nobody_with_him() -> None:
    requests = Requests()
    shared = SharedRequest(requests.request)
    tasks = [asyncio.create_task(shared.answer()) for _ in range(2)]
    await turns()
    tasks[0].cancel()
    await turns()
    requests.sent[0].set_result(1)
    assert await tasks[1] == 1


async def test_syncs_of_one_time_are_one_request() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        lost = Fault(FaultKind.REFUSE, "sync", times=1)
        server.inject(lost)
        await soon(asyncio.gather(*(store.sync() for _ in range(100))))
        assert server.in_flight_max == 1
