"""Which writers are flushed when: all that wait for an idle bookie, at once, and nobody twice for nothing."""

import asyncio

from daybook.client.driver.flush_queue import FlushQueue


class Writer:
    """Counts its flushes; a flush makes its bookies busy, as a frame on its way does."""

    def __init__(self, busy: set[str], *ensemble: str, number: int = 1) -> None:
        self.id = number
        self.flushes = 0
        self._busy = busy
        self._ensemble = ensemble

    def ensemble(self) -> tuple[str, ...]:
        return self._ensemble

    def flush(self) -> None:
        self.flushes += 1
        self._busy.update(self._ensemble)


async def test_all_writers_of_one_turn_share_the_message_of_an_idle_bookie() -> None:
    busy: set[str] = set()
    queue = FlushQueue(lambda bookie: bookie not in busy, lambda _: frozenset())
    writers = [Writer(busy, "a", "b", "c") for _ in range(100)]
    for writer in writers:
        queue.add(writer)
        queue.add(writer)
    assert not any(writer.flushes for writer in writers), "not from inside the call"
    await asyncio.sleep(0)
    assert [writer.flushes for writer in writers] == [1] * 100


async def test_writers_wait_until_one_of_their_bookies_is_idle() -> None:
    busy = {"a", "b", "c", "d"}
    queue = FlushQueue(lambda bookie: bookie not in busy, lambda _: frozenset())
    first, second = Writer(busy, "a", "b", "c"), Writer(busy, "b", "c", "d")
    queue.add(first)
    queue.add(second)
    await asyncio.sleep(0)
    queue.room("d")
    await asyncio.sleep(0)
    assert (first.flushes, second.flushes) == (0, 0), "answered, but not idle"
    busy.discard("d")
    queue.room("d")
    await asyncio.sleep(0)
    assert (first.flushes, second.flushes) == (0, 1)
    busy.discard("a")
    queue.room("a")
    await asyncio.sleep(0)
    assert (first.flushes, second.flushes) == (1, 1)


async def test_rule_46_a_writer_that_attaches_gathers_and_holds_up_nobody() -> None:
    busy: set[str] = set()
    attaching = {("a", 1), ("b", 1)}
    queue = FlushQueue(
        lambda bookie: bookie not in busy, lambda bookie: {n for name, n in attaching if name == bookie}
    )
    waits, flows = Writer(busy, "a", "b", number=1), Writer(busy, "a", "b", number=2)
    queue.add(waits)
    queue.add(flows)
    await asyncio.sleep(0)
    assert (waits.flushes, flows.flushes) == (0, 1)
    busy.clear()
    queue.add(flows)
    queue.room("a")
    await asyncio.sleep(0)
    assert (waits.flushes, flows.flushes) == (0, 2), "what is answered to others is no room for it"
    busy.clear()
    attaching.discard(("b", 1))
    queue.add(waits)
    await asyncio.sleep(0)
    assert waits.flushes == 1, "one bookie that it is attached to is enough"
