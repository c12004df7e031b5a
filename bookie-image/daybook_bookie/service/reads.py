"""Reading a range: cache first, then store, exactly what was asked for, and never a gap that was not looked at.

Each step looks at both under the lock: an entry is in the cache until the store has it (rule 43), so one look at both
misses nothing, and the blocks that it found stay valid without the lock. What exists and cannot be read is named as
damaged, never left out (rule 26): a reader takes what is left out as a proof that it was never stored (rule 6).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Final, NamedTuple, Protocol

from daybook.core.bookie.ledger import BookieLedger
from daybook.core.errors import Code, FrameError
from daybook.core.format.block import (
    Block,
    cut_rows,
    decode_block,
    is_dense_block,
    rows_between,
    rows_that_fit,
)
from daybook.core.format.frame import Buffer
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId
from daybook.runtime.logs import get_logger
from daybook.wire import bookie_pb2 as pb
from daybook.wire.messages import READ_MESSAGE_BYTES_TARGET, ReadHeader, encode_read
from daybook_bookie.disk.errors import CorruptStoreError
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.service.fencing import Fencer
from daybook_bookie.service.ledgers import LedgerTable
from daybook_bookie.service.passwords import Passwords
from daybook_bookie.store.storage import Storage

_LOG: Final = get_logger(__name__)
BYTES_MAX: Final = 16 * 1024 * 1024
"""The most that one request gets, whatever it asks for."""
DAMAGED_MAX: Final = 1024
"""Damaged ranges of one message; a reader asks on from there."""


class _Look(NamedTuple):
    """What is there at or after an entry."""

    cached: tuple[EntryId, Block] | None
    cached_whole: bool
    """Nothing else lies within the cached block's range."""
    stored: EntryId
    limbo: bool
    last_add_confirmed: EntryId
    length_at_lac: int


_NOTHING: Final = _Look(
    cached=None, cached_whole=True, stored=NO_ENTRY, limbo=False, last_add_confirmed=NO_ENTRY, length_at_lac=0
)


class Reads:
    """Answers Read."""

    def __init__(
        self,
        table: LedgerTable,
        fencer: Fencer,
        passwords: Passwords,
        metrics: BookieMetrics,
        *,
        on_damage: Callable[[LedgerId, EntryId], None],
    ) -> None:
        """Read what `table` holds; `on_damage` is told of entries that exist and cannot be read."""
        self._on_damage = on_damage
        self._table = table
        self._fencer = fencer
        self._passwords = passwords
        self._metrics = metrics

    def read(self, request: pb.ReadRequest) -> Iterator[bytes]:
        """The messages of the answer; the last one's header speaks for the whole."""
        started = perf_counter()
        code = self._admit(request)
        self._metrics.read_requests.labels(code.name).inc()
        if code is not Code.OK:
            yield encode_read(ReadHeader(code), [])
            return
        yield from self._messages(request)
        self._metrics.read_seconds.observe(perf_counter() - started)

    def _admit(self, request: pb.ReadRequest) -> Code:
        """A recovery read fences first, and is answered only when the fence is durable (rule 2, rule 4)."""
        if request.ledger_id < 0 or request.first_entry < 0 or request.last_entry < request.first_entry:
            return Code.BAD_FRAME
        if request.fence:
            code, _ = self._fencer.fence(request.ledger_id, request.key)
            return code
        return self._passwords.check(request.ledger_id, request.key)

    def _messages(self, request: pb.ReadRequest) -> Iterator[bytes]:
        walk = Walk(self._table, request.ledger_id, request.first_entry, request.last_entry)
        room = max(1, min(request.bytes_max, BYTES_MAX))
        while True:
            frames: list[Buffer] = []
            size_bytes = 0
            damaged: list[tuple[EntryId, EntryId]] = []
            while not walk.done and size_bytes < min(room, READ_MESSAGE_BYTES_TARGET):
                found = walk.step(room - size_bytes)
                if found is None:
                    if walk.damaged != NO_ENTRY:
                        _add_damaged(damaged, walk.damaged)
                        self._on_damage(request.ledger_id, walk.damaged)
                    if len(damaged) >= DAMAGED_MAX:
                        break
                    continue
                frames.append(found.data)
                size_bytes += len(found.data)
                self._metrics.read_entries.inc(found.header.count)
            room -= size_bytes
            header = ReadHeader(
                Code.OK, walk.through, walk.last_add_confirmed, walk.length_at_lac, walk.limbo, tuple(damaged)
            )
            self._metrics.read_bytes.inc(size_bytes)
            self._metrics.read_damaged.inc(sum(last - first + 1 for first, last in damaged))
            yield encode_read(header, frames)
            if walk.done or room <= 0 or len(damaged) >= DAMAGED_MAX:
                return


