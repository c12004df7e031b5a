"""The compaction of a topic by its owner, for topics up to a size: `PUT …/compaction`.

Two passes over the topic, the keys first and then the messages (daybook/core/topics/compaction). What stays goes to a new ledger, which is
closed before the list names it with its horizon; only then does the owner delete the ledgers that the list named before (rule 41).
A compaction that ends half-way changes nothing (rule 52): it begins anew, and what it wrote is deleted by itself, or by the collection once the
topic has another owner. Until it ends, nothing is trimmed that it has not read (rule 51).

A job may do the same work elsewhere and ask the owner to name the result (`commit`): only the owner changes the list (rule 38), and it names
nothing before it has found each ledger closed, and as the job says.

It shares the event loop with all clients of the broker, so it gives way after every few milliseconds.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from enum import Enum
from typing import Final, Protocol

from daybook.client.ledger import Ledger
from daybook.core.errors import CompactionError, DaybookError, TopicFullError
from daybook.core.format.frame import Buffer
from daybook.core.topics.compaction.commit import CompactionCommit, check_commit, is_committed
from daybook.core.topics.compaction.keys import LastOfKeys
from daybook.core.topics.compaction.plan import CompactionPlan, plan_compaction
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import CompactedLedger, Compaction, LedgerList, Position
from daybook.core.topics.list_room import check_room
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import LedgerTerms
from daybook.core.topics.unnamed import made_by_compaction
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger
from daybook.wire.pulsar.compacting import OpenedEntry, compacted_entry, open_entry
from daybook.wire.pulsar.compression import load_codecs, needs_loading, uncompressed
from daybook.wire.pulsar.pulsar_pb2 import MessageMetadata
from daybook_broker.errors import AlreadyRunningError, NotReadyError
from daybook_broker.topics.committed import check_written
from daybook_broker.topics.compacted_reads import CompactedReads
from daybook_broker.topics.creation import create_ledger
from daybook_broker.topics.ledger_reads import READ_BYTES_MAX
from daybook_broker.topics.reading import TopicReads
from daybook_broker.topics.services import TopicServices
from daybook_broker.topics.tasks import Tasks

log = get_logger(__name__)

SLICE_MS: Final = 5
"""How long a compaction keeps the event loop."""
READ_ENTRIES: Final = 1_000
"""Entries of one read, and of one append."""
APPEND_BYTES: Final = 1024 * 1024
"""Of one append."""


class CompactionState(Enum):
    """How the last compaction of this owner ended, as Pulsar's tools call it."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


class CompactedTopic(Protocol):
    """A topic, as far as its compaction needs it."""

    name: TopicName
    services: TopicServices
    extent: TopicExtent
    reads: TopicReads
    owner_token: str
    ledger_list: LedgerList

    @property
    def open_bytes(self) -> int:
        """The acknowledged bytes of the ledger that is written."""

    def terms(self) -> LedgerTerms:
        """How a ledger of the topic is created now."""

    async def confirm_owner(self) -> None:
        """Read the list again; raises unless the topic is still this broker's."""

    async def name_compaction(self, compaction: Compaction | None) -> None:
        """Name it in the list, or nothing. Raises unless the list is known to name it, TopicFullError if it certainly does not."""


