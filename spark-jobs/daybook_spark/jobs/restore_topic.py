"""One topic's part of a restore: what comes back is planned and copied, its owner names the copies, and the files go after a lag (rule 72).

Each step can be repeated, so a job that is killed between any two is run again. What the owner was asked to name is never deleted here, whatever the
answer: a request whose answer was lost may still be under way. Copies that no list names carry the job's id, and the retention job deletes
them after a day (rule 71). Copies that nobody was asked to name, those of repeated tasks, go at the end of the run.

Files go as those of an offload do: the run begins with its name in the list, lists the folder after that, and then reads the list.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from daybook.client.broker_admin import AdminError, BrokerAdmin
from daybook.client.broker_topics import begin_offload, commit_restore
from daybook.client.client import Client
from daybook.core.errors import DaybookError, NoSuchTopicError, PlanOutdatedError
from daybook.core.ids import LedgerId
from daybook.core.quorum import Quorum
from daybook.core.topics.ledger_list import LedgerList, ListedLedger
from daybook.core.topics.name import TopicName
from daybook.core.topics.offload.changes import OffloadBegun
from daybook.core.topics.offload.plan import unnamed_files
from daybook.core.topics.offload.restore import (
    RestoredLedger,
    RestoreLimits,
    check_former_file,
    files_due,
    plan_restore,
)
from daybook.core.topics.policy import ledger_terms, placeable
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.metadata.policies import PolicyManager
from daybook.metadata.topics import TopicManager
from daybook.offload.rows import topic_files
from daybook.offload.store import delete_file, split_uri
from daybook.runtime.clock import unix_ms
from daybook_spark.asking import ask_owner
from daybook_spark.jobs.copying import ledger_of
from daybook_spark.jobs.offload_topic import shown
from daybook_spark.jobs.restoring import CopyWritten, LedgerRestore
from daybook_spark.jobs.result import DELETED_MEANWHILE, Done
from daybook_spark.write.job import Job, delete_ledgers, ledgers_of

LEDGERS_AT_ONCE: Final = 64
"""Ledgers that are copied before the owner names the copies: what is lost at most where the job is killed."""
FILE_LAG_MS: Final = 24 * 3600 * 1000
"""How long files stay: a metadata backup from before the restore still names them, and readers that know nothing of it finish."""

Restore: TypeAlias = Callable[[Sequence[LedgerRestore]], list[CopyWritten]]
"""Restores ledgers, in tasks."""


@dataclass(frozen=True, slots=True)
class RestoreSettings:
    """What a run is asked for."""

    lag_ms: int = FILE_LAG_MS
    """How long files stay after the list has named the copies."""
    limits: RestoreLimits = field(default_factory=RestoreLimits)
    is_dry_run: bool = False


class RestoreIncompleteError(DaybookError):
    """Some ledgers of a topic were not restored; those that were stay so."""


async def restore_topic(
    client: Client,
    admin: BrokerAdmin | None,
    name: TopicName,
    job: str,
    settings: RestoreSettings,
    restore: Restore,
) -> Done:
    """Do a topic's part, or with a dry run say what it would be; without `admin` it is one. `job` names this part, and no other.

    Raises AdminError, OffloadError, RestoreIncompleteError, MetadataError, MetadataUnavailableError, PolicyError.
    """
    try:
        listed = (await TopicManager(client.store, client.layout).read(name, sync=True)).value
    except NoSuchTopicError:
        return Done(DELETED_MEANWHILE)
    planned = plan_restore(listed, settings.limits, unix_ms())
    if admin is None or settings.is_dry_run:
        return await _would(listed, job, planned)
    run = _TopicRun(
        client, admin, name, Job(job, "", await client.ledgers.next_id()), settings.lag_ms, restore
    )
    return await run.run(planned)


async def _would(listed: LedgerList, job: str, planned: Sequence[ListedLedger]) -> Done:
    due = await asyncio.to_thread(_due, OffloadBegun(job).applied(listed), job)
    copied = [row for row in planned if not row.has_replicas]
    figures = {
        "ledgersToRestore": len(copied),
        "bytesToRestore": sum(row.size_bytes for row in copied),
        "ledgersToKeep": len(planned) - len(copied),
        "filesToDelete": len(due),
    }
    if not planned and not due:
        return Done("nothing to do", figures)
    said = f"{len(copied)} ledgers with {figures['bytesToRestore']} bytes would be copied to bookies, {figures['ledgersToKeep']} keep their replicas"
    return Done(f"{said}, and {len(due)} files be deleted", figures)


def _due(listed: LedgerList, job: str) -> list[str]:
    """The files of restored ledgers that the run `job` may delete, with their rows. Asks the stores. Raises OffloadError."""
    former = files_due(listed, unix_ms())
    ids = set(map(str, former))
    found: list[str] = []
    for folder in sorted({split_uri(place)[0] for place in former.values()}):
        files = topic_files(folder)
        unnamed = set(unnamed_files(listed, job, files.values(), unix_ms()))
        found += sorted(
            place for place, entries in files.items() if entries in unnamed and ledger_of(entries) in ids
        )
    return found


@dataclass(slots=True)
class _TopicRun:
    """A run for one topic, with its owner."""

    client: Client
    admin: BrokerAdmin
    name: TopicName
    job: Job
    lag_ms: int
    restore: Restore
    named: list[RestoredLedger] = field(default_factory=list)
    asked: set[LedgerId] = field(default_factory=set)
    """Copies that the owner was asked to name."""
    trimmed: int = 0
    problems: list[str] = field(default_factory=list)

    async def run(self, planned: Sequence[ListedLedger]) -> Done:
        """Keep the replicas that are there, copy the others, name the copies, then delete files. Raises as `restore_topic`."""
        gone = []
        for row in planned:
            if row.has_replicas:
                await self._name(row, None)
            elif self._may_come(row):
                gone.append(row)
        try:
            for at in range(0, len(gone), LEDGERS_AT_ONCE):
                await self._part(gone[at : at + LEDGERS_AT_ONCE])
        finally:
            if gone:
                left = [each for each in await ledgers_of(self.client, self.job) if each not in self.asked]
                await delete_ledgers(self.client, left, b"")
        return self._done(await self._delete_files())

    def _may_come(self, row: ListedLedger) -> bool:
        """Whether the owner would name a copy now; if not, note why: a copy would be for nothing."""
        try:
            check_former_file(row, unix_ms())
        except PlanOutdatedError as error:
            self.problems.append(f"ledger {row.ledger_id}: {error}")
            return False
        return True

    async def _part(self, planned: Sequence[ListedLedger]) -> None:
        """Copy some ledgers, and have the owner name the copies."""
        quorum, pool = await self._terms()
        asked = [
            LedgerRestore(
                PlannedLedger(row.ledger_id, row.entries, row.size_bytes),
                row.offload.place,
                row.offload.crc,
                str(self.name),
                self.job.job_id,
                quorum,
                pool,
            )
            for row in planned
            if row.offload is not None
        ]
        rows = {row.ledger_id: row for row in planned}
        for each in await asyncio.to_thread(self.restore, asked):
            if each.stored_as is None:
                await self._explain(each.ledger_id, each.error)
            else:
                await self._name(rows[each.ledger_id], each.stored_as)

    async def _terms(self) -> tuple[Quorum, str]:
        """The quorum and the pool of copies: as of the topic's newest ledger on bookies, and without one as the policy says (rule 69)."""
        client, listed = self.client, await self._listed()
        ids = sorted(listed.replicated_ids) if listed is not None else []
        for found in await client.ledgers.read_each(ids[-1:]):
            if not isinstance(found, DaybookError):
                return found.value.quorum, found.value.pool
        policy = await PolicyManager(client.store, client.layout).of(self.name)
        terms = ledger_terms(policy, (each for each, info in client.bookies().items() if info.writable))
        terms = placeable(terms, partial(client.can_place, pool=terms.pool))
        return terms.quorum, terms.pool

    async def _name(self, row: ListedLedger, stored_as: LedgerId | None) -> None:
        """Have the owner name what the ledger is read from."""
        assert row.offload is not None, "a ledger without a file is not planned"
        plan = PlannedLedger(row.ledger_id, row.entries, row.size_bytes)
        restored = RestoredLedger(plan, row.offload.place, row.offload.crc, stored_as)
        if stored_as is not None:
            self.asked.add(stored_as)
        try:
            await self._ask(
                lambda: commit_restore(self.admin, self.name, self.job.job_id, [restored], lag_ms=self.lag_ms)
            )
        except AdminError as error:
            await self._explain(row.ledger_id, str(error))
        else:
            self.named.append(restored)

    async def _explain(self, ledger_id: LedgerId, why: str) -> None:
        """Note why a ledger was not restored, unless it was trimmed meanwhile."""
        listed = await self._listed()
        if listed is None or listed.row(ledger_id) is None:
            self.trimmed += 1
        else:
            self.problems.append(f"ledger {ledger_id}: {why}")

    async def _delete_files(self) -> int:
        """Delete the files of restored ledgers whose lag is over; return how many. Raises OffloadError, AdminError."""
        job = self.job.job_id
        listed = await self._listed()
        if listed is None or not await asyncio.to_thread(_due, OffloadBegun(job).applied(listed), job):
            return 0
        await self._ask(lambda: begin_offload(self.admin, self.name, job))
        before = await self._listed()
        due = [] if before is None else await asyncio.to_thread(_due, before, job)
        now = await self._listed()
        if now is None or now.offload_job != job:  # another run has begun since
            return 0
        for place in due:
            await asyncio.to_thread(delete_file, place)
        return len(due)

    async def _listed(self) -> LedgerList | None:
        """The list as it is now; None: the topic does not exist."""
        try:
            return (
                await TopicManager(self.client.store, self.client.layout).read(self.name, sync=True)
            ).value
        except NoSuchTopicError:
            return None

    async def _ask(self, ask: Callable[[], None]) -> None:
        await asyncio.to_thread(ask_owner, self.name, ask)

    def _done(self, deleted: int) -> Done:
        """Raises RestoreIncompleteError."""
        copied = [each for each in self.named if each.stored_as is not None]
        figures = {
            "ledgersRestored": len(copied),
            "bytesRestored": sum(each.ledger.size_bytes for each in copied),
            "ledgersKept": len(self.named) - len(copied),
            "filesDeleted": deleted,
        }
        said = f"{len(copied)} ledgers were restored, {figures['ledgersKept']} kept their replicas, {deleted} files were deleted"
        if self.trimmed:
            said += f", {self.trimmed} ledgers were trimmed meanwhile"
        if self.problems:
            msg = f"{said}, and {len(self.problems)} could not be: {shown(self.problems)}"
            raise RestoreIncompleteError(msg)
        return Done("nothing to do" if not self.named and not deleted and not self.trimmed else said, figures)
