"""Who may publish to a topic at the same time: Pulsar's access modes, and the topic's epoch that fences a former exclusive producer.

An exclusive producer gets the topic's next epoch. One that lost its connection comes back with its epoch: if the topic has moved on,
somebody else was the exclusive one meanwhile, and the producer is fenced for good. The epoch is stored before the producer is
admitted, so that this holds across owners of the topic.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from daybook.core.errors import DaybookError
from daybook.runtime.clock import monotonic_ms
from daybook.wire.pulsar.pulsar_pb2 import ProducerAccessMode
from daybook_broker.errors import ProducerBusyError, ProducerFencedError
from daybook_broker.topics.producer import Producer

NO_EPOCH: Final = -1
"""The topic never had an exclusive producer."""


class Producers:
    """The producers of one topic."""

    def __init__(self, topic: str, producers_max: int, store_epoch: Callable[[int], Awaitable[None]]) -> None:
        """`store_epoch` makes a new epoch permanent."""
        self._topic = topic
        self._max = producers_max
        self._store_epoch = store_epoch
        self.epoch = NO_EPOCH
        self.last_left_ms = 0
        """When one of them was gone; 0: none was."""
        self._by_name: dict[str, Producer] = {}
        self._exclusive: Producer | None = None
        self._waiting: dict[str, Producer] = {}
        """Those that wait until they may be the exclusive one, in order."""
        self._grant: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._by_name) + len(self._waiting)

    def all(self) -> list[Producer]:
        """Those that publish, and those that wait to be the exclusive one."""
        return [*self._by_name.values(), *self._waiting.values()]

    def publishing(self) -> list[Producer]:
        """Those that publish."""
        return list(self._by_name.values())

    async def add(self, producer: Producer) -> bool:
        """Admit a producer; False if it has to wait until `Producer.on_ready` reports that it is the exclusive one.

        Raises ProducerBusyError (also where there are as many as may be), ProducerFencedError, MetadataUnavailableError.
        """
        await self._replace(producer)
        if len(self) >= self._max:
            msg = f"topic {self._topic} has {self._max} producers: close some, or raise producers_max"
            raise ProducerBusyError(msg)
        mode = producer.wish.access_mode
        if mode == ProducerAccessMode.Shared:
            if self._exclusive is not None or self._waiting:
                msg = f"topic {self._topic} has an exclusive producer: close it first, or publish to another topic"
                raise ProducerBusyError(msg)
            self._by_name[producer.name] = producer
            return True
        self._check_epoch(producer)
        if mode == ProducerAccessMode.ExclusiveWithFencing:
            self._fence_others()
        elif self._by_name or self._waiting:
            if mode == ProducerAccessMode.WaitForExclusive:
                self._waiting[producer.name] = producer
                producer.is_waiting = True
                return False
            msg = f"topic {self._topic} has other producers: close them first, wait for it (WaitForExclusive), or fence them"
            raise ProducerFencedError(msg)
        await self._make_exclusive(producer)
        return True

    def remove(self, producer: Producer) -> None:
        """A producer is gone; the first one that waits may follow it."""
        self.last_left_ms = monotonic_ms()
        if self._waiting.get(producer.name) is producer:
            del self._waiting[producer.name]
        if self._by_name.get(producer.name) is producer:
            del self._by_name[producer.name]
        if self._exclusive is producer:
            self._exclusive = None
        if self._waiting and not self._by_name and self._grant is None:
            self._grant = asyncio.create_task(self._grant_next())
            self._grant.add_done_callback(self._granted)

    def close(self) -> None:
        """The topic has ended."""
        if self._grant is not None:
            self._grant.cancel()
        self._by_name.clear()
        self._waiting.clear()

    async def _replace(self, producer: Producer) -> None:
        """Drop earlier sessions of the same producer. Raises ProducerBusyError if another one has its name.

        While this asks whether the client of one is alive, another one may have come.
        """
        name = producer.name
        while (other := self._by_name.get(name) or self._waiting.get(name)) is not None:
            is_successor = not producer.wish.is_name_given and producer.wish.epoch > other.wish.epoch
            if not is_successor and await other.peer.is_alive() and not other.is_closed:
                msg = f"topic {self._topic} has a producer {name!r}, which is connected: choose another name, or close that one"
                raise ProducerBusyError(msg)
            if not other.is_closed:
                other.close()
            self.remove(other)

    def _check_epoch(self, producer: Producer) -> None:
        had = producer.wish.topic_epoch
        if had is not None and had < self.epoch:
            msg = (
                f"producer {producer.name!r} was the exclusive one of topic {self._topic} at epoch {had}, and the epoch is "
                f"{self.epoch} now: another producer has taken over; make a new one"
            )
            raise ProducerFencedError(msg)

    def _fence_others(self) -> None:
        fenced = ProducerFencedError(
            f"an exclusive producer has taken topic {self._topic} over: make a new one"
        )
        waiting, self._waiting = self._waiting, {}
        for other in waiting.values():
            other.ready(fenced)
        by_name, self._by_name = self._by_name, {}
        self._exclusive = None
        for other in by_name.values():
            other.close()

    async def _make_exclusive(self, producer: Producer) -> None:
        """Raises MetadataUnavailableError; then the producer is not admitted."""
        had = producer.wish.topic_epoch
        self._by_name[producer.name] = self._exclusive = producer
        try:
            if had is None or had > self.epoch:
                epoch = self.epoch + 1 if had is None else had
                await self._store_epoch(epoch)
                self.epoch = max(self.epoch, epoch)
            producer.topic_epoch = self.epoch
        except BaseException:
            self.remove(producer)
            raise
        if producer.is_closed or self._exclusive is not producer:
            msg = f"another exclusive producer has taken topic {self._topic} over meanwhile: make a new one"
            raise ProducerFencedError(msg)

    async def _grant_next(self) -> None:
        while self._waiting and not self._by_name:
            producer = next(iter(self._waiting.values()))
            del self._waiting[producer.name]
            try:
                await self._make_exclusive(producer)
            except DaybookError as error:
                producer.ready(error)
            else:
                producer.ready(None)

    def _granted(self, task: asyncio.Task[None]) -> None:
        self._grant = None
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
