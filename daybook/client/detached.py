"""Reading ledgers without the metadata store: who planned the read passes the metadata, the LAC and the bookies on.

A job of a thousand tasks would otherwise open a thousand sessions to learn what its driver knows. Where that is no longer true (all
replicas of an entry fail: they have moved, or their bookies have restarted elsewhere; or the ledger is gone), the client opens a session,
reads what is stored now, and closes it.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from os import getpid

import grpc

from daybook.client.reader import Reader
from daybook.client.transport.channels import ChannelPool
from daybook.core.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import BookieInfo
from daybook.core.reader.reader import Rank, nearness
from daybook.core.reader.suspects import Suspects
from daybook.core.topics.ledger_list import LedgerList
from daybook.core.topics.name import TopicName
from daybook.metadata.bookies import BookieDirectory
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.store import MetadataStore, Versioned
from daybook.metadata.topics import TopicManager


class DetachedClient:
    """Reads ledgers whose metadata its user has. Made inside a running event loop; `close` ends it."""

    def __init__(
        self,
        open_store: Callable[[], Awaitable[MetadataStore]],
        *,
        cluster: str,
        credentials: Callable[[], grpc.ChannelCredentials | None] = lambda: None,
        zone: str = "",
        rack: str = "",
    ) -> None:
        """`open_store` is called only where what its user knows is out of date."""
        self.channels = ChannelPool(f"{socket.gethostname()}-{getpid()}", credentials)
        self.suspects = Suspects()
        self.ledgers: LedgerManager = _LedgersOnDemand(open_store, Layout(cluster), self.learn)
        self._open_store = open_store
        self._layout = Layout(cluster)
        self._place = (zone, rack)
        self._bookies: Mapping[BookieId, BookieInfo] = {}

    def learn(self, bookies: Mapping[BookieId, BookieInfo]) -> None:
        """Where bookies are now."""
        if any(self._bookies.get(name) != info for name, info in bookies.items()):
            self._bookies = {**self._bookies, **bookies}
            self.channels.bookies_changed(bookies)

    def bookies(self) -> Mapping[BookieId, BookieInfo]:
        """The bookies that are known; another mapping whenever that changed."""
        return self._bookies

    def rank(self) -> Rank:
        """How near each bookie is to this process."""
        return nearness(*self._place, self._bookies)

    def reader(self, metadata: LedgerMetadata, last_add_confirmed: EntryId = NO_ENTRY) -> Reader:
        """A reader of the entries that `metadata` or the LAC confirms."""
        return Reader(metadata, self, last_add_confirmed=last_add_confirmed)

    async def topic(self, name: TopicName) -> LedgerList:
        """The list of a topic's ledgers as it is stored now, read in a session of its own. Raises NoSuchTopicError."""
        store = await self._open_store()
        try:
            return (await TopicManager(store, self._layout).read(name, sync=True)).value
        finally:
            await store.close()

    async def close(self) -> None:
        """Close the connections to the bookies."""
        await self.channels.close()


class _LedgersOnDemand(LedgerManager):
    """The metadata of ledgers, in a session for each read: reads are rare, and thousands of processes do not keep sessions."""

    def __init__(
        self,
        open_store: Callable[[], Awaitable[MetadataStore]],
        layout: Layout,
        found: Callable[[Mapping[BookieId, BookieInfo]], None],
    ) -> None:
        self._open_store = open_store
        self._layout = layout
        self._found = found
        self._one_at_a_time = asyncio.Lock()

    async def read(self, ledger_id: LedgerId, *, sync: bool = False) -> Versioned[LedgerMetadata]:
        """The metadata as it is stored now; where the bookies are is read with it."""
        async with self._one_at_a_time:
            store = await self._open_store()
            try:
                self._found(await BookieDirectory(store, self._layout).bookies())
                return await LedgerManager(store, self._layout).read(ledger_id, sync=sync)
            finally:
                await store.close()
