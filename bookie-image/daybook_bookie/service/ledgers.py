"""The ledgers of a bookie, under the one lock that everything which decides about them holds.

One lock for all is enough, because nothing under it waits or looks at entries, and it makes rule 43 plain: whoever
checks a fence puts the frame into the write cache before anyone else can look. A ledger's object lives while a stream
is attached to it or something about it is not durable; otherwise it is made anew from store and cache when needed, so
that memory does not grow with the number of ledgers that were ever written to.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from daybook.core.bookie.ledger import BookieLedger, LedgerRecord
from daybook.core.errors import Code
from daybook.core.format.frame import Buffer, FrameHeader
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import NO_ENTRY, LedgerId
from daybook.runtime.clock import unix_ms
from daybook_bookie.disk.watch import SpaceState
from daybook_bookie.journal.format import LedgerIntro, Record, fence_dropped_record, intro_record
from daybook_bookie.store.reading import add_block
from daybook_bookie.store.storage import Storage
from daybook_bookie.store.stored_ledger import StoredLedger

KEY_ONLY_MS = 0
"""`first_seen_ms` of a ledger whose key is known, but which metadata never showed OPEN (rule 20)."""

LEDGERS_UNDER_LOCK: Final = 500
"""Who looks at many ledgers lets the lock go after so many: everyone who appends waits for it."""


def core_record(ledger_id: LedgerId, stored: StoredLedger) -> LedgerRecord:
    """What the core's ledger is restored from."""
    has_key = stored.fenced or stored.password_hash or stored.first_seen_ms  # a fence always comes with a key
    return LedgerRecord(
        ledger_id,
        stored.password_hash.decode() if has_key else None,
        introduced=stored.first_seen_ms > KEY_ONLY_MS,
        fenced=stored.fenced,
        limbo_nonce=stored.limbo.hex() if stored.limbo else None,
        last_add_confirmed=stored.last_add_confirmed,
        length_at_lac=stored.length_at_lac,
    )


def intro_of(ledger_id: LedgerId, key: str | None, seen_ms: int, *, introduced: bool) -> Record:
    """The record of a ledger's key, and of whether metadata has shown it OPEN (rule 20)."""
    return intro_record(LedgerIntro(ledger_id, seen_ms if introduced else KEY_ONLY_MS, (key or "").encode()))


class Known(NamedTuple):
    """The ledgers of a bookie."""

    ledger_ids: list[LedgerId]
    """Rising."""
    bare: frozenset[LedgerId]
    """Those of which there is no more than a fence: whoever can open a connection can have left that."""
    highest_proved: LedgerId
    """The highest of the others, which only a ledger that metadata has shown can have left; −1 without any."""


def _proves_existence(record: StoredLedger) -> bool:
    """Entries, a LAC, an introduction and a limbo mark all follow a look at the ledger's metadata (rule 20, rule 29)."""
    return (
        bool(record.intervals)
        or record.last_add_confirmed != NO_ENTRY
        or record.first_seen_ms > KEY_ONLY_MS
        or record.limbo is not None
    )


