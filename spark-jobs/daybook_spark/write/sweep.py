"""Deletes the ledgers that killed tasks and drivers left behind: tagged by a job, named by no manifest, and older than a limit.

The manifest records the job as abandoned before anything is deleted, and refuses its commit from then on. So a job that is only slow fails,
and loses nothing that readers were shown (rule 66).
"""

from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Final

from daybook.client.client import Client
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.metadata.hold import check_not_held
from daybook.metadata.manifests import Manifest, ManifestManager
from daybook_spark.write.job import JOB, MANIFEST, delete_abandoned, unnamed_in

DAY_MS: Final = 24 * 3600 * 1000


async def sweep(
    client: Client, password: bytes, *, now_ms: int, older_than_ms: int = DAY_MS, dry_run: bool = False
) -> list[LedgerId]:
    """Delete what is left of jobs whose ledger is older than `older_than_ms`; returns the ids, with `dry_run` of what would go.

    Raises CollectionHeldError after a restore (rule 68): the manifest that names a job's ledgers may be younger.
    """
    if not dry_run:
        await check_not_held(client.store, client.layout)
    left: defaultdict[tuple[str, str], list[LedgerId]] = defaultdict(list)
    async for metadata in _tagged(client):
        if metadata.created_at_ms + older_than_ms <= now_ms:
            tags = metadata.custom_metadata
            left[tags[MANIFEST].decode(), tags[JOB].decode()].append(metadata.ledger_id)
    manifests = ManifestManager(client.store, client.layout)
    gone: list[LedgerId] = []
    for (name, job), ledger_ids in sorted(left.items()):
        found = await manifests.read(name)
        unnamed = unnamed_in(found.value if found else Manifest(), ledger_ids)
        if unnamed and not dry_run:
            unnamed = await delete_abandoned(client, name, job, unnamed, password)
        gone += unnamed
    return sorted(gone)


async def _tagged(client: Client) -> AsyncIterator[LedgerMetadata]:
    async for found in client.list_ledgers():
        if found.value.custom_metadata.keys() >= {JOB, MANIFEST}:
            yield found.value
