"""The append streams that are open on a bookie, and which of them is evicted where there are too many."""

import threading
from operator import attrgetter
from typing import Final

from daybook_bookie.ledgers import LedgerTable
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.service.append import AppendContext, AppendStream, Outgoing

_EVICTED: Final = "as many append streams are open as may (streams_max), and no ledger was attached to this one: open it again to write"
_last_received: Final = attrgetter("received_ms", "stream_id")


class AppendStreams:
    """At most `streams_max` of them."""

    def __init__(
        self, context: AppendContext, table: LedgerTable, metrics: BookieMetrics, *, streams_max: int
    ) -> None:
        self._context = context
        self._table = table
        self._metrics = metrics
        self._streams_max = streams_max
        self._streams: set[AppendStream] = set()
        self._lock = threading.Lock()

    def open(self, outgoing: Outgoing) -> AppendStream | None:
        """A new append stream; None if there are too many.

        A stream that no ledger is attached to writes nothing, so the one of them that was quiet longest is evicted.
        """
        with self._lock:
            evicted = None
            if len(self._streams) >= self._streams_max:
                evicted = self._idle_stream()
                if evicted is None:
                    return None
                self._streams.discard(evicted)
            stream = AppendStream(self._context, outgoing)
            self._streams.add(stream)
            self._metrics.streams.set(len(self._streams))
        if evicted is not None:
            evicted.evict(_EVICTED)
        return stream

    @property
    def refusal(self) -> str:
        """What a client is answered that gets no stream."""
        return f"{self._streams_max} append streams are open, which is the limit: use one for each process, or raise streams_max"

    def ended(self, stream: AppendStream) -> None:
        """The stream's handler ended."""
        with self._lock:
            self._streams.discard(stream)
            self._metrics.streams.set(len(self._streams))

    def close(self) -> None:
        """End all streams."""
        for stream in self.all():
            stream.close()

    def all(self) -> list[AppendStream]:
        """The streams that are open."""
        with self._lock:
            return list(self._streams)

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._streams)

    def _idle_stream(self) -> AppendStream | None:
        """Of the streams that no ledger is attached to, nor waits to be, the one that received nothing for longest."""
        with self._table.lock:
            is_attached = self._table.machine.ledgers.is_attached
            idle = [each for each in self._streams if not is_attached(each.stream_id)]
            return min((each for each in idle if not each.attaching), key=_last_received, default=None)
