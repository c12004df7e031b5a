"""The owner's part in the offload of its topic: it names the files that jobs wrote, gives replicas up (rule 70), and names restored ledgers.

The owner reads a file itself before it names it, and again before the file becomes the only copy. So a broker that lacks PyArrow, the
credentials or the way to the store says so while the bookies still have everything. It needs neither to name the copy of a ledger on bookies in
place of its file (rule 72): that also is a way out for such a broker.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from daybook.core.errors import PlanOutdatedError
from daybook.core.ids import LedgerId
from daybook.core.topics.offload.changes import (
    OffloadBegun,
    OffloadChange,
    OffloadsWritten,
    ReplicasUnneeded,
    check_files,
)
from daybook.core.topics.offload.plan import replicas_due
from daybook.core.topics.offload.record import Offload, Restored
from daybook.core.topics.offload.restore import LedgersRestored, check_restored
from daybook.offload.errors import OffloadError
from daybook.offload.writing import WrittenEntries
from daybook.runtime.clock import unix_ms
from daybook.runtime.logs import get_logger
from daybook_broker.topics.committed import check_copies
from daybook_broker.topics.compacted_reads import ReadTopic
from daybook_broker.topics.offloaded_files import OffloadedFiles

log = get_logger(__name__)

FILES_AT_ONCE: Final = 16
"""Files that the owner reads before it gives the replicas up that they have: an unload loses the reads of at most so many."""


class OffloadedTopic(ReadTopic, Protocol):
    """The part of a topic that offload needs."""

    async def change_list(self, change: OffloadChange, is_done: Callable[[], bool]) -> None:
        """Make a change of the list; return once `is_done`, which may raise. Raises PlanOutdatedError if it is none, NotReadyError."""


class TopicOffloads:
    """Of one topic on its owner."""

    def __init__(self, topic: OffloadedTopic, files: OffloadedFiles) -> None:
        """`files` are those of the broker."""
        self._name = str(topic.name)
        self._topic = topic
        self._files = files

    def elsewhere(self, ledger_id: LedgerId) -> Offload | Restored | None:
        """The file of a ledger that bookies do not have any more, or the copy that they have in its place."""
        row = self._topic.ledger_list.row(ledger_id)
        if row is None:
            return None
        if not row.has_replicas:
            return row.offload
        return None if row.stored_as is None else row.restored

    async def begin(self, job: str) -> None:
        """A run of a job begins: the list names files of no other one. Raises PlanOutdatedError if another one follows at once."""

        def has_begun() -> bool:
            if self._topic.ledger_list.offload_job != job:
                msg = f"another run has begun to offload the topic since run {job!r} did: run the job again"
                raise PlanOutdatedError(msg)
            return True

        await self._topic.change_list(OffloadBegun(job), has_begun)

    async def name(self, written: OffloadsWritten) -> None:
        """Name the files of a run. Raises PlanOutdatedError, LedgersNeededError, OffloadError for a file that this broker cannot read."""
        if check_files(self._topic.ledger_list, written):
            return
        for file in written.files:
            contents = WrittenEntries(file.size_bytes, file.ledger.entries, file.crc)
            await self._files.check(file.place, file.ledger.ledger_id, contents)
        await self._topic.change_list(written, lambda: check_files(self._topic.ledger_list, written))

    async def restore(self, restored: LedgersRestored) -> None:
        """Name the copies of a run in place of the files (rule 72).

        Raises PlanOutdatedError, LedgersNeededError, RestoreError for what is no copy, ReadDelayedError, NotReadyError.
        """
        if check_restored(self._topic.ledger_list, restored):
            return
        await check_copies(self._topic, restored)
        await self._topic.change_list(restored, lambda: check_restored(self._topic.ledger_list, restored))

    async def give_replicas_up(self) -> None:
        """Delete the replicas of ledgers whose lag is over and whose files are whole; what is not stays, and is reported.

        The list changes after every FILES_AT_ONCE files. Raises NotReadyError, PlanOutdatedError if another change came first.
        """
        due = [*replicas_due(self._topic.ledger_list, unix_ms()).items()]
        for at in range(0, len(due), FILES_AT_ONCE):
            part = due[at : at + FILES_AT_ONCE]
            whole = {
                ledger_id: offload for ledger_id, offload in part if await self._is_whole(ledger_id, offload)
            }
            if whole:
                await self._give_up(whole)

    async def _is_whole(self, ledger_id: LedgerId, offload: Offload) -> bool:
        """Read the file; where that fails, report it."""
        contents = WrittenEntries(offload.size_bytes, offload.entries, offload.crc)
        try:
            await self._files.check(offload.place, ledger_id, contents)
        except OffloadError as error:
            log.error(
                "an offloaded ledger keeps its replicas, because its file cannot be read",
                topic=self._name,
                ledger_id=ledger_id,
                why=str(error),
            )
            return False
        return True

    async def _give_up(self, whole: Mapping[LedgerId, Offload]) -> None:
        await self._topic.change_list(ReplicasUnneeded(whole), lambda: not self._has_any(whole))
        log.info("replicas of offloaded ledgers go", topic=self._name, ledgers=sorted(whole))

    def _has_any(self, offloads: Mapping[LedgerId, Offload]) -> bool:
        """Whether the list has one of these records still."""
        return any(
            offloads.get(row.ledger_id) == row.offload
            for row in self._topic.ledger_list.ledgers
            if row.offload
        )
