"""The list of a topic's ledgers: the one record that decides which ledgers a topic consists of, and in which order.

A topic has one owner at a time, and only the owner writes the list, each time by compare-and-set. A take-over begins with a
change of the list, too, under a token that the new owner has drawn: from then on every change of the old owner fails, and two owners
never mistake each other's change for their own (rule 38). Cursors and policy are nodes of their own, so that neither a subscription
nor a person competes with the owner for it.

Ledgers are written one after the other. Only the last one may be open, and its entries and bytes count once it is closed. Trimming
takes ledgers from the front. `last_confirmed` outlives them: positions of a topic only rise, also when it is empty.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Any, Final, NamedTuple, Self

from daybook.core.errors import MetadataError
from daybook.core.format.stored_record import read_record
from daybook.core.ids import MAX_ID, EntryId, LedgerId, check_integer, check_ledger_id

FORMAT_VERSION: Final = 1


class Position(NamedTuple):
    """An entry of a topic. Positions compare as the topic has them, because later ledgers have larger ids."""

    ledger_id: LedgerId
    entry_id: EntryId

    def __str__(self) -> str:
        """`<ledger>:<entry>`, as Pulsar writes it."""
        return f"{self.ledger_id}:{self.entry_id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`. Raises ValueError."""
        ledger_id, _, entry_id = text.partition(":")
        position = cls(int(ledger_id), int(entry_id))
        if not -1 <= min(position) <= max(position) <= MAX_ID:
            msg = f"{text[:60]!r} is no position: its numbers go from −1 to {MAX_ID}"
            raise ValueError(msg)
        return position


NO_POSITION: Final = Position(-1, -1)
"""Before the first entry of any topic."""


class ListState(Enum):
    """What becomes of the next message."""

    OPEN = "LedgerOpened"
    CLOSED = "ClosedLedger"
    TERMINATED = "Terminated"


TRANSITIONS: Final[Mapping[tuple[ListState, ListState], str]] = {
    (ListState.CLOSED, ListState.OPEN): "the first message of an owner, or after a pause",
    (
        ListState.OPEN,
        ListState.CLOSED,
    ): "the ledger is closed: idle, at an unload, or by the next owner (rule 38)",
    (ListState.CLOSED, ListState.TERMINATED): "a person ends the topic for good",
}


@dataclass(frozen=True, slots=True)
class ListedLedger:
    """A ledger of a topic. Times are ms since 1970 by the clocks of owners; publish times are None where nobody knows them.

    `entries` and `size_bytes` are 0 and `closed_at_ms` is None while the ledger is not known to be closed.
    """

    ledger_id: LedgerId
    created_at_ms: int
    entries: int = 0
    size_bytes: int = 0
    closed_at_ms: int | None = None
    first_published_at_ms: int | None = None
    last_published_at_ms: int | None = None
    offloaded: bool = False
    under_replicated: bool = False
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether an owner may write to it; the next owner recovers it first (rule 38)."""
        return self.closed_at_ms is None

    @property
    def last_position(self) -> Position:
        """Of its last entry, with the entry −1 if it has none."""
        return Position(self.ledger_id, self.entries - 1)


@dataclass(frozen=True, slots=True)
class LedgerList:
    """A topic's list, checked on construction. Raises MetadataError for a value that no legal history leads to."""

    state: ListState = ListState.CLOSED
    ledgers: tuple[ListedLedger, ...] = ()
    last_confirmed: Position = NO_POSITION
    """At least this entry is acknowledged; the open ledger may have more. It never falls, and outlives its ledger."""
    last_ledger_created_at_ms: int = 0
    owner_token: str = ""
    """Drawn by each owner when it takes the topic over; empty before the first one."""
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check what must hold in every state."""
        for before, after in pairwise(self.ledgers):
            if before.ledger_id >= after.ledger_id:
                _refuse(f"ledger {after.ledger_id} follows ledger {before.ledger_id}, and ids rise")
            if before.is_open:
                _refuse(f"ledger {before.ledger_id} is open, and only the last one may be")
        if (self.state is ListState.OPEN) != bool(self.ledgers and self.ledgers[-1].is_open):
            _refuse(f"its state is {self.state.value}, and its last ledger's is another")
        for ledger in self.ledgers:
            if ledger.entries < 0 or ledger.size_bytes < 0:
                _refuse(
                    f"ledger {ledger.ledger_id} has {ledger.entries} entries and {ledger.size_bytes} bytes"
                )
            if ledger.entries and ledger.is_open:
                _refuse(f"ledger {ledger.ledger_id} is open, and its entries count once it is closed")
            if ledger.entries and self.last_confirmed < ledger.last_position:
                _refuse(f"it ends at {self.last_confirmed}, before {ledger.last_position}")

    @property
    def newest(self) -> LedgerId:
        """The largest id that a ledger of the topic has, or had; −1 before the first one."""
        return max([self.last_confirmed.ledger_id, *(ledger.ledger_id for ledger in self.ledgers)])

    def to_json(self) -> bytes:
        """The record as it is stored; unknown fields that were read are written back."""
        record: dict[str, Any] = {
            **self.unknown_fields,
            "formatVersion": FORMAT_VERSION,
            "state": self.state.value,
            "lastConfirmedEntry": str(self.last_confirmed),
            "ledgers": [_ledger_record(ledger) for ledger in self.ledgers],
            "lastLedgerCreatedTimestamp": self.last_ledger_created_at_ms,
            "ownerToken": self.owner_token,
        }
        return json.dumps(record, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a stored record. Raises MetadataError for anything that `to_json` of a known version cannot make."""
        return read_record(data, "topic's list", FORMAT_VERSION, cls._from_record)

    @classmethod
    def _from_record(cls, record: dict[str, Any]) -> Self:
        return cls(
            state=ListState(record.pop("state")),
            last_confirmed=Position.parse(record.pop("lastConfirmedEntry")),
            ledgers=tuple(_ledger_of(item) for item in record.pop("ledgers")),
            last_ledger_created_at_ms=check_integer(record.pop("lastLedgerCreatedTimestamp")),
            owner_token=str(record.pop("ownerToken")),
            unknown_fields=record,
        )


