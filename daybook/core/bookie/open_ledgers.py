"""The ledgers of a bookie that are in memory, and which streams hold them.

A ledger's object lives while a stream is attached to it, a request holds it, or its fence is not durable. Otherwise it is
restored from storage when somebody asks for it. An attachment ends with its stream, when the ledger is deleted, or when the client says
that it is done with the ledger. A client of an earlier release does not say so: then memory grows with the ledgers that its stream was
ever attached to, as long as these exist.
"""

from collections import Counter, defaultdict
from collections.abc import Callable

from daybook.core.bookie.ledger import BookieLedger, LedgerRecord, Purpose
from daybook.core.ids import LedgerId


class OpenLedgers:
    """One object for each ledger that somebody holds."""

    def __init__(self, restore: Callable[[LedgerId], LedgerRecord | None]) -> None:
        """`restore` returns what storage knows of a ledger; None if it knows nothing."""
        self._restore = restore
        self._ledgers: dict[LedgerId, BookieLedger] = {}
        self._ledgers_of_stream: defaultdict[int, set[LedgerId]] = defaultdict(set)
        self._holds: Counter[LedgerId] = Counter()
        self.get = self._ledgers.get
        """The ledger's object if it is in memory; a frame's ledger always is, since its stream is attached."""

    def find(self, ledger_id: LedgerId) -> BookieLedger | None:
        """The ledger if the bookie knows it, to read from only: it may be a copy."""
        return self._ledgers.get(ledger_id) or self._restored(ledger_id)

    def obtain(self, ledger_id: LedgerId) -> BookieLedger:
        """The ledger's one object, made if the bookie does not know it; `release` it when nothing came of it."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            ledger = self._restored(ledger_id) or BookieLedger(ledger_id)
            self._ledgers[ledger_id] = ledger
        return ledger

    def release(self, ledger_id: LedgerId) -> None:
        """Drop the object if nobody holds it and storage knows all that it knows."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None or self._holds[ledger_id]:
            return
        if ledger.fenced and not ledger.is_fence_durable:
            return
        del self._holds[ledger_id]
        del self._ledgers[ledger_id]

    def hold(self, ledger_id: LedgerId) -> BookieLedger:
        """`obtain`, and keep the object until `let_go`."""
        ledger = self.obtain(ledger_id)
        self._holds[ledger_id] += 1
        return ledger

    def let_go(self, ledger: BookieLedger) -> None:
        """End one `hold` of this object; the ledger may have been deleted meanwhile, and another object made."""
        self._unhold(ledger.ledger_id)
        if self._ledgers.get(ledger.ledger_id) is ledger:
            self.release(ledger.ledger_id)

    def forget(self, ledger_id: LedgerId) -> None:
        """The ledger is deleted: whoever is attached must attach again, to a new object (rule 20)."""
        ledger = self._ledgers.pop(ledger_id, None)
        if ledger is not None:
            ledger.forget()
            for stream_id in [each for each, held in self._ledgers_of_stream.items() if ledger_id in held]:
                self._release_from(stream_id, ledger_id)

    def _release_from(self, stream_id: int, ledger_id: LedgerId) -> None:
        """The stream is attached to one ledger less; one that is attached to none gives way to others."""
        self._unhold(ledger_id)
        ledgers = self._ledgers_of_stream[stream_id]
        ledgers.discard(ledger_id)
        if not ledgers:
            del self._ledgers_of_stream[stream_id]

    def _restored(self, ledger_id: LedgerId) -> BookieLedger | None:
        record = self._restore(ledger_id)
        return None if record is None else BookieLedger.restored(record)

    def _unhold(self, ledger_id: LedgerId) -> None:
        """A ledger that was deleted meanwhile is held by nobody else, and must not be counted for ever."""
        self._holds[ledger_id] -= 1
        if not self._holds[ledger_id]:
            del self._holds[ledger_id]

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

    def end_attachment(self, stream_id: int, ledger_id: LedgerId, purpose: Purpose) -> None:
        """The stream's client is done with the ledger; nothing if it is not attached, or not any more."""
        is_attached = ledger_id in self._ledgers_of_stream.get(stream_id, ())
        if is_attached and not self._ledgers[ledger_id].end_attachment(stream_id, purpose):
            self._release_from(stream_id, ledger_id)
            self.release(ledger_id)

    def detach(self, stream_id: int) -> None:
        """The stream ended."""
        for ledger_id in sorted(self._ledgers_of_stream.pop(stream_id, ())):
            self._unhold(ledger_id)
            self._ledgers[ledger_id].detach(stream_id)
            self.release(ledger_id)
