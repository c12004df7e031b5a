"""A storage on a real LMDB directory with a journal on a simulated disk, small enough to crash many times a second."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import lmdb
from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.journal.format import PAGE_BYTES, START, Record
from daybook_bookie.settings import MIB, StorageSettings
from daybook_bookie.store import flushing
from daybook_bookie.store.generation import Generation
from daybook_bookie.store.storage import Storage
from daybook_bookie.store.store import Store
from daybook_bookie.store.write_cache import WriteCache

from daybook.core.format.frame import Buffer, Entry, decode_entries, decode_header
from daybook.core.ids import NO_ENTRY
from tests.unit.bookie.sim_disk import SimDisk

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


def memory_directory() -> TemporaryDirectory[str]:
    """In memory where there is such a place: a test that commits thousands of times pays for every sync elsewhere."""
    memory = Path("/dev/shm")
    return TemporaryDirectory(dir=memory if memory.is_dir() else None)


def open_storage(
    directory: Path, journal_disk: SimDisk, *, new: bool = False, settings: StorageSettings = SMALL
) -> Storage:
    """As `Storage.open` does it, with small journal files."""
    store = Store(directory, RealDisk(directory), settings, new=new)
    return Storage.replayed(store, journal_disk, journal_file_bytes=JOURNAL_FILE_BYTES, new=new)


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


def read_all(storage: Storage, ledger: int, first: int = 0, last: int = 10**6) -> list[Entry]:
    """Everything there is within first … last, entry by entry, in the cache or else in the store (rule 43)."""
    entries: list[Entry] = []
    at = first if storage.ledger(ledger) is not None else last + 1
    while at <= last:
        cached = storage.cache.next_from(ledger, at)
        record = storage.store.ledger(ledger)
        stored = NO_ENTRY if record is None else record.intervals.next_from(at)
        if cached is not None and not NO_ENTRY < stored < cached[0]:
            at, frames = cached[0], [cached[1].data]
        elif stored != NO_ENTRY:
            at, frames = stored, list(storage.store.read_blocks(ledger, stored, stored, 1))
        else:
            break
        if at <= last:
            entries += [entry for entry in decoded(frames) if entry.entry_id == at]
        at += 1
    return entries


def raw(directory: Path) -> lmdb.Environment:
    """The closed store's LMDB environment, to do damage to."""
    return lmdb.open(str(directory), map_size=SMALL.store_map_bytes, max_dbs=3)


def generation(*frames: bytes) -> Generation:
    """What a write cache with these frames gives to a flush."""
    cache = WriteCache()
    for data in frames:
        cache.add_frame(data, decode_header(data))
    return cache.swap()


def open_store(directory: Path, *, new: bool = False, settings: StorageSettings = SMALL) -> Store:
    """A store alone, without a journal."""
    return Store(directory, RealDisk(directory), settings, new=new)


def put(store: Store, *frames: bytes) -> None:
    """Commit these frames."""
    flushing.flush(store, generation(*frames), START)


def read_blocks_to_end(store: Store, ledger: int) -> list[object]:
    found: list[object] = []
    while frames := store.read_blocks(ledger, len(found), 10**6, 10**6):
        found += decoded(frames)
    return found
