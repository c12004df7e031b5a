"""What disks do: torn tails, garbled journals, flipped bits, lost directories; and kills at the moments that count."""

import asyncio
import os
import random
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.journal.format import (
    DATA_START,
    FILE_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    GROUP_MAGIC,
    Position,
    file_id_of,
    page_end,
    unpack_file_header,
    unpack_group_header,
)
from daybook_bookie.store.checkpoint import CheckpointFile

import daybook
from daybook.client.transport.calls import ReadKey
from daybook.core.effects import ReadLimbo
from daybook.core.errors import Code
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.local.cluster_file import ClusterError
from daybook.wire import bookie_pb2 as pb
from tests.fixtures.cluster import connect_to
from tests.process.integration.kit import (
    BOOKIES,
    PATIENCE_S,
    PATIENT,
    calls,
    copies,
    eventually,
    info,
    kill_all,
    ledger_on,
    off,
    persist,
    repair,
    replace_bookie,
    settings,
    start_all,
    until_gone,
    until_registered,
)
from tests.process.integration.workload import read_closed

pytestmark = pytest.mark.integration

VICTIM = "bookie-1"
"""Alone in its rack, so that a reader of that rack asks it first."""
NO_FLUSH_MS = 3_600_000


class Group(NamedTuple):
    """A whole group in a journal file."""

    file: Path
    begin: int
    end: int


def journal_groups(cluster: LocalCluster, bookie: str) -> list[Group]:
    """The groups of the newest journal file of a bookie that does not run."""
    directory = Path(cluster.file.bookie(bookie).dir) / "journal"
    name = max(name for name in os.listdir(directory) if file_id_of(name) is not None)
    file = RealDisk(directory).open(name)
    try:
        header = unpack_file_header(file.read(0, FILE_HEADER_BYTES))
        assert header is not None
        found, at = [], DATA_START
        while group := unpack_group_header(
            file.read(at, GROUP_HEADER_BYTES), Position(header.file_id, at), header.salt
        ):
            end = page_end(at + group.size_bytes)
            found.append(Group(directory / name, at, end))
            at = end
        return found
    finally:
        file.close()


def unflushed_groups(cluster: LocalCluster, bookie: str) -> list[Group]:
    """Those of them that the store does not hold: a start reads them."""
    store = CheckpointFile(RealDisk(Path(cluster.file.bookie(bookie).dir) / "store"))
    try:
        root = store.read()
    finally:
        store.close()
    assert root is not None
    return [
        group
        for group in journal_groups(cluster, bookie)
        if Position(file_id_of(group.file.name) or 0, group.begin) >= root.checkpoint
    ]


def overwrite(file: Path, offset: int, data: bytes) -> None:
    """Write into the middle of a file."""
    with file.open("r+b") as opened:
        opened.seek(offset)
        opened.write(data)


def flip(file: Path, wanted: bytes) -> int:
    """Flip a bit in every place where a file has these bytes; how many there were."""
    content, at, flipped = file.read_bytes(), 0, 0
    while (at := content.find(wanted, at)) >= 0:
        place = at + len(wanted) // 2
        overwrite(file, place, bytes([content[place] ^ 0x10]))
        flipped, at = flipped + 1, at + 1
    return flipped


async def append_one_by_one(ledger: daybook.Ledger, entries: list[bytes]) -> None:
    """Each entry in a group of its own, so that the journal has many."""
    for entry in entries:
        await ledger.append(entry)


async def test_rule_25_a_torn_tail_of_the_journal_is_cut_off(cluster: LocalCluster) -> None:
    async with settings(cluster, VICTIM, flush_interval_ms=NO_FLUSH_MS), connect_to(cluster) as client:
        await until_registered(client)
        ledger = await ledger_on(client, VICTIM)
        await append_one_by_one(ledger, [b"%d" % n for n in range(20)])
        await ledger.replicated()
        await ledger.abandon()
        await off(cluster.kill_bookie, VICTIM)
        last = journal_groups(cluster, VICTIM)[-1]
        overwrite(last.file, last.end, GROUP_MAGIC + random.Random(1).randbytes(10_000))
        await off(cluster.start_bookie, VICTIM)
        await until_registered(client)
        reader, entries = await read_closed(client, ledger.id)
        assert entries == [(n, b"%d" % n) for n in range(20)]
        assert (await copies(cluster, reader.id))[VICTIM].is_whole


