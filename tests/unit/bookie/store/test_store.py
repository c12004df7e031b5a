"""The store: what exists is what was committed, and what cannot be read is an error, never an absence."""

import errno
import resource
import shutil
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest
from crc32c import crc32c
from daybook_bookie.disk.errors import (
    BookieMustStopError,
    CorruptStoreError,
    StoreRefusedError,
)
from daybook_bookie.journal.format import (
    LedgerIntro,
    fence_record,
    intro_record,
    limbo_clear_record,
    limbo_record,
)
from daybook_bookie.store.checkpoint import CHECKPOINT
from daybook_bookie.store.environment import Environment
from daybook_bookie.store.reading import block_key
from daybook_bookie.store.stored_ledger import StoredLedger, pack_record, unpack_record

from daybook.core.format.frame import FLAG_RECOVERY, decode_header, encode_frame, entry_crcs, ledger_seed
from daybook.core.format.intervals import Interval, IntervalSet
from daybook.core.quorum import DENSE, Stripe
from tests.unit.bookie.sim_disk import SimDisk
from tests.unit.bookie.store.samples import entries, frame, payload
from tests.unit.bookie.store.storage_kit import (
    SMALL,
    add,
    decide,
    decoded,
    flush,
    open_storage,
    open_store,
    put,
    raw,
    read_all,
    read_blocks_to_end,
)

STRIPE = Stripe(3, 0b011)


@pytest.mark.parametrize(
    ("stripe", "held"), [(DENSE, range(200)), (STRIPE, [n for n in range(300) if n % 3 < 2])]
)
def test_small_frames_become_blocks_and_come_back(tmp_path: Path, stripe: Stripe, held: list[int]) -> None:
    ids = list(held)
    with open_store(tmp_path, new=True) as store:
        put(store, *[frame(7, ids[at : at + 4], stripe=stripe) for at in range(0, len(ids), 4)])
        assert list(store.ledgers()[7].intervals) == [Interval(0, ids[-1], stripe)]
        frames = store.read_blocks(7, 0, 10**6, 10**6)
        assert decoded(frames) == entries(ids)
        assert len(frames) < len(ids) / 12
    with open_store(tmp_path) as store:
        assert decoded(store.read_blocks(7, 0, 10**6, 10**6)) == entries(ids)
        assert store.read_blocks(7, ids[-1] + 1, 10**6, 10**6) == []
        assert store.read_blocks(8, 0, 10**6, 10**6) == []


def test_a_read_is_cut_to_what_was_asked_for_and_to_its_limit(tmp_path: Path) -> None:
    with open_store(tmp_path, new=True, settings=replace(SMALL, block_bytes=100_000)) as store:
        put(store, frame(7, range(500)))
        (one,) = store.read_blocks(7, 250, 250, 10**6)
        assert decoded([one]) == entries([250])
        (some,) = store.read_blocks(7, 100, 499, 3000)
        assert len(some) < 4000
        assert decoded([some]) == entries(range(100, 100 + decode_header(some).count))
        (nearly,) = store.read_blocks(7, 1, 499, 10**6)
        assert decode_header(nearly).count == 500, "a small overshoot is not worth a copy"


def test_what_exists_already_is_trimmed_off_and_ranges_never_overlap(tmp_path: Path) -> None:
    with open_store(tmp_path, new=True) as store:
        put(store, frame(7, [5, 6, 8, 9], stripe=STRIPE), frame(7, [20, 21]))
        put(store, frame(7, range(4, 12)), frame(7, [21, 22]), frame(7, [8, 9], stripe=STRIPE))
        assert decoded(store.read_blocks(7, 0, 100, 10**6)) == entries([*range(4, 12), 20, 21, 22])
        keys = store.block_keys(7, 100)
        blocks = [
            decode_header(store.read_blocks(7, int.from_bytes(key[8:]), 10**6, 10**6)[0]) for key in keys
        ]
        assert sum(block.count for block in blocks) == 11
        put(store, frame(7, range(4, 12)), frame(7, [20, 21, 22]))
        assert store.block_keys(7, 100) == keys, "a pure duplicate changes nothing"


