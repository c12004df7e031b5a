"""Observes the open ledgers in which the last full audit found a gap: of the first few, whose they are, and whether they still are open."""

import asyncio

from daybook.core.errors import NoSuchLedgerError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import TOPIC_KEY
from daybook.core.repair.judgement import Reason
from daybook_operator.clusters.link import ClusterLink
from daybook_operator.plan.open_gaps import NAMED_MAX, OpenGap, OpenGaps


async def open_gaps(link: ClusterLink) -> OpenGaps:
    """Those to name. Raises MetadataError, MetadataUnavailableError."""
    report = link.audits.last_full_report
    if report is None:
        return OpenGaps()
    found = report.found.by_reason.get(Reason.OPEN_GAP.value, ())
    asked = await asyncio.gather(*(_still_open(link, each) for each in found[:NAMED_MAX]))
    return OpenGaps(tuple(each for each in asked if each is not None), len(found[NAMED_MAX:]))


async def _still_open(link: ClusterLink, ledger_id: LedgerId) -> OpenGap | None:
    try:
        metadata = (await link.client.ledgers.read(ledger_id)).value
    except NoSuchLedgerError:
        return None
    if metadata.is_closed:
        return None
    return OpenGap(ledger_id, metadata.custom_metadata.get(TOPIC_KEY, b"").decode(errors="replace"))