async def killed_with_groups(
    cluster: LocalCluster, client: daybook.Client
) -> tuple[daybook.Ledger, list[Group]]:
    """Kill the victim with some groups that only its journal has, and write to a closed ledger before.

    Garbage collection of other tests' ledgers may flush at any moment: then once more.
    """
    while True:
        ledger = await ledger_on(client, VICTIM)
        await append_one_by_one(ledger, [b"%d" % n for n in range(20)])
        await ledger.replicated()
        await ledger.close()
        await off(cluster.kill_bookie, VICTIM)
        groups = unflushed_groups(cluster, VICTIM)
        if len(groups) > 1:
            return ledger, groups
        await off(cluster.start_bookie, VICTIM)
        await until_registered(client)


async def test_rule_25_a_damaged_journal_is_refused_and_the_bookie_can_be_replaced(
    cluster: LocalCluster,
) -> None:
    async with settings(cluster, VICTIM, flush_interval_ms=NO_FLUSH_MS), connect_to(cluster) as client:
        await until_registered(client)
        ledger, groups = await killed_with_groups(cluster, client)
        damaged = groups[-2]
        overwrite(damaged.file, damaged.begin + GROUP_HEADER_BYTES, b"\0\0\0\0")
        with pytest.raises(ClusterError, match=r"is damaged at byte.*daybook bookie replace"):
            await off(cluster.start_bookie, VICTIM)
        await until_gone(client, VICTIM)
        await replace_bookie(cluster, VICTIM)
        await until_registered(client, VICTIM)
        assert (await info(client, VICTIM)).limbo_ledgers > 0
        await repair(cluster, ledger.id)
        _, entries = await read_closed(client, ledger.id)
        assert entries == [(n, b"%d" % n) for n in range(20)]


async def test_rule_26_a_flipped_bit_in_the_store_is_noticed_read_around_and_repaired(
    cluster: LocalCluster,
) -> None:
    rng = random.Random(2)
    wanted = [rng.randbytes(300) for _ in range(100)]
    async with connect_to(cluster) as client:
        ledger = await ledger_on(client, VICTIM)
        await ledger.append_many(wanted)
        await ledger.replicated()
        await ledger.close()
        await off(cluster.stop_bookies, VICTIM)
        store = Path(cluster.file.bookie(VICTIM).dir) / "store" / "data.mdb"
        assert flip(store, wanted[37]) >= 1
        await off(cluster.start_bookie, VICTIM)
    near = daybook.connect(cluster.zookeeper.connect_string, cluster=CLUSTER_NAME, rack="b")
    async with near as client:
        assert min(BOOKIES, key=client.rank()) == VICTIM
        _, entries = await read_closed(client, ledger.id)
        assert entries == list(enumerate(wanted))
        scrubbed = await calls(client, VICTIM).stub.scrub(
            pb.ScrubRequest(ledger_id=ledger.id), timeout=PATIENCE_S
        )
        assert [(found.ledger_id, list(found.entries)) for found in scrubbed.damaged] == [(ledger.id, [37])]
    found = await copies(cluster, ledger.id)
    assert {bookie: copy.damaged for bookie, copy in found.items() if not copy.is_whole} == {VICTIM: [37]}
    await repair(cluster, ledger.id)


async def test_rule_29_a_wiped_bookie_needs_a_word_and_then_vouches_for_nothing(
    cluster: LocalCluster,
) -> None:
    """b has the entries and loses its disk, c never saw them, a is away: together they must not shorten the ledger."""
    async with connect_to(cluster) as client:
        ledger = await persist(client.create_ledger)
        a, b, c = ledger.ensemble()
        (spare,) = set(BOOKIES) - {a, b, c}
        await off(cluster.stop_bookies, spare)
        await until_gone(client, spare)
        await off(cluster.stop_bookies, c)
        payloads = [b"%d" % n for n in range(100)]
        written = 0
        while not ledger.is_degraded:  # it notices that c is gone at some append after the first
            await ledger.append(payloads[written])
            written += 1
            with suppress(TimeoutError):
                await eventually(lambda: ledger.is_degraded, 0.1)
        await ledger.append_many(payloads[written:])
        assert ledger.is_degraded
        await ledger.abandon()
        await off(cluster.stop_bookies, a)
        await off(cluster.stop_bookies, b)
        cluster.erase_bookie(b)
        with pytest.raises(ClusterError, match="daybook bookie replace"):
            await off(cluster.start_bookie, b)
        await replace_bookie(cluster, b)
        await off(cluster.start_bookie, c)
        await until_registered(client, b, c)
        await until_gone(client, a, spare)
    async with connect_to(cluster) as client:
        with pytest.raises(daybook.RecoveryFailedError):
            await client.open_ledger(ledger.id)
        assert (await info(client, b)).limbo_ledgers > 0
        await off(cluster.start_bookie, a)
        await until_registered(client, a)
    async with connect_to(cluster) as client:
        _, entries = await read_closed(client, ledger.id)
        assert entries == [(n, b"%d" % n) for n in range(100)]
    await repair(cluster, ledger.id)