def test_decisions_are_stored_with_the_generation(tmp_path: Path) -> None:
    nonces = [bytes([n] * 16) for n in range(3)]
    disk = SimDisk()
    storage = open_storage(tmp_path, disk, new=True)
    decide(storage, intro_record(LedgerIntro(7, 99, b"hash")), fence_record(7), limbo_record(7, nonces[0]))
    add(storage, frame(7, [], lac=41, length=900), frame(7, [], lac=40, length=800))
    flush(storage)
    decide(storage, limbo_clear_record(7, nonces[1]))
    flush(storage)
    storage.close()
    storage = open_storage(tmp_path, disk)
    record = storage.store.ledger(7)
    assert record == StoredLedger(
        fenced=True,
        limbo=nonces[0],
        last_add_confirmed=41,
        length_at_lac=900,
        password_hash=b"hash",
        first_seen_ms=99,
    )
    assert storage.ledger(7) == record
    decide(
        storage,
        limbo_clear_record(7, nonces[0]),
        limbo_record(7, nonces[2]),
        limbo_clear_record(7, nonces[0]),
    )
    assert storage.ledger(7) == replace(record, limbo=nonces[2])
    flush(storage)
    decide(storage, limbo_clear_record(7, nonces[2]))
    flush(storage)
    assert storage.store.ledger(7) == replace(record, limbo=None)
    storage.close()


# -- rule 23


@pytest.mark.parametrize("error", [lmdb.DiskError("injected"), lmdb.Error("injected"), lmdb.PanicError("x")])
def test_rule_23_a_failed_commit_stops_the_bookie_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: lmdb.Error
) -> None:
    def fail(*_: object) -> None:
        raise error

    with open_store(tmp_path, new=True) as store:
        put(store, frame(7, [0]))
        with monkeypatch.context() as patch:
            patch.setattr(Environment, "commit", fail)
            with pytest.raises(BookieMustStopError, match="next start replays"):
                put(store, frame(7, [1]))
        with pytest.raises(BookieMustStopError):
            put(store, frame(7, [2]))
        assert decoded(store.read_blocks(7, 0, 9, 100)) == entries([0])
    with open_store(tmp_path) as store:
        assert list(store.ledgers()[7].intervals) == [Interval(0, 0, DENSE)]


def test_rule_23_a_file_that_cannot_grow_stops_the_bookie(tmp_path: Path) -> None:
    """LMDB's own failure, by the process's file size limit: EFBIG from its write."""
    with open_store(tmp_path, new=True) as store:
        put(store, frame(7, [0]))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "data.mdb").stat().st_size, limits[1]))
        try:
            with pytest.raises(BookieMustStopError):
                put(store, frame(7, range(1, 400), size=500))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with open_store(tmp_path) as store:
        assert decoded(store.read_blocks(7, 0, 999, 10**6)) == entries([0])


def test_rule_23_a_checkpoint_that_fails_stops_the_bookie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "injected")

    with open_store(tmp_path, new=True) as store:
        with monkeypatch.context() as patch:
            patch.setattr(store._checkpoint_file._file, "fdatasync", fail)
            with pytest.raises(BookieMustStopError):
                put(store, frame(7, [1]))
        with pytest.raises(BookieMustStopError):
            put(store, frame(7, [2]))
    with open_store(tmp_path) as store:
        assert decoded(store.read_blocks(7, 0, 9, 100)) == entries([1]), (
            "one commit ahead of the checkpoint is legal"
        )


# -- rule 24


def test_rule_24_what_comes_after_the_swap_is_replayed(tmp_path: Path) -> None:
    disk = SimDisk()
    storage = open_storage(tmp_path, disk, new=True)
    add(storage, frame(7, [0, 1]))
    swapped = storage.begin_flush()
    add(storage, frame(7, [2, 3]))
    decide(storage, fence_record(9))
    storage.flush(swapped)
    storage.end_flush()
    storage.store.close()
    storage = open_storage(tmp_path, disk.power_cut(lambda *_: False))
    assert read_all(storage, 7) == entries(range(4))
    assert storage.ledger(9) == StoredLedger(fenced=True)
    storage.close()


@pytest.mark.parametrize("commits", range(5))
def test_rule_24_a_crash_between_any_two_commits_of_a_flush_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    disk = SimDisk()
    storage = open_storage(tmp_path, disk, new=True)
    add(storage, *[frame(ledger, range(20), size=100) for ledger in (1, 2, 3)])
    decide(storage, fence_record(3), limbo_record(4, bytes(16)))
    left = commits
    real = Environment.commit

    def crash(environment: Environment, transaction: object) -> None:
        nonlocal left
        if not left:
            raise lmdb.DiskError("the power went here")
        left -= 1
        real(environment, transaction)

    swapped = storage.begin_flush()
    monkeypatch.setattr(Environment, "commit", crash)
    if commits < 3:
        with pytest.raises(BookieMustStopError):
            storage.flush(swapped)
    else:
        storage.flush(swapped)
    monkeypatch.undo()
    storage.store.close()
    storage = open_storage(tmp_path, disk.power_cut(lambda *_: False))
    for ledger in (1, 2, 3):
        assert read_all(storage, ledger) == entries(range(20), 100)
    fenced, limbo = storage.ledger(3), storage.ledger(4)
    assert fenced is not None
    assert fenced.fenced
    assert limbo == StoredLedger(limbo=bytes(16))
    storage.close()


