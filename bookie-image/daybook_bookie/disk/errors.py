"""What can go wrong with a bookie's storage: one class for each reaction that must follow.

A full disk makes the bookie read-only (rule 30). A write that the disk refused for any other reason stops it, because
after a failed fsync nobody knows what is durable, and the replay decides (rule 23). Damage is refused or an I/O error,
never "not found" (rule 25, rule 26).
"""

from typing import ClassVar

from daybook.core.bookie.life import Refusal
from daybook.core.errors import DaybookError


class StorageError(DaybookError):
    """Base of every storage error."""


class StorageFullError(StorageError):
    """No space, in the file system or in the store's map. Nothing was lost: go read-only and free space (rule 30)."""


class BookieMustStopError(StorageError):
    """A write, fsync or commit failed: what is durable is unknown. Stop the process; its next start replays (rule 23)."""


class JournalCorruptError(StorageError):
    """The journal is damaged before a position that was durable: acknowledged entries are missing (rule 25)."""


class CorruptStoreError(StorageError):
    """Something the store must hold is missing or fails its checksum: an I/O error, never "not found" (rule 26)."""


class StoreRefusedError(StorageError):
    """The store as a whole cannot be trusted (a damaged root, an older state): the bookie must not start on it."""

    def __init__(self, what: str) -> None:
        """`what` was found; the message adds what to do."""
        super().__init__(
            f"{what}: the store cannot be trusted, and starting on it could hide acknowledged entries; replace the bookie "
            "(`daybook bookie replace`), so that its entries are copied from other replicas"
        )


class StoreNotOpenedError(StorageError):
    """The store could not be opened for a reason that proves nothing about its content: rights, memory, descriptors."""


class CookieError(StorageError):
    """A directory that belongs to another bookie or cluster, or an identity that cannot be proved (rule 29)."""

    refusal: ClassVar[Refusal] = Refusal.OTHER


class DiskLostError(CookieError):
    """ZooKeeper has the bookie's cookie, all its directories are empty: the disks are new or not mounted (rule 29)."""

    refusal = Refusal.DISK_LOST


class ForgottenError(CookieError):
    """The directories are this bookie's, ZooKeeper has no cookie for it: it was decommissioned meanwhile (rule 29)."""

    refusal = Refusal.FORGOTTEN
