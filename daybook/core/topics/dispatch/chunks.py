"""Who has the beginning of a message that is sent in chunks: the rest goes to the same consumer of a shared subscription.

A client puts a message together from its chunks, so a consumer with a part of them could never acknowledge it. A message whose last chunk
never comes leaves a trace here, so the number of messages is bounded: of the oldest beyond that, further chunks go to whoever is next.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from daybook.core.format.frame import Buffer
from daybook.core.topics.dispatch.entries import TopicEntry
from daybook.core.topics.dispatch.events import ConsumerKey

MESSAGES_MAX: Final = 10_000
"""Messages of which a part is delivered."""


class Chunk(NamedTuple):
    """What an entry says of the message that it is a part of."""

    message: bytes
    """The same in all chunks of a message, and in no others."""
    is_last: bool


ChunkOf: TypeAlias = Callable[[Buffer], Chunk | None]
"""Reads an entry; None for one that is no chunk."""


def no_chunks(_: Buffer) -> Chunk | None:
    """Where no entry is a chunk."""
    return None


class ChunkHolders:
    """The consumers that have the beginnings."""

    __slots__ = ("_chunk_of", "_holders")

    def __init__(self, chunk_of: ChunkOf) -> None:
        self._chunk_of = chunk_of
        self._holders: dict[bytes, ConsumerKey] = {}

    def receiver(self, entry: TopicEntry, turn: ConsumerKey) -> ConsumerKey:
        """Who is to receive the entry, where it is the turn of the consumer `turn`."""
        if entry.messages != 1:
            return turn  # a batch is no chunk
        chunk = self._chunk_of(entry.data)
        return turn if chunk is None else self._holders.get(chunk.message, turn)

    def delivered(self, entry: TopicEntry, key: ConsumerKey) -> None:
        """The consumer received the entry."""
        chunk = self._chunk_of(entry.data) if entry.messages == 1 else None
        if chunk is None:
            return
        if chunk.is_last:
            self._holders.pop(chunk.message, None)
            return
        self._holders[chunk.message] = key
        if len(self._holders) > MESSAGES_MAX:
            del self._holders[next(iter(self._holders))]

    def left(self, key: ConsumerKey) -> None:
        """The consumer is gone, and others receive its messages from their beginnings on."""
        self._holders = {message: holder for message, holder in self._holders.items() if holder != key}

    def clear(self) -> None:
        """Delivery begins again."""
        self._holders.clear()
