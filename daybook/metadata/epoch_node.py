"""How far a bookie's disks had come when ZooKeeper last heard of them: the other half of rule 58.

The bookie raises a number on its disks and then here, so that disks that are behind this node are old ones. Each process
puts its own boot id beside the number, in the transaction of its first registration: another process of the same
directories, started on a copy of them, finds that it is not the last one, and does not become the bookie again (rule 57).
"""

import json
from contextlib import suppress

from daybook.core.ids import BookieId
from daybook.metadata.layout import Layout
from daybook.metadata.store.resolving import parent_of
from daybook.metadata.store.store import (
    BadVersionError,
    Check,
    Create,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
)


class EpochNode:
    """The node of one bookie, as its process `boot_id` writes it."""

    def __init__(self, store: MetadataStore, layout: Layout, bookie: BookieId, boot_id: str) -> None:
        """Nothing was looked at yet."""
        self._store = store
        self._path = layout.epoch(bookie)
        self._boot_id = boot_id
        self._version: int | None = None
        self._is_own = False
        self.epoch = 0
        """What the process's disks durably have."""

    async def look(self, incarnation: str) -> int:
        """What disks of this incarnation had come to; 0 if nobody said yet. What is written next, is written over this."""
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
        """Clusters that an earlier release formatted have no directory of these."""
        if self._version is None and not self._is_own:
            with suppress(NodeExistsError):
                await self._store.create(parent_of(self._path), parents=True)

    def operation(self, incarnation: str) -> Operation:
        """What makes the node this process's own, or checks that it is; part of a transaction, see `done`."""
        if self._is_own:
            assert self._version is not None
            return Check(self._path, self._version)
        if self._version is None:
            return Create(self._path, self._data(incarnation))
        return Put(self._path, self._data(incarnation), self._version)

    def done(self) -> None:
        """The transaction with `operation` was carried out."""
        if not self._is_own:
            self._version = 0 if self._version is None else self._version + 1
            self._is_own = True

    async def is_foreign(self) -> bool:
        """Whether another process wrote the node since this one looked at it or wrote it; what this one wrote is adopted.

        Another process has raised it to this one's number at least: a lower one is of a ZooKeeper that went back in time.
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
        """Say what the disks durably have by now, once the node is this process's own; False if it is not any more."""
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
