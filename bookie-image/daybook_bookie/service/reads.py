"""Reading a range: the core decides what comes next (`daybook.core.bookie.range_scan`), from the cache and the store."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from time import perf_counter
from typing import Final

from daybook.core.bookie.open_ledgers import OpenLedgers
from daybook.core.bookie.range_scan import NOTHING_HELD, Held, RangeScan
from daybook.core.errors import Code, FrameError
from daybook.core.format import parted
from daybook.core.format.block import Block, decode_block, is_dense_block
from daybook.core.format.frame import FRAME_BYTES_TARGET, Buffer
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId
from daybook.runtime.logs import get_logger
from daybook.wire import bookie_pb2 as pb
from daybook.wire.messages import READ_MESSAGE_BYTES_TARGET, ReadHeader, read_parts
from daybook_bookie.disk.errors import CorruptStoreError
from daybook_bookie.ledgers import LedgerTable
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.service.fencing import Fencer
from daybook_bookie.service.questions import Questions
from daybook_bookie.store.storage import Storage

_LOG: Final = get_logger(__name__)
BYTES_MAX: Final = 16 * 1024 * 1024
"""The most that one request gets, whatever it asks for."""
STORE_BYTES_MIN: Final = 2 * FRAME_BYTES_TARGET
"""The least that is read from the store at once: a whole block fits into it, one that does not would be cut."""
DAMAGED_MAX: Final = 1024
"""Damaged ranges of one message; a reader continues from there with its next request."""


class Reads:
    """Answers Read."""

    def __init__(
        self,
        table: LedgerTable,
        fencer: Fencer,
        questions: Questions,
        metrics: BookieMetrics,
        *,
        on_damage: Callable[[LedgerId, EntryId], None],
    ) -> None:
        """Read what `table` holds; `on_damage` is called for entries that exist and cannot be read."""
        self._on_damage = on_damage
        self._table = table
        self._fencer = fencer
        self._questions = questions
        self._metrics = metrics

    def read(self, request: pb.ReadRequest) -> Iterator[bytes]:
        """The messages of the answer; the last one's header speaks for the whole."""
        yield from self.answer(request, self._admit(request))

    def read_in_parts(
        self, request: pb.ReadRequest, message_bytes: Callable[[], int], as_views: bool
    ) -> Generator[Sequence[Buffer], None, None]:
        """As `read`, in messages of about `message_bytes`, each in parts (see `read_parts`).

        `as_views`: parts may be views of the store, which end with the next message; close the generator if you do not take all of them.
        """
        yield from self._answer(request, self._admit(request), message_bytes, as_views=as_views)

    def answer(self, request: pb.ReadRequest, code: Code) -> Iterator[bytes]:
        """As `read`, of a request that was admitted with `code`."""
        for parts in self._answer(request, code, lambda: READ_MESSAGE_BYTES_TARGET):
            message = b"".join(parts)
            parts.clear()  # while a slow client takes the message, it is held once
            yield message

    def _answer(
        self, request: pb.ReadRequest, code: Code, message_bytes: Callable[[], int], *, as_views: bool = False
    ) -> Iterator[list[Buffer]]:
        started = perf_counter()
        self._metrics.read_requests.labels(code.name).inc()
        if code is not Code.OK:
            yield read_parts(ReadHeader(code), [])
            return
        yield from self._messages(request, message_bytes, as_views=as_views)
        self._metrics.read_seconds.observe(perf_counter() - started)

    def _admit(self, request: pb.ReadRequest) -> Code:
        """A recovery read fences first, and is answered only when the fence is durable (rule 2, rule 4)."""
        if not is_possible(request):
            return Code.BAD_FRAME
        if request.fence:
            code, _ = self._fencer.fence(request.ledger_id, request.key)
            return code
        return self._questions.check(request.ledger_id, request.key)

    def _messages(
        self, request: pb.ReadRequest, message_bytes: Callable[[], int], *, as_views: bool
    ) -> Iterator[list[Buffer]]:
        source = StorageSource(self._table.storage, self._table.machine.ledgers, self._table.lock)
        scan = RangeScan(source, request.ledger_id, request.first_entry, request.last_entry)
        room = max(1, min(request.bytes_max, BYTES_MAX))
        is_over = False
        while not is_over:
            with ExitStack() as views:
                source.views = views if as_views else None
                blocks, damaged = self._next_blocks(scan, request.ledger_id, room, message_bytes())
                size_bytes = sum(len(block.data) for block in blocks)
                room -= size_bytes
                payloads_last = (
                    request.payloads_last and size_bytes >= parted.FRAME_BYTES_MIN * len(blocks) > 0
                )
                header = ReadHeader(
                    Code.OK,
                    scan.through,
                    scan.last_add_confirmed,
                    scan.length_at_lac,
                    scan.limbo,
                    tuple(damaged),
                    payloads_last,
                )
                frames = parted.part(blocks) if payloads_last else [block.data for block in blocks]
                parts = read_parts(header, frames)
                blocks.clear()
                frames.clear()  # whoever joins the parts holds them once more
                is_over = scan.done or room <= 0 or len(damaged) >= DAMAGED_MAX
                if as_views and not is_over:
                    scan.copy_waiting()
                yield parts

    def _next_blocks(
        self, scan: RangeScan, ledger_id: LedgerId, room: int, message_bytes: int
    ) -> tuple[list[Block], list[tuple[EntryId, EntryId]]]:
        """What comes next, up to about `message_bytes`, and what of it is damaged."""
        blocks: list[Block] = []
        damaged: list[tuple[EntryId, EntryId]] = []
        size_bytes = entries = 0
        while not scan.done and size_bytes < min(room, message_bytes):
            store_bytes = max(STORE_BYTES_MIN, message_bytes - size_bytes)
            found = scan.step(room - size_bytes, store_bytes=store_bytes)
            if found is None:
                if scan.damaged != NO_ENTRY:
                    self._is_damaged(ledger_id, scan)
                    add_damaged(damaged, scan.damaged)
                if len(damaged) >= DAMAGED_MAX:
                    break
                continue
            blocks.append(found)
            size_bytes += len(found.data)
            entries += found.header.count
        self._metrics.read_entries.inc(entries)
        self._metrics.read_bytes.inc(size_bytes)
        self._metrics.read_damaged.inc(sum(last - first + 1 for first, last in damaged))
        return blocks, damaged

    def _is_damaged(self, ledger_id: LedgerId, scan: RangeScan) -> None:
        _LOG.error("an entry is damaged", ledger_id=ledger_id, entry_id=scan.damaged, reason=scan.damage)
        self._on_damage(ledger_id, scan.damaged)


