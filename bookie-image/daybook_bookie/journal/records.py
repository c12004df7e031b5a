"""What the journal carries: frames as they came, and the few decisions about a ledger that must survive a crash.

A frame checks itself (header and body have checksums), so the journal adds nothing to it. Everything else is a small
fixed record under the group's checksum. A LAC that a writer publishes is a frame without entries.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from daybook.core.format.frame import Buffer
from daybook.core.ids import LedgerId

NONCE_BYTES: Final = 16
PASSWORD_HASH_BYTES_MAX: Final = 255

_LEDGER: Final = struct.Struct("<q")
_LIMBO: Final = struct.Struct(f"<q{NONCE_BYTES}s")
_INTRO: Final = struct.Struct("<qqB")


class RecordKind(IntEnum):
    """Numbers are part of the journal's format and are never reused."""

    FRAME = 1
    FENCE = 2
    LIMBO = 3
    LIMBO_CLEAR = 4
    LEDGER_INTRO = 5
    DELETION = 6
    FENCE_DROPPED = 7


class Record(NamedTuple):
    """A record as it lies in the journal."""

    kind: RecordKind
    body: Buffer


class LedgerIntro(NamedTuple):
    """How a bookie came to know a ledger (rule 20 asks metadata before the first normal frame)."""

    ledger_id: LedgerId
    first_seen_ms: int
    password_hash: bytes


_SIZES: Final[dict[int, int]] = {
    RecordKind.FENCE: _LEDGER.size,
    RecordKind.FENCE_DROPPED: _LEDGER.size,
    RecordKind.DELETION: _LEDGER.size,
    RecordKind.LIMBO: _LIMBO.size,
    RecordKind.LIMBO_CLEAR: _LIMBO.size,
}


def is_known(kind: int, body: Buffer) -> bool:
    """Whether this release can read a record of `kind` with this body, if it is no frame."""
    if kind == RecordKind.LEDGER_INTRO:
        return len(body) >= _INTRO.size and len(body) == _INTRO.size + _INTRO.unpack_from(body)[-1]
    return _SIZES.get(kind) == len(body)


def frame_record(frame: Buffer) -> Record:
    """A whole frame, body checked by the caller."""
    return Record(RecordKind.FRAME, frame)


def fence_record(ledger_id: LedgerId) -> Record:
    """The ledger is fenced (rule 4)."""
    return Record(RecordKind.FENCE, _LEDGER.pack(ledger_id))


def fence_dropped_record(ledger_id: LedgerId) -> Record:
    """The fences before this record came with a key that is not the ledger's; that key is void with them (rule 3)."""
    return Record(RecordKind.FENCE_DROPPED, _LEDGER.pack(ledger_id))


def limbo_record(ledger_id: LedgerId, nonce: bytes) -> Record:
    """The bookie cannot vouch for the ledger; the nonce tells this mark from an earlier one (rule 29)."""
    assert len(nonce) == NONCE_BYTES
    return Record(RecordKind.LIMBO, _LIMBO.pack(ledger_id, nonce))


def limbo_clear_record(ledger_id: LedgerId, nonce: bytes) -> Record:
    """The mark with this nonce no longer stands; another one does."""
    assert len(nonce) == NONCE_BYTES
    return Record(RecordKind.LIMBO_CLEAR, _LIMBO.pack(ledger_id, nonce))


def intro_record(intro: LedgerIntro) -> Record:
    """A ledger that this bookie did not know."""
    assert len(intro.password_hash) <= PASSWORD_HASH_BYTES_MAX
    head = _INTRO.pack(intro.ledger_id, intro.first_seen_ms, len(intro.password_hash))
    return Record(RecordKind.LEDGER_INTRO, head + intro.password_hash)


def deletion_record(ledger_id: LedgerId) -> Record:
    """The ledger is no longer in the metadata: what came before this record is not brought back by a replay."""
    return Record(RecordKind.DELETION, _LEDGER.pack(ledger_id))


def record_ledger(record: Record) -> LedgerId:
    """The ledger of a record that is no frame."""
    assert record.kind is not RecordKind.FRAME
    (ledger_id,) = _LEDGER.unpack_from(record.body)
    return int(ledger_id)


def record_nonce(record: Record) -> bytes:
    """The nonce of a limbo record."""
    assert record.kind in (RecordKind.LIMBO, RecordKind.LIMBO_CLEAR)
    _, nonce = _LIMBO.unpack(record.body)
    return bytes(nonce)


def record_intro(record: Record) -> LedgerIntro:
    """The content of an intro record."""
    assert record.kind is RecordKind.LEDGER_INTRO
    ledger_id, first_seen_ms, size = _INTRO.unpack_from(record.body)
    return LedgerIntro(ledger_id, first_seen_ms, bytes(record.body[_INTRO.size : _INTRO.size + size]))
