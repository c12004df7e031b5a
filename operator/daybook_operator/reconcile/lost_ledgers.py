"""Observes ledgers with an entry that the last repair found on no bookie; `plan.lost_ledgers` judges them."""

import asyncio
from collections.abc import Iterable
from typing import Final

from daybook.core.errors import NoSuchLedgerError
from daybook.core.repair.judgement import Reason
from daybook.core.repair.task import RepairTask, bookies_with
from daybook.metadata.store.store import Versioned
from daybook_operator.clusters.link import ClusterLink
from daybook_operator.plan.lost_ledgers import Nowhere, Verdict, verdict_on

JUDGED_MAX: Final = 100
"""As many as a status lists; of the others nothing is claimed."""


async def verdicts(link: ClusterLink, tasks: Iterable[Versioned[RepairTask]]) -> tuple[Verdict, ...]:
    """One for each ledger, by its id, whose task says that an entry is on no bookie. Raises MetadataUnavailableError."""
    hopeless = [task.value for task in tasks if task.value.is_unrecoverable]
    if not hopeless:
        return ()
    registered = await link.client.directory.bookies()
    is_audited = link.is_audited_since(registered)
    found = await asyncio.gather(*(_observe(link, task, is_audited) for task in hopeless[:JUDGED_MAX]))
    cookies = frozenset(await link.client.directory.cookies())
    silent = frozenset(link.audits.last_report.silent_bookies) if link.audits.last_report else frozenset()
    judged = [
        verdict_on(each, registered=registered, cookies=cookies, silent=silent)
        for each in found
        if each is not None
    ]
    return (*judged, *(Verdict(task.ledger_id, is_settled=False) for task in hopeless[JUDGED_MAX:]))


async def _observe(link: ClusterLink, task: RepairTask, is_audited: bool) -> Nowhere | None:
    try:
        metadata = (await link.client.ledgers.read(task.ledger_id)).value
    except NoSuchLedgerError:
        return None
    return Nowhere(
        task.ledger_id,
        frozenset(metadata.bookies()),
        bookies_with(Reason.LIMBO, task.reasons),
        is_settled=is_audited and task.not_before_ms > 0,
    )