# -- rule 26


def test_rule_26_a_vanished_block_is_an_io_error_and_never_an_absence(tmp_path: Path) -> None:
    with open_store(tmp_path, new=True) as store:
        put(store, frame(7, range(10)), frame(7, range(20, 30), size=200), frame(7, range(30, 40), size=200))
    with raw(tmp_path) as environment:
        blocks = environment.open_db(b"blocks")
        with environment.begin(write=True) as transaction:
            assert transaction.delete(block_key(7, 20), db=blocks)
    with open_store(tmp_path) as store:
        assert decoded(store.read_blocks(7, 0, 99, 10**6)) == entries(range(10)), "what is whole is served"
        for entry in range(20, 30):
            with pytest.raises(CorruptStoreError, match="another replica"):
                store.read_blocks(7, entry, 99, 10**6)
        assert decoded(store.read_blocks(7, 30, 99, 10**6)) == entries(range(30, 40), 200)
        assert store.read_blocks(7, 40, 99, 10**6) == []
        put(store, recovery_frame(7, range(20, 30)))
        assert decoded(store.read_blocks(7, 20, 29, 10**6)) == entries(range(20, 30), 200), "repaired"


def recovery_frame(ledger: int, ids: range) -> bytes:
    data = [payload(n, 200) for n in ids]
    return encode_frame(ledger, ids[0], data, entry_crcs(ledger, list(ids), data), flags=FLAG_RECOVERY)


def test_rule_26_of_a_damaged_block_the_sound_entries_are_served_and_repair_mends_the_rest(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path, new=True) as store:
        put(store, frame(7, range(10), size=200))
    file = tmp_path / "data.mdb"
    data = bytearray(file.read_bytes())
    at = data.find(payload(4, 200))
    while at >= 0:
        data[at + 100] ^= 1
        at = data.find(payload(4, 200), at)
    file.write_bytes(data)
    with open_store(tmp_path) as store:
        assert decoded(store.read_blocks(7, 0, 9, 10**6)) == entries(range(4), 200)
        with pytest.raises(CorruptStoreError, match="entry 4 of ledger 7 fails its checksum"):
            store.read_blocks(7, 4, 9, 10**6)
        assert decoded(store.read_blocks(7, 5, 9, 10**6)) == entries(range(5, 10), 200)
        put(store, recovery_frame(7, range(4, 5)))
        assert read_blocks_to_end(store, 7) == entries(range(10), 200)


@pytest.mark.parametrize("damage", ["delete", "alter", "move", "root", "no root"])
def test_rule_26_a_ledger_record_or_root_that_vanished_or_changed_stops_the_start(
    tmp_path: Path, damage: str
) -> None:
    with open_store(tmp_path, new=True) as store:
        put(store, *[frame(ledger, range(3)) for ledger in range(5)])
    with raw(tmp_path) as environment:
        ledgers, meta = environment.open_db(b"ledgers"), environment.open_db(b"meta")
        with environment.begin(write=True) as transaction:
            key = (3).to_bytes(8, "big")
            if damage == "delete":
                transaction.delete(key, db=ledgers)
            elif damage == "alter":  # an older, sound record
                transaction.put(key, pack_record(3, StoredLedger()), db=ledgers)
            elif damage == "move":
                transaction.put(key, transaction.get((2).to_bytes(8, "big"), b"", db=ledgers), db=ledgers)
            elif damage == "root":
                root = bytearray(transaction.get(b"root", b"", db=meta))
                root[20] ^= 1
                transaction.put(b"root", bytes(root), db=meta)
            else:
                transaction.delete(b"root", db=meta)
    with pytest.raises(StoreRefusedError, match="replace"):
        open_store(tmp_path)


def test_rule_26_a_store_older_than_its_checkpoint_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path, new=True) as store:
        put(store, frame(7, [0]))
    shutil.copy(tmp_path / "data.mdb", tmp_path / "older")
    with open_store(tmp_path) as store:
        put(store, frame(7, [1]))
    shutil.copy(tmp_path / "data.mdb", tmp_path / "newer")
    shutil.copy(tmp_path / "older", tmp_path / "data.mdb")
    with pytest.raises(StoreRefusedError, match="generation 2, but generation 3 was committed"):
        open_store(tmp_path)
    shutil.copy(tmp_path / "newer", tmp_path / "data.mdb")
    open_store(tmp_path).close()
    for gone in (CHECKPOINT, "data.mdb"):
        (tmp_path / gone).rename(tmp_path / "aside")
        for new in (False, True):
            with pytest.raises(StoreRefusedError):
                open_store(tmp_path, new=new)
        (tmp_path / "aside").rename(tmp_path / gone)


