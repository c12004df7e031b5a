"""When is a bookie lost, and when has an open fragment waited long enough? Both questions are about time.

A bookie is lost when it has been missing from both lists, writable and read-only, for longer than a delay (rule 33): a
restart takes seconds, a copy of its ledgers hours. There is one clock, monotonic, given with every call. A bookie
becomes lost only by an observation made after the delay is over, which is the re-check before acting: time alone never
makes one lost. It returns: the delay begins anew. Turned off: nothing is lost, and every delay begins anew afterwards,
because what happened meanwhile was maintenance.
"""

from collections.abc import Set as AbstractSet

from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import Fragment


class LostBookies:
    """Tracks the bookies that metadata names or that were ever seen, against who is registered."""

    def __init__(self, delay_ms: int) -> None:
        """`delay_ms`: how long a bookie may be away before its ledgers are copied."""
        self.delay_ms = delay_ms
        self.enabled = True
        self._known: set[BookieId] = set()
        self._missing_since_ms: dict[BookieId, int] = {}
        self._lost: set[BookieId] = set()

    def expect(self, bookies: AbstractSet[BookieId]) -> None:
        """These should be there, because metadata names them; a bookie that never registered can be lost too."""
        self._known |= bookies

    def forget(self, bookie: BookieId) -> None:
        """`bookie` is decommissioned: no ledger names it, and nobody waits for it."""
        self._known.discard(bookie)
        self._missing_since_ms.pop(bookie, None)
        self._lost.discard(bookie)

    def set_enabled(self, *, enabled: bool) -> None:
        """The global switch of auto-recovery."""
        if enabled and not self.enabled:
            self._missing_since_ms.clear()
        self.enabled = enabled
        if not enabled:
            self._lost.clear()

    def observe(self, now_ms: int, writable: AbstractSet[BookieId], read_only: AbstractSet[BookieId]) -> None:
        """A listing of who is registered, read at `now_ms`. A listing that failed must not be given as an empty one."""
        registered = writable | read_only
        self._known |= registered
        for bookie in sorted(self._known):
            if bookie in registered:
                self._missing_since_ms.pop(bookie, None)
                self._lost.discard(bookie)
                continue
            since_ms = self._missing_since_ms.setdefault(bookie, now_ms)
            if self.enabled and self._is_over(now_ms - since_ms):
                self._lost.add(bookie)

    def lost(self) -> frozenset[BookieId]:
        """Whose ledgers are to be copied."""
        return frozenset(self._lost)

    def missing(self) -> frozenset[BookieId]:
        """Who is away, lost or not yet."""
        return frozenset(self._missing_since_ms)

    def next_check_ms(self) -> int | None:
        """When the next delay is over and a fresh listing will show it; None while no bookie is away."""
        waiting = [since for bookie, since in self._missing_since_ms.items() if bookie not in self._lost]
        return min(waiting) + self.delay_ms if waiting and self.enabled else None

    def _is_over(self, away_ms: int) -> bool:
        return away_ms >= self.delay_ms


class GracePeriods:
    """How long open fragments have been seen in need of a recovery (rule 31).

    A writer that lives changes the ensemble itself, and then the fragment is another one; only what stays the same
    for a whole grace period has no writer, or one that has nothing to write.
    """

    def __init__(self, grace_ms: int) -> None:
        """`grace_ms` from the first sight of a fragment's need."""
        self.grace_ms = grace_ms
        self._since_ms: dict[LedgerId, tuple[Fragment, int]] = {}

    def is_over(self, ledger_id: LedgerId, fragment: Fragment, now_ms: int) -> bool:
        """The fragment is in need (still): for a whole grace period now?

        A writer that gets nothing acknowledged may change it where it begins: then only its bookies are others.
        """
        before, since_ms = self._since_ms.get(ledger_id, (fragment, now_ms))
        if before != fragment:
            since_ms = now_ms
        self._since_ms[ledger_id] = fragment, since_ms
        return now_ms - since_ms >= self.grace_ms

    def end(self, ledger_id: LedgerId) -> None:
        """The ledger needs nothing any more."""
        self._since_ms.pop(ledger_id, None)
