"""The scrubber: it reads everything that is stored, slowly, and checks every entry, to detect damage before a reader does.

It records an entry that cannot be read, and the bookie reports it with the ledger's intervals, so that the auditor has it
repaired from another replica (rule 26). It reads a damaged entry again before each report, because a repair may have
replaced it.
"""

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from daybook.core.errors import FrameError
from daybook.core.format.entries import decode_entries
from daybook.core.format.frame import decode_header
from daybook.core.ids import EntryId, LedgerId
from daybook.runtime.logs import get_logger
from daybook_bookie.disk.errors import CorruptStoreError
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.poller import Poller
from daybook_bookie.store.entry_store import EntryStore

_LOG: Final = get_logger(__name__)
_READ_BYTES: Final = 1024 * 1024
DAMAGED_MAX: Final = 10_000
"""Damaged entries recorded of a ledger; the scrubber finds more once these are repaired."""


@dataclass(slots=True)
class Scrubbed:
    """What a scrub found."""

    ledgers: int = 0
    entries: int = 0
    damaged: dict[LedgerId, list[EntryId]] = field(default_factory=dict)


class Scrubber:
    """Scrubs at intervals, in a thread of its own, and at once on request."""

    def __init__(
        self,
        store: EntryStore,
        is_cached: Callable[[LedgerId, EntryId], bool],
        metrics: BookieMetrics,
        *,
        interval_ms: int,
        bytes_per_second: int,
    ) -> None:
        """`is_cached`: whether the write cache has an intact copy, which readers get and which the store gets later.

        `bytes_per_second` bounds the cycles of the thread, not a scrub on request.
        """
        self._store = store
        self._is_cached = is_cached
        self._metrics = metrics
        self._bytes_per_second = bytes_per_second
        self._lock = threading.Lock()
        self._damaged: defaultdict[LedgerId, set[EntryId]] = defaultdict(set)
        metrics.damaged_entries.set_function(self._count)
        self._poller = Poller(
            "scrubber", interval_ms / 1000, self._scrub_all, failed="a round of the scrubber failed"
        )

    def start(self) -> None:
        """Start the thread."""
        self._poller.start()

    def close(self) -> None:
        """Stop."""
        self._poller.close()

    def scrub_now(self, ledger_id: LedgerId | None = None) -> Scrubbed:
        """Check one ledger, or all, without a pause."""
        return self._scrub(
            [ledger_id] if ledger_id is not None else sorted(self._store.ledgers()), slow=False
        )

    def found(self, ledger_id: LedgerId, entry: EntryId) -> None:
        """A reader met damage."""
        with self._lock:
            if len(self._damaged[ledger_id]) < DAMAGED_MAX:
                self._damaged[ledger_id].add(entry)

    def damaged_of(self, ledger_id: LedgerId) -> list[EntryId]:
        """The ledger's damaged entries, as far as they are known and not repaired by now, rising."""
        with self._lock:
            if ledger_id not in self._damaged:
                return []
            entries = sorted(self._damaged[ledger_id])
        still = [entry for entry in entries if self._is_damaged(ledger_id, entry)]
        with self._lock:
            self._damaged[ledger_id] -= set(entries) - set(still)
            if not self._damaged[ledger_id]:
                del self._damaged[ledger_id]
        return still

    def _scrub_all(self) -> None:
        self._scrub(sorted(self._store.ledgers()), slow=True)
        self._metrics.scrub_rounds.inc()

    def _scrub(self, ledger_ids: list[LedgerId], *, slow: bool) -> Scrubbed:
        result = Scrubbed()
        for ledger_id in ledger_ids:
            if self._poller.is_closing:
                break
            damaged = self._scrub_ledger(ledger_id, result, slow=slow)
            result.ledgers += 1
            with self._lock:
                if damaged:
                    self._damaged[ledger_id] = set(damaged[:DAMAGED_MAX])
                else:
                    self._damaged.pop(ledger_id, None)
            if damaged:
                _LOG.error("damaged entries", ledger_id=ledger_id, count=len(damaged), first=damaged[0])
                result.damaged[ledger_id] = damaged
        return result

    def _scrub_ledger(self, ledger_id: LedgerId, result: Scrubbed, *, slow: bool) -> list[EntryId]:
        """The entries of the ledger that exist and cannot be read."""
        damaged: list[EntryId] = []
        at = 0
        while not self._poller.is_closing:
            record = self._store.ledger(ledger_id)
            wanted = -1 if record is None else record.intervals.next_from(at)
            if record is None or wanted < 0:
                break
            try:
                frames = self._store.read_blocks(ledger_id, wanted, record.intervals.last, _READ_BYTES)
            except CorruptStoreError:
                damaged.append(wanted)
                at = wanted + 1
                continue
            if not frames:
                break
            for frame in frames:
                header = decode_header(frame)
                good, bad = decode_entries(frame, header)
                damaged.extend(bad)
                result.entries += len(good)
                self._metrics.scrubbed_entries.inc(len(good))
                at = max([wanted, *(entry.entry_id for entry in good[-1:]), *bad[-1:]]) + 1
            if slow:
                self._poller.pause(sum(map(len, frames)) / self._bytes_per_second)
        return damaged

    def _is_damaged(self, ledger_id: LedgerId, entry: EntryId) -> bool:
        if self._is_cached(ledger_id, entry):
            return False  # a repair has just written it: the worker that looks again must not find the damage again
        record = self._store.ledger(ledger_id)
        if record is None or not record.intervals.contains(entry):
            return False
        try:
            for frame in self._store.read_blocks(ledger_id, entry, entry, 1):
                _, bad = decode_entries(frame, decode_header(frame))
                if entry in bad:
                    return True
        except (CorruptStoreError, FrameError):
            return True
        return False

    def _count(self) -> int:
        """The damaged entries of the ledgers that are stored: a scrub, or a reader, may find damage of one that is deleted."""
        with self._lock:
            for ledger_id in [each for each in self._damaged if self._store.ledger(each) is None]:
                del self._damaged[ledger_id]
            return sum(map(len, self._damaged.values()))
