"""A job that writes ledgers: each task writes and closes its own; the commit names them all in a manifest, or nothing is named.

The ledgers of a job carry its id in their custom metadata, so that those of killed tasks can be found: they are in no commit
message. The ids of a job's ledgers are above `first_id`, the counter at the job's beginning, which bounds the search (rule 66).
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from daybook.client.client import Client
from daybook.core.errors import DaybookError, MetadataError, NoSuchLedgerError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.topics.unnamed import JOB_KEY, TASK_KEY
from daybook.metadata.manifests import Manifest, ManifestManager, WrittenLedger
from daybook.metadata.store.read_ahead import read_ahead
from daybook.runtime.logs import get_logger

JOB: Final = JOB_KEY
MANIFEST: Final = "spark-manifest"
TASK: Final = TASK_KEY

_LOG: Final = get_logger(__name__)
_DELETIONS_AT_A_TIME: Final = 16


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a writer: where it writes to, and how its ledgers are recognised."""

    job_id: str
    manifest: str
    first_id: LedgerId

    def tags(self, task: str) -> dict[str, bytes]:
        """The custom metadata of the ledger of `task`."""
        return {JOB: self.job_id.encode(), MANIFEST: self.manifest.encode(), TASK: task.encode()}

    def wrote(self, metadata: LedgerMetadata) -> bool:
        """Whether a ledger is this job's."""
        return metadata.custom_metadata.get(JOB) == self.job_id.encode()


async def commit_job(
    client: Client,
    job: Job,
    ledgers: Sequence[WrittenLedger],
    *,
    password: bytes,
    overwrite: bool = False,
    query: str = "",
    batch: int = 0,
) -> None:
    """Name `ledgers` in the job's manifest by one compare-and-set, then delete what nobody names, or leave it to the next sweep.

    Raises MetadataError if one of them is not closed as its task left it (rule 66), JobAbandonedError.
    """
    for written in ledgers:
        await check_closed(client, written)
    unnamed = await ManifestManager(client.store, client.layout).add(
        job.manifest, job.job_id, tuple(ledgers), overwrite=overwrite, query=query, batch=batch
    )
    committed = {written.ledger_id for written in ledgers}
    try:
        left = [found for found in await ledgers_of(client, job) if found not in committed]
    except DaybookError as error:  # readers see the job already: Spark would abort what is done
        _LOG.warning("ledgers that a job left stay for the next sweep", job=job.job_id, why=str(error))
        left = []
    await delete_ledgers(client, {*unnamed, *left}, password)


async def abort_job(client: Client, job: Job, password: bytes) -> None:
    """Delete the ledgers of the job that its manifest does not name; what cannot be deleted now the next sweep deletes.

    Spark aborts a job also after a commit of which only the answer was lost.
    """
    if found := await ledgers_of(client, job):
        await delete_abandoned(client, job.manifest, job.job_id, found, password)


async def delete_abandoned(
    client: Client, manifest: str, job_id: str, ledger_ids: Iterable[LedgerId], password: bytes
) -> list[LedgerId]:
    """Have the manifest refuse the job, then delete those of its ledgers that it does not name (rule 66); returns those that are gone now."""
    final = await ManifestManager(client.store, client.layout).abandon(manifest, job_id)
    return await delete_ledgers(client, unnamed_in(final, ledger_ids), password)


def unnamed_in(manifest: Manifest, ledger_ids: Iterable[LedgerId]) -> list[LedgerId]:
    """The ledgers that the manifest does not name."""
    named = {written.ledger_id for written in manifest.ledgers}
    return [ledger_id for ledger_id in ledger_ids if ledger_id not in named]


async def check_closed(client: Client, written: WrittenLedger) -> None:
    """A ledger in a manifest never changes: one that is still open might (rule 66)."""
    metadata = (await client.ledgers.read(written.ledger_id, sync=True)).value
    if not metadata.is_closed or metadata.last_entry + 1 != written.entries:
        msg = (
            f"ledger {written.ledger_id} is {metadata.state.value} with last entry {metadata.last_entry}, and its task wrote "
            f"{written.entries} entries and closed it: nothing was committed, run the job again"
        )
        raise MetadataError(msg)


async def ledgers_of(client: Client, job: Job) -> list[LedgerId]:
    """Every ledger of the job that exists, whichever task wrote it."""

    async def ids() -> AsyncIterator[LedgerId]:
        async for ledger_id in client.ledgers.ids():
            if ledger_id >= job.first_id:
                yield ledger_id

    async def own(ledger_id: LedgerId) -> LedgerId | None:
        try:
            metadata = (await client.ledgers.read(ledger_id)).value
        except NoSuchLedgerError:
            return None
        return ledger_id if job.wrote(metadata) else None

    await client.store.sync(client.layout.ledgers)
    return [ledger_id async for ledger_id in read_ahead(ids(), own)]


async def delete_ledgers(client: Client, ledger_ids: Iterable[LedgerId], password: bytes) -> list[LedgerId]:
    """Delete ledgers, those too that a task still writes, which ends it; returns those that are gone now."""
    turns = asyncio.Semaphore(_DELETIONS_AT_A_TIME)

    async def delete(ledger_id: LedgerId) -> bool:
        async with turns:
            try:
                await client.delete_ledger(ledger_id, password=password)
            except NoSuchLedgerError:
                return True
            except DaybookError as error:
                _LOG.warning(
                    "a ledger of a job stays for the next sweep", ledger_id=ledger_id, why=str(error)
                )
                return False
            return True

    ordered = sorted(set(ledger_ids))
    gone = await asyncio.gather(*map(delete, ordered))
    return [ledger_id for ledger_id, is_gone in zip(ordered, gone, strict=True) if is_gone]
