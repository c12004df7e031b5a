"""What the store knows of a ledger besides its entries, and the root that vouches for all of it.

LMDB has no page checksums: a flipped bit can make a record, or a subtree of them, silently vanish (rule 26). So every
record has a checksum bound to its ledger id, and the root holds the sum of the records' digests and their number: a
record that vanished, changed or moved no longer adds up. LAC and the length there are one pair with a checksum of its
own (rule 44).
"""

import struct
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from crc32c import crc32c

from daybook.core.errors import IntervalError
from daybook.core.format.frame import ledger_seed
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import MAX_ID, NO_ENTRY, EntryId, LedgerId
from daybook_bookie.disk.errors import CorruptStoreError, StoreRefusedError
from daybook_bookie.journal.format import START, Position
from daybook_bookie.journal.records import NONCE_BYTES

_KEY: Final = struct.Struct(">Q")
_HEAD: Final = struct.Struct(f"<BBBxqqqI{NONCE_BYTES}s")
_PAIR: Final = struct.Struct("<qqq")
_ROOT: Final = struct.Struct("<4sIQQ16sQQ")
_CRC: Final = struct.Struct("<I")
_VERSION: Final = 1
_ROOT_MAGIC: Final = b"DBR1"
_FENCED: Final = 1
_LIMBO: Final = 2
_DELETING: Final = 4
DIGEST_MODULUS: Final = 2**128


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """A ledger at rest. Never changed in place, `intervals` included: readers hold on to it without a lock."""

    intervals: IntervalSet = field(default_factory=IntervalSet)
    fenced: bool = False
    limbo: bytes | None = None
    """The nonce of the mark that stands (rule 29)."""
    deleting: bool = False
    """Gone for readers; its blocks are removed in bounded transactions."""
    last_add_confirmed: EntryId = NO_ENTRY
    length_at_lac: int = 0
    password_hash: bytes = b""
    first_seen_ms: int = 0


def _pair_crc(ledger_id: LedgerId, last_add_confirmed: EntryId, length_at_lac: int) -> int:
    return crc32c(_PAIR.pack(ledger_id, last_add_confirmed, length_at_lac))


def ledger_key(ledger_id: LedgerId) -> bytes:
    """The record's key."""
    return _KEY.pack(ledger_id)


def ledger_of_key(key: bytes | memoryview) -> LedgerId:
    """The ledger id in a record's key; raises StoreRefusedError."""
    if len(key) != _KEY.size:
        msg = f"a ledger record under a key of {len(key)} bytes: {WHAT_TO_DO}"
        raise StoreRefusedError(msg)
    (ledger_id,) = _KEY.unpack(key)
    if ledger_id > MAX_ID:
        msg = f"a ledger record under the key {bytes(key).hex()}, which no ledger has: {WHAT_TO_DO}"
        raise StoreRefusedError(msg)
    return int(ledger_id)


def pack_record(ledger_id: LedgerId, record: LedgerRecord) -> bytes:
    """The record's bytes, with checksums."""
    flags = (
        (_FENCED if record.fenced else 0)
        | (_LIMBO if record.limbo is not None else 0)
        | (_DELETING if record.deleting else 0)
    )
    head = _HEAD.pack(
        _VERSION,
        flags,
        len(record.password_hash),
        record.first_seen_ms,
        record.last_add_confirmed,
        record.length_at_lac,
        _pair_crc(ledger_id, record.last_add_confirmed, record.length_at_lac),
        record.limbo or bytes(NONCE_BYTES),
    )
    data = b"".join([head, record.password_hash, record.intervals.to_bytes()])
    return data + _CRC.pack(crc32c(data, ledger_seed(ledger_id)))


def unpack_record(ledger_id: LedgerId, data: bytes) -> LedgerRecord:
    """The record of `ledger_id`; raises CorruptStoreError if it is damaged or another ledger's."""
    if len(data) < _HEAD.size + _CRC.size:
        msg = f"the record of ledger {ledger_id} has only {len(data)} bytes"
        raise CorruptStoreError(msg)
    (expected,) = _CRC.unpack_from(data, len(data) - _CRC.size)
    body = data[: -_CRC.size]
    version, flags, hash_size, first_seen_ms, lac, length, pair_crc, nonce = _HEAD.unpack_from(body)
    if crc32c(body, ledger_seed(ledger_id)) != expected or pair_crc != _pair_crc(ledger_id, lac, length):
        msg = f"the record of ledger {ledger_id} fails its checksum"
        raise CorruptStoreError(msg)
    if version != _VERSION:
        msg = f"the record of ledger {ledger_id} has version {version}, known here is {_VERSION}: upgrade the bookie"
        raise CorruptStoreError(msg)
    at = _HEAD.size + hash_size
    try:
        intervals = IntervalSet.from_bytes(body[at:])
    except IntervalError as error:
        msg = f"the record of ledger {ledger_id}: {error}"
        raise CorruptStoreError(msg) from error
    return LedgerRecord(
        intervals,
        bool(flags & _FENCED),
        bytes(nonce) if flags & _LIMBO else None,
        bool(flags & _DELETING),
        lac,
        length,
        body[_HEAD.size : at],
        first_seen_ms,
    )


def record_digest(ledger_id: LedgerId, data: bytes) -> int:
    """What the record adds to the root's digest."""
    return int.from_bytes(blake2b(ledger_key(ledger_id) + data, digest_size=16).digest(), "little")


@dataclass(frozen=True, slots=True)
class Root:
    """The store as a whole, as of one commit."""

    generation: int = 0
    """Rises by one with every commit."""
    count: int = 0
    """How many ledger records there are."""
    digest: int = 0
    """The sum of their digests, modulo 2¹²⁸."""
    mark: Position = START
    """The journal before it is wholly in the store."""

    def pack(self) -> bytes:
        """The root's bytes, with a checksum; in LMDB and in the checkpoint file alike."""
        data = _ROOT.pack(
            _ROOT_MAGIC, _VERSION, self.generation, self.count, self.digest.to_bytes(16, "little"), *self.mark
        )
        return data + _CRC.pack(crc32c(data))


ROOT_BYTES: Final = _ROOT.size + _CRC.size

WHAT_TO_DO: Final = (
    "the store cannot be trusted, and starting on it could hide acknowledged entries; replace the bookie "
    "(`daybook bookie replace`), so that its entries are copied from other replicas"
)


def unpack_root(data: bytes) -> Root | None:
    """The root, None if it is damaged."""
    if len(data) != ROOT_BYTES:
        return None
    magic, version, generation, count, digest, file_id, offset = _ROOT.unpack_from(data)
    (expected,) = _CRC.unpack_from(data, _ROOT.size)
    if crc32c(data[: _ROOT.size]) != expected or magic != _ROOT_MAGIC or version != _VERSION:
        return None
    return Root(generation, count, int.from_bytes(digest, "little"), Position(file_id, offset))
