"""The real journal on a simulated disk: what a power cut keeps, what damage leads to, what a full disk is answered with."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from daybook_bookie.disk.errors import BookieMustStopError, StorageFullError
from daybook_bookie.journal.format import NONCE_BYTES
from daybook_bookie.journal.journal import Journal

from daybook.core.bookie.decisions import FencePlaced, KeyLearned, LimboCleared, LimboMarked
from daybook.core.bookie.ledger import LedgerRecord
from daybook.core.errors import Code
from daybook.core.events import FenceAnswered
from daybook.core.format.frame import decode_header
from tests.model.sim.cluster import Cluster
from tests.model.sim.disk import FrameWritten, LedgerDropped, RecordWritten
from tests.model.sim.disk_damage import flip_journal, flip_store, lose_file, misdirect_write
from tests.model.sim.disk_faults import DiskFaults
from tests.model.sim.disk_swarm import DiskSwarm, draw_disks
from tests.model.sim.journalled import JournalledDisk
from tests.model.sim.scenario import run_seed
from tests.model.sim.swarm import draw
from tests.model.sim.test_models import QUIET, ledger
from tests.model.sim.world import MS, ViolationError, World
from tests.unit.bookie.store.kit import frame, payload
from tests.unit.core.bookie.memory_storage import after_decision

DISKS = DiskSwarm(journalled=True, file_pages=4, sector_bytes=64)


def fail(name: str, why: str) -> None:
    raise ViolationError(f"{name}: {why}")


def new_disk(swarm: DiskSwarm = DISKS) -> JournalledDisk:
    return JournalledDisk(swarm, Random(1), fail, lambda: True, failures=Random(2))


def written(*ids: int, lac: int = -1) -> FrameWritten:
    data = frame(7, ids, lac=lac, length=10 * lac + 10)
    header = decode_header(data)
    return FrameWritten(7, {n: payload(n) for n in ids}, lac, header.length_at_lac, data)


def add(disk: JournalledDisk, *ids: int) -> None:
    disk.write(written(*ids), lambda: None)
    disk.sync(disk.append())


def add_each(disk: JournalledDisk, ids: Iterable[int]) -> None:
    for n in ids:
        add(disk, n)


def add_and_flush(disk: JournalledDisk, count: int) -> None:
    for n in range(count):
        add(disk, n)
        flush(disk)


def flush(disk: JournalledDisk) -> None:
    disk.finish_flush(disk.begin_flush())


def test_a_power_cut_keeps_what_was_synced_and_whole_groups_of_the_rest() -> None:
    outcomes = set()
    torn = 0
    for seed in range(60):
        disk = new_disk()
        add(disk, 0, 1)
        disk.write(written(2, 3), lambda: None)
        disk.append()
        disk.write(written(4), lambda: None)  # accepted, and not written to the journal
        disk.crash(Random(seed), 0.8)
        outcomes.add(frozenset(disk.ledgers[7].entries))
        torn += disk.is_torn
    assert outcomes == {frozenset({0, 1}), frozenset({0, 1, 2, 3})}
    assert torn > 10


def test_fences_limbo_marks_and_deletions_come_back_from_journal_and_store() -> None:
    disk = new_disk()
    nonce = bytes(range(NONCE_BYTES)).hex()
    record = LedgerRecord(7, "key", introduced=True, fenced=True, limbo_nonce=nonce)
    for flushed in (False, True):
        for ledger_id in (7, 8):
            known = LedgerRecord(ledger_id)
            for decision in (
                KeyLearned(ledger_id, "key", introduced=True),
                FencePlaced(ledger_id),
                LimboMarked(ledger_id, nonce),
            ):
                after = after_decision(known, decision)
                assert after is not None
                disk.write(RecordWritten(after, decision), lambda: None)
                known = after
            assert known == replace(record, ledger_id=ledger_id)
        disk.write(LedgerDropped(8), lambda: None)
        disk.sync(disk.append())
        if flushed:
            flush(disk)
        disk.crash(Random(0), 0.0)
        assert disk.ledgers[7].record == record
        assert 8 not in disk.ledgers
    disk.write(RecordWritten(replace(record, limbo_nonce=None), LimboCleared(7, nonce)), lambda: None)
    disk.sync(disk.append())
    disk.crash(Random(0), 0.0)
    assert disk.ledgers[7].record == replace(record, limbo_nonce=None)


def test_a_flush_lets_journal_files_go_and_nothing_is_lost() -> None:
    disk = new_disk()
    for n in range(12):
        add(disk, n)
    files = len(disk.journal_disk.names())
    assert disk.finish_flush(disk.begin_flush()).files == files - 1
    disk.crash(Random(0), 0.0)
    assert sorted(disk.ledgers[7].entries) == list(range(12))


def test_what_a_replay_forgets_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = new_disk()
    monkeypatch.setattr(Journal, "sync", lambda journal: journal.written)
    add(disk, 0, 1)
    with pytest.raises(ViolationError, match="what was synced is there after a restart"):
        disk.crash(Random(0), 0.0)


@pytest.mark.parametrize("damage", [flip_journal, misdirect_write, lose_file])
def test_damage_of_a_journal_is_refused_or_harmless(damage: object) -> None:
    assert callable(damage)
    outcomes = set()
    for seed in range(60):
        disk = new_disk()
        for n in range(8):
            add(disk, n)
            if n == 4 and seed % 2:
                flush(disk)
        disk.crash(Random(0), 0.0)
        assert damage(disk, Random(seed)) or seed % 2
        outcomes.add(disk.remount())
    assert False in outcomes
    assert True in outcomes or damage is lose_file


def test_a_flipped_bit_of_a_block_is_an_error_and_no_other_bytes() -> None:
    disk = new_disk()
    add(disk, *range(6))
    flush(disk)
    assert flip_store(disk, Random(3))
    (lost,) = disk.scrubbed().values()
    assert lost
    assert set(disk.ledgers[7].entries) == set(range(6)) - lost
    disk.crash(Random(0), 0.0)
    assert set(disk.ledgers[7].entries) == set(range(6)) - lost


def test_a_failed_write_or_commit_stops_the_bookie() -> None:
    for swarm in (replace(DISKS, journal_eio=1.0), replace(DISKS, store_eio=1.0)):
        disk = new_disk(swarm)
        with pytest.raises(BookieMustStopError):
            add_and_flush(disk, 30)
        disk.crash(Random(0), 0.5)


@pytest.mark.parametrize("drops", [False, True])
def test_a_process_that_its_disk_stopped_may_read_what_no_sync_wrote(drops: bool) -> None:
    """And a power cut takes it away again, unless the replay wrote it."""
    found = set()
    for seed in range(20):
        disk = new_disk(replace(DISKS, journal_eio=1.0, keeps_power=1.0, drops_failed=drops))
        disk._rng = Random(seed)
        with pytest.raises(BookieMustStopError):
            add_each(disk, range(30))
        disk.draws_power_loss()
        disk.crash(Random(seed), 0.0)
        before = {ledger_id: set(stored.entries) for ledger_id, stored in disk.ledgers.items()}
        found.add(bool(before))
        disk.crash(Random(seed), 0.0)
        assert {ledger_id: set(stored.entries) for ledger_id, stored in disk.ledgers.items()} == before
    assert True in found
    assert (False in found) is drops


def test_a_full_disk_refuses_and_promises_nothing_until_the_store_has_it() -> None:
    disk = new_disk()
    add(disk, 0)
    disk.journal_is_full = True
    with pytest.raises(StorageFullError):
        add_each(disk, range(1, 9))
    refused = disk.refuse(len(disk.unsynced))
    assert len(refused) == 1
    assert not disk.has_room()
    disk.store_is_full = True
    generation = disk.begin_flush()
    with pytest.raises(StorageFullError):
        disk.finish_flush(generation)
    disk.make_room()
    assert disk.has_room()
    disk.finish_flush(generation)
    assert set(refused[0].written.entries) <= set(disk.ledgers[7].entries)  # type: ignore[union-attr]  # a frame


def journalled_cluster(disks: DiskSwarm = DISKS) -> Cluster:
    cluster = Cluster(1, swarm=replace(QUIET, disks=disks))
    cluster.boot()
    return cluster


def test_a_refused_journal_is_a_lost_disk_and_its_ledgers_are_in_limbo() -> None:
    cluster = journalled_cluster(replace(DISKS, flush_us=10_000 * MS))
    cluster.store.create(ledger("b0", "b1", "b2"))
    bookie = cluster.bookies["b0"]
    for n in range(6):
        bookie.fence(n, "key", n, lambda _: None)
        cluster.world.run(cluster.world.now_us + 10 * MS)
    faults = DiskFaults(cluster, lambda found: found.crash())
    faults._damage_journal(bookie, "lost file", lose_file)
    assert bookie.replaced
    bookie.start()
    cluster.world.run(cluster.world.now_us + 1000 * MS)
    assert bookie.serving
    assert bookie.limbo_nonce(0) is not None


def test_a_fence_without_room_is_refused_and_asked_again_when_there_is_some() -> None:
    cluster = journalled_cluster()
    bookie, disk = cluster.bookies["b0"], cluster.bookies["b0"].journalled
    assert disk is not None
    answers: list[FenceAnswered] = []
    disk.journal_is_full = True
    for n in range(5):  # a file has room for some
        bookie.fence(n, "key", n, answers.append)
        cluster.world.run(cluster.world.now_us + 10 * MS)
    refused = [answer.request_id for answer in answers if answer.code is Code.READ_ONLY]
    assert refused
    assert bookie.read_only
    disk.make_room()
    bookie.fence(refused[0], "key", 99, answers.append)
    cluster.world.run(cluster.world.now_us + 40 * MS)
    assert answers[-1].code is Code.OK
    assert bookie.is_fenced_durably(refused[0])
    assert not bookie.read_only


def test_a_seed_with_a_journal_repeats_itself_event_for_event() -> None:
    swarm = draw(World(7).rng("swarm"))
    disks = draw_disks(World(7).rng("disk swarm"), journalled=True)
    once, again = (run_seed(7, tracing=True, swarm=replace(swarm, disks=disks)) for _ in range(2))
    assert once.failure is None
    assert once.trace == again.trace


def test_one_seed_of_four_has_a_journal() -> None:
    drawn = [draw_disks(World(seed).rng("disk swarm")).journalled for seed in range(400)]
    assert 70 < sum(drawn) < 130
