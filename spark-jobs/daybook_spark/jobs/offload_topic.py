"""One topic's part of an offload: what goes is planned and copied, its owner names the files, and those that nobody names go (rule 70).

Each step can be repeated, so a job that is killed between any two is run again. A run begins with its name in the list, and from then on
files of former runs are named no more. They are deleted last: where a ledger could not be copied again, a former copy of it stays.

Rows follow their entries: they are written and read back before the owner is asked to name the file of the entries, come into the folder
that others read once the list names it, and are deleted when nobody names it any more. A later run finishes what a killed one has left.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from daybook.client.broker_admin import AdminError, BrokerAdmin
from daybook.client.broker_topics import begin_offload, commit_offload
from daybook.client.client import Client
from daybook.core.errors import DaybookError, NoSuchTopicError
from daybook.core.ids import LedgerId
from daybook.core.topics.job_terms import DEFAULT_LAG_MS
from daybook.core.topics.ledger_list import LedgerList, ListedLedger
from daybook.core.topics.name import TopicName
from daybook.core.topics.offload.changes import OffloadBegun, WrittenFile
from daybook.core.topics.offload.plan import OffloadLimits, plan_offload, unnamed_files
from daybook.core.topics.offload.record import name_of
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.metadata.instance import read_instance
from daybook.metadata.policies import PolicyManager
from daybook.metadata.topics import TopicManager
from daybook.offload.errors import OffloadError
from daybook.offload.rows import published_rows, rows_folder, topic_files, waiting_rows
from daybook.offload.store import check_uri, delete_file, make_folder, move_file, topic_folder
from daybook.runtime.clock import unix_ms
from daybook_spark.asking import ask_owner
from daybook_spark.jobs.copying import Copied, LedgerCopy, ledger_of
from daybook_spark.jobs.result import DELETED_MEANWHILE, Done
from daybook_spark.plan.entry_range import EntryRange
from daybook_spark.plan.existing import part_of

LEDGERS_AT_ONCE: Final = 64
"""Ledgers that are copied before the owner names them: what is lost at most where the job is killed."""
_PROBLEMS_SHOWN: Final = 3

Copy: TypeAlias = Callable[[Sequence[LedgerCopy]], list[Copied]]
"""Copies ledgers, in tasks."""


@dataclass(frozen=True, slots=True)
class OffloadSettings:
    """What a run is asked for."""

    job: str
    """Names the run: 16 to 64 hexadecimal digits, and no run before it."""
    to: str = ""
    """The place of all topics; "": what the policy of each one says."""
    lag_ms: int | None = None
    """How long replicas stay; None: as the policy says."""
    limits: OffloadLimits = field(default_factory=OffloadLimits)
    is_dry_run: bool = False
    with_rows: bool = False
    """Write rows for each topic; False: where the policy says so."""


class OffloadIncompleteError(DaybookError):
    """Some ledgers of a topic were not offloaded; those that were stay so."""


async def offload_topic(
    client: Client, admin: BrokerAdmin | None, name: TopicName, settings: OffloadSettings, copy: Copy
) -> Done:
    """Do a topic's part, or with a dry run say what it would be; without `admin` it is one.

    Raises AdminError, OffloadError, OffloadIncompleteError, MetadataError, MetadataUnavailableError, PolicyError.
    """
    try:
        terms = (await PolicyManager(client.store, client.layout).topic(name)).value.offload
        listed = (await TopicManager(client.store, client.layout).read(name, sync=True)).value
    except NoSuchTopicError:
        return Done(DELETED_MEANWHILE)
    to = settings.to or (terms.to if terms else "")
    if not to:
        msg = "its policy names no place for offloaded ledgers: set `offload` in the policy, or give --to"
        raise OffloadError(msg)
    check_uri(to)
    cluster = await read_instance(client.store, client.layout)
    folder = topic_folder(to, cluster.instance_id, name)
    planned = plan_offload(listed, settings.limits, unix_ms())
    begun = OffloadBegun(settings.job).applied(listed)
    found = await asyncio.to_thread(topic_files, folder)
    unnamed = _unnamed(begun, settings.job, found)
    unpublished = _unpublished(begun, found)
    if not planned and not unnamed and not unpublished:
        return Done("nothing to do")
    if admin is None or settings.is_dry_run:
        return _would(planned, unnamed, unpublished)
    lag_ms = settings.lag_ms
    if lag_ms is None:
        lag_ms = terms.lag_ms if terms else DEFAULT_LAG_MS
    with_rows = settings.with_rows or (terms is not None and terms.with_rows)
    run = _TopicRun(client, admin, name, settings.job, folder, lag_ms, copy, with_rows)
    return await run.run(planned)


def _unnamed(listed: LedgerList | None, job: str, found: Mapping[str, str]) -> list[str]:
    """The files of `found`, with those that they belong to, that no list names, and none will; of restored ledgers once their lag is over."""
    unnamed = set(unnamed_files(listed, job, found.values(), unix_ms()))
    return sorted(place for place, entries in found.items() if entries in unnamed)


def _unpublished(listed: LedgerList | None, found: Mapping[str, str]) -> list[str]:
    """The named files of entries whose rows wait in the folder, by the folder's own URI."""
    rows = listed.ledgers if listed is not None else ()
    named = {name_of(row.offload.place) for row in rows if row.offload is not None}
    return sorted(
        entries
        for place, entries in found.items()
        if place == waiting_rows(entries) and name_of(entries) in named
    )


