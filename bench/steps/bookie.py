"""A bookie: what a message of frames costs it up to the journal's group, and the flush's join of frames."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.journal.format import START, Record, pack_group
from daybook_bookie.journal.thread import JournalItem, JournalThread
from daybook_bookie.ledgers import LedgerTable
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.service.append import AppendContext, AppendStream, MessageQueue
from daybook_bookie.service.budget import ByteBudget
from daybook_bookie.service.long_poll import LongPolls
from daybook_bookie.settings import StorageSettings
from daybook_bookie.store.storage import Storage
from prometheus_client import CollectorRegistry

from bench.steps import LEDGERS, PAYLOAD
from bench.steps.instant import metadata_of
from daybook.core.bookie.ledger import AttachVerdict, Purpose
from daybook.core.errors import Code
from daybook.core.format.block import merge_small
from daybook.core.format.checksums import ledger_seed
from daybook.core.format.frame import FRAME_BYTES_TARGET, encode_entry
from daybook.core.ledger.metadata import hash_password

KEY: Final = hash_password(b"secret", b"salt")


class _NoThread(JournalThread):
    """Keeps what is queued."""

    def put(self, item: JournalItem) -> None:
        self.items.append(item)

    items: list[JournalItem]


def _messages(entries: range, frames: int) -> Iterator[bytes]:
    """Messages of `frames` frames, each of another ledger; each ledger has the next entry."""
    for entry in entries:
        encoded = [
            encode_entry(
                ledger,
                entry,
                PAYLOAD,
                ledger_seed(ledger),
                last_add_confirmed=entry - 1,
                length_at_lac=0,
                flags=0,
            )
            for ledger in range(LEDGERS)
        ]
        for at in range(0, LEDGERS, frames):
            yield b"".join(encoded[at : at + frames])


def _attach(table: LedgerTable, stream: AppendStream) -> None:
    for number in range(LEDGERS):
        metadata = metadata_of(number, KEY)
        held = table.machine.ledgers.obtain(number)
        verdict = table.machine.attach_with_metadata(held, stream.stream_id, KEY, Purpose.WRITE, metadata)
        assert verdict is AttachVerdict.OK, verdict


def bookie_us(entries: int, frames: int) -> float:
    """µs of a bookie for a frame where `frames` come in a message."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch) / name for name in ("journal", "store")]
        for folder in folders:
            folder.mkdir()
        journal_disk, store_disk = map(RealDisk, folders)
        storage = Storage.open(journal_disk, store_disk, folders[1], StorageSettings(), new=True)
        metrics = BookieMetrics(CollectorRegistry())
        table = LedgerTable(storage, lambda _: False, write_cache_bytes=1 << 40, flush_bytes=1 << 40)
        journal = _NoThread(
            storage.journal,
            metrics,
            table.machine.refusals,
            stuck_after_ms=10_000,
            on_full=lambda: None,
            on_failure=lambda _: None,
        )
        journal.items = []
        polls = LongPolls(1, lambda _: None, lambda: True)
        context = AppendContext(table, journal, ByteBudget(1 << 40, 1 << 40), polls, metrics, lambda *_: None)
        stream = AppendStream(context, MessageQueue())
        _attach(table, stream)
        spent = 0.0
        rounds = max(1, entries // LEDGERS // 20)
        for number in range(rounds):
            messages = list(_messages(range(number * 20, number * 20 + 20), frames))
            began = time.thread_time()
            for message in messages:
                stream.run(iter((message,)))
                _write(journal.items, stream)
            _join(storage)
            spent += time.thread_time() - began
        storage.close()
    return spent / (rounds * 20 * LEDGERS) * 1e6


def _write(items: list[JournalItem], stream: AppendStream) -> None:
    """What the journal's thread does, but for the writing."""
    records: list[Record] = [record for item in items for record in item.records]
    pack_group(records, START, 1, START, 1)
    for item in items:
        item.settle(Code.OK)
    items.clear()
    stream.send_answers()


def _join(storage: Storage) -> None:
    """What a flush does before it writes."""
    for pending in storage.begin_flush().ledgers.values():
        merge_small(pending.blocks, FRAME_BYTES_TARGET)
    storage.end_flush()
