"""The store: what exists is what was committed, and what cannot be read is an error, never an absence."""

import errno
import resource
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest
from crc32c import crc32c
from daybook_bookie.disk.errors import BookieMustStopError, CorruptStoreError, StoreRefusedError
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
from daybook_bookie.store.stored_ledger import StoredLedger, ledger_key, pack_record, unpack_record

from daybook.core.format.checksums import ledger_seed
from daybook.core.format.frame import decode_header
from daybook.core.format.intervals import Interval
from daybook.core.quorum import DENSE
from tests.unit.bookie.sim_disk import SimDisk
from tests.unit.bookie.store.kit import (
    SMALL,
    add,
    after_power_cut,
    alter,
    decide,
    decoded,
    entries,
    flush,
    frame,
    open_storage,
    open_store,
    put,
    read_all,
    read_store,
    vanish,
)


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


def test_a_block_that_does_not_fit_is_left_whole_to_the_next_read(tmp_path: Path) -> None:
    with open_store(tmp_path, new=True) as store:
        put(store, *[frame(7, range(at, at + 4), size=1000) for at in (0, 4, 8)])
        (rest,) = store.read_blocks(7, 2, 11, 6000)
        assert decoded([rest]) == entries([2, 3], 1000)
        _, whole = store.read_blocks(7, 2, 11, 7000)
        assert decoded([whole]) == entries(range(4, 8), 1000)
        assert decoded(store.read_blocks(7, 4, 11, 3000)) == entries([4, 5], 1000), "the first one is cut"


def test_decisions_are_stored_with_the_generation(tmp_path: Path) -> None:
    nonces = [bytes([n] * 16) for n in range(3)]
    disk = SimDisk()
    storage = open_storage(tmp_path, disk, new=True)
    decide(storage, intro_record(LedgerIntro(7, 99, b"hash")), fence_record(7), limbo_record(7, nonces[0]))
    flush(storage)
    decide(storage, limbo_clear_record(7, nonces[1]))
    flush(storage)
    storage.close()
    storage = open_storage(tmp_path, disk)
    record = StoredLedger(fenced=True, limbo=nonces[0], password_hash=b"hash", first_seen_ms=99)
    assert storage.store.ledger(7) == storage.ledger(7) == record
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


@pytest.mark.parametrize(
    ("error", "held"),
    [
        (lmdb.DiskError("injected"), [0]),
        (lmdb.Error("injected"), [0]),
        (lmdb.PanicError("x"), [0]),
        (OSError(errno.EIO, "injected"), [0, 1]),
    ],
    ids=["disk", "any", "panic", "checkpoint"],
)
def test_rule_23_a_failed_commit_or_checkpoint_stops_the_bookie_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, held: list[int]
) -> None:
    """A store that is one commit ahead of its checkpoint is legal."""

    def fail(*_: object) -> None:
        raise error

    with open_store(tmp_path, new=True) as store:
        put(store, frame(7, [0]))
        with monkeypatch.context() as patch:
            if isinstance(error, OSError):
                patch.setattr(store._checkpoint_file._file, "fdatasync", fail)
            else:
                patch.setattr(Environment, "commit", fail)
            with pytest.raises(BookieMustStopError, match="next start replays"):
                put(store, frame(7, [1]))
        with pytest.raises(BookieMustStopError):
            put(store, frame(7, [2]))
        assert read_store(store, 7) == entries(held)
    with open_store(tmp_path) as store:
        assert list(store.ledgers()[7].intervals) == [Interval(0, held[-1], DENSE)]
        assert read_store(store, 7) == entries(held)


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
        assert read_store(store, 7) == entries([0])


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
    storage = after_power_cut(storage, tmp_path, disk)
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
    storage = after_power_cut(storage, tmp_path, disk)
    for ledger in (1, 2, 3):
        assert read_all(storage, ledger) == entries(range(20), 100)
    fenced, limbo = storage.ledger(3), storage.ledger(4)
    assert fenced is not None
    assert fenced.fenced
    assert limbo == StoredLedger(limbo=bytes(16))
    storage.close()


# -- rule 26


@pytest.mark.parametrize(
    ("database", "key", "change"),
    [
        ("ledgers", ledger_key(3), vanish),
        ("ledgers", ledger_key(3), lambda _: pack_record(3, StoredLedger())),
        ("ledgers", ledger_key(3), lambda _: pack_record(2, StoredLedger())),
        ("meta", b"root", lambda root: root[:20] + bytes([root[20] ^ 1]) + root[21:]),
        ("meta", b"root", vanish),
    ],
    ids=["deleted", "an older, sound one", "another ledger's", "root", "no root"],
)
def test_rule_26_a_ledger_record_or_root_that_vanished_or_changed_stops_the_start(
    tmp_path: Path, database: str, key: bytes, change: Callable[[bytes], bytes | None]
) -> None:
    with open_store(tmp_path, new=True) as store:
        put(store, *[frame(ledger, range(3)) for ledger in range(5)])
    alter(tmp_path, database, key, change)
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
    forged += crc32c(forged, ledger_seed(7)).to_bytes(4, "little")
    with pytest.raises(CorruptStoreError, match="checksum"):
        unpack_record(7, forged)
    with pytest.raises(CorruptStoreError, match="checksum"):
        unpack_record(8, packed)


@pytest.mark.parametrize(("one", "other"), [((7, 0), (7, 20)), ((7, 0), (8, 0))])
def test_rule_44_a_misdirected_block_is_an_io_error(
    tmp_path: Path, one: tuple[int, int], other: tuple[int, int]
) -> None:
    with open_store(tmp_path, new=True) as store:
        put(store, frame(7, range(10)), frame(7, range(20, 30)), frame(8, range(10)))
    first = alter(tmp_path, "blocks", block_key(*one), vanish)
    second = alter(tmp_path, "blocks", block_key(*other), lambda _: first)
    alter(tmp_path, "blocks", block_key(*one), lambda _: second)
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
    storage = after_power_cut(storage, tmp_path, disk)
    assert read_all(storage, 7) == entries(range(3))
    storage.close()
