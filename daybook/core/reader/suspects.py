"""Which bookies failed lately: for a while the reads of a client ask the other replicas first (rule 63).

A bookie that is gone or slow would otherwise cost every read a time-out of its own. A suspicion ends by time alone, because a bookie
that is asked last gives no sign that it is well again; then the next read tries it. BookKeeper's readers reorder replicas by their
failures of the last minute in the same way. What an answer says of an entry or a ledger (not found, limbo, a wrong
password) is no failure of the bookie.
"""

from typing import Final

from daybook.core.errors import Code
from daybook.core.ids import BookieId

SUSPECTED_MS: Final = 60_000
"""How long a bookie is suspected after its last failure."""

FAILURES: Final = frozenset(
    {Code.TIMEOUT, Code.IO_ERROR, Code.CONNECTION_LOST, Code.UNAVAILABLE, Code.TOO_MANY_REQUESTS}
)
"""The answers that make a bookie suspect."""


class Suspects:
    """The suspected bookies, shared by all reads of one client; time is an argument."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[BookieId, tuple[int, int]] = {}
        """By bookie: how often it failed since it is suspected, and until when it is."""

    def add(self, bookie: BookieId, now_ms: int) -> None:
        """`bookie` failed, or did not answer in time."""
        self._known = {known: entry for known, entry in self._known.items() if entry[1] > now_ms}
        failures, _ = self._known.get(bookie, (0, 0))
        self._known[bookie] = (failures + 1, now_ms + SUSPECTED_MS)

    def answered(self, bookie: BookieId, code: Code, now_ms: int) -> None:
        """`bookie` answered a read with `code`."""
        if code in FAILURES:
            self.add(bookie, now_ms)

    def failures(self, bookie: BookieId, now_ms: int) -> int:
        """How often `bookie` failed since it is suspected; 0 if it is not."""
        failures, until_ms = self._known.get(bookie, (0, 0))
        return failures if now_ms < until_ms else 0