async def is_in_limbo(client: daybook.Client, bookie: str, ledger: daybook.Ledger) -> bool:
    """Whether the bookie cannot vouch for the ledger."""
    key = ReadKey(ledger.id, ledger.metadata.password_hash)
    answer = await calls(client, bookie).read_limbo(key, ReadLimbo(bookie, 1))
    assert answer.code is Code.OK
    return answer.nonce is not None


async def test_rule_29_a_bookie_is_out_of_limbo_for_a_ledger_that_its_writer_continues_without_it(
    cluster: LocalCluster,
) -> None:
    async with connect_to(cluster) as client:
        ledger = await ledger_on(client, VICTIM)
        payloads = [b"%d" % n for n in range(100)]
        await ledger.append_many(payloads)
        await off(cluster.kill_bookie, VICTIM)
        while VICTIM in ledger.ensemble():
            payloads.append(b"%d" % len(payloads))
            await ledger.append(payloads[-1])
        await replace_bookie(cluster, VICTIM)
        await until_registered(client, VICTIM)
        assert await is_in_limbo(client, VICTIM, ledger)
        await repair(cluster, ledger.id)
        assert not await is_in_limbo(client, VICTIM, ledger)
        payloads.append(b"the writer was left alone")
        await ledger.append(payloads[-1])
        await ledger.close()
        reader, entries = await read_closed(client, ledger.id)
        assert entries == list(enumerate(payloads))
        assert VICTIM in reader.metadata.bookies()


async def test_rule_04_a_fence_that_was_answered_holds_after_a_kill(cluster: LocalCluster) -> None:
    async with connect_to(cluster, writer_policy=PATIENT) as writer, connect_to(cluster) as other:
        ledger = await persist(writer.create_ledger)
        await ledger.append(b"before")
        key = ledger.metadata.password_hash
        ensemble = ledger.ensemble()

        async def fence_and_kill(bookie: str) -> None:
            request = pb.FenceRequest(ledger_id=ledger.id, key=key)
            assert Code((await calls(other, bookie).stub.fence(request, timeout=PATIENCE_S)).code) is Code.OK
            await off(kill_all, cluster, bookie)

        await asyncio.gather(*map(fence_and_kill, ensemble))
        await off(start_all, cluster)
        with pytest.raises(daybook.LedgerFencedError):
            await ledger.append(b"after")
        _, entries = await read_closed(other, ledger.id)
        assert entries[0] == (0, b"before")


async def test_rule_24_kills_between_flushes_lose_nothing_that_one_bookie_answered(
    cluster: LocalCluster,
) -> None:
    """One copy only, so that nobody else can have what this bookie lost; and enough that journal files go."""
    rng = random.Random(24)
    journal = Path(cluster.file.bookie(VICTIM).dir) / "journal"
    async with settings(cluster, VICTIM, flush_interval_ms=50, flush_bytes=4 << 20):
        first_file = min(filter(file_id_of, os.listdir(journal)))
        written: dict[int, list[bytes]] = {}
        for _ in range(3):
            async with connect_to(cluster) as client:
                await until_registered(client, VICTIM)
                ledger = await ledger_on(client, VICTIM, (1, 1, 1))
                entries = written[ledger.id] = [
                    rng.randbytes(8) * 16_384 for _ in range(rng.randrange(100, 140))
                ]
                for begin in range(0, len(entries), 10):
                    await ledger.append_many(entries[begin : begin + 10])
                await ledger.abandon()
            await off(cluster.kill_bookie, VICTIM)
            await off(cluster.start_bookie, VICTIM)
        await eventually(lambda: first_file not in os.listdir(journal))  # or nothing was tried
        async with connect_to(cluster) as client:
            await until_registered(client, VICTIM)
            for ledger_id, entries in written.items():
                _, found = await read_closed(client, ledger_id)
                assert found == list(enumerate(entries))