class TopicCompaction:
    """The compactions of one topic, one at a time."""

    def __init__(self, topic: CompactedTopic) -> None:
        """Nothing is done yet."""
        self._topic = topic
        self._settings = topic.services.settings
        self._tasks = Tasks(self._failed)
        self.state = CompactionState.NOT_RUN
        self.error = ""
        """Why the last one failed."""
        self.mark: Position | None = None
        """What a compaction that is under way has read already: trimming may not pass it."""

    def begin(self) -> None:
        """Compact the topic; `state` says what becomes of it. Raises AlreadyRunningError."""
        self._check_idle()
        self.state, self.error = CompactionState.RUNNING, ""
        self._tasks.begin(self._run())

    async def give_up(self) -> None:
        """Have the topic without what was compacted: all consumers receive its own ledgers, which are trimmed as others'.

        Raises AlreadyRunningError, and why nobody knows whether the list is changed.
        """
        self._check_idle()
        state, error = self.state, self.error
        self.state = CompactionState.RUNNING
        try:
            await self._topic.name_compaction(None)
        finally:
            self._end(state, error)

    def _check_idle(self) -> None:
        if self.state is CompactionState.RUNNING:
            msg = f"topic {self._topic.name} is being compacted: wait until that has ended"
            raise AlreadyRunningError(msg)

    async def commit(self, commit: CompactionCommit) -> None:
        """Name what a job wrote, and delete what the list named before after that (rule 41); nothing if it is named already.

        Raises PlanOutdatedError if something that the job planned on has changed, CompactionError if what it wrote is not what it says,
        NotReadyError while another compaction is under way, and why nobody knows whether the list is changed.
        """
        topic = self._topic
        if is_committed(topic.ledger_list, commit):
            return
        if self.state is CompactionState.RUNNING:
            msg = f"topic {topic.name} is being compacted: ask again once that has ended"
            raise NotReadyError(msg)
        self.state, self.error = CompactionState.RUNNING, ""
        self.mark = commit.start
        try:
            check_commit(topic.ledger_list, topic.extent.last_confirmed, commit)
            await check_written(topic, commit)
            await topic.name_compaction(commit.written)
        except BaseException as error:
            self._end(CompactionState.ERROR, f"what job {commit.job} wrote was not named: {error}")
            raise
        self._end(CompactionState.SUCCESS)

    async def stop(self) -> None:
        """End it half-way."""
        await self._tasks.stop()

    async def finished(self) -> None:
        """Wait until nothing is under way."""
        await self._tasks.finished()

    def _failed(self, error: BaseException) -> None:
        self._end(CompactionState.ERROR, f"an error of the broker: {error}")
        log.error("a compaction failed after an error of the broker", exc_info=error)

    def _end(self, state: CompactionState, error: str = "") -> None:
        self.state, self.error, self.mark = state, error, None

    async def _run(self) -> None:
        topic = self._topic
        try:
            plan = plan_compaction(topic.ledger_list, topic.extent.last_confirmed, topic.open_bytes)
            if plan is not None:
                check_room(
                    str(topic.name),
                    topic.ledger_list,
                    replace(topic.ledger_list, compaction=Compaction(plan.horizon)),
                )
                self.mark = plan.start
                await self._compact(plan)
        except DaybookError as error:
            log.warning("a topic could not be compacted", topic=str(topic.name), why=str(error))
            self._end(CompactionState.ERROR, str(error))
        except asyncio.CancelledError:
            self._end(CompactionState.ERROR, "the topic moved to another broker: ask that one")
            raise
        else:
            self._end(CompactionState.SUCCESS)

    async def _compact(self, plan: CompactionPlan) -> None:
        settings = self._settings
        if plan.size_bytes > settings.compaction_bytes_max:
            msg = f"the topic has {plan.size_bytes} bytes to compact: at most {settings.compaction_bytes_max} are allowed; raise compaction_bytes_max"
            raise CompactionError(msg)
        keys = LastOfKeys(
            keeps_keyless=settings.compaction_keeps_keyless, bytes_max=settings.compaction_keys_bytes_max
        )
        async for entry in self._entries(plan):
            keys.add(entry.keyed)
        ledger = _CompactedWriter(self._create)
        try:
            async for entry in self._entries(plan):
                data = compacted_entry(entry, keys.kept(entry.keyed))
                if data is not None:
                    await ledger.append(data)
            written = await ledger.close(plan.horizon)
        except BaseException:
            await self._give_up(ledger)
            raise
        try:
            await self._topic.name_compaction(Compaction(plan.horizon, written))
        except TopicFullError:
            await self._give_up(ledger)
            raise
        log.info(
            "a topic was compacted",
            topic=str(self._topic.name),
            horizon=str(plan.horizon),
            entries=ledger.entries,
            size_bytes=ledger.size_bytes,
        )

    async def _create(self) -> Ledger:
        topic = self._topic
        terms = topic.terms()
        custom_metadata = made_by_compaction(str(topic.name), topic.owner_token, pool=terms.pool)
        return await create_ledger(topic.services.client, terms, custom_metadata)

    async def _give_up(self, ledger: "_CompactedWriter") -> None:
        """Nobody has named the ledger, and nobody will."""
        if ledger.handle is None:
            return
        await ledger.handle.abandon()
        try:
            await self._topic.services.client.delete_ledger(ledger.handle.id)
        except DaybookError as error:
            log.warning(
                "a ledger of a compaction that failed stays until its topic has another owner",
                ledger_id=ledger.handle.id,
                why=str(error),
            )

    async def _entries(self, plan: CompactionPlan) -> AsyncIterator[OpenedEntry]:
        """All entries in order, one pass: what the former compaction left, then what came since."""
        began_ms = monotonic_ms()
        async for position, data, left in self._stored(plan):
            yield await _opened(position, data, left)
            if monotonic_ms() - began_ms >= SLICE_MS:
                await asyncio.sleep(0)
                began_ms = monotonic_ms()
        self._check_former(plan)

    def _check_former(self, plan: CompactionPlan) -> None:
        """Raise CompactionError if what the list names is not what the plan began with: reads of that would find nothing, at once and for ever."""
        if self._topic.ledger_list.compaction != plan.former:
            msg = f"what was compacted of topic {self._topic.name} was replaced or given up meanwhile: compact it again"
            raise CompactionError(msg)

    async def _stored(self, plan: CompactionPlan) -> AsyncIterator[tuple[Position, Buffer, tuple[int, ...]]]:
        topic = self._topic
        if plan.former is not None:
            compacted = CompactedReads(topic)
            at = Position(0, 0)
            while at <= plan.former.horizon:
                self._check_former(plan)
                entries, part = await compacted.read(at, READ_ENTRIES, READ_BYTES_MAX)
                for each in entries:
                    yield each.position, each.data, tuple(part.left.get(each.position, ()))
                at = part.through.behind
        at = topic.extent.after(plan.start)
        while at <= plan.horizon:
            self._check_former(plan)
            for each in await topic.reads.read(at, READ_ENTRIES, READ_BYTES_MAX):
                if each.position > plan.horizon:
                    return
                yield each.position, each.data, ()
                at = topic.extent.after(each.position)


