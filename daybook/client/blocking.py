"""The client for code without an event loop: scripts, notebooks, Spark tasks.

The asyncio client runs on a separate thread; every method here waits for its counterpart there. This module adds no
second implementation. For throughput, append many entries at a time. `Ledger.append_soon` has no counterpart: who cannot wait has
no use for a thread that does.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from daybook.client.client import Client
from daybook.client.connecting import connect
from daybook.client.ledger import Ledger
from daybook.client.loop_thread import LoopThread
from daybook.client.reader import BATCH_BYTES, Reader
from daybook.core.errors import DaybookError
from daybook.core.format.entries import Entry
from daybook.core.format.frame import FRAME_ENTRIES_MAX, Buffer
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import BookieInfo


class BlockingLedger:
    """See `Ledger`; made by `BlockingClient`."""

    def __init__(self, ledger: Ledger, loop: LoopThread) -> None:
        """Wrap `ledger`, which lives on `loop`."""
        self._ledger = ledger
        self._loop = loop

    @property
    def id(self) -> LedgerId:
        """The ledger's id."""
        return self._ledger.id

    @property
    def last_add_confirmed(self) -> EntryId:
        """The last entry up to which all are acknowledged; −1 if there is none."""
        return self._ledger.last_add_confirmed

    @property
    def missing(self) -> tuple[BookieId, ...]:
        """See `Ledger.missing`."""
        return self._ledger.missing

    @property
    def error(self) -> DaybookError | None:
        """See `Ledger.error`."""
        return self._ledger.error

    def append(self, data: Buffer, *, entry_id: EntryId | None = None) -> EntryId:
        """See `Ledger.append`."""
        return self._loop.run(self._ledger.append(data, entry_id=entry_id))

    def append_many(
        self, entries: Sequence[Buffer], *, entry_ids: Sequence[EntryId] | None = None
    ) -> tuple[EntryId, EntryId]:
        """See `Ledger.append_many`."""
        return self._loop.run(self._ledger.append_many(entries, entry_ids=entry_ids))

    def force(self) -> EntryId:
        """See `Ledger.force`."""
        return self._loop.run(self._ledger.force())

    def reader(self) -> "BlockingReader":
        """See `Ledger.reader`."""
        return BlockingReader(self._loop.call(self._ledger.reader), self._loop)

    def close(self) -> LedgerMetadata:
        """See `Ledger.close`."""
        return self._loop.run(self._ledger.close())

    def __enter__(self) -> Self:
        """The ledger itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the ledger."""
        self._loop.run(self._ledger.__aexit__(kind, error, trace))


class BlockingReader:
    """See `Reader`; made by `BlockingClient`."""

    def __init__(self, reader: Reader, loop: LoopThread) -> None:
        """Wrap `reader`, which lives on `loop`."""
        self._reader = reader
        self._loop = loop

    @property
    def id(self) -> LedgerId:
        """The ledger's id."""
        return self._reader.id

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as the reader knows it."""
        return self._loop.call(lambda: self._reader.metadata)

    @property
    def last_add_confirmed(self) -> EntryId:
        """The last entry that may be read; −1 if there is none."""
        return self._loop.call(lambda: self._reader.last_add_confirmed)

    def refresh(self, *, lenient: bool = True) -> EntryId:
        """See `Reader.refresh`."""
        return self._loop.run(self._reader.refresh(lenient=lenient))

    def read(self, first: EntryId = 0, last: EntryId | None = None) -> Iterator[Entry]:
        """See `Reader.read`."""
        for batch in self.read_batches(first, last):
            yield from batch

    def read_batches(self, first: EntryId = 0, last: EntryId | None = None) -> Iterator[Sequence[Entry]]:
        """See `Reader.read_batches`."""
        return self._loop.iterate(lambda: self._reader.read_batches(first, last))

    def read_batch(
        self,
        first: EntryId,
        last: EntryId | None = None,
        *,
        entries_max: int = FRAME_ENTRIES_MAX,
        bytes_max: int = BATCH_BYTES,
    ) -> Sequence[Entry]:
        """See `Reader.read_batch`."""
        work = self._reader.read_batch(first, last, entries_max=entries_max, bytes_max=bytes_max)
        return self._loop.run(work)

    def read_unconfirmed(self, first: EntryId, last: EntryId) -> Iterator[Entry]:
        """See `Reader.read_unconfirmed`."""
        return self._loop.iterate(lambda: self._reader.read_unconfirmed(first, last))

    def tail(self, from_entry: EntryId = 0) -> Iterator[Entry]:
        """See `Reader.tail`."""
        return self._loop.iterate(lambda: self._reader.tail(from_entry))


class BlockingClient:
    """See `Client`; made by `connect_blocking`."""

    def __init__(self, client: Client) -> None:
        """Wrap `client`, which must not be open yet."""
        self._client = client
        self._loop = LoopThread()

    def __enter__(self) -> Self:
        """Connect."""
        try:
            self._loop.run(self._client.__aenter__())
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        try:
            self._loop.run(self._client.close())
        finally:
            self._loop.close()

    def create_ledger(self, **options: Any) -> BlockingLedger:
        """See `Client.create_ledger`."""
        return BlockingLedger(self._loop.run(self._client.create_ledger(**options)), self._loop)

    def attach_ledger(self, ledger_id: LedgerId, **options: Any) -> BlockingLedger:
        """See `Client.attach_ledger`."""
        return BlockingLedger(self._loop.run(self._client.attach_ledger(ledger_id, **options)), self._loop)

    def open_ledger(self, ledger_id: LedgerId, **options: Any) -> BlockingReader:
        """See `Client.open_ledger`."""
        return BlockingReader(self._loop.run(self._client.open_ledger(ledger_id, **options)), self._loop)

    def delete_ledger(self, ledger_id: LedgerId, **options: Any) -> tuple[BookieId, ...]:
        """See `Client.delete_ledger`."""
        return self._loop.run(self._client.delete_ledger(ledger_id, **options))

    def list_ledgers(self) -> list[LedgerMetadata]:
        """Every ledger's metadata, in order of id."""

        async def work() -> list[LedgerMetadata]:
            return [found.value async for found in self._client.list_ledgers()]

        return self._loop.run(work())

    def bookies(self) -> Mapping[BookieId, BookieInfo]:
        """See `Client.bookies`."""
        return self._client.bookies()


def connect_blocking(zookeeper: str, *, cluster: str = "daybook", **options: Any) -> BlockingClient:
    """A blocking client of `cluster`, with the options of `connect`; use `with`."""
    return BlockingClient(connect(zookeeper, cluster=cluster, **options))
