"""Which ledgers exist: their records in memory, and the root, which proves that none is missing.

LMDB has no page checksums: a flipped bit can make a record, or a subtree of records, vanish silently (rule 26). So the
root holds the number of the records and the sum of their digests: if a record vanished, changed or moved, they differ.

The index is filled when the store opens, and changed by one thread when a commit is published; any thread reads it. Of a
hundred thousand ledgers few are in limbo or being deleted: these have an index of their own, so that no call visits all ledgers.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from daybook.core.ids import LedgerId
from daybook_bookie.disk.errors import StoreRefusedError
from daybook_bookie.journal.format import START, Position
from daybook_bookie.store.stored_ledger import StoredLedger

_ROOT: Final = struct.Struct("<4sIQQ16sQQ")
_CRC: Final = struct.Struct("<I")
_VERSION: Final = 1
_ROOT_MAGIC: Final = b"DBR1"
_DIGEST_MODULUS: Final = 2**128
ROOT_BYTES: Final = _ROOT.size + _CRC.size


@dataclass(frozen=True, slots=True)
class Root:
    """The store as a whole, as of one commit."""

    generation: int = 0
    """Rises by one with every commit."""
    count: int = 0
    """How many ledger records there are."""
    digest: int = 0
    """The sum of their digests, modulo 2¹²⁸."""
    checkpoint: Position = START
    """The store has all of the journal before this position."""

    def pack(self) -> bytes:
        """The root's bytes, with a checksum; in LMDB and in the checkpoint file alike."""
        data = _ROOT.pack(
            _ROOT_MAGIC,
            _VERSION,
            self.generation,
            self.count,
            self.digest.to_bytes(16, "little"),
            *self.checkpoint,
        )
        return data + _CRC.pack(crc32c(data))


def unpack_root(data: bytes) -> Root | None:
    """The root, None if it is damaged."""
    if len(data) != ROOT_BYTES:
        return None
    magic, version, generation, count, digest, file_id, offset = _ROOT.unpack_from(data)
    (expected,) = _CRC.unpack_from(data, _ROOT.size)
    if crc32c(data[: _ROOT.size]) != expected or magic != _ROOT_MAGIC or version != _VERSION:
        return None
    return Root(generation, count, int.from_bytes(digest, "little"), Position(file_id, offset))


class LedgerIndex:
    """Records and their digests by ledger."""

    def __init__(self) -> None:
        """Nothing is stored."""
        self._records: dict[LedgerId, StoredLedger] = {}
        self._digests: dict[LedgerId, int] = {}
        self._limbo: dict[LedgerId, bytes] = {}
        self._deleting: dict[LedgerId, None] = {}

    def __iter__(self) -> Iterator[tuple[LedgerId, StoredLedger]]:
        return iter(list(self._records.items()))

    def put(self, ledger_id: LedgerId, record: StoredLedger, digest: int) -> None:
        """Replace the ledger's record."""
        self._records[ledger_id], self._digests[ledger_id] = record, digest
        if record.limbo is None or record.deleting:
            self._limbo.pop(ledger_id, None)
        else:
            self._limbo[ledger_id] = record.limbo
        if record.deleting:
            self._deleting[ledger_id] = None

    def remove(self, ledger_id: LedgerId) -> None:
        """Nothing is stored of the ledger any more."""
        for part in (self._records, self._digests, self._limbo, self._deleting):
            part.pop(ledger_id, None)

    def record(self, ledger_id: LedgerId) -> StoredLedger | None:
        """What is stored of the ledger."""
        return self._records.get(ledger_id)

    def limbo_marks(self) -> Mapping[LedgerId, bytes]:
        """The nonces of the ledgers in limbo, as of now."""
        return self._limbo.copy()

    def deleting(self) -> list[LedgerId]:
        """The ledgers whose blocks are still being removed, rising."""
        return sorted(self._deleting.copy())

    def check(self, root: Root) -> None:
        """Raise StoreRefusedError unless these are the records that `root` was committed with."""
        digest = sum(self._digests.values()) % _DIGEST_MODULUS
        if (len(self._records), digest) != (root.count, root.digest):
            msg = (
                f"{len(self._records)} ledger records were found, {root.count} were committed, "
                f"and their digests do {'' if digest == root.digest else 'not '}add up"
            )
            raise StoreRefusedError(msg)

    def root_after(self, root: Root, digests: Mapping[LedgerId, int | None], checkpoint: Position) -> Root:
        """The root after a commit that gives these ledgers records with these digests (None: the record goes)."""
        digest, count = root.digest, root.count
        for ledger_id, new in digests.items():
            digest += (new or 0) - self._digests.get(ledger_id, 0)
            count += (new is not None) - (ledger_id in self._digests)
        return Root(root.generation + 1, count, digest % _DIGEST_MODULUS, checkpoint)