def is_possible(request: pb.ReadRequest) -> bool:
    """Whether there can be such entries."""
    return request.ledger_id >= 0 and 0 <= request.first_entry <= request.last_entry


class StorageSource:
    """Cache and store of a bookie, as the core's scan sees them (RangeSource)."""

    def __init__(self, storage: Storage, ledgers: OpenLedgers, lock: AbstractContextManager[object]) -> None:
        """`lock` covers cache, index and ledgers together."""
        self._storage = storage
        self._ledgers = ledgers
        self._lock = lock
        self.views: ExitStack | None = None
        """See `EntryStore.read_blocks`."""

    def look(self, ledger_id: LedgerId, at: EntryId) -> Held:
        """See RangeSource."""
        storage = self._storage
        with self._lock:
            ledger = self._ledgers.find(ledger_id)
            if ledger is None or storage.ledger(ledger_id) is None:
                return NOTHING_HELD
            lac = ledger.last_add_confirmed()
            cached = storage.cache.next_from(ledger_id, at)
            record = storage.store.ledger(ledger_id)
            stored = NO_ENTRY if record is None else record.intervals.next_from(at)
            whole = True
            if cached is not None and not is_dense_block(cached[1]):
                within = 0 if record is None else record.intervals.count_between(cached[0], cached[1].last)
                others = sum(
                    pending.overlapping(cached[0], cached[1].last)
                    for pending in storage.cache.pending(ledger_id)
                )
                whole = within == 0 and others == 1
        return Held(cached, whole, stored, lac)

    def read_stored(
        self, ledger_id: LedgerId, first: EntryId, end: EntryId, room_bytes: int
    ) -> Sequence[Block]:
        """See RangeSource."""
        try:
            frames = self._storage.store.read_blocks(ledger_id, first, end, room_bytes, views=self.views)
        except CorruptStoreError as error:
            raise FrameError(str(error)) from error
        return [decode_block(frame) for frame in frames]


def add_damaged(ranges: list[tuple[EntryId, EntryId]], entry: EntryId) -> None:
    """Name one more damaged entry in an answer; `ranges` are first and last entry of each run, rising (rule 26)."""
    if ranges and ranges[-1][1] == entry - 1:
        ranges[-1] = (ranges[-1][0], entry)
    else:
        ranges.append((entry, entry))
