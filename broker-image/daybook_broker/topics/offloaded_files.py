"""Files of offloaded ledgers for all topics of a broker: read in threads, a row group at a time, and kept within a bound in bytes.

PyArrow blocks and decodes row groups of up to 16 MiB, so it has a few threads of its own: at most so many row groups are decoded at
once. Readers of neighbouring entries share a row group, and consumers read forwards, so the one that was used longest ago leaves first.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

from daybook.core.format.entries import Entry
from daybook.core.ids import EntryId, LedgerId
from daybook.offload.errors import OffloadError, OffloadFileError, OffloadMissingError
from daybook.offload.reading import EntriesFile
from daybook.offload.writing import WrittenEntries
from daybook_broker.topics.tail_cache import ENTRY_COST_BYTES

T = TypeVar("T")

CACHE_BYTES: Final = 64 * 1024 * 1024
"""The bound of all row groups that a broker keeps, unless its settings have another."""
THREADS: Final = 4
FILES_MAX: Final = 100
"""Files whose indexes are kept."""


class _File:
    """A file, opened by its first reader. One reader at a time: the next one finds the row group that both want."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.opened: EntriesFile | None = None


class OffloadedFiles:
    """One for a broker."""

    def __init__(
        self, bytes_max: int = CACHE_BYTES, on_failure: Callable[[str], None] = lambda _reason: None
    ) -> None:
        """Keep at most `bytes_max` bytes; a row group that is larger is read for each use.

        `on_failure` receives one of FILE_FAILURES for each attempt that failed.
        """
        self.size_bytes = 0
        """Of the row groups that are kept."""
        self._bytes_max = bytes_max
        self._on_failure = on_failure
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="offloaded")
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._groups: OrderedDict[tuple[str, int], list[Entry]] = OrderedDict()

    async def group(self, place: str, ledger_id: LedgerId, entries: int, entry_id: EntryId) -> list[Entry]:
        """The row group with an entry of the file at `place`. Raises OffloadError."""
        file = self._files.setdefault(place, _File())
        self._files.move_to_end(place)
        if len(self._files) > FILES_MAX:
            self._files.popitem(last=False)
        async with file.lock:
            with self._counted():
                return await self._group_of(file, place, ledger_id, entries, entry_id)

    async def _group_of(
        self, file: _File, place: str, ledger_id: LedgerId, entries: int, entry_id: EntryId
    ) -> list[Entry]:
        if file.opened is None:
            file.opened = await self._in_thread(lambda: EntriesFile(place, ledger_id, entries))
        opened, number = file.opened, file.opened.group_of(entry_id)
        found = self._groups.get((place, number))
        if found is None:
            found = await self._in_thread(lambda: opened.read_group(number))
            self._keep((place, number), found)
        else:
            self._groups.move_to_end((place, number))
        return found

    async def check(self, place: str, ledger_id: LedgerId, written: WrittenEntries) -> None:
        """Raise OffloadFileError unless the file is there and has what was written, by its size and the CRCs of its entries; OffloadError."""

        def contents() -> WrittenEntries:
            file = EntriesFile(place, ledger_id, written.entries)
            try:
                return file.contents()
            finally:
                file.close()

        with self._counted():
            found = await self._in_thread(contents)
            if found != written:
                msg = f"{place} has {found}, and {written} was written: offload the ledger again while its replicas are there"
                raise OffloadFileError(msg)

    def forget(self, place: str) -> None:
        """Open the file anew at the next read: it could not be read, or is not needed any more."""
        self._files.pop(place, None)

    def close(self) -> None:
        """Begin no more reads; those under way end by themselves, and nobody waits for them."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except OffloadFileError:
            self._on_failure("file")
            raise
        except OffloadMissingError:
            self._on_failure("library")
            raise
        except OffloadError:
            self._on_failure("store")
            raise

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _keep(self, key: tuple[str, int], group: list[Entry]) -> None:
        """Keep a row group once: where the file was forgotten while a reader read, the next one has opened it anew and kept the same."""
        self.size_bytes += _cost(group) - _cost(self._groups.pop(key, []))
        self._groups[key] = group
        while self.size_bytes > self._bytes_max:
            _, dropped = self._groups.popitem(last=False)
            self.size_bytes -= _cost(dropped)


def _cost(group: list[Entry]) -> int:
    return sum(len(entry.data) + ENTRY_COST_BYTES for entry in group)


class OffloadedReader:
    """Reads one ledger from its file, as `daybook.client.reader.Reader` does from bookies."""

    def __init__(self, files: OffloadedFiles, place: str, ledger_id: LedgerId, entries: int) -> None:
        """`entries`: how many the list of the topic names."""
        self._files = files
        self._place = place
        self._ledger_id = ledger_id
        self._entries = entries

    @property
    def last_add_confirmed(self) -> EntryId:
        """The ledger's last entry."""
        return self._entries - 1

    async def read_batch(
        self, first: EntryId, last: EntryId, *, entries_max: int, bytes_max: int
    ) -> Sequence[Entry]:
        """The entries from `first` on that fit: at least one, and at most up to `last`. Raises OffloadError."""
        try:
            group = await self._files.group(self._place, self._ledger_id, self._entries, first)
        except BaseException:
            self._files.forget(self._place)
            raise
        at = first - group[0].entry_id
        chosen = group[at : min(last + 1 - group[0].entry_id, at + entries_max)]
        room_bytes = bytes_max
        for count, entry in enumerate(chosen):
            room_bytes -= len(entry.data)
            if room_bytes < 0:
                return tuple(chosen[: max(1, count)])
        return tuple(chosen)
