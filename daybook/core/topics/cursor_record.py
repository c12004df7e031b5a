"""How far a subscription is, as it survives its broker: the mark-delete position, what is acknowledged beyond it, and batches
of which a part is.

The record is an entry of the cursor's own ledger while positions move, and the cursor's node otherwise (rule 40). What does not fit
is left out and delivered again: a record without a range is true, only less exact. So a record never holds the ranges without the
mark-delete position before them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from daybook.core.errors import MetadataError
from daybook.core.format.stored_record import read_record
from daybook.core.ids import MAX_ID, LedgerId, check_integer
from daybook.core.topics.ledger_list import NO_POSITION, Position

FORMAT_VERSION: Final = 1
NO_LEDGER: Final = -1
NODE_RANGES_MAX: Final = 1_000
"""Ranges, and partly acknowledged batches, of a record in a node; Pulsar has the same limit."""
LEDGER_RANGES_MAX: Final = 10_000
"""The same of a record in the cursor's ledger."""


@dataclass(frozen=True, slots=True)
class AckedRange:
    """Entries of one ledger that are acknowledged, from `first_entry` to `last_entry`."""

    ledger_id: LedgerId
    first_entry: int
    last_entry: int

    def __post_init__(self) -> None:
        """Check the order."""
        if not 0 <= self.first_entry <= self.last_entry or self.ledger_id < 0:
            msg = f"{self.ledger_id}:{self.first_entry} to {self.last_entry} is no range of acknowledged entries"
            raise MetadataError(msg)

    @property
    def first(self) -> Position:
        """Its first entry."""
        return Position(self.ledger_id, self.first_entry)


@dataclass(frozen=True, slots=True)
class CursorRecord:
    """A cursor. Raises MetadataError for ranges and batches that are out of order or not beyond the mark-delete position.

    `cursor_ledger` is the ledger whose last entry is a newer record, or NO_LEDGER where this record is the cursor.
    """

    mark_delete: Position = NO_POSITION
    """Everything up to it is acknowledged."""
    ranges: tuple[AckedRange, ...] = ()
    """What is acknowledged beyond it, in order; the holes between ranges are not."""
    batches: tuple[tuple[Position, tuple[int, ...]], ...] = ()
    """Batches of which a part is acknowledged: words of 64 bits, in which a set bit is a message that is not."""
    cursor_ledger: LedgerId = NO_LEDGER
    last_active_ms: int = 0
    """When a consumer last used the subscription, in ms since 1970."""
    properties: Mapping[str, str] = field(default_factory=dict)
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the order."""
        before = self.mark_delete
        for acked in self.ranges:
            if acked.first <= before:
                _refuse(f"its range at {acked.first} is not beyond {before}")
            before = Position(acked.ledger_id, acked.last_entry)
        before = self.mark_delete
        for position, _ in self.batches:
            if position <= before:
                _refuse(f"its batch at {position} is not beyond {before}")
            before = position

    def limited(self, ranges_max: int) -> Self:
        """The record with the first `ranges_max` ranges and as many batches; the rest is delivered again after a fail-over (rule 40)."""
        if max(len(self.ranges), len(self.batches)) <= ranges_max:
            return self
        return replace(self, ranges=self.ranges[:ranges_max], batches=self.batches[:ranges_max])

    def to_json(self) -> bytes:
        """The record as it is stored; unknown fields that were read are written back."""
        record: dict[str, Any] = {
            **self.unknown_fields,
            "formatVersion": FORMAT_VERSION,
            "markDelete": str(self.mark_delete),
            "ranges": [[acked.ledger_id, acked.first_entry, acked.last_entry] for acked in self.ranges],
            "batches": [[str(position), *words] for position, words in self.batches],
            "cursorLedgerId": self.cursor_ledger,
            "lastActiveMs": self.last_active_ms,
            "properties": dict(self.properties),
        }
        return json.dumps(record, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a stored record. Raises MetadataError for anything that `to_json` of a known version cannot make."""
        return read_record(data, "cursor", FORMAT_VERSION, cls._from_record)

    @classmethod
    def _from_record(cls, record: dict[str, Any]) -> Self:
        return cls(
            mark_delete=Position.parse(record.pop("markDelete")),
            ranges=tuple(AckedRange(*map(check_integer, item)) for item in record.pop("ranges")),
            batches=tuple(
                (Position.parse(position), tuple(map(_check_word, words)))
                for position, *words in record.pop("batches")
            ),
            cursor_ledger=check_integer(record.pop("cursorLedgerId")),
            last_active_ms=check_integer(record.pop("lastActiveMs")),
            properties={str(key): str(value) for key, value in record.pop("properties").items()},
            unknown_fields=record,
        )


def _check_word(word: int) -> int:
    """A word is signed, and −2⁶³ is one: of 64 messages the last one is left."""
    return word if word == -MAX_ID - 1 and type(word) is int else check_integer(word)


def _refuse(why: str) -> None:
    msg = f"a cursor is not valid: {why}"
    raise MetadataError(msg)