class _CompactedWriter:
    """The ledger that a compaction writes, from its first entry on."""

    def __init__(self, create: Callable[[], Awaitable[Ledger]]) -> None:
        self._create = create
        self.handle: Ledger | None = None
        self.entries = self.size_bytes = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    async def append(self, entry: bytes) -> None:
        """Write an entry, with others."""
        self._waiting.append(entry)
        self._waiting_bytes += len(entry)
        if self._waiting_bytes >= APPEND_BYTES or len(self._waiting) >= READ_ENTRIES:
            await self._flush()

    async def _flush(self) -> None:
        if self.handle is None:
            self.handle = await self._create()
        await self.handle.append_many(self._waiting)
        self.entries += len(self._waiting)
        self.size_bytes += self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0

    async def close(self, horizon: Position) -> tuple[CompactedLedger, ...]:
        """Close the ledger; what the list is to name: nothing if nothing stays."""
        if self._waiting:
            await self._flush()
        if self.handle is None:
            return ()
        await self.handle.close()
        return (CompactedLedger(self.handle.id, self.entries, self.size_bytes, horizon),)


class _CodecsNotLoadedError(DaybookError):
    """PyArrow is to be imported first, which would hold the event loop up."""


def _uncompress(metadata: MessageMetadata, payload: Buffer) -> Buffer:
    if needs_loading(metadata):
        raise _CodecsNotLoadedError
    return uncompressed(metadata, payload)


async def _opened(position: Position, data: Buffer, left: tuple[int, ...]) -> OpenedEntry:
    """An entry's messages. Raises CodecMissingError."""
    try:
        return open_entry(position, data, _uncompress, left=left)
    except _CodecsNotLoadedError:
        await asyncio.to_thread(load_codecs)
    return open_entry(position, data, uncompressed, left=left)
