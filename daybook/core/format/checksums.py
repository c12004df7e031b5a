"""The checksum of an entry, which covers its ledger, its id and its payload (rule 44): of one, and of many in loops that stay in C."""

from __future__ import annotations  # array[int] is no run-time expression before 3.12

import struct
from array import array
from collections.abc import Sequence
from itertools import repeat
from typing import Final

from crc32c import crc32c

from daybook.core.format.frame import COLUMN_BYTES, Buffer
from daybook.core.ids import EntryId, LedgerId

_CRC: Final = struct.Struct("<I")
_ID: Final = struct.Struct("<q")
_LOW_BYTE_CRCS: Final = array(
    "I", [crc32c(_ID.pack(low)) ^ crc32c(_ID.pack(0)) for low in range(0x100)]
).tobytes()
"""How the CRC of an id differs by its lowest byte; a CRC is linear, so this holds in every ledger and for all other bytes."""
_SMALL_RUN: Final = 8
"""Entries for which a table would take longer."""


def ledger_seed(ledger_id: LedgerId) -> int:
    """The CRC32C of the ledger id: where the CRC of each of its entries begins."""
    return crc32c(_ID.pack(ledger_id))


def entry_crc(ledger_id: LedgerId, entry_id: EntryId, payload: Buffer) -> int:
    """The CRC32C over ledger id, entry id (both 64-bit little-endian) and payload."""
    return crc32c(payload, crc32c(_ID.pack(entry_id), ledger_seed(ledger_id)))


def entry_crcs(ledger_id: LedgerId, entry_ids: Sequence[EntryId], payloads: Sequence[Buffer]) -> list[int]:
    """`entry_crc` of many entries, in loops that stay in C."""
    if isinstance(entry_ids, range) and entry_ids.step == 1 and len(entry_ids) >= _SMALL_RUN:
        return list(map(crc32c, payloads, array("I", id_crcs(ledger_id, entry_ids))))
    seed = ledger_seed(ledger_id)
    return list(map(crc32c, payloads, map(crc32c, map(_ID.pack, entry_ids), repeat(seed))))


def id_crcs(ledger_id: LedgerId, entry_ids: range) -> bytes:
    """The CRC of the ids of each entry, with which that of its payload begins, 32 bits each: one call for each 256 ids."""
    seed = ledger_seed(ledger_id)
    first, end = entry_ids.start, entry_ids.stop
    crcs: list[bytes] = []
    low: list[bytes] = []
    for base in range(first & ~0xFF, end, 0x100):
        begin, stop = max(first - base, 0), min(end - base, 0x100)
        crcs.append(_CRC.pack(crc32c(_ID.pack(base), seed)) * (stop - begin))
        low.append(_LOW_BYTE_CRCS[COLUMN_BYTES * begin : COLUMN_BYTES * stop])
    return xor(b"".join(crcs), b"".join(low))


def xor(run: Buffer, *others: Buffer) -> bytes:
    """The bytes of runs of the same length, combined by XOR."""
    combined = int.from_bytes(run, "little")
    for other in others:
        assert len(other) == len(run)
        combined ^= int.from_bytes(other, "little")
    return combined.to_bytes(len(run), "little")
