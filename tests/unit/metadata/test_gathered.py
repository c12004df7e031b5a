"""One request for all who ask at one time, each for something of its own."""

import asyncio
from collections.abc import Sequence

import pytest

from daybook.metadata.store.gathered import GatheredRequests


class Server:
    """Answers with ten times the number, once it may."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.go = asyncio.Event()
        self.go.set()

    async def ask_each(self, numbers: Sequence[int]) -> Sequence[int | Exception]:
        self.asked.append(list(numbers))
        await self.go.wait()
        if 0 in numbers:
            msg = "the whole request"
            raise ConnectionError(msg)
        return [ValueError(number) if number < 0 else 10 * number for number in numbers]


def ask(requests: GatheredRequests[int, int], *numbers: int) -> list[asyncio.Task[int]]:
    return [asyncio.create_task(requests.answer(number)) for number in numbers]


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_is_asked_while_a_request_is_under_way_leaves_with_the_next() -> None:
    server = Server()
    server.go.clear()
    requests = GatheredRequests(server.ask_each, count_max=10)
    first = ask(requests, 1, 2)
    await turns()
    later = ask(requests, 3, 4)
    await turns()
    server.go.set()
    assert await asyncio.gather(*first, *later) == [10, 20, 30, 40]
    assert server.asked == [[1, 2], [3, 4]]
    assert await requests.answer(5) == 50


async def test_an_error_is_for_whom_it_concerns() -> None:
    server = Server()
    requests = GatheredRequests(server.ask_each, count_max=2)
    good, bad, lost, too = await asyncio.gather(*ask(requests, 1, -1, 0, 2), return_exceptions=True)
    assert good == 10
    assert isinstance(bad, ValueError)
    assert isinstance(lost, ConnectionError)
    assert isinstance(too, ConnectionError)
    assert await requests.answer(3) == 30


async def test_who_gave_up_is_not_asked_for_and_keeps_nobody_waiting() -> None:
    server = Server()
    server.go.clear()
    requests = GatheredRequests(server.ask_each, count_max=10)
    (under_way,) = ask(requests, 1)
    await turns()
    (gone,), (stays,) = ask(requests, 2), ask(requests, 3)
    await turns()
    under_way.cancel()
    gone.cancel()
    await turns()
    server.go.set()
    assert await stays == 30
    assert server.asked == [[1], [3]]


@pytest.mark.parametrize(
    ("bytes_max", "groups"), [(10, [[5, 5], [9], [20], [1]]), (1, [[5], [5], [9], [20], [1]])]
)
async def test_a_request_is_bounded_and_what_is_larger_goes_alone(
    bytes_max: int, groups: list[list[int]]
) -> None:
    server = Server()
    requests = GatheredRequests(
        server.ask_each, count_max=10, size_of=lambda number: number, bytes_max=bytes_max
    )
    await asyncio.gather(*ask(requests, 5, 5, 9, 20, 1))
    assert server.asked == groups
