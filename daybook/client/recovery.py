"""Recovery of ledgers by a client: the machine of the core, run to its end, for a bounded number of ledgers at a time.

A broker that takes over thousands of topics recovers thousands of ledgers. At once they would only wait for each other, and
hold memory for what each has read; so a few run, and the others wait in their order.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from daybook.client.driver.run import Surroundings, run_to_end
from daybook.core.effects import Recovered, RecoveryFailed
from daybook.core.errors import TooManyRecoveriesError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import PlacementPolicy, RandomSource
from daybook.core.recovery.recovery import LedgerRecovery
from daybook.runtime.clock import monotonic_ms

RECOVERIES_RUNNING_MAX: Final = 64
"""Recoveries of one client at a time: enough to keep bookies and ZooKeeper busy while each waits for their answers."""
RECOVERIES_WAITING_MAX: Final = 100_000


class RecoveryQueue:
    """The recoveries of one client: some run, the others wait for their turn."""

    def __init__(
        self, running_max: int = RECOVERIES_RUNNING_MAX, waiting_max: int = RECOVERIES_WAITING_MAX
    ) -> None:
        """Let `running_max` run and `waiting_max` wait. Raises ValueError for bounds that let none through."""
        if running_max < 1 or waiting_max < 0:
            msg = f"{running_max} recoveries at a time and {waiting_max} that wait: at least 1 has to run, and none fewer wait"
            raise ValueError(msg)
        self._turns = asyncio.Semaphore(running_max)
        self._waiting_max = waiting_max
        self.running = 0
        self.waiting = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn; it lasts as long as the block. Raises TooManyRecoveriesError."""
        if self._turns.locked() and self.waiting >= self._waiting_max:
            msg = f"{self.waiting} recoveries wait in this client, as many as may: call again when some have ended"
            raise TooManyRecoveriesError(msg)
        self.waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self._turns.release()


async def recover_ledger(
    ledger_id: LedgerId,
    key: str,
    surroundings: Surroundings,
    *,
    placement: PlacementPolicy,
    rng: RandomSource,
    expected_version: int | None = None,
) -> LedgerMetadata:
    """Fence, recover and close the ledger, or find it closed; return the final metadata.

    With `expected_version` only if the metadata is at that version when this begins (rule 56). Raises NoSuchLedgerError,
    UnauthorizedError, LedgerChangedError, RecoveryFailedError (nothing is lost: try again later).
    """
    machine = LedgerRecovery(
        ledger_id,
        placement=placement,
        rng=rng,
        bookies=surroundings.bookies(),
        expected_version=expected_version,
        now_ms=monotonic_ms(),
    )
    result = await run_to_end(machine, ledger_id, key, surroundings)
    if isinstance(result, RecoveryFailed):
        raise surroundings.channels.connection_errors.explain(result.error)
    assert isinstance(result, Recovered)
    return result.metadata
