"""A topic on its owner: its ledgers, what of them readers may see, its producers and its subscriptions.

It is made when this broker takes the topic over, and ends with that: unloaded in order, or at once when another broker may own it. An entry
exists for readers once it is acknowledged, and not before.
"""

import asyncio
import uuid
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, assert_never

from daybook.client.ledger import Ledger
from daybook.core.errors import (
    DaybookError,
    NotOwnerError,
    PlanOutdatedError,
    TopicFullError,
    TopicTerminatedError,
)
from daybook.core.ids import LedgerId
from daybook.core.topics.confirm_times import ConfirmTimes
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.events import ListKnown, Published, PublishFailed, TopicEnded
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Compaction, LedgerList, ListState, Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.offload.changes import OffloadChange
from daybook.core.topics.offload.record import Offload, Restored
from daybook.core.topics.phases import Phase
from daybook.core.topics.policy import Degrade, Durability, LedgerTerms, ledger_terms, placeable
from daybook.runtime.clock import monotonic_ms, unix_ms
from daybook.runtime.logs import get_logger
from daybook_broker.errors import NotReadyError
from daybook_broker.topics.access import Producers
from daybook_broker.topics.compacted_reads import CompactedReads
from daybook_broker.topics.compaction import TopicCompaction
from daybook_broker.topics.cursor import SubscriptionCursor
from daybook_broker.topics.held_policy import HeldPolicy
from daybook_broker.topics.managed_ledger import TopicLedgers
from daybook_broker.topics.news import News
from daybook_broker.topics.offloads import TopicOffloads
from daybook_broker.topics.owner_check import why_lost
from daybook_broker.topics.peer import BrokerUrls
from daybook_broker.topics.producer import Producer
from daybook_broker.topics.publishing import Publishing
from daybook_broker.topics.rates import Rates
from daybook_broker.topics.reading import TopicReads
from daybook_broker.topics.services import TopicServices
from daybook_broker.topics.subscriptions import Subscriptions

log = get_logger(__name__)

CHANGE_S: Final = 20.0
"""How long a change of the list that somebody asked for may take: it waits for what is under way."""


