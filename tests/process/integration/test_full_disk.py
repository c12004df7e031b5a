"""A disk that fills up while ledgers are written (rule 30), real where namespaces are allowed and pretended everywhere.

Nothing here depends on how fast things happen: a bookie that is full stays so until somebody makes room (see
small_disk.RATIOS), so no test waits for a state that passes.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

import daybook
from daybook.local.cluster import LocalCluster
from tests.fixtures.cluster import connect_to
from tests.process.integration.kit import info, ledger_on, off, persist, until_bookies
from tests.process.integration.small_disk import (
    DISK_BYTES,
    SmallBookie,
    SmallDisk,
    pretended_disk,
    small_tmpfs,
)
from tests.process.integration.workload import read_closed

pytestmark = pytest.mark.integration

ENTRY_BYTES = 64 << 10
BATCH_ENTRIES = 16
WRITTEN_BYTES_MAX = 8 * DISK_BYTES
LEFT_BYTES = 40 << 20
"""Of a quota: one journal file of 32 MiB fits, a second one does not."""


@pytest.fixture(params=["tmpfs", "pretended"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    if request.param == "pretended":
        yield pretended_disk(tmp_path / "disk", DISK_BYTES)
        return
    with small_tmpfs(tmp_path / "disk", DISK_BYTES) as mounted:
        if mounted is None:
            pytest.skip("this user may make no mount namespace")
        yield mounted


@contextmanager
def bookie_on(disk: SmallDisk, cluster: LocalCluster, home: Path) -> Iterator[SmallBookie]:
    """One more bookie of the cluster, ended at the end; not started yet."""
    bookie = SmallBookie(disk, home, f"bookie-{uuid4().hex}", cluster.zookeeper.connect_string)
    try:
        yield bookie
    finally:
        bookie.end(signal.SIGTERM)


def entry(number: int) -> bytes:
    return b"%8d" % number * (ENTRY_BYTES // 8)


async def fill(client: daybook.Client, small: str) -> list[daybook.Ledger]:
    """Write to the small bookie until it takes no more, and return the ledgers; those that it was not in are gone.

    A writer may leave it for another reason, such as a machine that is busy: then another one goes on.
    """
    ledgers: list[daybook.Ledger] = []
    written_bytes = 0
    while (await info(client, small)).writable:
        ledger = await persist(client.create_ledger)
        if small not in ledger.ensemble():
            await ledger.close()
            await client.delete_ledger(ledger.id)
            continue
        ledgers.append(ledger)
        number = 0
        while small in ledger.ensemble():
            assert written_bytes < WRITTEN_BYTES_MAX, "the disk never fills"
            await ledger.append_many([entry(n) for n in range(number, number + BATCH_ENTRIES)])
            number += BATCH_ENTRIES
            written_bytes += BATCH_ENTRIES * ENTRY_BYTES
        assert ledger.last_add_confirmed == number - 1, "what was acknowledged is all that was written"
    return ledgers


async def check(client: daybook.Client, ledger: daybook.Ledger) -> None:
    """What was written is there; the last entry is another one."""
    _, entries = await read_closed(client, ledger.id)
    assert [data for _, data in entries[:-1]] == [entry(n) for n in range(len(entries) - 1)]
    assert entries[-1] == (ledger.last_add_confirmed, b"the others go on")


async def until_listed(client: daybook.Client, small: str, *, writable: bool) -> None:
    """Wait until the bookie is registered as one or the other."""
    await until_bookies(client, lambda now: small in now and now[small].writable is writable)


async def takes_writes(cluster: LocalCluster, small: str) -> None:
    """A client that was not there before writes to the bookie."""
    async with connect_to(cluster) as client, await ledger_on(client, small) as again:
        await again.append(b"room")
        await again.replicated()
        assert small in again.ensemble()


async def test_rule_30_a_full_disk_is_read_only_and_starts_again_and_is_writable_once_there_is_room(
    cluster: LocalCluster, small_disk: SmallDisk, tmp_path: Path
) -> None:
    with bookie_on(small_disk, cluster, tmp_path) as small_bookie:
        small = small_bookie.id
        await small_bookie.start()
        async with connect_to(cluster) as client:
            await until_listed(client, small, writable=True)
            ledgers = await fill(client, small)
            await until_listed(client, small, writable=False)
            first_life = client.bookies()[small].boot_id
            for ledger in ledgers:
                await ledger.append(b"the others go on")
                await ledger.close()
            await off(small_bookie.end, signal.SIGKILL)
            await small_bookie.start()
            await until_bookies(client, lambda now: small in now and now[small].boot_id != first_life)
            for ledger in ledgers:
                await check(client, ledger)
                await client.delete_ledger(ledger.id)
            await until_listed(client, small, writable=True)
        await takes_writes(cluster, small)


async def test_rule_30_a_quota_that_no_figure_shows_ends_read_only_when_it_has_room_and_without_a_restart(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Somebody else's file takes the quota, and goes."""
    disk = pretended_disk(tmp_path / "disk", DISK_BYTES, "quota")
    others = disk.directory / "others"
    with others.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, DISK_BYTES - LEFT_BYTES)
    with bookie_on(disk, cluster, tmp_path) as small_bookie:
        small = small_bookie.id
        await small_bookie.start()
        async with connect_to(cluster) as client:
            await until_listed(client, small, writable=True)
            ledgers = await fill(client, small)
            await until_listed(client, small, writable=False)
            said = await info(client, small)
            assert said.read_only_reason.startswith("journal is full")
            assert said.free_bytes > DISK_BYTES, "the figures show nothing of it"
            for ledger in ledgers:
                await ledger.append(b"the others go on")
                await ledger.close()
                await check(client, ledger)
            assert not (await info(client, small)).writable
            boot_id = said.boot_id
            others.unlink()
            await until_listed(client, small, writable=True)
            assert (await info(client, small)).boot_id == boot_id
        await takes_writes(cluster, small)
