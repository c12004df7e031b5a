"""The storage's limits and sizes, in one place, checked before anything is opened."""

from dataclasses import dataclass
from typing import Final

from daybook.core.format.frame import FRAME_BYTES_TARGET
from daybook.core.ids import MESSAGE_BYTES_MAX

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB
_MAP_BYTES_MIN: Final = 256 * GIB
_MAP_BYTES_MAX: Final = 64 * 1024 * GIB
"""A network file system may call itself exabytes large, and a process has 128 TiB of address space."""
_MAP_GROWTH: Final = 4


def map_bytes_for(file_system_bytes: int) -> int:
    """The store's map where nobody gave one: so large that the volume can grow fourfold without a restart.

    It is address space: LMDB's file grows with what is stored.
    """
    return min(max(_MAP_BYTES_MIN, _MAP_GROWTH * file_system_bytes), _MAP_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Sizes in bytes. Raises ValueError for values that cannot work together."""

    journal_file_bytes: int = 128 * MIB
    """A journal file is preallocated to this size; it goes when the store holds all of it."""
    block_bytes: int = FRAME_BYTES_TARGET
    """Small neighbouring frames are merged into blocks up to this size."""
    flush_transaction_bytes: int = 32 * MIB
    """A flush commits at least this often: LMDB keeps a transaction's pages in memory."""
    delete_transaction_blocks: int = 1024
    """A deletion commits after this many blocks."""
    store_map_bytes: int = _MAP_BYTES_MIN
    """The cap of the store's map, address space only; see `map_bytes_for`."""
    store_reserve_bytes: int = 64 * MIB
    """Kept free in the map, so that deletions can always commit."""
    read_overshoot_bytes: int = 16 * 1024
    """A block is sent whole when at most this much of it was not asked for; otherwise it is cut."""

    def __post_init__(self) -> None:
        if self.journal_file_bytes < 2 * MESSAGE_BYTES_MAX:
            msg = f"journal_file_bytes={self.journal_file_bytes}: at least {2 * MESSAGE_BYTES_MAX}, so that any message fits"
            raise ValueError(msg)
        if self.store_reserve_bytes * 2 > self.store_map_bytes:
            msg = (
                f"store_map_bytes={self.store_map_bytes}: at least twice store_reserve_bytes "
                f"({self.store_reserve_bytes}), or nothing could be stored"
            )
            raise ValueError(msg)
        if not 0 < self.block_bytes <= MESSAGE_BYTES_MAX:
            msg = f"block_bytes={self.block_bytes}: between 1 and {MESSAGE_BYTES_MAX}"
            raise ValueError(msg)
        if (
            min(self.flush_transaction_bytes, self.delete_transaction_blocks) < 1
            or self.read_overshoot_bytes < 0
        ):
            msg = (
                "flush_transaction_bytes and delete_transaction_blocks begin at 1, read_overshoot_bytes at 0"
            )
            raise ValueError(msg)