class Topic:
    """One topic, from its take-over to its end. Made by the registry."""

    def __init__(self, name: TopicName, services: TopicServices, on_ended: Callable[["Topic"], None]) -> None:
        """`on_ended` is called once, when the topic is served no more and nobody asked for that."""
        self.name = name
        self.services = services
        self.extent = TopicExtent()
        self.list_version, self.list_bytes = -1, 0
        self.producers = Producers(str(name), services.settings.producers_max, self._store_epoch)
        self.is_closing = False
        """Whether it takes no more clients and no more entries."""
        self.rates = Rates()
        self._held_policy = HeldPolicy(name, services.policies)
        self.policy = services.policies.default
        """What holds for the topic; read again now and then (`read_policy`)."""
        self.refusal: DaybookError | None = None
        """Why it takes no producers now: its backlog is over the quota."""
        self.ledger_list = LedgerList()
        self.taken_over_at_ms = unix_ms()
        self.times = ConfirmTimes(self.extent.last_confirmed, self.taken_over_at_ms)
        self._measured = (0, 0)
        self._on_ended = on_ended
        self.owner_token = uuid.uuid4().hex
        """In the list while the topic is this broker's, and in all ledgers that it makes."""
        self._ledgers = TopicLedgers(
            name,
            self.owner_token,
            services.client,
            terms=self.terms,
            policy=services.settings.ledger_policy,
            on_result=self._take,
            turn_end=services.turn_end,
        )
        self.offloads = TopicOffloads(self, services.reads.files)
        self.reads = TopicReads(services.reads, self.extent, self._elsewhere, self.confirm_owner)
        self.compaction = TopicCompaction(self)
        self.subscriptions = Subscriptions(
            str(name),
            self.extent,
            self.reads,
            self._cursor,
            make_compacted=lambda: CompactedReads(self),
            policy=services.settings.dispatch_policy,
            subscriptions_max=services.settings.subscriptions_max,
            consumers_max=services.settings.consumers_max,
            auto_create=services.settings.auto_create_subscriptions,
        )
        self.publishing = Publishing(services, self._ledgers, self.extent, self.subscriptions.wake)
        self.publish = self.publishing.publish
        self._served: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._news = News()
        """Of the list, and of the end."""
        self._opening: asyncio.Task[None] | None = None
        self.error: DaybookError | None = None
        """Why the topic is served no more."""

    def handle(self, ledger_id: LedgerId) -> Ledger | None:
        """The ledger's writer, if the topic writes it."""
        return self._ledgers.handle(ledger_id)

    def _elsewhere(self, ledger_id: LedgerId) -> Ledger | Offload | Restored | None:
        """Where a ledger is read, if not from the bookies by its own metadata."""
        handle = self.handle(ledger_id)
        return self.offloads.elsewhere(ledger_id) if handle is None else handle

    def _cursor(
        self, subscription: str, initial: CursorRecord | None, on_ended: Callable[[DaybookError], None]
    ) -> SubscriptionCursor:
        settings = self.services.settings
        return SubscriptionCursor(
            self.name,
            subscription,
            self.services.client,
            self.extent,
            owner_token=self.owner_token,
            list_version=self.list_version,
            terms=self.terms,
            initial=initial,
            policy=settings.cursor_policy,
            on_ended=on_ended,
        )

    # What is set for it

    async def read_policy(self, *, older_than_ms: int = 0) -> None:
        """Read what holds for the topic, unless that was read just now. Raises NoSuchTopicError, MetadataError, PolicyError, MetadataUnavailableError."""
        if older_than_ms and monotonic_ms() - self._held_policy.read_ms < older_than_ms:
            return
        self.policy = await self._held_policy.read()
        self._ledgers.check_terms()

    def terms(self) -> LedgerTerms:
        """How its next ledger is created, with the bookies that take writes now, and where they stand (rule 45)."""
        client = self.services.client
        writable = (each for each, info in client.bookies().items() if info.writable)
        terms = ledger_terms(self.policy, writable)
        return placeable(terms, partial(client.can_place, pool=terms.pool))

    @property
    def durability(self) -> tuple[Durability, Degrade]:
        """What holds for the ledger that is written; while there is none, for the next one."""
        holds = self._ledgers.written_with or self.policy
        return holds.durability, holds.degrade

    @property
    def is_degraded(self) -> bool:
        """Whether what is written has fewer copies than the policy says (rule 45)."""
        return self._ledgers.is_degraded

    @property
    def open_ledger(self) -> Ledger | None:
        """The writer of the last ledger, if the topic writes it."""
        ledgers = self.ledger_list.ledgers
        return self.handle(ledgers[-1].ledger_id) if ledgers else None

    @property
    def open_bytes(self) -> int:
        """The acknowledged bytes of the ledger that is written; the list has those of the others."""
        handle = self.open_ledger
        return 0 if handle is None else handle.length

    @property
    def phase(self) -> Phase:
        """What the topic does with its ledgers."""
        return self._ledgers.phase

    @property
    def publish_refusal(self) -> DaybookError | None:
        """Why nothing may be published now, whatever the quota says."""
        return self._ledgers.refusal

    # Its life

    async def open(self) -> None:
        """Take the topic over; it is served once this returns (rule 38). Raises why it cannot be.

        Subscriptions are opened meanwhile and after that: producers need not wait for them, and trimming passes none of them.
        """
        self._ledgers.start()
        await self._served
        await self.read_policy()
        epoch = await self.services.topics.epoch(self.name)
        if epoch is not None:
            self.producers.epoch = epoch
        names = await self.services.topics.cursors(self.name)
        self._opening = asyncio.create_task(self.subscriptions.open(names))
        self._opening.add_done_callback(self._subscriptions_opened)

    def _subscriptions_opened(self, task: asyncio.Task[None]) -> None:
        """One that cannot be opened is opened anew when a consumer comes, and holds the trimming until then."""
        self._opening = None
        if not task.cancelled() and (error := task.exception()) is not None and not self.is_closing:
            log.warning("a subscription cannot be opened yet", topic=str(self.name), why=str(error))

    def trim(self) -> None:
        """Drop the ledgers that every subscription has passed, as far as the retention allows (rule 40, rule 51)."""
        marks = self.subscriptions.marks()
        if self.compaction.mark is not None:
            marks = (*marks, self.compaction.mark)
        self.trim_to(marks)

    def trim_to(self, marks: Collection[Position]) -> None:
        """The same with these marks in place of those. A topic that is about to change its list otherwise drops the order."""
        self._ledgers.trim(tuple(marks), self.policy.retention)

    async def name_compaction(self, compaction: Compaction | None) -> None:
        """Name what a compaction wrote in the list, or nothing. Raises TopicFullError, and why nobody knows whether it does."""
        self.check_open()
        self._ledgers.name_compaction(compaction)
        while self.ledger_list.compaction != compaction:
            self.check_open()
            await self._news.wait()

    async def change_list(self, change: OffloadChange, is_done: Callable[[], bool]) -> None:
        """Make a change of the list for an offload, and return once it is settled and `is_done`, which may raise.

        Raises PlanOutdatedError if it is settled otherwise, because another change came first; NotReadyError if that takes too long.
        """
        self.check_open()
        await self.changed(self._ledgers.change_offload(change))
        if not is_done():
            msg = f"the list of topic {self.name} was changed otherwise before what was asked for: read it, and plan again"
            raise PlanOutdatedError(msg)

    async def changed(self, is_done: Callable[[], bool]) -> None:
        """Wait until the list is as somebody asked for. Raises NotReadyError."""
        try:
            async with asyncio.timeout(CHANGE_S):
                while not is_done():
                    self.check_open()
                    await self._news.wait()
        except TimeoutError:
            msg = f"topic {self.name} has not changed its list as asked within {CHANGE_S:g} s: read the list, and ask again if it is as before"
            raise NotReadyError(msg) from None

    async def terminate(self) -> Position:
        """End the topic for good: it can be read, and takes nothing more. Returns its last entry. Raises why it cannot be now."""
        self.check_open()
        self.publishing.flush()
        self._ledgers.terminate()
        while self.ledger_list.state is not ListState.TERMINATED:
            self.check_open()
            await self._news.wait()
        self.close_producers()
        return self.extent.last_confirmed

    def close_producers(self) -> None:
        """Send all producers away; their clients connect them again, and are refused with the reason, or wait."""
        for producer in self.producers.all():
            self.close_producer(producer)

    def close_producer(self, producer: Producer) -> None:
        """The same for one."""
        producer.close()
        self.remove_producer(producer)

    async def unload(self) -> None:
        """Take nothing more, answer what came before, and close what is open, so that the next owner has nothing to recover."""
        self.is_closing = True
        await self.compaction.stop()
        self.publishing.flush()
        for producer in self.producers.all():
            producer.is_closed = True
        await self.subscriptions.close()
        if self.error is None:
            self._ledgers.unload()
            while self.error is None:
                await self._news.wait()
            await self._ledgers.finished()
        await self._ledgers.close()

    async def stop(self, error: DaybookError) -> None:
        """End at once: somebody else may own the topic already. What is open is recovered by the next owner."""
        self._end(error)
        await self.compaction.stop()
        await self.subscriptions.abandon()
        await self._ledgers.close()

    def announce(self, urls: BrokerUrls | None) -> None:
        """After the end: send all clients elsewhere, to the broker at `urls` if it is known."""
        for producer in self.producers.all():
            producer.close(urls)
        self.producers.close()
        self.subscriptions.announce(urls)

    def tick(self) -> None:
        """Let time pass; called a few times a second while the topic is taken over, and at least once a second after that."""
        self._ledgers.tick()
        self.subscriptions.tick()
        self.rates.tick(self.publishing.messages_in, self.publishing.bytes_in)
        self.times.note(self.extent.last_confirmed, unix_ms())

    def take_load(self) -> tuple[int, int]:
        """How many entries and bytes were published since the last call."""
        now = self.publishing.entries_in, self.publishing.bytes_in
        before, self._measured = self._measured, now
        return now[0] - before[0], now[1] - before[1]

    # Producers

    async def add_producer(self, producer: Producer) -> bool:
        """Admit a producer; False: it has to wait (see `Producers.add`). Raises as `check_publishing`."""
        self.check_publishing()
        is_ready = await self.producers.add(producer)
        try:
            self.check_open()
        except DaybookError:
            self.producers.remove(producer)
            raise
        return is_ready

    def remove_producer(self, producer: Producer) -> None:
        """The producer was closed, or lost its connection. What it has sent is published all the same."""
        producer.is_closed = True
        self.publishing.leave(producer)
        self.producers.remove(producer)

    def check_publishing(self) -> None:
        """Raise unless the topic takes producers: `refusal`, TopicTerminatedError, TopicFullError, and as `check_open`."""
        self.check_open()
        if self.refusal is not None:
            raise self.refusal
        if isinstance(refusal := self._ledgers.refusal, (TopicTerminatedError, TopicFullError)):
            raise refusal

    def check_open(self) -> None:
        """Raise unless the topic takes clients; a terminated one takes no producers, which `publish` says."""
        if self.is_closing or self.error is not None:
            msg = f"topic {self.name} moves to another broker: look it up again"
            raise NotReadyError(msg)

    # What becomes of it

    def _take(self, result: ListKnown | Published | PublishFailed | TopicEnded) -> None:
        match result:
            case Published():
                self.publishing.published(result)
            case ListKnown():
                self._forget_moved(result.ledger_list)
                self.ledger_list = result.ledger_list
                self.extent.update(result.ledger_list)
                self._news.spread()
                self.list_version, self.list_bytes = result.version, result.size_bytes
                self.subscriptions.list_changed(result.version)
                self.subscriptions.wake()
                if not self._served.done():
                    self._served.set_result(None)
            case PublishFailed():
                self.publishing.failed(result)
            case TopicEnded():
                self._ended(result.error)
            case _:
                assert_never(result)

    def _forget_moved(self, ledger_list: LedgerList) -> None:
        """Ledgers that were trimmed, or are read elsewhere from now on, and compacted ones that others have replaced."""
        before, now = (
            {(row.ledger_id, row.replicas_id if row.has_replicas else None) for row in each.ledgers}
            for each in (self.ledger_list, ledger_list)
        )
        gone = [ledger_id for ledger_id, _ in before - now]
        gone += self.ledger_list.compacted_ids - ledger_list.compacted_ids
        if gone:
            self.reads.forget(gone)

    # The end

    async def confirm_owner(self) -> None:
        """Read the list again, and end if the topic is another owner's, or gone. Raises NotReadyError then; ReadDelayedError if nobody knows."""
        self.check_open()
        error = await why_lost(self.services.topics, self.name, self.owner_token)
        if error is not None and self.error is None:
            self._ended(error)
        self.check_open()

    def _ended(self, error: DaybookError | None) -> None:
        if error is None:
            self.error = NotOwnerError(f"topic {self.name} was given up: look it up again")
            self._news.spread()
            self.publishing.release_receipts()
            self.publishing.end()
            return
        if self._served.done():
            log.warning("a topic ends", topic=str(self.name), why=str(error))
        self._end(error)
        self._on_ended(self)

    def _end(self, error: DaybookError) -> None:
        self.is_closing = True
        if self.error is None:
            self.error = error
        self._news.spread()
        if not self._served.done():
            self._served.set_exception(error)
        for producer in self.producers.all():
            producer.is_closed = True
        self.subscriptions.stop()
        self.publishing.end()

    async def _store_epoch(self, epoch: int) -> None:
        """Only the owner of the topic may (rule 38); its own changes of the list are no reason to fail."""
        while True:
            version = self.list_version
            try:
                await self.services.topics.put_epoch(self.name, epoch, list_version=version)
            except NotOwnerError:
                if version == self.list_version:
                    raise
            else:
                return
