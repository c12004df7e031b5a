"""When writers seal what was appended into frames: as soon as a bookie that they write to is idle.

Until then their entries gather, so that a frame holds what came in while the last message was under way. All writers
that wait for a bookie are flushed together and share its next message; a thousand ledgers with an entry each
make one message for each bookie, not a thousand. A writer that attaches to a bookie gathers until that is answered, and
holds up nobody but itself.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from daybook.core.ids import BookieId, LedgerId


class Flushable(Protocol):
    """A writer with appended entries that are not sealed into frames yet. Added again at any news of its frames."""

    @property
    def id(self) -> LedgerId:
        """The ledger's id."""

    def ensemble(self) -> tuple[BookieId, ...]:
        """The bookies that its next frame goes to."""

    def flush(self) -> None:
        """Seal what gathered and send it; nothing happens if nothing did."""


class FlushQueue:
    """Writers with unsealed entries, by the bookies that they wait for. Looks at them once in a turn of the loop."""

    def __init__(
        self, is_idle: Callable[[BookieId], bool], is_attaching: Callable[[BookieId, LedgerId], bool]
    ) -> None:
        """`is_idle`: whether a frame for the bookie would leave at once, unless its writer is attaching there."""
        self._is_idle = is_idle
        self._is_attaching = is_attaching
        self._fresh: dict[Flushable, None] = {}
        self._waiting: dict[BookieId, dict[Flushable, None]] = {}
        self._ready: set[BookieId] = set()
        self._is_due = False

    def add(self, writer: Flushable) -> None:
        """`writer` has entries to seal."""
        self._fresh[writer] = None
        self._soon()

    def room(self, bookie: BookieId) -> None:
        """Something was answered by `bookie`: it may be idle now."""
        if self._waiting.get(bookie):
            self._ready.add(bookie)
            self._soon()

    def _soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Flush whoever waits for an idle bookie. Who is idle is asked first: the first writer's frame ends that.

        A writer that attaches to a bookie is skipped for that bookie: the answers to its frames there add it again.
        """
        self._is_due = False
        due: dict[Flushable, None] = {}
        for bookie in sorted(self._ready):
            if self._is_idle(bookie):
                for writer in self._waiting.pop(bookie, {}):
                    if not self._is_attaching(bookie, writer.id):
                        due[writer] = None
        self._ready.clear()
        fresh, self._fresh = self._fresh, {}
        idle: dict[BookieId, bool] = {}
        for writer in fresh:
            ensemble = writer.ensemble()
            for bookie in ensemble:
                if bookie not in idle:
                    idle[bookie] = self._is_idle(bookie)
            if any(idle[bookie] and not self._is_attaching(bookie, writer.id) for bookie in ensemble):
                due[writer] = None
            else:
                for bookie in ensemble:
                    self._waiting.setdefault(bookie, {})[writer] = None
        for writer in due:
            writer.flush()
