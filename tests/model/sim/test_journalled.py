"""The real journal on a simulated disk: what a power cut keeps, what damage leads to, what a failed sync leaves."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from daybook_bookie.disk.errors import BookieMustStopError

from daybook.core.format.frame import decode_header
from tests.model.sim.disk import FrameWritten
from tests.model.sim.disk_damage import flip_journal, flip_store, lose_file, misdirect_write
from tests.model.sim.disk_swarm import DiskSwarm
from tests.model.sim.journalled import JournalledDisk
from tests.model.sim.world import ViolationError
from tests.unit.bookie.store.kit import frame, payload

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
