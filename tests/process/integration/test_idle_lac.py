"""The LAC of a ledger that nobody appends to, over real processes: readers have it in time, and no kill takes it from them."""

import asyncio
import re
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

import daybook
from daybook.client.transport.calls import BookieCalls, HasKey
from daybook.core.effects import SendLacRead
from daybook.core.events import LacAnswered
from daybook.local.cluster import LocalCluster
from tests.fixtures.cluster import connect_to
from tests.process.integration.kit import (
    PATIENCE_S,
    eventually,
    kill_all,
    off,
    persist,
    start_all,
    until_bookies,
)

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("nobody_stalls_by_chance")]

POLL_MS = int(2000 * PATIENCE_S)
"""How long a poll lasts that nothing wakes."""


def metric(cluster: LocalCluster, bookie: str, name: str) -> float:
    """What a bookie counted since it started."""
    address = cluster.file.bookie(bookie).metrics_address
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
        found = re.search(rf"^daybook_bookie_{name} (\S+)$", answer.read().decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def have_risen(look: Callable[[], Sequence[float]], before: Sequence[float]) -> bool:
    """Whether every counter is above what it was before."""
    return all(now > then for now, then in zip(look(), before, strict=True))


async def next_entry(reader: daybook.Reader, first: int) -> bytes:
    """The entry that a tail from `first` on gives first."""
    async for entry in reader.tail(first):
        return entry.data
    raise AssertionError("the tail ended")


async def test_rule_48_a_tail_of_an_idle_ledger_has_each_entry_within_the_period_and_a_sync(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll that nothing wakes lasts longer than the test waits, however slow the machine is."""
    read_lac = BookieCalls.read_lac

    async def long(self: BookieCalls, of: HasKey, request: SendLacRead) -> LacAnswered:
        return await read_lac(self, of, replace(request, wait_ms=POLL_MS) if request.wait_ms else request)

    monkeypatch.setattr(BookieCalls, "read_lac", long)
    async with connect_to(cluster) as writer, connect_to(cluster) as other:
        ledger = await writer.create_ledger()
        bookies = ledger.ensemble()
        frames = [await off(metric, cluster, bookie, "add_entry_frames_total") for bookie in bookies]
        await ledger.append(b"0")
        reader = await other.open_ledger(ledger.id, recover=False)
        assert await next_entry(reader, 0) == b"0"

        def is_polled() -> bool:
            return any(metric(cluster, bookie, "read_lac_long_polls") for bookie in bookies)

        def rows() -> list[float]:
            return [metric(cluster, bookie, "lac_rows_total") for bookie in bookies]

        for number in range(1, 6):
            following = asyncio.create_task(next_entry(reader, number))
            await off(asyncio.run, eventually(is_polled))
            rows_before = await off(rows)
            await ledger.append(b"%d" % number)
            async with asyncio.timeout(PATIENCE_S):
                assert await following == b"%d" % number
            await off(asyncio.run, eventually(partial(have_risen, rows, rows_before)))
        await ledger.close()
        for bookie, before in zip(bookies, frames, strict=True):
            assert await off(metric, cluster, bookie, "add_entry_frames_total") <= before + 6, "entries alone"


async def test_rule_48_a_lac_that_died_with_all_its_bookies_is_published_again(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that nobody waits for is synced with what comes next, and nothing comes before the kill."""
    async with connect_to(cluster) as writer, connect_to(cluster) as other:
        ledger = await writer.create_ledger()
        bookies = ledger.ensemble()
        before = {bookie: metric(cluster, bookie, "lac_rows_total") for bookie in bookies}
        await ledger.append(b"x")
        await ledger.replicated()

        def is_published() -> bool:
            return all(metric(cluster, bookie, "lac_rows_total") > count for bookie, count in before.items())

        await off(asyncio.run, eventually(is_published))
        lost: list[str] = []
        notify = ledger._driver.lac_lost

        def noting(bookie: str) -> None:
            lost.append(bookie)
            notify(bookie)

        monkeypatch.setattr(ledger._driver, "lac_lost", noting)
        killed = {bookie: other.bookies()[bookie].boot_id for bookie in bookies}
        await off(kill_all, cluster)
        await off(start_all, cluster)
        await until_bookies(other, lambda now: all(b in now and now[b].boot_id != killed[b] for b in bookies))
        reader = await persist(lambda: other.open_ledger(ledger.id, recover=False))
        async with asyncio.timeout(PATIENCE_S):
            assert await next_entry(reader, 0) == b"x"
        await eventually(
            lambda: bool(lost)
        )  # so the writer publishes again, also what a sync had saved by chance
        assert set(lost) <= set(bookies)
        assert ledger.ensemble() == bookies, "it owed no frame, so no bookie failed"
        await ledger.close()