class LedgerTable:
    """Methods are called with `lock` held, but for those that say that they take it."""

    def __init__(self, storage: Storage, *, write_cache_bytes: int, flush_bytes: int) -> None:
        """`write_cache_bytes` bounds the generation that takes frames; at `flush_bytes` a flush is asked for."""
        self.lock = threading.Lock()
        self.storage = storage
        self.space = SpaceState.WRITABLE
        self.read_only_reason = ""
        """Why an administrator made the bookie read-only; empty if none did."""
        self.flush_wanted = threading.Event()
        self._write_cache_bytes = write_cache_bytes
        self._flush_bytes = flush_bytes
        self._room = threading.Condition(self.lock)
        self._stopping = False
        self._ledgers: dict[LedgerId, BookieLedger] = {}
        self._ledgers_of_stream: defaultdict[int, set[LedgerId]] = defaultdict(set)
        self._holds: Counter[LedgerId] = Counter()
        self._adds: dict[LedgerId, int] = {}

    # Objects

    def find(self, ledger_id: LedgerId) -> BookieLedger | None:
        """The ledger if it is known, to look at and no more (it may be a copy)."""
        return self._ledgers.get(ledger_id) or self._restore(ledger_id)

    def obtain(self, ledger_id: LedgerId) -> BookieLedger:
        """The ledger's one object, made if it is unknown; `release` it when nothing came of it."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            ledger = self._restore(ledger_id) or BookieLedger(ledger_id)
            self._ledgers[ledger_id] = ledger
        return ledger

    def release(self, ledger_id: LedgerId) -> None:
        """Forget the object if cache and store know all that it knows."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None or self._holds[ledger_id]:
            return
        if ledger.fenced and not ledger.is_fence_durable:
            return
        del self._holds[ledger_id]
        del self._ledgers[ledger_id]

    @contextmanager
    def pinned(self, ledger_id: LedgerId) -> Iterator[BookieLedger]:
        """Keep the object while something slow is asked. Takes the lock itself, at the beginning and at the end."""
        with self.lock:
            ledger = self.obtain(ledger_id)
            self._holds[ledger_id] += 1
        try:
            yield ledger
        finally:
            with self.lock:
                self._let_go(ledger_id)
                if self._ledgers.get(ledger_id) is ledger:
                    self.release(ledger_id)

    def _let_go(self, ledger_id: LedgerId) -> None:
        """One hold less; a ledger that was deleted meanwhile is held by nobody else, and must not be counted for ever."""
        self._holds[ledger_id] -= 1
        if not self._holds[ledger_id]:
            del self._holds[ledger_id]

    def forget(self, ledger_id: LedgerId) -> None:
        """The ledger is deleted: whoever is attached must attach again, to a new object (rule 20)."""
        ledger = self._ledgers.pop(ledger_id, None)
        if ledger is not None:
            ledger.forget()

    def _restore(self, ledger_id: LedgerId) -> BookieLedger | None:
        stored = self.storage.ledger(ledger_id)
        if stored is None:
            return None
        return BookieLedger.restored(core_record(ledger_id, stored))

    # What is known. These take the lock themselves, and only for what is in the cache.

    def known_ids(self) -> list[LedgerId]:
        """Every ledger that store or cache knows, rising."""
        found = set(self.storage.store.ledgers())
        with self.lock:
            for generation in self.storage.cache.generations:
                for ledger_id, pending in generation.ledgers.items():
                    (found.discard if pending.deleted else found.add)(ledger_id)
        return sorted(found)

    def known(self) -> Known:
        """What is known, and what of it proves that the ledger existed.

        The cache's ledgers are listed before the store is read: what is flushed meanwhile is then in one or the other.
        """
        with self.lock:
            cached = [each for generation in self.storage.cache.generations for each in generation.ledgers]
        proved: set[LedgerId] = set()
        bare: set[LedgerId] = set()
        for ledger_id, record in self.storage.store.ledgers().items():
            (proved if _proves_existence(record) else bare).add(ledger_id)
        for begin in range(0, len(cached), LEDGERS_UNDER_LOCK):
            with self.lock:
                for ledger_id in cached[begin : begin + LEDGERS_UNDER_LOCK]:
                    proved.discard(ledger_id)
                    bare.discard(ledger_id)
                    if self.storage.ledger(ledger_id) is not None:
                        (bare if self.is_bare(ledger_id) else proved).add(ledger_id)
        return Known(sorted(proved | bare), frozenset(bare), max(proved, default=NO_ENTRY))

    def is_bare(self, ledger_id: LedgerId) -> bool:
        """Whether there is no more of the ledger than a fence. With the lock held."""
        record = self.storage.ledger(ledger_id)
        if record is not None and _proves_existence(record):
            return False
        return not any(pending.blocks for pending in self.storage.cache.pending(ledger_id))

    def limbo_mark(self, ledger_id: LedgerId) -> str | None:
        """The nonce of the ledger if this bookie cannot vouch for it (rule 29)."""
        with self.lock:
            nonce = self.storage.limbo(ledger_id)
        return None if nonce is None else nonce.hex()

    def limbo_marks(self) -> dict[LedgerId, str]:
        """The nonces of the ledgers that this bookie cannot vouch for (rule 29).

        The cache is looked at first: what is flushed meanwhile is found in the store.
        """
        with self.lock:
            generations = self.storage.cache.generations
            ids = [ledger_id for each in generations for ledger_id in each.limbo_decided | each.deleted]
        decided: dict[LedgerId, bytes | None] = {}
        for begin in range(0, len(ids), LEDGERS_UNDER_LOCK):
            with self.lock:
                for ledger_id in ids[begin : begin + LEDGERS_UNDER_LOCK]:
                    decided[ledger_id] = self.storage.limbo(ledger_id)
        marks = {**self.storage.store.limbo_marks(), **decided}
        return {ledger_id: nonce.hex() for ledger_id, nonce in marks.items() if nonce is not None}

    def intervals(self, ledger_id: LedgerId) -> IntervalSet:
        """Which entries of the ledger are here."""
        with self.lock:
            if self.storage.ledger(ledger_id) is None:
                return IntervalSet()
            blocks = [block for pending in self.storage.cache.pending(ledger_id) for block in pending.blocks]
            record = self.storage.store.ledger(ledger_id)
        held = IntervalSet() if record is None else record.intervals.copy()
        for block in blocks:
            add_block(held, block)
        return held

    # Streams

    def attached(self, stream_id: int, ledger_id: LedgerId) -> None:
        """Hold the ledger for the stream."""
        ledgers = self._ledgers_of_stream[stream_id]
        if ledger_id not in ledgers:
            ledgers.add(ledger_id)
            self._holds[ledger_id] += 1

    def is_attached(self, stream_id: int) -> bool:
        """Whether the stream holds any ledger."""
        return stream_id in self._ledgers_of_stream

    def detach(self, stream_id: int) -> None:
        """The stream ended. Takes the lock itself."""
        with self.lock:
            self.detach_locked(stream_id)

    def detach_locked(self, stream_id: int) -> None:
        """As `detach`, with the lock held."""
        for ledger_id in self._ledgers_of_stream.pop(stream_id, set()):
            self._let_go(ledger_id)
            ledger = self._ledgers.get(ledger_id)
            if ledger is not None:
                ledger.detach(stream_id)
                self.release(ledger_id)

    # Frames

    def accept(self, stream_id: int, header: FrameHeader) -> tuple[BookieLedger | None, Code]:
        """Decide over a frame: fence, limbo, attachment, space (rule 30)."""
        ledger = self._ledgers.get(header.ledger_id)
        if ledger is None:
            return None, Code.NOT_ATTACHED
        if self.space is not SpaceState.WRITABLE or self.read_only_reason:
            code = self._refuses_for_space(header)
            if code is not Code.OK:
                return ledger, code
        return ledger, ledger.accept(stream_id, header)

    def _refuses_for_space(self, header: FrameHeader) -> Code:
        """Read-only keeps a reserve that recovery may use (rule 30), as long as the cache can take it."""
        has_room = self.storage.cache.active_bytes < self._write_cache_bytes
        if header.is_recovery and self.space is not SpaceState.EXHAUSTED and has_room:
            return Code.OK
        return Code.READ_ONLY

    def cache_frame(self, header: FrameHeader, frame: Buffer) -> Record:
        """Make an accepted frame visible, in the same hold of the lock that accepted it (rule 43).

        The record is to be journalled next.
        """
        if header.ledger_id in self._adds:
            self._adds[header.ledger_id] += 1
        record = self.storage.accept(frame, header)
        if self.storage.cache.active_bytes >= self._flush_bytes:
            self.flush_wanted.set()
        return record

    def count_adds(self, ledger_id: LedgerId) -> None:
        """Begin to count the frames that are accepted for the ledger (rule 47), and the fences (rule 3)."""
        self._adds[ledger_id] = 0

    def touched(self, ledger_id: LedgerId) -> None:
        """A fence of the ledger was taken, or its key was shown by metadata."""
        if ledger_id in self._adds:
            self._adds[ledger_id] += 1

    def adds_counted(self, ledger_id: LedgerId) -> int:
        """How many there were since `count_adds`."""
        return self._adds[ledger_id]

    def stop_counting_adds(self, ledger_id: LedgerId) -> None:
        """Count no more."""
        del self._adds[ledger_id]

    def changed_records(self, ledger: BookieLedger) -> list[Record]:
        """What must be journalled before the ledger's next frame: its key, and whether it may be written (rule 20)."""
        records = [fence_dropped_record(ledger.ledger_id)] if ledger.fence_dropped else []
        records.append(intro_of(ledger.ledger_id, ledger.key, unix_ms(), introduced=ledger.introduced))
        ledger.record_is_journalled()
        return [self.storage.decide(record) for record in records]

    def wait_for_room(self, size_bytes: int) -> None:
        """Wait until the write cache has room for a message. Takes the lock itself.

        Without space nobody waits, since nothing might be flushed: `accept` refuses then.
        """
        if self.storage.cache.active_bytes + size_bytes <= self._write_cache_bytes:
            return
        with self.lock:
            while (
                self.storage.cache.active_bytes
                and self.storage.cache.active_bytes + size_bytes > self._write_cache_bytes
                and self.space is SpaceState.WRITABLE
                and not self._stopping
            ):
                self.flush_wanted.set()
                self._room.wait()

    def room_made(self) -> None:
        """The cache was swapped."""
        self._room.notify_all()

    def set_space(self, space: SpaceState) -> None:
        """What the disks allow from now on. Takes the lock itself."""
        with self.lock:
            self.space = space
            self._room.notify_all()

    def stop_waiting(self) -> None:
        """Nobody will make room any more. Takes the lock itself."""
        with self.lock:
            self._stopping = True
            self._room.notify_all()
