"""The ledgers of a bookie, under the one lock that everything which decides about them holds.

The decisions are the core's (`daybook.core.bookie.machine`). One lock for all ledgers is enough, because nothing under it
waits or reads entries, and it makes rule 43 plain: whoever checks a fence puts the frame into the write cache before
anyone else can decide.
"""

import random
import threading
from collections.abc import Callable
from typing import Final

from daybook.core.bookie.ledger import Purpose
from daybook.core.bookie.listing import Known, Listing
from daybook.core.bookie.machine import BookieMachine
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import EntryId, LedgerId
from daybook_bookie.disk.watch import SpaceState
from daybook_bookie.journal.format import Record
from daybook_bookie.store.machine_storage import MachineStorage, core_record
from daybook_bookie.store.reading import add_block
from daybook_bookie.store.storage import Storage

LEDGERS_UNDER_LOCK: Final = 500
"""Whoever reads many ledgers releases the lock after so many: everyone who appends waits for it."""


class LedgerTable:
    """The machine and its lock. `machine` is called with `lock` held; methods here say whether they take it."""

    def __init__(
        self,
        storage: Storage,
        has_waiters: Callable[[LedgerId], bool],
        *,
        write_cache_bytes: int,
        flush_bytes: int,
    ) -> None:
        """`has_waiters`: whether a long poll waits for a ledger. `write_cache_bytes` bounds the generation that takes frames.

        A flush is asked for at `flush_bytes` at the latest, from half of it on: where each time is drawn. Bookies of an
        ensemble receive about the same, and would all flush at the same time, while entries wait for an ack quorum of them.
        """
        self.lock = threading.Lock()
        self.storage = storage
        self.machine: BookieMachine[Record] = BookieMachine(
            MachineStorage(storage, write_cache_bytes), has_waiters
        )
        self.space = SpaceState.WRITABLE
        self.read_only_reason = ""
        """Why an administrator made the bookie read-only; empty if none did."""
        self.flush_wanted = threading.Event()
        self._write_cache_bytes = write_cache_bytes
        self._flush_bytes = flush_bytes
        self._due_bytes = self._draw_due_bytes()
        self._room = threading.Condition(self.lock)
        self._stopping = False

    # What is known. These take the lock themselves, and only for what is in the cache.

    def known_ids(self) -> list[LedgerId]:
        """Every ledger that store or cache knows, rising.

        The cache is listed first: what is flushed meanwhile is found in the store.
        """
        with self.lock:
            generations = self.storage.cache.generations
            cached = {
                key: each.deleted for generation in generations for key, each in generation.ledgers.items()
            }
        found = set(self.storage.store.ledgers())
        for ledger_id, is_deleted in cached.items():
            (found.discard if is_deleted else found.add)(ledger_id)
        return sorted(found)

    def known(self) -> Known:
        """What is known, and what of it proves that the ledger existed.

        The cache's ledgers are listed before the store is read: what is flushed meanwhile is then in one or the other.
        """
        with self.lock:
            cached = [each for generation in self.storage.cache.generations for each in generation.ledgers]
        listing = Listing(self.machine)
        for ledger_id, record in self.storage.store.ledgers().items():
            listing.stored(core_record(ledger_id, record), has_entries=bool(record.intervals))
        for begin in range(0, len(cached), LEDGERS_UNDER_LOCK):
            with self.lock:
                listing.judge(cached[begin : begin + LEDGERS_UNDER_LOCK])
        return listing.known()

    def limbo_mark(self, ledger_id: LedgerId) -> str | None:
        """The nonce of the ledger if this bookie cannot vouch for it (rule 29)."""
        with self.lock:
            nonce = self.storage.limbo(ledger_id)
        return None if nonce is None else nonce.hex()

    def limbo_marks(self) -> dict[LedgerId, str]:
        """The nonces of the ledgers that this bookie cannot vouch for (rule 29).

        The cache is listed first: what is flushed meanwhile is found in the store.
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

    def is_cached(self, ledger_id: LedgerId, entry: EntryId) -> bool:
        """Whether the write cache has the entry, whatever the store has of it."""
        with self.lock:
            found = self.storage.cache.next_from(ledger_id, entry)
        return found is not None and found[0] == entry

    def end_attachment(self, stream_id: int, ledger_id: LedgerId, purpose: Purpose) -> None:
        """The stream's client is done with the ledger. Takes the lock itself."""
        with self.lock:
            self.machine.ledgers.end_attachment(stream_id, ledger_id, purpose)

    def detach(self, stream_id: int) -> None:
        """The stream ended. Takes the lock itself."""
        with self.lock:
            self.machine.ledgers.detach(stream_id)

    # Room

    def flush_if_due(self) -> None:
        """Ask for a flush if enough has gathered. With the lock held, after frames were accepted."""
        if self.storage.cache.active_bytes >= self._due_bytes:
            self.flush_wanted.set()

    def wait_for_room(self, size_bytes: int) -> None:
        """Wait until the write cache has room for a message. Takes the lock itself.

        Without space nobody waits, since nothing might be flushed: the machine refuses then.
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
        """The cache was swapped. With the lock held."""
        self._due_bytes = self._draw_due_bytes()
        self._room.notify_all()

    def _draw_due_bytes(self) -> int:
        return random.randint(-(-self._flush_bytes // 2), self._flush_bytes)

    def set_space(self, space: SpaceState) -> None:
        """What the disks allow from now on. Takes the lock itself."""
        with self.lock:
            self.space = space
            self._space_changed()
            self._room.notify_all()

    def set_read_only(self, reason: str) -> None:
        """Why an administrator refuses writes; empty if none does. Takes the lock itself."""
        with self.lock:
            self.read_only_reason = reason
            self._space_changed()

    def _space_changed(self) -> None:
        self.machine.set_space(
            takes_all=self.space is SpaceState.WRITABLE and not self.read_only_reason,
            keeps_reserve=self.space is not SpaceState.EXHAUSTED,
        )

    def stop_waiting(self) -> None:
        """Nobody makes room any more. Takes the lock itself."""
        with self.lock:
            self._stopping = True
            self._room.notify_all()
