"""What a bookie asks of its entry store: the interface that LMDB is behind.

It is narrow, so that the simulator can put a model in LMDB's place while everything that decides (what a flush trims,
merges and replaces, when the journal is trimmed, what a read reports as absent) stays the code that runs in production.
One test suite checks every implementation. The contract in short: a commit is all or nothing and durable when it returns
(rule 23), the checkpoint moves with it (rule 24), and `StoredLedger.intervals` decides which entries exist, never what a
read finds (rule 26).
"""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple, Protocol

from daybook.core.format.block import Block
from daybook.core.format.frame import Buffer
from daybook.core.ids import EntryId, LedgerId
from daybook_bookie.journal.format import Position
from daybook_bookie.settings import StorageSettings
from daybook_bookie.store.stored_ledger import StoredLedger


class LedgerChange(NamedTuple):
    """One ledger's part of a commit: blocks in and out, and the record after it (None: it goes)."""

    ledger_id: LedgerId
    puts: list[tuple[bytes, Any]]
    """By rising `block_key`; a block under the same key is replaced."""
    deletes: list[bytes]
    """Carried out before the puts; a key that does not exist is no error."""
    record: StoredLedger | None


class Space(NamedTuple):
    """Bytes. LMDB's file never shrinks, so what it can reuse counts as free (rule 27, rule 30)."""

    file_system_free: int
    reusable: int
    map_free: int

    @property
    def free(self) -> int:
        """What normal writes may still take."""
        return min(self.file_system_free + self.reusable, self.map_free)

    @property
    def is_map_the_limit(self) -> bool:
        """Whether the map is full before the disk."""
        return self.map_free < self.file_system_free + self.reusable


class Blocks(Protocol):
    """One ledger's blocks as of one moment."""

    def overlapping(self, first: EntryId, last: EntryId, limit: int | None = None) -> list[Block]:
        """The blocks whose range overlaps first … last, rising, up to `limit` of them; raises CorruptStoreError.

        Their bodies may be damaged; their data are views that end with the moment. Blocks behind `last` are not decoded.
        None ends behind the beginning of the next one, but for intact blocks that overlap.
        """

    def readable(self, first: EntryId, last: EntryId) -> tuple[list[Block], list[EntryId]]:
        """The blocks as above that can be read, and the keys within first … last whose blocks cannot, both rising.

        A block whose body is damaged ends just before the next one, since the row that names its last entry may be damaged.
        """


class EntryStore(Protocol):
    """An open store. One thread calls `commit` and `confirm`; any thread calls the rest."""

    @property
    def settings(self) -> StorageSettings:
        """Sizes of blocks and transactions."""

    @property
    def checkpoint(self) -> Position:
        """The store has all of the journal before this position: a replay begins here (rule 24)."""

    def ledger(self, ledger_id: LedgerId) -> StoredLedger | None:
        """What is stored of a ledger; None if nothing is, or it is being deleted."""

    def stored(self, ledger_id: LedgerId) -> StoredLedger | None:
        """The stored record, also of a ledger that is being deleted."""

    def ledgers(self) -> Mapping[LedgerId, StoredLedger]:
        """All ledgers but those that are being deleted, as of now."""

    def deletions(self) -> list[LedgerId]:
        """The ledgers whose blocks are still being removed, rising."""

    def limbo_marks(self) -> Mapping[LedgerId, bytes]:
        """The nonces of the ledgers in limbo, as of now (rule 29), without those that are being deleted."""

    def read_blocks(
        self,
        ledger_id: LedgerId,
        first: EntryId,
        last: EntryId,
        max_bytes: int,
        *,
        views: ExitStack | None = None,
    ) -> list[Buffer]:
        """Frames that hold the stored entries of first … last, rising, about `max_bytes` of them, at least one.

        They are copies. With `views` they may be views of the store instead, which end when that is closed: soon, because pages that
        they can see are not reused.

        A frame may also hold entries before `first` and after `last`. Empty if none of these entries is stored: the
        caller decides whether that proves anything. Raises CorruptStoreError if the first entry that exists cannot be
        read; entries before a damaged one are returned.
        """

    def blocks(self, ledger_id: LedgerId) -> AbstractContextManager[Blocks]:
        """The ledger's blocks as of now; short, because pages that it can see are not reused."""

    def block_keys(self, ledger_id: LedgerId, limit: int) -> list[bytes]:
        """The keys of the ledger's first `limit` blocks, whatever is in them."""

    def commit(self, changes: Iterable[LedgerChange], checkpoint: Position) -> None:
        """Make the changes and `checkpoint` durable, all or nothing.

        Raises StorageFullError when there is no room: either nothing of this commit happened, or all of it and that is
        not certain yet; nothing is promised, and it may be repeated (rule 30). Raises BookieMustStopError for any other
        failure, and from then on always: the next start finds out whether it happened (rule 23).
        """

    @property
    def needs_confirmation(self) -> bool:
        """Whether there was no room to make the newest commit certain."""

    def confirm(self) -> None:
        """Make the newest commit certain if it is not. Raises as `commit` does."""

    def check_room(self, size_bytes: int) -> None:
        """Raise StorageFullError unless a normal write of `size_bytes` leaves the reserve that deletions need."""

    def space(self) -> Space:
        """What is left."""

    def close(self) -> None:
        """Close the store; the caller has ended all reads."""
