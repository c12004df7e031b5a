"""Reads all metadata that persists, as it was at one instant, while others change it.

First the reader watches the whole tree (`tree_watch`), then it reads every node once. What changed meanwhile it reads
again, until after a `sync` nothing is left that changed. At the instant of that sync each node was as it was read: an
earlier change would have been reported before the sync's answer, and read again. Each cycle reads only what the cycle
before it missed, so cycles soon become short, however large the tree is and however busy the cluster.

What was read waits in a database on the disk, so that memory does not grow with the number of nodes. Ephemeral nodes, and
permissions that are for once (rule 29), are no part of it: see `Layout.passing`.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

from daybook.core.errors import MetadataUnavailableError
from daybook.metadata.backup.file import ExportedNode
from daybook.metadata.layout import Layout
from daybook.metadata.store.resolving import READS_IN_REQUEST_MAX
from daybook.metadata.store.store import MetadataStore, NoNodeError, StoreError

CYCLES_MAX: Final = 1000
"""So many times what changed is read again; each cycle takes milliseconds, so that a cluster has to be far too busy."""


class Snapshot:
    """What was read; `open_snapshot` makes it. Iterating returns the nodes in order of path, parents before children."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._database.execute("CREATE TABLE node (path TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID")

    def put(self, path: str, data: bytes) -> None:
        """The node at `path` has `data`."""
        self._database.execute("INSERT OR REPLACE INTO node VALUES (?, ?)", (path, data))

    def forget(self, path: str) -> None:
        """There is no node at `path`."""
        self._database.execute("DELETE FROM node WHERE path = ?", (path,))

    def __len__(self) -> int:
        """The number of nodes."""
        count: int = self._database.execute("SELECT count(*) FROM node").fetchone()[0]
        return count

    def __iter__(self) -> Iterator[ExportedNode]:
        """The nodes, with absolute paths."""
        for path, data in self._database.execute("SELECT path, data FROM node ORDER BY path"):
            yield ExportedNode(path, data)


@contextmanager
def open_snapshot() -> Iterator[Snapshot]:
    """An empty snapshot, in a file of the system's temporary directory that goes with it."""
    with closing(sqlite3.connect("", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = OFF")
        yield Snapshot(database)


class _Reading:
    """One reading of a cluster's tree."""

    def __init__(
        self,
        store: MetadataStore,
        layout: Layout,
        snapshot: Snapshot,
        report: Callable[[int, int | None], None],
    ) -> None:
        self._store = store
        self._layout = layout
        self._snapshot = snapshot
        self._report = report
        self._read = 0

    async def all(self) -> None:
        """Read every node once, with its ancestors' listings in memory and no other."""
        batch: list[str] = []
        async for path in self._paths(self._layout.root):
            batch.append(path)
            if len(batch) >= READS_IN_REQUEST_MAX:
                await self.each(batch)
                batch = []
        await self.each(batch)

    async def each(self, paths: Sequence[str]) -> None:
        """Read the nodes at `paths`. Raises StoreError for one that cannot be read."""
        for path, node in zip(paths, await self._store.get_each(paths), strict=True):
            if isinstance(node, NoNodeError):
                self._snapshot.forget(path)
            elif isinstance(node, StoreError):
                raise node
            else:
                self._snapshot.put(path, node.value)
        self._read += len(paths)
        self._report(self._read, None)

    async def _paths(self, path: str) -> AsyncIterator[str]:
        if self.is_passing(path):
            return
        yield path
        if self._layout.is_leaf(path):
            return
        try:
            names = await self._store.children(path)
        except NoNodeError:
            return  # deleted just now: the watch reports it
        for name in names:
            async for below in self._paths(f"{path}/{name}"):
                yield below

    def is_passing(self, path: str) -> bool:
        """Whether `path` is no part of a backup."""
        return any(path == each or path.startswith(f"{each}/") for each in self._layout.passing)


async def read_snapshot(
    store: MetadataStore,
    layout: Layout,
    snapshot: Snapshot,
    report: Callable[[int, int | None], None] = lambda _done, _total: None,
) -> None:
    """Fill `snapshot` with every node of the cluster that persists, as all of them were at one instant.

    `report` gets the number of nodes that were read. Raises MetadataUnavailableError (WatchLostError if the connection was
    lost meanwhile), and StoreError where the server cannot watch a tree.
    """
    reading = _Reading(store, layout, snapshot, report)
    watch = await store.watch_tree(layout.root)
    try:
        await store.sync(layout.root)
        await reading.all()
        for _ in range(CYCLES_MAX):
            await store.sync(layout.root)
            changed = [path for path in watch.take() if not reading.is_passing(path)]
            if not changed:
                return
            await reading.each(changed)
    finally:
        store.forget_tree(watch)
    msg = f"the metadata changes faster than it can be read: {CYCLES_MAX} cycles did not catch up; try again at a quieter time"
    raise MetadataUnavailableError(msg)