class Ledgers(Protocol):
    """What a walk asks of the ledger table."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """What covers cache and index together."""

    @property
    def storage(self) -> Storage:
        """Where the entries are."""

    def find(self, ledger_id: LedgerId) -> BookieLedger | None:
        """The ledger, if it is known."""


class Walk:
    """One pass over a range."""

    def __init__(self, table: Ledgers, ledger_id: LedgerId, first: EntryId, last: EntryId) -> None:
        self._table = table
        self._ledger_id = ledger_id
        self._first = first
        self._at = first
        self._last = last
        self.limbo = False
        self.last_add_confirmed = NO_ENTRY
        self.length_at_lac = 0
        self.damaged = NO_ENTRY
        """The entry that the last step could not read."""
        self._waiting: list[Block] = []
        """Blocks that the store gave at once and that were not handed out yet."""

    @property
    def done(self) -> bool:
        """Whether everything up to the end was looked at."""
        return self._at > self._last

    @property
    def through(self) -> EntryId:
        """Up to where everything was looked at."""
        return min(self._at - 1, self._last)

    def step(self, room_bytes: int) -> Block | None:
        """The next block, cut to what was asked for; None if an entry was damaged, or nothing is left."""
        if not self._waiting:
            look = self._look()
            limbo, self.last_add_confirmed, self.length_at_lac = look[3:]
            self.limbo = self.limbo or limbo  # what was absent while it lasted was not denied
            if look.cached is not None and not NO_ENTRY < look.stored < look.cached[0]:
                self._waiting = self._from_cache(look.cached, room_bytes, whole=look.cached_whole)
            elif NO_ENTRY < look.stored <= self._last:
                end = self._last if look.cached is None else min(self._last, look.cached[0] - 1)
                self._waiting = self._from_store(look.stored, end, min(room_bytes, READ_MESSAGE_BYTES_TARGET))
            else:
                self._at = self._last + 1
        if not self._waiting:
            return None
        block = self._waiting.pop(0)
        self._at = block.last + 1
        return block

    def _look(self) -> _Look:
        """Both at once, under the lock."""
        storage, ledger_id = self._table.storage, self._ledger_id
        self.damaged = NO_ENTRY
        with self._table.lock:
            ledger = self._table.find(ledger_id)
            if ledger is None or storage.ledger(ledger_id) is None:
                return _NOTHING
            lac = ledger.last_add_confirmed()
            cached = storage.cache.next_from(ledger_id, self._at)
            record = storage.store.ledger(ledger_id)
            stored = NO_ENTRY if record is None else record.intervals.next_from(self._at)
            whole = True
            if cached is not None and not is_dense_block(cached[1]):
                within = 0 if record is None else record.intervals.count_between(cached[0], cached[1].last)
                others = sum(
                    pending.overlapping(cached[0], cached[1].last)
                    for pending in storage.cache.pending(ledger_id)
                )
                whole = within == 0 and others == 1
        return _Look(cached, whole, stored, lac.limbo, lac.last_add_confirmed, lac.length_at_lac)

    def _from_cache(self, found: tuple[EntryId, Block], room_bytes: int, *, whole: bool) -> list[Block]:
        entry, block = found
        if entry > self._last:
            self._at = self._last + 1
            return []
        part = _cut(block, entry, self._last if whole else entry, room_bytes)
        return [part]

    def _from_store(self, first: EntryId, end: EntryId, room_bytes: int) -> list[Block]:
        """What the store gives of first … end in one go; moves on past an entry that it cannot read."""
        begun, self._at = self._at > self._first, first
        try:
            frames = self._table.storage.store.read_blocks(self._ledger_id, first, end, room_bytes)
            blocks = [decode_block(frame) for frame in frames]
            if blocks and blocks[0].first < first and begun:  # what comes before was given already
                blocks[0] = _cut(blocks[0], first, blocks[0].last, len(blocks[0].data))
            if blocks and blocks[-1].last > end and end < self._last:  # the cache has what comes next
                blocks[-1] = _cut(blocks[-1], max(first, blocks[-1].first), end, len(blocks[-1].data))
        except (CorruptStoreError, FrameError) as error:
            _LOG.error("an entry is damaged", ledger_id=self._ledger_id, entry_id=first, reason=str(error))
            self.damaged = first
            self._at = first + 1
            return []
        return blocks  # none: deleted meanwhile, and the next look finds nothing


def _add_damaged(ranges: list[tuple[EntryId, EntryId]], entry: EntryId) -> None:
    if ranges and ranges[-1][1] == entry - 1:
        ranges[-1] = (ranges[-1][0], entry)
    else:
        ranges.append((entry, entry))


def _cut(block: Block, first: EntryId, last: EntryId, room_bytes: int) -> Block:
    """The rows of first … last that fit, at least one; the block itself if that is all of it."""
    if first <= block.first and block.last <= last and block.size_bytes <= room_bytes:
        return block
    begin, end = rows_between(block, first, last)
    part = cut_rows(block, begin, rows_that_fit(block, begin, end, room_bytes))
    assert part is not None, "the block holds the first entry"
    return part
