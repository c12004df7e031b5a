"""Recovery of a ledger by a client: the machine of the core, run to its end."""

from daybook.client.driver.run import Surroundings, run_to_end
from daybook.core.effects import Recovered, RecoveryFailed
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import PlacementPolicy, RandomSource
from daybook.core.recovery.recovery import LedgerRecovery
from daybook.runtime.clock import monotonic_ms


async def recover_ledger(
    ledger_id: LedgerId,
    key: str,
    surroundings: Surroundings,
    *,
    placement: PlacementPolicy,
    rng: RandomSource,
) -> LedgerMetadata:
    """Fence, recover and close the ledger, or find it closed; return the final metadata.

    Raises NoSuchLedgerError, UnauthorizedError, RecoveryFailedError (nothing is lost: try again later).
    """
    machine = LedgerRecovery(
        ledger_id, placement=placement, rng=rng, bookies=surroundings.bookies(), now_ms=monotonic_ms()
    )
    result = await run_to_end(machine, ledger_id, key, surroundings)
    if isinstance(result, RecoveryFailed):
        raise surroundings.channels.connection_errors.explain(result.error)
    assert isinstance(result, Recovered)
    return result.metadata
