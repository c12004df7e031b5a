"""A disk that fills up while ledgers are written (rule 30), real where namespaces are allowed and pretended everywhere."""

import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import daybook
from daybook.cli.local_cluster import LocalCluster
from tests.fixtures.cluster import connect_to
from tests.integration.kit import ledger_on, off, until_bookies
from tests.integration.small_disk import SmallBookie, SmallDisk, pretended_disk, small_tmpfs
from tests.integration.workload import read_closed

pytestmark = pytest.mark.integration

DISK_BYTES = 160 << 20
"""Room for two preallocated journal files of 32 MiB and a store."""
ENTRY_BYTES = 64 << 10


@pytest.fixture(params=["tmpfs", "pretended"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    if request.param == "pretended":
        with pretended_disk(tmp_path / "disk", DISK_BYTES) as disk:
            yield disk
        return
    with small_tmpfs(tmp_path / "disk", DISK_BYTES) as mounted:
        if mounted is None:
            pytest.skip("this user may make no mount namespace")
        yield mounted


@pytest.fixture
def small_bookie(cluster: LocalCluster, small_disk: SmallDisk, tmp_path: Path) -> Iterator[SmallBookie]:
    bookie = SmallBookie(small_disk, tmp_path, f"bookie-{uuid4().hex}", cluster.zookeeper.connect_string)
    yield bookie
    bookie.end(signal.SIGTERM)


def entry(number: int) -> bytes:
    return b"%8d" % number * (ENTRY_BYTES // 8)


async def fill(client: daybook.Client, small: str) -> daybook.Ledger:
    """Write to the small bookie until the writer had to do without it; what was acknowledged is all that it wrote."""
    ledger = await ledger_on(client, small)
    number = 0
    while small in ledger.ensemble():
        assert number * ENTRY_BYTES < 4 * DISK_BYTES, "the disk never fills"
        await ledger.append_many([entry(n) for n in range(number, number + 16)])
        number += 16
    assert not ledger.is_degraded
    assert ledger.last_add_confirmed == number - 1
    return ledger


async def until_listed(client: daybook.Client, small: str, *, writable: bool) -> None:
    """Wait until the bookie is registered as one or the other."""
    await until_bookies(client, lambda now: small in now and now[small].writable is writable)


async def test_rule_30_a_full_disk_is_read_only_and_starts_again_and_is_writable_once_there_is_room(
    cluster: LocalCluster, small_bookie: SmallBookie
) -> None:
    small = small_bookie.id
    await small_bookie.start()
    async with connect_to(cluster) as client:
        await until_listed(client, small, writable=True)
        ledger = await fill(client, small)
        await until_listed(client, small, writable=False)
        await ledger.append(b"the others go on")
        await ledger.close()
        first_life = client.bookies()[small].boot_id
        await off(small_bookie.end, signal.SIGKILL)
        await small_bookie.start()
        await until_bookies(client, lambda now: small in now and now[small].boot_id != first_life)
        reader, entries = await read_closed(client, ledger.id)
        assert [data for _, data in entries[:-1]] == [entry(n) for n in range(len(entries) - 1)]
        assert entries[-1] == (ledger.last_add_confirmed, b"the others go on")
        assert any(small in fragment.bookies for fragment in reader.metadata.fragments)
        await client.delete_ledger(ledger.id)
        await until_listed(client, small, writable=True)
    async with connect_to(cluster) as client, await ledger_on(client, small) as again:
        await again.append(b"room")
        await again.replicated()
        assert small in again.ensemble()