def check_list_change(old: LedgerList, new: LedgerList) -> None:
    """Raise MetadataError unless an owner may replace `old` by `new`: the last line of defence before a compare-and-set."""
    why = _why_illegal(old, new)
    if why:
        _refuse(why)


def _why_illegal(old: LedgerList, new: LedgerList) -> str | None:
    if new.state is not old.state and (old.state, new.state) not in TRANSITIONS:
        return f"a topic never goes from {old.state.value} to {new.state.value}"
    if new.last_confirmed < old.last_confirmed:
        return f"its last confirmed entry falls from {old.last_confirmed} to {new.last_confirmed}"
    before = {ledger.ledger_id: ledger for ledger in old.ledgers}
    kept = [ledger for ledger in new.ledgers if ledger.ledger_id in before]
    trimmed, left = old.ledgers[: len(old.ledgers) - len(kept)], old.ledgers[len(old.ledgers) - len(kept) :]
    if [ledger.ledger_id for ledger in kept] != [ledger.ledger_id for ledger in left]:
        return "ledgers are trimmed from the front"
    if any(ledger.is_open for ledger in trimmed):
        return "an open ledger is not trimmed"
    added = new.ledgers[len(kept) :]
    if len(added) > 1 or any(ledger.ledger_id <= old.newest for ledger in added):
        return f"one ledger is added at a time, with an id above {old.newest}"
    for ledger in kept:
        was = before[ledger.ledger_id]
        if not was.is_open and (ledger.entries, ledger.size_bytes, ledger.closed_at_ms) != (
            was.entries,
            was.size_bytes,
            was.closed_at_ms,
        ):
            return f"ledger {ledger.ledger_id} is closed, and a close is final (rule 11)"
    return None


def _refuse(why: str) -> None:
    msg = f"a topic's list is not valid: {why}"
    raise MetadataError(msg)


def _ledger_record(ledger: ListedLedger) -> dict[str, Any]:
    return {
        **ledger.unknown_fields,
        "ledgerId": ledger.ledger_id,
        "entries": ledger.entries,
        "size": ledger.size_bytes,
        "offloaded": ledger.offloaded,
        "underReplicated": ledger.under_replicated,
        "createdAtMs": ledger.created_at_ms,
        "closedAtMs": ledger.closed_at_ms,
        "firstPublishedAtMs": ledger.first_published_at_ms,
        "lastPublishedAtMs": ledger.last_published_at_ms,
    }


def _ledger_of(item: dict[str, Any]) -> ListedLedger:
    return ListedLedger(
        ledger_id=check_ledger_id(check_integer(item.pop("ledgerId"))),
        entries=check_integer(item.pop("entries")),
        size_bytes=check_integer(item.pop("size")),
        offloaded=bool(item.pop("offloaded")),
        under_replicated=bool(item.pop("underReplicated")),
        created_at_ms=check_integer(item.pop("createdAtMs")),
        closed_at_ms=_time(item.pop("closedAtMs")),
        first_published_at_ms=_time(item.pop("firstPublishedAtMs")),
        last_published_at_ms=_time(item.pop("lastPublishedAtMs")),
        unknown_fields=item,
    )


def _time(value: object) -> int | None:
    return None if value is None else check_integer(value)
