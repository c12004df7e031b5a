"""The Lease: one leader, taken over only after silence, given up in time. The API server is a dictionary here."""

import asyncio
from typing import Any

import pytest
from daybook_operator.kube.api import ConflictError, Object, UnavailableError
from daybook_operator.kube.lease import LeaderLease, LeadershipLostError, LeaseSettings

from daybook.runtime.clock import CHECK_INTERVAL_S
from tests.unit.runtime.suspension import Suspension


class Server:
    """One Lease, with versions."""

    def __init__(self) -> None:
        self.record: Object | None = None
        self.version = 0
        self.down = False
        self._requests = asyncio.Queue[None]()

    async def find(self, *_: str) -> Object | None:
        self._answer()
        return None if self.record is None else dict(self.record)

    async def create(self, record: Object) -> Object:
        self._answer()
        if self.record is not None:
            raise ConflictError("it exists")
        return self._store(record)

    async def replace(self, record: Object) -> Object:
        self._answer()
        assert self.record is not None
        if record["metadata"]["resourceVersion"] != self.record["metadata"]["resourceVersion"]:
            raise ConflictError("another version")
        return self._store(record)

    async def receives(self, requests: int) -> None:
        """Return once so many more requests have come."""
        while not self._requests.empty():
            self._requests.get_nowait()
        for _ in range(requests):
            await self._requests.get()

    def _answer(self) -> None:
        self._requests.put_nowait(None)
        if self.down:
            raise UnavailableError("nobody answers")

    def _store(self, record: Object) -> Object:
        self.version += 1
        meta = {**record["metadata"], "resourceVersion": str(self.version)}
        self.record = {**record, "metadata": meta}
        return self.record

    @property
    def spec(self) -> dict[str, Any]:
        assert self.record is not None
        found: dict[str, Any] = self.record["spec"]
        return found


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


def candidate(server: Server, name: str, clock: Clock) -> LeaderLease:
    settings = LeaseSettings("data", "daybook-operator", name, duration_ms=15_000, renew_ms=1)
    return LeaderLease(server, settings, now_ms=clock)  # type: ignore[arg-type] # what it needs of Kube


async def test_the_first_leads_and_the_second_waits_for_silence() -> None:
    server, one, two = Server(), Clock(), Clock()
    await candidate(server, "one", one).acquire()
    assert server.spec["holderIdentity"] == "one"
    waiting = candidate(server, "two", two)
    assert not await waiting._try()
    two.ms = 15_000
    assert not await waiting._try(), "the whole duration, by its own clock, since it saw the record first"
    two.ms = 15_001
    assert await waiting._try()
    assert (server.spec["holderIdentity"], server.spec["leaseTransitions"]) == ("two", 1)


async def test_a_renewal_begins_the_wait_anew() -> None:
    server, one, two = Server(), Clock(), Clock()
    leader = candidate(server, "one", one)
    await leader.acquire()
    waiting = candidate(server, "two", two)
    await waiting._try()
    two.ms = 14_000
    await leader._renew()
    assert not await waiting._try()
    two.ms = 28_999
    assert not await waiting._try()
    two.ms = 29_001
    assert await waiting._try()


async def test_a_leader_that_cannot_renew_gives_up_before_another_can_take_over() -> None:
    server, clock = Server(), Clock()
    leader = candidate(server, "one", clock)
    await leader.acquire()
    server.down = True
    holding = asyncio.create_task(leader.hold())
    clock.ms = 14_000
    await server.receives(3)
    assert not holding.done()
    clock.ms = 14_999  # a renewal less than the duration
    with pytest.raises(LeadershipLostError, match="was not renewed"):
        await asyncio.wait_for(holding, 40)


async def test_a_leader_notices_that_the_machine_slept(monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio's timers stood still meanwhile; the Lease did not."""

    server, suspension = Server(), Suspension(monkeypatch)
    settings = LeaseSettings("data", "daybook-operator", "one", duration_ms=900_000, renew_ms=300_000)
    leader = LeaderLease(server, settings)  # type: ignore[arg-type] # what it needs of Kube
    await leader.acquire()
    holding = asyncio.create_task(leader.hold())
    await asyncio.sleep(0)
    server.down = True
    suspension.lasts(900)
    with pytest.raises(LeadershipLostError, match="was not renewed"):
        await asyncio.wait_for(holding, CHECK_INTERVAL_S + 5)


async def test_a_leader_whose_lease_another_has_ends_at_once() -> None:
    server, one, two = Server(), Clock(), Clock()
    leader, other = candidate(server, "one", one), candidate(server, "two", two)
    await leader.acquire()
    await other._try()
    two.ms = 20_000
    assert await other._try()
    with pytest.raises(LeadershipLostError, match="belongs to two"):
        await asyncio.wait_for(leader.hold(), 40)


async def test_a_lease_that_was_given_back_is_free_at_once() -> None:
    server, one, two = Server(), Clock(), Clock()
    leader = candidate(server, "one", one)
    await leader.acquire()
    await leader.release()
    assert await candidate(server, "two", two)._try()


async def test_of_two_that_take_a_free_lease_at_once_one_leads() -> None:
    server, clock = Server(), Clock()
    one, two = candidate(server, "one", clock), candidate(server, "two", clock)
    first, second = asyncio.create_task(one.acquire()), asyncio.create_task(two.acquire())
    done, (waiting,) = await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
    await server.receives(3)
    assert len(done) == 1
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