def _would(planned: Sequence[ListedLedger], unnamed: Sequence[str], unpublished: Sequence[str]) -> Done:
    size_bytes = sum(each.size_bytes for each in planned)
    figures = {
        "ledgersToOffload": len(planned),
        "bytesToOffload": size_bytes,
        "filesToDelete": len(unnamed),
        "rowsToPublish": len(unpublished),
    }
    said = f"{len(planned)} ledgers with {size_bytes} bytes would be copied, and {len(unnamed)} files that nobody names deleted"
    if unpublished:
        said += f"; the rows of {len(unpublished)} ledgers would be published"
    return Done(said, figures)


@dataclass(slots=True)
class _TopicRun:
    """A run for one topic, with its owner."""

    client: Client
    admin: BrokerAdmin
    name: TopicName
    job: str
    folder: str
    lag_ms: int
    copy: Copy
    with_rows: bool
    named: list[WrittenFile] = field(default_factory=list)
    rows: int = 0
    uncopied: set[LedgerId] = field(default_factory=set)
    trimmed: int = 0
    problems: list[str] = field(default_factory=list)
    unpublished: dict[str, str] = field(default_factory=dict)
    """Files of entries whose rows still wait, and why."""

    async def run(self, planned: Sequence[ListedLedger]) -> Done:
        """Copy and name, then publish the rows that are left and delete what nobody names. Raises as `offload_topic`."""
        await asyncio.to_thread(make_folder, self.folder)  # a wrong place ends here, before anything changes
        await self._ask(lambda: begin_offload(self.admin, self.name, self.job))
        is_refused = False
        for at in range(0, len(planned), LEDGERS_AT_ONCE):
            if not is_refused:
                is_refused = await self._part(planned[at : at + LEDGERS_AT_ONCE])
        deleted = await self._settle()
        return self._done(deleted)

    async def _part(self, planned: Sequence[ListedLedger]) -> bool:
        """Copy some ledgers, and have the owner name the files; whether it has refused one, so that more copies would be for nothing."""
        copies = await self._copies(planned)
        results = await asyncio.to_thread(self.copy, copies) if copies else []
        is_refused = False
        for each in results:
            if each.file is None:
                self.uncopied.add(each.ledger_id)
                await self._explain(each.ledger_id, each.error)
            else:
                is_refused |= not await self._name(each.file, each.rows)
        return is_refused

    async def _copies(self, planned: Sequence[ListedLedger]) -> list[LedgerCopy]:
        """What tasks are asked for."""
        found = await self.client.ledgers.read_each([each.replicas_id for each in planned], sync=True)
        known = self.client.bookies()
        copies = []
        for row, each in zip(planned, found, strict=True):
            if isinstance(each, DaybookError):
                self.uncopied.add(row.ledger_id)
                await self._explain(row.ledger_id, str(each))
                continue
            bookies = tuple(known[bookie] for bookie in sorted(each.value.bookies()) if bookie in known)
            part = part_of(self.name)
            entries = EntryRange(
                row.ledger_id, 0, row.entries - 1, each.value.to_json(), bookies, part.topic, part.partition
            )
            ledger = PlannedLedger(row.ledger_id, row.entries, row.size_bytes)
            copies.append(LedgerCopy(ledger, entries, self.folder, self.job, self.with_rows))
        return copies

    async def _name(self, file: WrittenFile, rows: int | None) -> bool:
        """Have the owner name a file, and publish its rows; False if the owner refuses."""
        try:
            await self._ask(
                lambda: commit_offload(self.admin, self.name, self.job, [file], lag_ms=self.lag_ms)
            )
        except AdminError as error:
            return not await self._explain(file.ledger.ledger_id, str(error))
        self.named.append(file)
        if rows is not None:
            self.rows += rows
            await self._publish(file.place)
        return True

    async def _publish(self, entries: str) -> None:
        """Move the rows of a named file to where others read them; what fails is left to a later run."""
        try:
            await asyncio.to_thread(make_folder, rows_folder(self.folder))
            await asyncio.to_thread(move_file, waiting_rows(entries), published_rows(entries))
        except OffloadError as error:
            self.unpublished[entries] = str(error)

    async def _explain(self, ledger_id: LedgerId, why: str) -> bool:
        """Note why a ledger was not offloaded, and return whether that is a problem: one that was trimmed meanwhile is none."""
        listed = await self._listed()
        if listed is None or all(each.ledger_id != ledger_id for each in listed.ledgers):
            self.trimmed += 1
            return False
        self.problems.append(f"ledger {ledger_id}: {why}")
        return True

    async def _settle(self) -> int:
        """Publish the rows that killed runs have left, and delete the files of former runs that nobody names; return how many.

        A former copy of a ledger that could not be copied stays; so do all files of a topic that was deleted meanwhile, which are a
        retention's (rule 73). Raises OffloadError.
        """
        found = await asyncio.to_thread(topic_files, self.folder)
        listed = await self._listed()
        for entries in _unpublished(listed, found):
            if entries not in self.unpublished:
                await self._publish(entries)
        kept = set(map(str, self.uncopied))
        deleted = 0
        for place in _unnamed(listed, self.job, found):
            if ledger_of(found[place]) not in kept:
                await asyncio.to_thread(delete_file, place)
                deleted += 1
        return deleted

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
        """Raises OffloadIncompleteError."""
        figures = {
            "ledgersOffloaded": len(self.named),
            "bytesOffloaded": sum(file.ledger.size_bytes for file in self.named),
            "fileBytes": sum(file.size_bytes for file in self.named),
            "filesDeleted": deleted,
            "rowsWritten": self.rows,
        }
        said = f"{len(self.named)} ledgers were offloaded, {deleted} files that nobody named were deleted"
        if self.trimmed:
            said += f", {self.trimmed} ledgers were trimmed meanwhile"
        failures = []
        if self.problems:
            failures.append(f"{len(self.problems)} could not be: {shown(self.problems)}")
        if self.unpublished:
            why = shown([*self.unpublished.values()])
            failures.append(f"the rows of {len(self.unpublished)} wait for the next run: {why}")
        if failures:
            raise OffloadIncompleteError(", and ".join((said, *failures)))
        return Done(said, figures)


def shown(problems: Sequence[str]) -> str:
    """The first of some problems, and how many more there are."""
    more = len(problems) - _PROBLEMS_SHOWN
    return "; ".join(problems[:_PROBLEMS_SHOWN]) + (f"; and {more} more" if more > 0 else "")
