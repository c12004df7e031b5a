"""What is flipped bit by bit, and the judgement of what each flip did (rule 25, rule 26).

An image is a set of files as a bookie leaves them, with places in it. A judge opens the image with one bit flipped and
reads everything back. It says `harmless` when everything is there and right, `refused` or `io-error` when the bookie
says so, and a word in capitals for a violation: an entry that is WRONG or VANISHED, or an error that is not a
documented one (UNCLEAR).
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.disk.errors import (
    CorruptStoreError,
    JournalCorruptError,
    StoreNotOpenedError,
    StoreRefusedError,
)
from daybook_bookie.journal.format import (
    PAGE_BYTES,
    START,
    LedgerIntro,
    Record,
    fence_record,
    frame_record,
    intro_record,
)
from daybook_bookie.journal.journal import Journal
from daybook_bookie.journal.replay import JournalReplay
from daybook_bookie.store.checkpoint import CHECKPOINT
from daybook_bookie.store.store import Store
from daybook_bookie.store.write_cache import WriteCache

from daybook.core.format.entries import decode_entries
from daybook.core.format.frame import decode_header
from tests.unit.bookie.sim_disk import SimDisk
from tests.unit.bookie.store.kit import SMALL, frame, payload, put
from tools.bit_flips.lmdb_pages import used_pages

DATA: Final = "data.mdb"
LEDGERS: Final = range(1, 7)
ENTRIES: Final = 24
LARGE_LEDGER: Final = 7
LARGE_ENTRIES: Final = 3
LARGE_BYTES: Final = 3000
"""Over half a page, so that LMDB gives the value pages of its own."""
READ_BYTES: Final = 2500
"""Of a read: several blocks, and not all of a ledger."""

Judge = Callable[[Mapping[str, bytes]], str]


class Place(NamedTuple):
    """Bytes whose bits are flipped in turn."""

    what: str
    file: str
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Image:
    """Files, what to flip in them, and who judges."""

    name: str
    files: Mapping[str, bytes]
    places: Sequence[Place]
    judge: Judge
    allowed: Mapping[str, str]
    """Verdicts that are no violation only in one place: verdict -> `Place.what`."""

    def bits(self) -> list[tuple[Place, int]]:
        """Every bit, as (place, bit within the file)."""
        return [
            (place, bit)
            for place in self.places
            for bit in range(8 * place.offset, 8 * (place.offset + place.size_bytes))
        ]

    def flipped(self, place: Place, bit: int) -> dict[str, bytes]:
        """The files with one bit flipped."""
        data = bytearray(self.files[place.file])
        data[bit // 8] ^= 1 << bit % 8
        return {**self.files, place.file: bytes(data)}


def store_image(directory: Path) -> Image:
    """A store of one tree with a branch, leaves and overflow pages, flushed several times."""
    contents = dict.fromkeys(LEDGERS, (ENTRIES, 40)) | {LARGE_LEDGER: (LARGE_ENTRIES, LARGE_BYTES)}
    with Store(directory, RealDisk(directory), SMALL, new=True) as store:
        for part in range(3):
            frames = [
                frame(ledger, range(part * count // 3, (part + 1) * count // 3), size=size)
                for ledger, (count, size) in contents.items()
            ]
            put(store, *frames, records=map(fence_record, contents))
    files = {name: (directory / name).read_bytes() for name in (DATA, CHECKPOINT)}
    first: dict[str, int] = {}
    for what, page in used_pages(files[DATA]):
        first.setdefault(what, page)
    assert {"blocks branch", "blocks leaf", "blocks overflow", "ledgers leaf", "meta leaf"} <= set(first)
    places = [Place(what, DATA, page * PAGE_BYTES, PAGE_BYTES) for what, page in first.items()]
    places.append(Place("checkpoint", CHECKPOINT, 0, len(files[CHECKPOINT])))
    scratch = directory / "flipped"
    return Image("store", files, tuple(places), lambda flipped: _judge_store(scratch, flipped, contents), {})


def _judge_store(scratch: Path, files: Mapping[str, bytes], contents: Mapping[int, tuple[int, int]]) -> str:
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for name, data in files.items():
        (scratch / name).write_bytes(data)
    try:
        store = Store(scratch, RealDisk(scratch), SMALL)
    except (StoreRefusedError, StoreNotOpenedError):  # a flipped version number is another release's
        return "refused"
    with store:
        verdicts = {_judge_ledger(store, ledger, *of) for ledger, of in contents.items()}
    return max(verdicts, key=["harmless", "io-error", "WRONG", "VANISHED"].index)


def _judge_ledger(store: Store, ledger: int, count: int, size: int) -> str:
    record = store.ledger(ledger)
    if record is None or record.intervals.count != count or not record.fenced:
        return "VANISHED"
    found = "harmless"
    at = 0
    while at < count:
        try:
            frames = store.read_blocks(ledger, at, count - 1, READ_BYTES)
        except CorruptStoreError:
            found = "io-error"
            at += 1
            continue
        if not frames:
            return "VANISHED"
        for data in frames:
            good, bad = decode_entries(data, decode_header(data))
            if bad or any(entry.data != payload(entry.entry_id, size) for entry in good):
                return "WRONG"
            if not good[0].entry_id <= at <= good[-1].entry_id:
                return "VANISHED"
            at = good[-1].entry_id + 1
    return found


def journal_image(*, closed: bool) -> Image:
    """Two files of a few groups; `closed` in order, or left as a kill leaves it.

    Without the empty group that a close writes, nothing proves that the last group was durable: damage to it looks like
    a torn tail, which rule 25 allows.
    """
    disk = SimDisk()
    replay = JournalReplay(disk, START, new=True)
    assert not list(replay)
    journal = Journal(disk, replay, file_bytes=5 * PAGE_BYTES, new_salt=lambda: 0x5EED)
    written: list[Record] = []
    for group in range(6):
        records = [
            intro_record(LedgerIntro(group, 1, b"hash")),
            frame_record(frame(group, range(10), lac=3, length=160)),
            fence_record(group),
        ]
        journal.append(records)
        journal.sync()
        written += records
    last = journal.written
    if closed:
        journal.close()
    files = {name: bytes(file.seen) for name, file in disk.files.items()}
    names = sorted(files)
    places = [Place("journal", name, 0, len(files[name])) for name in names[:-1]]
    tail = last.offset - PAGE_BYTES
    places += [
        Place("journal", names[-1], 0, tail),
        Place("last group", names[-1], tail, PAGE_BYTES),
        Place("journal", names[-1], last.offset, len(files[names[-1]]) - last.offset),
    ]
    whole = [(int(record.kind), bytes(record.body)) for record in written]
    name = "journal closed" if closed else "journal after a kill"
    allowed = {} if closed else {"torn tail": "last group"}
    return Image(name, files, tuple(places), lambda flipped: _judge_journal(flipped, whole), allowed)


def _judge_journal(files: Mapping[str, bytes], whole: list[tuple[int, bytes]]) -> str:
    disk = SimDisk()
    for name, data in files.items():
        disk.open(name, create=True).seen.extend(data)
    cache = WriteCache()
    read = []
    try:
        for record in JournalReplay(disk, START):
            cache.apply(record)
            read.append((int(record.kind), bytes(record.body)))
    except JournalCorruptError:
        return "refused"
    if read == whole:
        return "harmless"
    return (
        "torn tail" if read == whole[: len(whole) - 3] else "VANISHED" if len(read) < len(whole) else "WRONG"
    )
