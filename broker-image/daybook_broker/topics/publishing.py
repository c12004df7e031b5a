"""What producers sent to a topic, on its way to the ledger and back to receipts.

What the producers of all connections send in one turn of the event loop goes to the ledger together, in the order in which it came, and
what a turn acknowledges is answered together. Receipts are held while the broker cannot be certain that it still owns the topic, and sent in
order once it is (rule 46). After the end of the topic nothing is answered any more: clients send what has no receipt to the next owner.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from daybook.core.errors import DaybookError, TopicFullError, TopicTerminatedError
from daybook.core.format.frame import Buffer
from daybook.core.ids import EntryId, LedgerId
from daybook.core.topics.events import Published, PublishFailed
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position
from daybook.wire.pulsar.pulsar_pb2 import ServerError
from daybook_broker.topics.managed_ledger import TopicLedgers
from daybook_broker.topics.producer import Producer
from daybook_broker.topics.services import TopicServices

Publish: TypeAlias = tuple[Producer, int, int, int, Buffer]
"""An entry of a producer: sequence id, the one of the last message of a batch (0: not sent), number of messages, bytes."""


class Publishing:
    """The entries of one topic that have no receipt yet."""

    def __init__(
        self, services: TopicServices, ledgers: TopicLedgers, extent: TopicExtent, wake: Callable[[], None]
    ) -> None:
        """`wake` is called when the topic has more entries."""
        self.entries_in = self.messages_in = self.bytes_in = 0
        """What was acknowledged."""
        self._services = services
        self._totals = services.totals
        self._latencies = services.metrics.publish_seconds
        self._turn_end = services.turn_end
        self._ledgers = ledgers
        self._extent = extent
        self._cache = services.reads.cache
        self._wake = wake
        self._gathered: list[Publish] = []
        self._payloads: list[Buffer] = []
        """The bytes of `_gathered`."""
        # Lists: an idle topic's are empty, and a deque takes 0.76 KB even then.
        self._unanswered: list[Publish] = []
        self._held: list[tuple[LedgerId, EntryId, list[Publish]]] = []
        self._taken = self._answered = 0
        """How many entries came, and how many of them are answered, or never will be."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._arrived: list[tuple[int, float]] = []
        """When what a turn gathered came, and how many entries had come by then: latency is measured once for all of a turn."""
        self._paused: dict[Producer, None] = {}

    def publish(self, publish: Publish) -> None:
        """Append an entry; the producer gets its receipt."""
        if not self._gathered:
            self._turn_end.call(self.flush)
        self._gathered.append(publish)
        self._payloads.append(publish[4])

    def flush(self) -> None:
        """Hand all that this turn gathered to the ledger."""
        gathered = self._gathered
        if not gathered:
            return
        payloads = self._payloads
        self._gathered, self._payloads = [], []
        self._taken += len(gathered)
        refusal = self._ledgers.refusal
        if refusal is not None:
            self._refuse(gathered, refusal)
            return
        self._arrived.append((self._taken, self._turn_end.now_s))
        self._unanswered.extend(gathered)
        self._ledgers.publish(payloads)
        if not self._ledgers.has_room:
            for producer, *_ in gathered:
                if producer not in self._paused and not producer.is_closed:
                    self._paused[producer] = None
                    producer.peer.pause(producer)

    def _refuse(self, gathered: list[Publish], refusal: DaybookError) -> None:
        """Nothing of it is appended. After the end of the topic clients send it to the next owner, so it has no answer.

        Where the topic is full, its producers are sent away: the answer to their next PRODUCER says why, and until then nothing of theirs is
        taken, although there may be room before: later messages would overtake these.
        """
        for producer, sequence_id, _, _, entry in gathered:
            producer.peer.pending_bytes -= len(entry)
            if isinstance(refusal, TopicTerminatedError):
                producer.send_error(sequence_id, ServerError.TopicTerminatedError, str(refusal))
                self._totals.send_errors += 1
        if isinstance(refusal, TopicFullError):
            for producer in dict.fromkeys(each[0] for each in gathered):
                if not producer.is_closed:
                    producer.topic.close_producer(producer)
        _count_pending(gathered)
        self._count_answered(len(gathered))

    def failed(self, result: PublishFailed) -> None:
        """The oldest entries are not appended."""
        failed = self._unanswered[: result.count]
        del self._unanswered[: result.count]
        self._refuse(failed, result.error)
        self._go_on()

    def published(self, result: Published) -> None:
        """The oldest entries are acknowledged: answer them, or hold the answers. From now on they exist for readers."""
        ledger_id, first, count = result.ledger_id, result.first_entry, result.count
        published = self._unanswered[:count]
        del self._unanswered[:count]
        messages = size_bytes = 0
        for publish in published:
            messages += publish[3]
            size_bytes += len(publish[4])
        self.entries_in += count
        self.messages_in += messages
        self.bytes_in += size_bytes
        totals = self._totals
        totals.entries_in += count
        totals.messages_in += messages
        totals.bytes_in += size_bytes
        if self._held or not self._services.is_certain():
            self._held.append((ledger_id, first, published))
            self._services.holding.add(self)
        else:
            self._send_receipts(ledger_id, first, published)
        if self._paused and self._ledgers.has_room:
            self._go_on()
        self._extent.confirm(Position(ledger_id, first + count - 1))
        self._cache.add(ledger_id, first, [(publish[4], publish[3]) for publish in published])
        self._wake()

    def _send_receipts(self, ledger_id: LedgerId, first: EntryId, published: list[Publish]) -> None:
        last, encode = None, None
        for entry_id, (producer, sequence_id, highest, _, entry) in enumerate(published, first):
            if producer is not last or encode is None:
                last, encode = producer, producer.receipts(ledger_id)
            peer = producer.peer
            peer.pending_bytes -= len(entry)
            peer.send(encode(sequence_id, entry_id, highest))
        self._totals.receipts += len(published)
        self._count_answered(len(published))

    def release_receipts(self) -> bool:
        """Send the receipts that were held, if the broker is certain to be the owner again (rule 46); whether none is left."""
        while self._held and self._services.is_certain():
            self._send_receipts(*self._held.pop(0))
        return not self._held

    @property
    def held(self) -> int:
        """Entries whose receipts are held."""
        return sum(len(published) for _, _, published in self._held)

    async def answered(self) -> None:
        """Wait until all that was sent to the topic so far is answered, or never will be."""
        taken = self._taken + len(self._gathered)
        if self._answered < taken:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((taken, waiter))
            await waiter

    def _count_answered(self, count: int) -> None:
        self._answered += count
        arrived = self._arrived
        if arrived and arrived[0][0] <= self._answered:
            now_s = self._turn_end.now_s
            while arrived and arrived[0][0] <= self._answered:
                self._latencies.add(now_s - arrived.pop(0)[1])
        while self._waiting and self._waiting[0][0] <= self._answered:
            waiter = self._waiting.pop(0)[1]
            if not waiter.done():
                waiter.set_result(None)

    def leave(self, producer: Producer) -> None:
        """The producer is gone: its connection is read for others."""
        if producer in self._paused:
            del self._paused[producer]
            producer.peer.resume(producer)

    def _go_on(self) -> None:
        """There is room again."""
        paused, self._paused = self._paused, {}
        for producer in paused:
            producer.peer.resume(producer)

    def end(self) -> None:
        """The topic has ended: what has no receipt gets none."""
        gathered = self._gathered
        self._gathered, self._payloads = [], []
        for publishes in (gathered, self._unanswered, *(held[2] for held in self._held)):
            for producer, _, _, _, entry in publishes:
                producer.peer.pending_bytes -= len(entry)
            _count_pending(publishes)
        self._unanswered.clear()
        self._held.clear()
        self._arrived.clear()
        self._taken += len(gathered)
        self._count_answered(self._taken - self._answered)
        self._go_on()


def _count_pending(publishes: list[Publish]) -> None:
    """Less is pending of the connections of these entries, lost ones too; most of them are sent nothing for it."""
    for peer in dict.fromkeys(producer.peer for producer, *_ in publishes):
        peer.count_pending()