def test_a_damaged_checkpoint_slot_is_healed_by_the_next_start(tmp_path: Path) -> None:
    with open_store(tmp_path, new=True) as store:
        put(store, frame(7, [0]))
    for _ in range(4):
        file = tmp_path / CHECKPOINT
        data = bytearray(file.read_bytes())
        data[(store.root.generation % 2) * 4096 + 9] ^= 1
        file.write_bytes(data)
        with open_store(tmp_path) as store:
            put(store, frame(7, [store.root.generation]))
    file.write_bytes(bytes(len(data)))
    with pytest.raises(StoreRefusedError, match="both slots"):
        open_store(tmp_path)


# -- rule 44


def test_rule_44_a_raised_lac_is_noticed_even_under_a_sound_outer_checksum() -> None:
    packed = pack_record(7, StoredLedger(last_add_confirmed=5, length_at_lac=50))
    assert unpack_record(7, packed).length_at_lac == 50
    higher = pack_record(7, StoredLedger(last_add_confirmed=6, length_at_lac=50))
    pair = slice(12, 28)
    forged = packed[: pair.start] + higher[pair] + packed[pair.stop : -4]
    forged += pack_crc(7, forged)
    with pytest.raises(CorruptStoreError, match="checksum"):
        unpack_record(7, forged)
    with pytest.raises(CorruptStoreError, match="checksum"):
        unpack_record(8, packed)


def pack_crc(ledger: int, data: bytes) -> bytes:
    return crc32c(data, ledger_seed(ledger)).to_bytes(4, "little")


@pytest.mark.parametrize(("one", "other"), [((7, 0), (7, 20)), ((7, 0), (8, 0))])
def test_rule_44_a_misdirected_block_is_an_io_error(
    tmp_path: Path, one: tuple[int, int], other: tuple[int, int]
) -> None:
    with open_store(tmp_path, new=True) as store:
        put(store, frame(7, range(10)), frame(7, range(20, 30)), frame(8, range(10)))
    with raw(tmp_path) as environment:
        blocks = environment.open_db(b"blocks")
        with environment.begin(write=True) as transaction:
            values = [transaction.get(block_key(*key), b"", db=blocks) for key in (one, other)]
            for key, value in zip((other, one), values, strict=True):
                transaction.put(block_key(*key), value, db=blocks)
    with open_store(tmp_path) as store:
        for ledger, entry in (one, other):
            with pytest.raises(CorruptStoreError):
                store.read_blocks(ledger, entry, entry, 1000)


# -- rule 54


def test_rule_54_a_resend_is_journalled_although_the_first_is_in_the_cache(tmp_path: Path) -> None:
    disk = SimDisk()
    storage = open_storage(tmp_path, disk, new=True)
    data = frame(7, [0, 1, 2])
    storage.accept(data, decode_header(data))  # waits for the journal, and never gets there
    add(storage, data)  # the resend is answered
    storage.store.close()
    storage = open_storage(tmp_path, disk.power_cut(lambda *_: False))
    assert read_all(storage, 7) == entries(range(3))
    storage.close()


# -- rule 47


@pytest.mark.parametrize("removed", [range(10), range(3, 27), range(0, 30, 3), [5], range(30)])
def test_rule_47_removed_replicas_are_gone_and_what_was_added_since_stays(
    tmp_path: Path, removed: range | list[int]
) -> None:
    disk = SimDisk()
    storage = open_storage(tmp_path, disk, new=True)
    add(storage, *[frame(7, range(at, at + 5), size=300) for at in range(0, 30, 5)])
    flush(storage)
    entries_removed = IntervalSet()
    entries_removed.add_ids(removed)
    storage.remove(7, entries_removed)
    add(storage, frame(7, [5], size=300))  # a repair names the bookie again
    flush(storage)
    left = sorted(set(range(30)) - set(removed) | {5})
    assert read_all(storage, 7) == entries(left, 300)
    storage.store.close()
    storage = open_storage(tmp_path, disk.power_cut(lambda *_: False))
    assert read_all(storage, 7) == entries(left, 300)
    record = storage.store.ledger(7)
    assert record is not None
    assert [n for n in range(40) if record.intervals.contains(n)] == left
    storage.store.close()
