"""How much the ledgers of a client have pending: what some bookie that should have it has not answered for yet.

Each ledger has a bound of its own, and all ledgers of a client have one together: thousands of ledgers that each stay below
their own could still take all memory.
"""

import asyncio
from typing import Final, Protocol

PENDING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Back-pressure: an append waits while this much of its ledger is pending.

Above `WriterPolicy.lag_bytes_max`, so that a bookie that stands still is given up before it blocks the writer."""
CLIENT_PENDING_BYTES_MAX: Final = 512 * 1024 * 1024
"""The same for all ledgers of a client together, unless `connect` was given another bound."""
HARD_BOUND_FACTOR: Final = 2
"""`append_soon` cannot wait: it takes entries up to this many times a bound, and then raises."""


class Admitting(Protocol):
    """A ledger whose users wait for room."""

    def admit(self) -> None:
        """Let in who waits, as far as there is room."""


class PendingBytes:
    """The bytes that all ledgers of a client have pending, and who waits until they are fewer."""

    def __init__(self, bound_bytes: int) -> None:
        """Nothing is pending."""
        self.bound_bytes = bound_bytes
        self.size_bytes = 0
        self._waiting: dict[Admitting, None] = {}
        self._is_due = False

    @property
    def has_room(self) -> bool:
        """Whether a ledger that has room itself may take more."""
        return self.size_bytes < self.bound_bytes

    def changed(self, by_bytes: int) -> None:
        """A ledger has so much more pending, or less."""
        self.size_bytes += by_bytes
        assert self.size_bytes >= 0
        if self._waiting and not self._is_due and self.has_room:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._let_in)

    def wait(self, ledger: Admitting) -> None:
        """`ledger` has room itself, and waits for the client's."""
        self._waiting[ledger] = None

    def forget(self, ledger: Admitting) -> None:
        """`ledger` waits no more."""
        self._waiting.pop(ledger, None)

    def _let_in(self) -> None:
        """One ledger after the other, from the one that has waited longest, until the room is taken."""
        self._is_due = False
        for ledger in list(self._waiting):
            if not self.has_room:
                return
            del self._waiting[ledger]
            ledger.admit()
