"""Frames with known payloads, stores and storages that are small enough to crash many times a second, and reads of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import lmdb
from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.disk.errors import CorruptStoreError
from daybook_bookie.journal.format import PAGE_BYTES, START, Position, Record
from daybook_bookie.settings import MIB, StorageSettings
from daybook_bookie.store import flushing
from daybook_bookie.store.entry_store import EntryStore
from daybook_bookie.store.generation import Generation
from daybook_bookie.store.storage import Storage
from daybook_bookie.store.store import Store
from daybook_bookie.store.write_cache import WriteCache

from daybook.core.format.checksums import entry_crcs
from daybook.core.format.entries import Entry, decode_entries
from daybook.core.format.frame import Buffer, decode_header, encode_frame
from daybook.core.ids import NO_ENTRY
from daybook.core.quorum import DENSE, Stripe
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
    """In memory where that exists: a test that commits thousands of times pays for every sync elsewhere."""
    memory = Path("/dev/shm")
    return TemporaryDirectory(dir=memory if memory.is_dir() else None)


# -- frames


def payload(entry: int, size: int = 40) -> bytes:
    """The one payload that an entry id has in these tests, as the protocol demands."""
    return (f"entry {entry} ".encode() * (size // 8 + 1))[: size + entry % 3]


def frame(
    ledger: int,
    ids: Sequence[int],
    *,
    stripe: Stripe = DENSE,
    size: int = 40,
    lac: int = -1,
    length: int = 0,
    flags: int = 0,
) -> bytes:
    """A frame with `payload` for each id; without ids, one that publishes `lac`."""
    data = [payload(n, size) for n in ids]
    return encode_frame(
        ledger,
        ids[0] if ids else 0,
        data,
        entry_crcs(ledger, ids, data),
        entry_ids=ids,
        stripe=stripe,
        last_add_confirmed=lac,
        length_at_lac=length,
        flags=flags,
    )


def entries(ids: Sequence[int], size: int = 40) -> list[Entry]:
    """What reading these ids must give."""
    return [Entry(n, payload(n, size)) for n in ids]


def decoded(frames: Iterable[Buffer]) -> list[Entry]:
    """The entries of frames, all sound, by id and once."""
    found: dict[int, Entry] = {}
    for data in frames:
        good, bad = decode_entries(data, decode_header(data))
        assert not bad
        for entry in good:
            assert found.setdefault(entry.entry_id, entry) == entry
    return [found[entry_id] for entry_id in sorted(found)]


# -- a store alone


def open_store(directory: Path, *, new: bool = False, settings: StorageSettings = SMALL) -> Store:
    """A store without a journal."""
    return Store(directory, RealDisk(directory), settings, new=new)


def alter(directory: Path, database: str, key: bytes, change: Callable[[bytes], bytes | None]) -> bytes:
    """Damage a closed store: replace a value by what `change` makes of it, None removes it; returns the value before."""
    with (
        lmdb.open(str(directory), map_size=SMALL.store_map_bytes, max_dbs=3) as environment,
        environment.begin(write=True) as transaction,
    ):
        opened = environment.open_db(database.encode(), transaction)
        before: bytes = transaction.get(key, b"", db=opened)
        value = change(before)
        if value is None:
            transaction.delete(key, db=opened)
        else:
            transaction.put(key, value, db=opened)
    return before


def vanish(_: bytes) -> None:
    """A change that removes the value."""


def generation(*frames: bytes, records: Iterable[Record] = ()) -> Generation:
    """What a write cache with these frames and decisions passes to a flush."""
    cache = WriteCache()
    for record in records:
        cache.apply(record)
    for data in frames:
        cache.add_frame(data, decode_header(data))
    return cache.swap()


def put(
    store: EntryStore, *frames: bytes, checkpoint: Position = START, records: Iterable[Record] = ()
) -> None:
    """Flush a generation of these."""
    flushing.flush(store, generation(*frames, records=records), checkpoint)


def read_store(
    store: EntryStore, ledger: int, first: int = 0, last: int = 10**6, max_bytes: int = 10**6
) -> list[Entry]:
    """Every entry of first … last that can be read: continues after each answer and past each damaged entry."""
    found: dict[int, Entry] = {}
    record = store.ledger(ledger)
    at = first
    while record is not None and 0 <= (at := record.intervals.next_from(at)) <= last:
        try:
            frames = store.read_blocks(ledger, at, last, max_bytes)
        except CorruptStoreError:
            at += 1
            continue
        assert frames, "an entry that exists is returned or an error"
        got = decoded(frames)
        found |= {entry.entry_id: entry for entry in got if first <= entry.entry_id <= last}
        at = got[-1].entry_id + 1
    return [found[entry] for entry in sorted(found)]


# -- a store with its journal


def open_storage(
    directory: Path, journal_disk: SimDisk, *, new: bool = False, settings: StorageSettings = SMALL
) -> Storage:
    """As `Storage.open` does it, with small journal files."""
    store = Store(directory, RealDisk(directory), settings, new=new)
    return Storage.replayed(store, journal_disk, journal_file_bytes=JOURNAL_FILE_BYTES, new=new)


def after_power_cut(storage: Storage, directory: Path, journal_disk: SimDisk) -> Storage:
    """What a start finds if the power fails now: of the journal what was synced."""
    storage.store.close()
    return open_storage(directory, journal_disk.power_cut(lambda *_: False))


def add(storage: Storage, *frames: bytes) -> None:
    """Accept frames, and journal them durably."""
    storage.journal.append([storage.accept(data, decode_header(data)) for data in frames])
    storage.journal.sync()


def decide(storage: Storage, *records: Record) -> None:
    """Take decisions, and journal them durably."""
    storage.journal.append([storage.decide(record) for record in records])
    storage.journal.sync()


def flush(storage: Storage) -> None:
    """A whole flush."""
    storage.flush(storage.begin_flush())
    storage.end_flush()


def read_all(storage: Storage, ledger: int, first: int = 0, last: int = 10**6) -> list[Entry]:
    """Every entry within first … last, one by one, in the cache or else in the store (rule 43)."""
    found: list[Entry] = []
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
            found += [entry for entry in decoded(frames) if entry.entry_id == at]
        at += 1
    return found
