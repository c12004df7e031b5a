"""When writers seal what was appended into frames: as soon as a bookie that they write to is idle.

Until then their entries gather, so that a frame holds what came in while the last message was under way. All writers
that wait for a bookie are flushed together and share its next message; a thousand ledgers with an entry each
make one message for each bookie, not a thousand. A writer with a frame that waits for its attachment to a bookie gathers
until that is answered, and holds up nobody but itself.
"""

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Protocol, TypeAlias

from daybook.core.ids import BookieId, LedgerId

Bookies: TypeAlias = tuple[BookieId, ...]


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
        self, is_idle: Callable[[BookieId], bool], attaching: Callable[[BookieId], AbstractSet[LedgerId]]
    ) -> None:
        """`is_idle`: whether a frame for the bookie would leave at once, unless its writer is among those `attaching` there."""
        self._is_idle = is_idle
        self._attaching = attaching
        self._fresh: dict[Flushable, None] = {}
        self._waiting: dict[Bookies, dict[Flushable, None]] = {}
        """By the bookies any of which a writer waits for: thousands of ledgers have a few ensembles."""
        self._keys: dict[BookieId, dict[Bookies, None]] = {}
        """The keys of `_waiting` that name a bookie."""
        self._ready: set[BookieId] = set()
        self._is_due = False

    def add(self, writer: Flushable) -> None:
        """`writer` has entries to seal."""
        self._fresh[writer] = None
        if not self._is_due:
            self._soon()

    def room(self, bookie: BookieId) -> None:
        """Something was answered by `bookie`: it may be idle now."""
        if bookie in self._keys:
            self._ready.add(bookie)
            if not self._is_due:
                self._soon()

    def _soon(self) -> None:
        self._is_due = True
        asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Flush whoever waits for an idle bookie. Who is idle is asked first: the first writer's frame ends that.

        A writer with frames that wait for their attachment does not wait for the bookie: the answers to them add it again.
        """
        self._is_due = False
        due: list[Flushable] = []
        ensembles: dict[Bookies, tuple[set[BookieId], bool]] = {}
        for writer in self._take_waiting():
            bookies = writer.ensemble()
            known = ensembles.get(bookies)
            if known is None:
                idle = set(filter(self._is_idle, bookies))
                known = ensembles[bookies] = idle, any(map(self._attaching, bookies))
            idle, is_any_attaching = known
            if is_any_attaching:
                bookies = tuple(b for b in bookies if writer.id not in self._attaching(b))
                idle = idle.intersection(bookies)
            if idle:
                due.append(writer)
            elif bookies:
                self._wait(writer, bookies)
        for writer in due:
            writer.flush()

    def _take_waiting(self) -> dict[Flushable, None]:
        """The writers of whom it is to be found out whether they can be flushed."""
        found: dict[Flushable, None] = {}
        for bookie in sorted(self._ready):
            if self._is_idle(bookie):
                for bookies in list(self._keys.get(bookie, ())):
                    found |= self._waiting.pop(bookies)
                    for each in bookies:
                        self._forget(each, bookies)
        self._ready.clear()
        found |= self._fresh
        self._fresh = {}
        return found

    def _wait(self, writer: Flushable, bookies: Bookies) -> None:
        waiting = self._waiting.get(bookies)
        if waiting is None:
            waiting = self._waiting[bookies] = {}
            for bookie in bookies:
                self._keys.setdefault(bookie, {})[bookies] = None
        waiting[writer] = None

    def _forget(self, bookie: BookieId, bookies: Bookies) -> None:
        keys = self._keys[bookie]
        del keys[bookies]
        if not keys:
            del self._keys[bookie]
