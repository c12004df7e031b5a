"""Deleting a ledger: after a recovery, or on purpose without one where its disks are lost (rule 20, rule 56, rule 61).

What is left of a deleted ledger is its id: below the counter of ids and without a node, which nothing brings back. Bookies
take no frame of such a ledger (rule 20) and collect what they have of it (rule 28).
"""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from daybook.client.driver.run import Surroundings, run_to_end
from daybook.client.preconditions import check_version
from daybook.core.effects import DeletionReady, DeletionRefused
from daybook.core.errors import DeletionRefusedError, MetadataError
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import TOPIC_KEY, LedgerMetadata
from daybook.core.recovery.deletion import DeletionFence, DeletionPolicy
from daybook.metadata.bookies import BookieDirectory
from daybook.metadata.store.store import BadVersionError, MetadataStore
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger

log = get_logger(__name__)

DELETE_ATTEMPTS: Final = 10


async def delete_recovered(
    ledger_id: LedgerId,
    surroundings: Surroundings,
    recover: Callable[[LedgerMetadata, int | None], Awaitable[LedgerMetadata]],
    *,
    version: int | None = None,
) -> None:
    """Delete a ledger; one that is not closed is recovered first, so that its writer notices (rule 20).

    `version`: of the metadata that the deletion is meant for; `recover` gets it too. Raises NoSuchLedgerError,
    LedgerChangedError, and whatever `recover` raises.
    """
    for _ in range(DELETE_ATTEMPTS):
        found = await surroundings.ledgers.read(ledger_id, sync=True)
        check_version(found, version)
        if not found.value.is_closed:
            await recover(found.value, version)
            version = None  # it was that one, and this call has changed it
            continue
        try:
            await surroundings.ledgers.delete(ledger_id, found.version)
        except BadVersionError:
            continue
        return
    raise changes_too_often(ledger_id)


class DeletionSurroundings(Surroundings, Protocol):
    """What a deletion without recovery needs around it: the client."""

    store: MetadataStore
    directory: BookieDirectory


async def delete_without_recovery(
    ledger_id: LedgerId,
    surroundings: DeletionSurroundings,
    *,
    policy: DeletionPolicy,
    force: bool,
) -> tuple[BookieId, ...]:
    """Delete a ledger whatever can still be read of it; the bookies that count as lost and were not fenced.

    `force`: also if a topic names it. Raises NoSuchLedgerError, DeletionRefusedError.
    """
    for _ in range(DELETE_ATTEMPTS):
        found = (await surroundings.ledgers.read(ledger_id, sync=True)).value
        if not force:
            refuse_if_named(found)
        ready = await made_unwritable(found, surroundings, policy)
        if ready is None:
            continue
        try:
            await surroundings.ledgers.delete(ledger_id, ready.version)
        except BadVersionError:
            continue
        log.warning(
            "ledger deleted without recovery",
            ledger_id=ledger_id,
            state=ready.metadata.state.value,
            unfenced=ready.unfenced,
            bookies=sorted(ready.metadata.bookies()),
        )
        return ready.unfenced
    raise changes_too_often(ledger_id)


async def made_unwritable(
    found: LedgerMetadata,
    surroundings: DeletionSurroundings,
    policy: DeletionPolicy,
    *,
    hears_all: bool = False,
) -> DeletionReady | None:
    """Nobody can be acknowledged on the ledger any more; None if a bookie that was lost has come back. Raises DeletionRefusedError."""
    machine = DeletionFence(
        found.ledger_id,
        policy=policy,
        bookies=await surroundings.directory.bookies(),
        now_ms=monotonic_ms(),
        hears_all=hears_all,
    )
    result = await run_to_end(machine, found.ledger_id, found.password_hash, surroundings)
    if isinstance(result, DeletionRefused):
        raise surroundings.channels.connection_errors.explain(result.error)
    assert isinstance(result, DeletionReady)
    if result.unfenced:
        await surroundings.store.sync()
        if set(result.unfenced) & (await surroundings.directory.bookies()).keys():
            return None  # it has to be fenced
    return result


def refuse_if_named(metadata: LedgerMetadata) -> None:
    """Raise DeletionRefusedError if the ledger belongs to a topic (rule 61)."""
    topic = metadata.custom_metadata.get(TOPIC_KEY)
    if topic is not None:
        msg = (
            f"ledger {metadata.ledger_id} belongs to topic {topic.decode(errors='replace')}, which would miss it: delete the "
            "topic, or force the deletion"
        )
        raise DeletionRefusedError(msg)


def changes_too_often(ledger_id: LedgerId) -> MetadataError:
    """The error after `DELETE_ATTEMPTS`."""
    return MetadataError(
        f"ledger {ledger_id} changed {DELETE_ATTEMPTS} times while it was to be ended: try again"
    )
