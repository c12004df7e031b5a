"""The audit as a whole: the table of all copies, what nobody owes any more, the summary, Parquet, and the repair tasks.

The tasks of a repair are written by the auditor's own code, in the process that runs this job. A bookie remembers each entry that it
could not read, so the auditor's listing, which follows the last read, has what the job found: gaps, damage, limbo and placement.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from daybook.autorecovery.cycles import AuditCycles
from daybook.autorecovery.report import AuditReport
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.client.client import Client
from daybook.client.placement_settings import placement_policy
from daybook.runtime.logs import get_logger
from daybook_spark.access import open_client
from daybook_spark.audit import owed
from daybook_spark.audit.source import BYTES_PER_SECOND, NAME, PIECE_BYTES, TASKS, AuditSource
from daybook_spark.options import Where
from daybook_spark.progress import OnProgress, tasks_progress

log = get_logger(__name__)

FAULTY_ROWS_MAX: Final = 1000
"""How many rows with faults, and how many misplaced ensembles, a summary has; the table has all."""
_COUNTS: Final = ("owed", "found", "missing", "damaged", "differing", "unread")
_IS_FAULTY: Final = "found < owed or differing > 0 or unread > 0"


@dataclass(frozen=True, slots=True)
class Counts:
    """Copies: those that are owed are found, missing, damaged or unread; differing ones are found."""

    owed: int = 0
    found: int = 0
    missing: int = 0
    damaged: int = 0
    differing: int = 0
    unread: int = 0


@dataclass(frozen=True, slots=True)
class AuditSummary:
    """What an audit read. `ledgers` are those with entries."""

    ledgers: int
    copies: Counts
    by_bookie: dict[str, Counts]
    faulty: list[dict[str, Any]]
    """The first rows of the table that have a fault."""
    misplaced: list[dict[str, Any]]
    """The first ensembles that break the placement policy: `ledger_id`, `first_entry`, `last_entry` and, in words, `placement`. Their copies
    may all be there."""

    @property
    def is_whole(self) -> bool:
        """Whether every copy was read, is intact and is the same as the others."""
        return not self.faulty

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"is_whole": self.is_whole}


def audit_table(
    spark: SparkSession, where: Where, *, bytes_per_second: int = 0, piece_bytes: int | None = None
) -> DataFrame:
    """A row for each range of entries and each bookie that owes them; nothing is read before the table is used.

    All tasks together read at most `bytes_per_second` from one bookie; 0 is no limit.
    """
    spark.dataSource.register(AuditSource)
    options: dict[str, str | int] = {
        BYTES_PER_SECOND: bytes_per_second,
        TASKS: max(1, spark.sparkContext.defaultParallelism),
        "zookeeper": where.zookeeper,
        "cluster": where.cluster,
    }
    if piece_bytes is not None:
        options[PIECE_BYTES] = piece_bytes
    for name, path in (
        ("tlsCa", where.tls_ca),
        ("tlsCertificate", where.tls_certificate),
        ("tlsKey", where.tls_key),
    ):
        if path is not None:
            options[name] = str(path)
    return spark.read.format(NAME).options(**options).load()


def run_audit(
    table: DataFrame,
    where: Where,
    *,
    parquet: str = "",
    on_progress: OnProgress = lambda _done, _total: None,
) -> AuditSummary:
    """Read every copy of the cluster at `where` once, write the table to `parquet` if that is given, and return the summary.

    Rows with faults are left out if nobody owes these copies any more: the ledger was deleted meanwhile, or a repair has moved them.
    Raises MetadataUnavailableError.
    """
    table = table.persist()
    try:
        with tasks_progress(table.sparkSession, on_progress):
            table.count()
        still_owed = _still_owed(table, where)
        if parquet:
            still_owed.write.mode("overwrite").parquet(parquet)
        return summary_of(still_owed)
    finally:
        table.unpersist()


def _still_owed(table: DataFrame, where: Where) -> DataFrame:
    """The table without the faults of copies that nobody owes any more. Raises MetadataUnavailableError."""
    rows = table.where(_IS_FAULTY).select(*owed.Copy._fields).collect()
    if not rows:
        return table
    with ThreadPoolExecutor(1) as thread:  # the one of a notebook has an event loop that runs
        gone = thread.submit(asyncio.run, _no_longer_owed(where, [owed.Copy(*row) for row in rows])).result()
    if not gone:
        return table
    log.info("faults of copies that nobody owes any more are left out", rows=len(gone))
    left_out = table.sparkSession.createDataFrame(gone, owed.SCHEMA)
    still_owed = table.join(f.broadcast(left_out), [*owed.Copy._fields], "left_anti")
    return still_owed.select(table.columns)  # a join has its own columns first


async def _no_longer_owed(where: Where, copies: Sequence[owed.Copy]) -> list[owed.Copy]:
    async with open_client(where) as client:
        return await owed.no_longer_owed(client.ledgers, copies)


def summary_of(table: DataFrame) -> AuditSummary:
    """Add up a table, also one that was read back from Parquet."""
    sums = [f.sum(name).alias(name) for name in _COUNTS]
    by_bookie = {
        row["bookie"]: Counts(*(row[name] for name in _COUNTS))
        for row in table.groupBy("bookie").agg(*sums).orderBy("bookie").collect()
    }
    faulty = table.where(_IS_FAULTY).orderBy("ledger_id", "first_entry", "bookie").limit(FAULTY_ROWS_MAX)
    totals = (sum(getattr(counts, name) for counts in by_bookie.values()) for name in _COUNTS)
    ensembles = table.where("placement <> ''").groupBy("ledger_id", "placement")
    misplaced = ensembles.agg(
        f.min("first_entry").alias("first_entry"), f.max("last_entry").alias("last_entry")
    )
    return AuditSummary(
        ledgers=table.select("ledger_id").distinct().count(),
        copies=Counts(*totals),
        by_bookie=by_bookie,
        faulty=[row.asDict() for row in faulty.collect()],
        misplaced=[
            row.asDict()
            for row in misplaced.orderBy("ledger_id", "first_entry").limit(FAULTY_ROWS_MAX).collect()
        ],
    )


async def mark_tasks(
    client: Client,
    stop: asyncio.Event,
    *,
    dry_run: bool = False,
    lost_delay_s: float | None = None,
    settings: AutoRecoverySettings | None = None,
) -> AuditReport:
    """One cycle of the auditor, which marks what needs a repair; with `dry_run` it only reports."""
    cycles = AuditCycles(
        client,
        settings or AutoRecoverySettings(),
        placement=placement_policy(),
        lost_delay_s=lost_delay_s,
        marks=not dry_run,
    )
    return await cycles.once(stop, full=True)
