"""Closing a ledger that no recovery can close, because its disks are lost: a person gives up what they alone had (rule 61).

A deletion gives up all of such a ledger. This keeps what is certain: the ledger ends at the highest LAC that one of its bookies
knows, or just before its last ensemble. What was acknowledged behind that is lost, and what lies before it may be, if no
other bookie has it; repair copies the rest. A topic goes on behind the end.
"""

from collections.abc import Awaitable, Callable

from daybook.client.client import Client
from daybook.client.deletion import DELETE_ATTEMPTS, DeletionSurroundings, changes_too_often, made_unwritable
from daybook.client.preconditions import check_password
from daybook.core.errors import DeadlineExceededError, RecoveryFailedError
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.recovery.deletion import DeletionPolicy
from daybook.metadata.store.store import BadVersionError, Versioned
from daybook.metadata.tasks import RepairTasks
from daybook.runtime.logs import get_logger

log = get_logger(__name__)


async def recover_accepting_loss(
    client: Client, ledger_id: LedgerId, *, password: bytes = b"", timeout_ms: int = 60_000
) -> tuple[LedgerMetadata, tuple[BookieId, ...]]:
    """Recover a ledger; where that fails within `timeout_ms`, close it at the last entry that is known to be acknowledged.

    Returns its final metadata, and the bookies that count as lost and were not fenced. The cluster's delay of lost bookies is
    waited for. Raises NoSuchLedgerError, UnauthorizedError, DeletionRefusedError (a registered bookie does not fence).
    """
    check_password((await client.ledgers.read(ledger_id, sync=True)).value, password)
    delay_s = await RepairTasks(client.store, client.layout).lost_bookie_delay_s()
    return await close_accepting_loss(
        ledger_id,
        client,
        lambda metadata: client.recover(metadata, timeout_ms=timeout_ms),
        policy=DeletionPolicy(round(1000 * delay_s)),
    )


async def close_accepting_loss(
    ledger_id: LedgerId,
    surroundings: DeletionSurroundings,
    recover: Callable[[LedgerMetadata], Awaitable[LedgerMetadata]],
    *,
    policy: DeletionPolicy,
) -> tuple[LedgerMetadata, tuple[BookieId, ...]]:
    """As above, whoever asks; `recover` raises RecoveryFailedError or DeadlineExceededError where disks are lost."""
    for _ in range(DELETE_ATTEMPTS):
        found = (await surroundings.ledgers.read(ledger_id, sync=True)).value
        if found.is_closed:
            return found, ()
        try:
            return await recover(found), ()
        except (RecoveryFailedError, DeadlineExceededError) as error:
            log.warning("recovery failed", ledger_id=ledger_id, reason=str(error))
        ready = await made_unwritable(found, surroundings, policy, hears_all=True)
        if ready is None or ready.metadata.is_closed:
            continue  # a bookie came back, or somebody closed the ledger
        closed = ready.metadata.closed(ready.last_add_confirmed, ready.length_at_lac)
        try:
            await surroundings.ledgers.cas(Versioned(ready.metadata, ready.version), closed)
        except BadVersionError:
            continue
        log.warning(
            "ledger closed without recovery",
            ledger_id=ledger_id,
            last_entry=closed.last_entry,
            unfenced=ready.unfenced,
            bookies=sorted(closed.bookies()),
        )
        return closed, ready.unfenced
    raise changes_too_often(ledger_id)
