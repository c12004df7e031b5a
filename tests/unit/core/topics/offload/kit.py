"""Lists with offloaded ledgers."""

from collections.abc import Mapping
from dataclasses import replace

from daybook.core.topics.ledger_list import LedgerList
from daybook.core.topics.offload.changes import OffloadsWritten, WrittenFile
from daybook.core.topics.offload.record import Offload
from daybook.core.topics.trim_plan import PlannedLedger
from tests.unit.core.topics.lists import closed_list

JOB = "0123456789abcdef"
LATER_JOB = "fedcba9876543210"
NOW_MS = 1_000_000
LAG_MS = 60_000


def offload(
    ledger_id: int, entries: int, *, until_ms: int | None = NOW_MS + LAG_MS, job: str = JOB
) -> Offload:
    """The record of a file that a run has written."""
    return Offload(place(ledger_id, job), 1, 500, entries, 7, NOW_MS, until_ms)


def place(ledger_id: int, job: str = JOB, *, folder: str = "file:///cold", options: str = "") -> str:
    """Where a run writes the file of a ledger."""
    return f"{folder}/{ledger_id}-{job}.parquet{options}"


def written(
    *ledgers: tuple[int, int], job: str = JOB, lag_ms: int | None = LAG_MS, entry_bytes: int = 0
) -> OffloadsWritten:
    """A run has copied these ledgers, each an id and its number of entries."""
    files = tuple(
        WrittenFile(
            PlannedLedger(ledger_id, entries, entries * entry_bytes), place(ledger_id, job), 1, 500, 7
        )
        for ledger_id, entries in ledgers
    )
    return OffloadsWritten(job, files, NOW_MS, lag_ms)


def offloaded_list(offloads: Mapping[int, Offload | None], job: str = JOB) -> LedgerList:
    """A list of closed ledgers of ten entries, with or without files."""
    plain = closed_list(*((ledger_id, 10) for ledger_id in offloads))
    ledgers = tuple(replace(ledger, offload=offloads[ledger.ledger_id]) for ledger in plain.ledgers)
    return replace(plain, ledgers=ledgers, offload_job=job)
