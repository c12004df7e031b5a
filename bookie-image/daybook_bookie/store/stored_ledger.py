"""What the store knows of a ledger besides its blocks, and the bytes of that record.

LMDB has no page checksums, so each record has a checksum that is seeded with its ledger id (rule 26). The LAC and the
length there are one pair with a checksum of its own (rule 44).
"""

import struct
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from crc32c import crc32c

from daybook.core.errors import IntervalError
from daybook.core.format.checksums import ledger_seed
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import MAX_ID, NO_ENTRY, EntryId, LedgerId
from daybook_bookie.disk.errors import CorruptStoreError, StoreRefusedError
from daybook_bookie.journal.format import NONCE_BYTES

_KEY: Final = struct.Struct(">Q")
_HEAD: Final = struct.Struct(f"<BBBxqqqI{NONCE_BYTES}s")
_PAIR: Final = struct.Struct("<qqq")
_CRC: Final = struct.Struct("<I")
_VERSION: Final = 1
_FENCED: Final = 1
_LIMBO: Final = 2
_DELETING: Final = 4


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """A ledger at rest. Never changed in place, `intervals` included: readers use it without a lock."""

    intervals: IntervalSet = field(default_factory=IntervalSet)
    """The entries that exist."""
    fenced: bool = False
    limbo: bytes | None = None
    """The nonce of its limbo mark (rule 29)."""
    deleting: bool = False
    """Gone for readers; its blocks are removed in bounded transactions."""
    last_add_confirmed: EntryId = NO_ENTRY
    length_at_lac: int = 0
    password_hash: bytes = b""
    first_seen_ms: int = 0


def pair_crc(ledger_id: LedgerId, last_add_confirmed: EntryId, length_at_lac: int) -> int:
    """The checksum that LAC and length at LAC have beside the record's own (rule 44)."""
    return crc32c(_PAIR.pack(ledger_id, last_add_confirmed, length_at_lac))


def ledger_key(ledger_id: LedgerId) -> bytes:
    """The record's key."""
    return _KEY.pack(ledger_id)


def ledger_of_key(key: bytes | memoryview) -> LedgerId:
    """The ledger id in a record's key; raises StoreRefusedError."""
    if len(key) != _KEY.size:
        msg = f"a ledger record has a key of {len(key)} bytes"
        raise StoreRefusedError(msg)
    (ledger_id,) = _KEY.unpack(key)
    if ledger_id > MAX_ID:
        msg = f"a ledger record has the key {bytes(key).hex()}, which is no ledger id"
        raise StoreRefusedError(msg)
    return int(ledger_id)


def pack_record(ledger_id: LedgerId, record: StoredLedger) -> bytes:
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
        pair_crc(ledger_id, record.last_add_confirmed, record.length_at_lac),
        record.limbo or bytes(NONCE_BYTES),
    )
    data = b"".join([head, record.password_hash, record.intervals.to_bytes()])
    return data + _CRC.pack(crc32c(data, ledger_seed(ledger_id)))


def unpack_record(ledger_id: LedgerId, data: bytes) -> StoredLedger:
    """The record of `ledger_id`; raises CorruptStoreError if it is damaged or another ledger's."""
    if len(data) < _HEAD.size + _CRC.size:
        msg = f"the record of ledger {ledger_id} has only {len(data)} bytes"
        raise CorruptStoreError(msg)
    (expected,) = _CRC.unpack_from(data, len(data) - _CRC.size)
    body = data[: -_CRC.size]
    version, flags, hash_size, first_seen_ms, lac, length, crc_of_pair, nonce = _HEAD.unpack_from(body)
    if crc32c(body, ledger_seed(ledger_id)) != expected or crc_of_pair != pair_crc(ledger_id, lac, length):
        msg = f"the record of ledger {ledger_id} fails its checksum"
        raise CorruptStoreError(msg)
    if version != _VERSION:
        msg = f"the record of ledger {ledger_id} has version {version}, this release knows {_VERSION}: upgrade the bookie"
        raise CorruptStoreError(msg)
    at = _HEAD.size + hash_size
    try:
        intervals = IntervalSet.from_bytes(body[at:])
    except IntervalError as error:
        msg = f"the record of ledger {ledger_id}: {error}"
        raise CorruptStoreError(msg) from error
    return StoredLedger(
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
