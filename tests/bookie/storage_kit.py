"""A storage on a real LMDB directory with a journal on a simulated disk, small enough to crash many times a second."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import lmdb
from daybook_bookie.disk import RealDisk
from daybook_bookie.journal import Journal
from daybook_bookie.journal_format import PAGE_BYTES
from daybook_bookie.journal_replay import JournalReplay
from daybook_bookie.records import Record
from daybook_bookie.storage import Storage
from daybook_bookie.storage_settings import MIB, StorageSettings
from daybook_bookie.store import Store
from daybook_bookie.write_cache import WriteCache

from daybook.core.frame import Buffer, Entry, decode_entries, decode_header
from tests.bookie.sim_disk import SimDisk

SMALL = replace(
    StorageSettings(),
    store_map_bytes=64 * MIB,
    store_reserve_bytes=MIB,
    block_bytes=1500,
    flush_transaction_bytes=2500,
    delete_transaction_blocks=3,
    read_overshoot_bytes=100,
)
JOURNAL_FILE_BYTES = 64 * PAGE_BYTES


def open_storage(
    directory: Path, journal_disk: SimDisk, *, new: bool = False, settings: StorageSettings = SMALL
) -> Storage:
    """As `Storage.open` does it, with small journal files."""
    store = Store(directory, RealDisk(directory), settings, new=new)
    try:
        cache = WriteCache()
        replay = JournalReplay(journal_disk, store.mark, new=new)
        for record in replay:
            cache.apply(record)
        journal = Journal(journal_disk, replay, file_bytes=JOURNAL_FILE_BYTES)
        if new and not replay.headers:
            journal.prepare()
    except Exception:
        store.close()
        raise
    return Storage(journal, cache, store)


def add(storage: Storage, *frames: bytes, sync: bool = True) -> None:
    """Accept frames, and journal them."""
    storage.journal.append([storage.accept(data, decode_header(data)) for data in frames])
    if sync:
        storage.journal.sync()


def decide(storage: Storage, *records: Record) -> None:
    """Take decisions, and journal them durably."""
    storage.journal.append([storage.decide(record) for record in records])
    storage.journal.sync()


def flush(storage: Storage) -> None:
    """A whole flush."""
    storage.flush(storage.begin_flush())
    storage.end_flush()


def decoded(frames: Iterable[Buffer]) -> list[Entry]:
    """The entries of frames, all sound, by id and once."""
    found: dict[int, Entry] = {}
    for data in frames:
        good, bad = decode_entries(data, decode_header(data))
        assert not bad
        for entry in good:
            assert found.setdefault(entry.entry_id, entry) == entry
    return [found[entry_id] for entry_id in sorted(found)]


def read_all(
    storage: Storage, ledger: int, first: int = 0, last: int = 10**6, step: int = 700
) -> list[Entry]:
    """Everything there is within first … last, in reads of about `step` bytes."""
    entries: list[Entry] = []
    at = first
    while frames := storage.read(ledger, at, last, step):
        part = [entry for entry in decoded(frames) if at <= entry.entry_id <= last]
        assert part, "a read that returns frames makes progress"
        entries += part
        at = part[-1].entry_id + 1
    return entries


def raw(directory: Path) -> lmdb.Environment:
    """The closed store's LMDB environment, to do damage to."""
    return lmdb.open(str(directory), map_size=SMALL.store_map_bytes, max_dbs=3)
