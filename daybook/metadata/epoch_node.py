"""The node in ZooKeeper with the epoch that a bookie's disks had reached: the other half of rule 58.

The bookie raises the epoch on its disks first and then here, so that disks behind this node are old ones. Each process
writes its own boot id beside the epoch, in the transaction of its first registration. So another process that started
on a copy of the same directories finds that it is not the latest one, and does not become the bookie again (rule 57).
"""

import json
from contextlib import suppress

from daybook.core.ids import BookieId
from daybook.metadata.layout import Layout
from daybook.metadata.store.store import (
    BadVersionError,
    Check,
    Create,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
    parent_of,
)


class EpochNode:
    """The node of one bookie, as its process `boot_id` writes it."""

    def __init__(self, store: MetadataStore, layout: Layout, bookie: BookieId, boot_id: str) -> None:
        """Nothing is read yet."""
        self._store = store
        self._path = layout.epoch(bookie)
        self._boot_id = boot_id
        self._version: int | None = None
        self._is_own = False
        self.epoch = 0
        """The epoch that the process's disks durably have."""

    async def read(self, incarnation: str) -> int:
        """The epoch that disks of this incarnation had reached; 0 if none is recorded. The next write replaces this version."""
        self._is_own = False
        try:
            node = await self._store.get(self._path)
        except NoNodeError:
            self._version = None
            return 0
        self._version = node.version
        record = json.loads(node.value)
        return int(record["epoch"]) if record["incarnation"] == incarnation else 0

    async def prepare(self) -> None:
        """Create the directory of epochs, which a cluster of an earlier release lacks."""
        if self._version is None and not self._is_own:
            with suppress(NodeExistsError):
                await self._store.create(parent_of(self._path), parents=True)

    def operation(self, incarnation: str) -> Operation:
        """The part of a transaction that makes this process the owner of the node, or checks that it is; see `done`."""
        if self._is_own:
            assert self._version is not None
            return Check(self._path, self._version)
        if self._version is None:
            return Create(self._path, self._data(incarnation))
        return Put(self._path, self._data(incarnation), self._version)

    def done(self) -> None:
        """Record that the transaction with `operation` succeeded."""
        if not self._is_own:
            self._version = 0 if self._version is None else self._version + 1
            self._is_own = True

    async def is_foreign(self) -> bool:
        """Whether another process wrote the node since this one read or wrote it; a write of this process is adopted.

        Another process has raised the epoch to at least this one's: a lower epoch is from a ZooKeeper that went back in time.
        """
        try:
            node = await self._store.get(self._path)
        except NoNodeError:
            self._version, self._is_own = None, False
            return False
        record = json.loads(node.value)
        is_own = record["bootId"] == self._boot_id
        if not is_own and node.version != self._version and int(record["epoch"]) >= self.epoch:
            return True
        self._version, self._is_own = node.version, is_own
        return False

    async def raise_to(self, epoch: int, incarnation: str) -> bool:
        """Write the epoch that the disks durably have, if this process still owns the node; False if it does not."""
        self.epoch = epoch
        while self._is_own:
            assert self._version is not None
            try:
                self._version = await self._store.put(self._path, self._data(incarnation), self._version)
            except (BadVersionError, NoNodeError):  # an earlier raise came late, or ZooKeeper went back
                if await self.is_foreign():
                    return False
            else:
                break
        return True

    def _data(self, incarnation: str) -> bytes:
        record = {
            "formatVersion": 1,
            "incarnation": incarnation,
            "epoch": self.epoch,
            "bootId": self._boot_id,
        }
        return json.dumps(record, sort_keys=True).encode()
