"""`python -m bench.steps`: what an entry in a frame of its own costs a client and a bookie, without sockets and without disks.

CPU of one thread, in µs for each entry of 1 KiB over 1,000 ledgers. The client's bookies answer in the next turn of the loop. The
bookie's figure is that of an append stream up to the journal's group, and of the flush's join of frames. With PYTHON … it runs
itself by those interpreters in turn, so that what is compared has the same minute: `make bench-steps`.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
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

from bench.interpreter import python_build
from daybook.client.driver.shared import Shared
from daybook.client.ledger import Ledger
from daybook.client.transport.channels import ChannelPool
from daybook.client.transport.link import AppendLink, LinkOwner
from daybook.core.bookie.ledger import AttachVerdict, Purpose
from daybook.core.errors import Code, DaybookError
from daybook.core.format.block import merge_small
from daybook.core.format.frame import FRAME_BYTES_TARGET, encode_entry, ledger_seed
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata, hash_password
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import Quorum
from daybook.core.reader.reader import Rank
from daybook.core.reader.suspects import Suspects
from daybook.core.stream import StreamAnswer
from daybook.core.writer.policy import WriterPolicy
from daybook.core.writer.writer import LedgerWriter
from daybook.metadata.instance import ensure_cluster
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.memory import MemoryServer, MemoryStore
from daybook.runtime.garbage import collect_rarely
from daybook.wire import bookie_pb2 as pb
from daybook.wire.messages import decode_client_control, encode_answer, encode_server_control

LEDGERS: Final = 1000
TURN_ENTRIES: Final = 30
"""Entries that a client appends in one turn of the loop: each bookie receives them as one message."""
MESSAGE_FRAMES: Final = 64
PAYLOAD: Final = bytes(1024)
BOOKIES: Final = ("b0", "b1", "b2")
KEY: Final = hash_password(b"secret", b"salt")


# -- the client


class _InstantLink:
    """A bookie that answers each message in the loop's next turn."""

    def __init__(self, bookie: BookieId, owner: LinkOwner) -> None:
        self.hello = pb.ServerHello(bookie_id=bookie, boot_id="boot", takes_lac_tables=True)
        self._owner = owner
        self._messages = 0

    def send(self, parts: Sequence[bytes]) -> None:
        """A message of frames; tables of LACs are not answered (rule 48)."""
        if parts[0].startswith(b"DBF"):
            self._messages += 1
            self._answer(encode_answer(StreamAnswer(self._messages)))

    def send_each(self, messages: Sequence[bytes]) -> None:
        """Attachments."""
        for message in messages:
            attach = decode_client_control(message).attach
            attached = pb.Attached(ledger_id=attach.ledger_id, purpose=attach.purpose, code=Code.OK)
            self._answer(encode_server_control(pb.ServerControl(attached=attached)))

    def _answer(self, message: bytes) -> None:
        asyncio.get_running_loop().call_soon(self._owner.received, message)


class _InstantBookies(ChannelPool):
    @asynccontextmanager
    async def _open_link(self, bookie: BookieId, owner: LinkOwner) -> AsyncIterator[AppendLink]:
        yield _InstantLink(bookie, owner)


class _Surroundings:
    """What a handle needs around it."""

    def __init__(self, channels: ChannelPool, ledgers: LedgerManager) -> None:
        self.channels = channels
        self.ledgers = ledgers
        self.suspects = Suspects()

    def bookies(self) -> Mapping[BookieId, BookieInfo]:
        return {name: BookieInfo(name, "nowhere:1") for name in BOOKIES}

    def rank(self) -> Rank:
        return lambda _: 0


def _open_handle(ledger_id: int, around: _Surroundings, shared: Shared) -> Ledger:
    fragments = (Fragment(0, 0, BOOKIES),)
    metadata = LedgerMetadata(ledger_id, Quorum(3, 3, 2), fragments, writer_token="t", password_hash="h")
    writer = LedgerWriter(
        metadata,
        0,
        placement=make_policy(),
        rng=random.Random(ledger_id),
        bookies=around.bookies(),
        policy=WriterPolicy(),
    )
    return Ledger(
        writer, "h", surroundings=around, on_end=lambda _: None, on_quarantine=lambda *_: None, shared=shared
    )


async def client_us(entries: int) -> float:
    """µs of the client for an entry, from `append_soon` to the call of its `on_done`."""
    store = MemoryStore(MemoryServer())
    await ensure_cluster(store, Layout("bench"), created_at_ms=0)
    channels = _InstantBookies("bench")
    around = _Surroundings(channels, LedgerManager(store, Layout("bench")))
    channels.bookies_changed(around.bookies())
    shared = Shared(0)
    ledgers = [_open_handle(number, around, shared) for number in range(LEDGERS)]
    waiting = 0
    done = asyncio.Event()

    def on_done(_: EntryId, error: DaybookError | None) -> None:
        nonlocal waiting
        assert error is None, error
        waiting -= 1
        if not waiting:
            done.set()

    async def append_to(some: Sequence[Ledger]) -> None:
        nonlocal waiting
        waiting = len(some)
        done.clear()
        for ledger in some:
            ledger.append_soon(PAYLOAD, on_done)
        await done.wait()

    await append_to(ledgers)  # attaches
    collect_rarely()
    parts = [ledgers[at : at + TURN_ENTRIES] for at in range(0, LEDGERS - TURN_ENTRIES, TURN_ENTRIES)]
    appended = 0
    began = time.process_time()
    while appended < entries:
        for part in parts:
            await append_to(part)
            appended += len(part)
    spent = time.process_time() - began
    for ledger in ledgers:
        await ledger.abandon()
    await channels.close()
    await store.close()
    return spent / appended * 1e6


# -- the bookie


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
    fragments = (Fragment(0, 0, BOOKIES),)
    for number in range(LEDGERS):
        metadata = LedgerMetadata(number, Quorum(3, 3, 2), fragments, writer_token="t", password_hash=KEY)
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


# -- the figures


def measure(entries: int) -> dict[str, float | str]:
    """All figures of this interpreter."""
    asyncio.run(client_us(LEDGERS))  # warms up
    bookie = partial(bookie_us, entries)
    return {
        "python": python_build(),
        "client": asyncio.run(client_us(entries)),
        "bookie, 64 frames in a message": bookie(MESSAGE_FRAMES),
        "bookie, one frame in a message": bookie(1),
    }


def main() -> None:
    """Measure here, or by each of the interpreters in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    arguments = parser.parse_args()
    if not arguments.pythons:
        print(json.dumps(measure(arguments.entries)))
        return
    found: dict[str, list[dict[str, float | str]]] = {python: [] for python in arguments.pythons}
    for _ in range(arguments.rounds):
        for python, rows in found.items():
            command = [python, "-m", "bench.steps", "--entries", str(arguments.entries)]
            rows.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
    for rows in found.values():
        print(rows[0]["python"])
        for name in rows[0]:
            if name != "python":
                figures = [float(row[name]) for row in rows]
                each = ", ".join(f"{figure:.1f}" for figure in figures)
                print(f"  {name}: {statistics.median(figures):.1f} µs an entry ({each})")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
