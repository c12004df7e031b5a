"""The part of a retention that deletes files of topics that were deleted (rule 73).

daybook/core/topics/offload/gone.py decides. The lists of all topics are read whole or not at all (rule 28), then the folders; before a folder's files
go, its topic is read once more after a `sync` (rule 56). Each step can be repeated, and a killed run is run again: the note goes last.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from daybook.client.client import Client
from daybook.core.errors import NoSuchTopicError
from daybook.core.topics.job_selection import Selection
from daybook.core.topics.ledger_list import LedgerList
from daybook.core.topics.name import TopicName
from daybook.core.topics.offload.gone import judge_files
from daybook.core.topics.offload.record import name_of
from daybook.metadata.hold import check_not_held
from daybook.metadata.instance import read_instance
from daybook.metadata.topics import TopicManager
from daybook.offload.errors import OffloadError
from daybook.offload.gone_topics import found_in, note_uri, place_of, topics_below, write_note
from daybook.offload.store import delete_file, topic_folder
from daybook.runtime.clock import unix_ms
from daybook_spark.jobs.result import Done
from daybook_spark.jobs.topics import topics_of

_PROBLEMS_SHOWN = 3


async def delete_gone_files(
    client: Client, places: Collection[str], grace_ms: int, *, is_dry_run: bool
) -> Done:
    """Delete the files of deleted topics, below `places` and the places that the lists of topics name; with a dry run say which.

    Raises OffloadError, CollectionHeldError after a restore (rule 68), IncompleteListingError, MetadataError.
    """
    if not is_dry_run:
        await check_not_held(client.store, client.layout)
    part = _Part(client, grace_ms, is_dry_run, (await read_instance(client.store, client.layout)).instance_id)
    topics = TopicManager(client.store, client.layout)
    found: set[str] = set(places)
    for name in await topics_of(client, Selection(), "retention"):
        try:
            listed = (await topics.read(name)).value
        except NoSuchTopicError:
            continue  # it is deleted meanwhile
        files = set(_files_of(listed))
        part.named |= set(map(name_of, files))
        found |= {place_of(each) for each in files}
    for place in sorted(found):
        try:
            await part.place(place)
        except OffloadError as error:
            part.problems.append(f"{place}: {error}")
    return part.done()


def _files_of(listed: LedgerList) -> Iterable[str]:
    """The files of entries that a list names, and those that it keeps for a lag."""
    for row in listed.ledgers:
        if row.offload is not None:
            yield row.offload.place
        if row.restored is not None:
            yield row.restored.place


@dataclass(slots=True)
class _Part:
    """One run."""

    client: Client
    grace_ms: int
    is_dry_run: bool
    cluster: str
    named: set[str] = field(default_factory=set)
    deleted: int = 0
    due: int = 0
    waiting: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    async def place(self, place: str) -> None:
        """Judge the folders of a place. Raises OffloadError."""
        for topic in await asyncio.to_thread(lambda: list(topics_below(place, self.cluster))):
            await self._folder(topic_folder(place, self.cluster, topic), topic)

    async def _folder(self, folder: str, topic: TopicName) -> None:
        found, uris = await asyncio.to_thread(found_in, folder, topic)
        verdict = judge_files(
            found,
            self.named,
            exists=await self._exists(topic),
            grace_ms=self.grace_ms,
            unix_ms=unix_ms(),
        )
        self.due += sum(len(uris[name]) for name in verdict.delete)
        if verdict.note:
            self.waiting.append(str(topic))
        if self.is_dry_run:
            return
        if verdict.note:
            await asyncio.to_thread(write_note, folder)
        await check_not_held(self.client.store, self.client.layout)
        for name in verdict.delete:
            for uri in uris[name]:
                if await self._exists(topic):  # it was created again, or a restore brought it back
                    return
                await asyncio.to_thread(delete_file, uri)
                self.deleted += 1
        if verdict.forget or verdict.delete:
            await asyncio.to_thread(delete_file, note_uri(folder))

    async def _exists(self, topic: TopicName) -> bool:
        try:
            await TopicManager(self.client.store, self.client.layout).read(topic, sync=True)
        except NoSuchTopicError:
            return False
        return True

    def done(self) -> Done:
        """What became of it. Raises OffloadError if a place could not be judged."""
        said = []
        if self.is_dry_run and self.due:
            said.append(f"{self.due} files of deleted topics would be deleted")
        if self.deleted:
            said.append(f"{self.deleted} files of deleted topics were deleted")
        if self.waiting:
            said.append(
                f"files of {len(self.waiting)} deleted topics wait for the grace, such as {self.waiting[0]}"
            )
        if self.problems:
            said.append(
                f"{len(self.problems)} places could not be judged: {'; '.join(self.problems[:_PROBLEMS_SHOWN])}"
            )
            raise OffloadError("; ".join(said))
        figures = {"filesToDelete": self.due} if self.is_dry_run else {"filesDeleted": self.deleted}
        return Done("; ".join(said) or "nothing to do", figures if self.due else {})
