"""The list of a topic's ledgers: the one record that decides which ledgers a topic consists of, and in which order.

A topic has one owner at a time, and only the owner writes the list, each time by compare-and-set. A take-over begins with a
change of the list, too, under a token that the new owner has drawn: from then on every change of the old owner fails, and two owners
never mistake each other's change for their own (rule 38). Cursors and policy are nodes of their own, so that neither a subscription
nor a person competes with the owner for it.

Ledgers are written one after the other. Only the last one may be open, and its entries and bytes count once it is closed. Trimming
takes ledgers from the front. `last_confirmed` outlives them: positions of a topic only rise, also when it is empty.

Beside them the list names what a compaction wrote, and the horizon up to which that stands for the topic (rule 41), and the files of
ledgers that were offloaded (rule 70). Releases before offload would take a ledger without replicas for one that was trimmed, and skip it; so would
those before restore with a ledger whose entries another one has (rule 72). So a list with such a ledger is stored in a later format, which
they refuse.
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
from daybook.core.topics.offload.record import Kept, Offload, Restored, offload_of, restored_of, why_illegal

FORMAT_VERSION: Final = 1
FORMAT_WITHOUT_REPLICAS: Final = 2
"""Of a list with a ledger whose file is the only copy."""
FORMAT_WITH_COPIES: Final = 3
"""Of a list with a ledger whose entries another one has, since it was restored."""


class Position(NamedTuple):
    """An entry of a topic. Positions compare as the topic has them, because later ledgers have larger ids."""

    ledger_id: LedgerId
    entry_id: EntryId

    def __str__(self) -> str:
        """`<ledger>:<entry>`, as Pulsar writes it."""
        return f"{self.ledger_id}:{self.entry_id}"

    @property
    def behind(self) -> "Position":
        """The next one of the same ledger, whether there is such an entry or not."""
        return Position(self.ledger_id, self.entry_id + 1)

    @property
    def before(self) -> "Position":
        """The one before it in the same ledger; −1 is before the first entry."""
        return Position(self.ledger_id, self.entry_id - 1)

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
    offload: Offload | None = None
    restored: Restored | None = None
    """Set where jobs have brought the ledger back from its file. Once its replicas are given up again, the former file alone is left of it."""
    under_replicated: bool = False
    follows: Position | None = None
    """The topic's last entry before the ledger, NO_POSITION before its first one: what was trimmed in front of the ledger ended
    there. None where an earlier release named the ledger."""
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the order. Raises MetadataError."""
        if self.follows is not None and self.follows.ledger_id >= self.ledger_id:
            _refuse(f"ledger {self.ledger_id} follows {self.follows}, which is not before it")

    @property
    def is_open(self) -> bool:
        """Whether an owner may write to it; the next owner recovers it first (rule 38)."""
        return self.closed_at_ms is None

    @property
    def has_replicas(self) -> bool:
        """Whether the bookies have it; otherwise its file is the only copy (rule 70)."""
        return self.offload is None or not self.offload.replicas_gone

    @property
    def stored_as(self) -> LedgerId | None:
        """The ledger that has its entries, if that is another one: a copy, made when it was restored (rule 72)."""
        return None if self.restored is None else self.restored.stored_as

    @property
    def replicas_id(self) -> LedgerId:
        """The ledger that bookies have the entries in, while `has_replicas`."""
        return self.ledger_id if self.stored_as is None else self.stored_as

    @property
    def kept(self) -> Kept:
        """Where its entries are."""
        return Kept(self.offload, self.stored_as)

    @property
    def last_position(self) -> Position:
        """Of its last entry, with the entry −1 if it has none."""
        return Position(self.ledger_id, self.entries - 1)


@dataclass(frozen=True, slots=True)
class CompactedLedger:
    """A closed ledger of what a compaction kept, in order: entries up to `through`, behind those of the ledger before."""

    ledger_id: LedgerId
    entries: int
    size_bytes: int
    through: Position
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compaction:
    """A topic up to its horizon, as it is once it is compacted. Raises MetadataError for ledgers that do not rise up to the horizon."""

    horizon: Position
    """The last entry that the compaction has read; readers continue behind it in the topic's own ledgers."""
    ledgers: tuple[CompactedLedger, ...] = ()
    """None if nothing is left."""
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the order."""
        ends = [NO_POSITION, *(ledger.through for ledger in self.ledgers)]
        if any(before >= after for before, after in pairwise(ends)) or ends[-1] > self.horizon:
            _refuse(f"its compacted ledgers end at {ends[1:]}, which is to rise up to {self.horizon}")
        if any(ledger.entries < 1 or ledger.size_bytes < 1 for ledger in self.ledgers):
            _refuse("a compacted ledger without entries is left out")
        if len({ledger.ledger_id for ledger in self.ledgers}) < len(self.ledgers):
            _refuse("a compacted ledger is named twice")


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
    compaction: Compaction | None = None
    """None while the topic was never compacted."""
    offload_job: str = ""
    """The last run of an offload job that has begun on the topic: only its files are named from then on (rule 70)."""
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
            if ledger.offload is not None and ledger.offload.entries != ledger.entries:
                _refuse(
                    f"ledger {ledger.ledger_id} has {ledger.entries} entries, and its file {ledger.offload.entries}"
                )
        self._check_copies([ledger for ledger in self.ledgers if ledger.stored_as is not None])
        if self.compaction is not None:
            self._check_compaction(self.compaction)

    def _check_copies(self, copied: list[ListedLedger]) -> None:
        for ledger in copied:
            if ledger.is_open or not ledger.has_replicas:
                _refuse(f"ledger {ledger.ledger_id} has a copy, and is open, or lies in its file alone")
        if copied and len(self.ids | self.replicated_ids) < len(self.ledgers) + len(copied):
            _refuse("the copy of a ledger is that of another one, or one of the topic's own ledgers")

    def _check_compaction(self, compaction: Compaction) -> None:
        """The open ledger may have more entries than the list knows, and any of them may be the horizon."""
        end = self.last_confirmed
        if self.state is ListState.OPEN:
            end = max(end, Position(self.ledgers[-1].ledger_id, MAX_ID))
        if compaction.horizon > end:
            _refuse(f"it ends at {end}, before the horizon {compaction.horizon}")
        if not (self.ids | self.replicated_ids).isdisjoint(self.compacted_ids):
            _refuse("a compacted ledger is one of the topic's own, or the copy of one")

    @property
    def ids(self) -> frozenset[LedgerId]:
        """Of the ledgers that messages were written to."""
        return frozenset(ledger.ledger_id for ledger in self.ledgers)

    @property
    def compacted_ids(self) -> frozenset[LedgerId]:
        """Of the compacted ledgers."""
        compacted = () if self.compaction is None else self.compaction.ledgers
        return frozenset(ledger.ledger_id for ledger in compacted)

    @property
    def replicated_ids(self) -> frozenset[LedgerId]:
        """Of the ledgers that bookies have messages in: a copy in place of the ledger that it was made of, and none whose file is the only copy."""
        return frozenset(ledger.replicas_id for ledger in self.ledgers if ledger.has_replicas)

    @property
    def named_ids(self) -> frozenset[LedgerId]:
        """Of all ledgers that bookies have for the topic: none of them is deleted."""
        return self.replicated_ids | self.compacted_ids

    def row(self, ledger_id: LedgerId) -> ListedLedger | None:
        """What the list says of one of the topic's own ledgers; None if it has no such ledger."""
        return next((ledger for ledger in self.ledgers if ledger.ledger_id == ledger_id), None)

    @property
    def newest(self) -> LedgerId:
        """The largest id that a ledger of the topic has, or had; −1 before the first one."""
        return max([self.last_confirmed.ledger_id, *(ledger.ledger_id for ledger in self.ledgers)])

    def to_json(self) -> bytes:
        """The record as it is stored; unknown fields that were read are written back."""
        record: dict[str, Any] = {
            **self.unknown_fields,
            "formatVersion": self._format_version(),
            "state": self.state.value,
            "lastConfirmedEntry": str(self.last_confirmed),
            "ledgers": [_ledger_record(ledger) for ledger in self.ledgers],
            "lastLedgerCreatedTimestamp": self.last_ledger_created_at_ms,
            "ownerToken": self.owner_token,
        }
        if self.compaction is not None:
            record["compaction"] = compaction_record(self.compaction)
        if self.offload_job:
            record["offloadJob"] = self.offload_job
        return json.dumps(record, separators=(",", ":")).encode()

    def _format_version(self) -> int:
        """The oldest one whose readers find all entries."""
        if any(ledger.stored_as is not None for ledger in self.ledgers):
            return FORMAT_WITH_COPIES
        is_replicated = all(ledger.has_replicas for ledger in self.ledgers)
        return FORMAT_VERSION if is_replicated else FORMAT_WITHOUT_REPLICAS

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a stored record. Raises MetadataError for anything that `to_json` of a known version cannot make."""
        return read_record(
            data, "topic's list", FORMAT_WITH_COPIES, cls._from_record, oldest_version=FORMAT_VERSION
        )

    @classmethod
    def _from_record(cls, record: dict[str, Any]) -> Self:
        return cls(
            state=ListState(record.pop("state")),
            last_confirmed=Position.parse(record.pop("lastConfirmedEntry")),
            ledgers=tuple(_ledger_of(item) for item in record.pop("ledgers")),
            last_ledger_created_at_ms=check_integer(record.pop("lastLedgerCreatedTimestamp")),
            owner_token=str(record.pop("ownerToken")),
            compaction=compaction_of(record.pop("compaction", None)),
            offload_job=str(record.pop("offloadJob", "")),
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
        if why := why_illegal(was.kept, ledger.kept):
            return f"ledger {ledger.ledger_id}: {why}"
    if any(ledger.offload is not None or ledger.restored is not None for ledger in added):
        return "a ledger that is added was never offloaded"
    if old.compaction and new.compaction and new.compaction.horizon < old.compaction.horizon:
        return f"its horizon falls from {old.compaction.horizon} to {new.compaction.horizon}"
    return None


def _refuse(why: str) -> None:
    msg = f"a topic's list is not valid: {why}"
    raise MetadataError(msg)


def _ledger_record(ledger: ListedLedger) -> dict[str, Any]:
    offload = {} if ledger.offload is None else {"offload": ledger.offload.to_record()}
    follows = {} if ledger.follows is None else {"follows": str(ledger.follows)}
    restored = {} if ledger.restored is None else {"restored": ledger.restored.to_record()}
    return {
        **ledger.unknown_fields,
        **offload,
        **restored,
        **follows,
        "ledgerId": ledger.ledger_id,
        "entries": ledger.entries,
        "size": ledger.size_bytes,
        "offloaded": ledger.offload is not None,
        "underReplicated": ledger.under_replicated,
        "createdAtMs": ledger.created_at_ms,
        "closedAtMs": ledger.closed_at_ms,
        "firstPublishedAtMs": ledger.first_published_at_ms,
        "lastPublishedAtMs": ledger.last_published_at_ms,
    }


def _ledger_of(item: dict[str, Any]) -> ListedLedger:
    ledger_id = check_ledger_id(check_integer(item.pop("ledgerId")))
    offload = offload_of(item.pop("offload", None))
    if bool(item.pop("offloaded")) != (offload is not None):
        _refuse(f"ledger {ledger_id} is offloaded if it has a record of that, and only then")
    restored = restored_of(item.pop("restored", None))
    follows = item.pop("follows", None)
    return ListedLedger(
        ledger_id=ledger_id,
        entries=check_integer(item.pop("entries")),
        size_bytes=check_integer(item.pop("size")),
        offload=offload,
        restored=restored,
        under_replicated=bool(item.pop("underReplicated")),
        created_at_ms=check_integer(item.pop("createdAtMs")),
        closed_at_ms=_time(item.pop("closedAtMs")),
        first_published_at_ms=_time(item.pop("firstPublishedAtMs")),
        last_published_at_ms=_time(item.pop("lastPublishedAtMs")),
        follows=None if follows is None else Position.parse(follows),
        unknown_fields=item,
    )


def compaction_record(compaction: Compaction) -> dict[str, Any]:
    """For JSON, as the list has it."""
    return {
        **compaction.unknown_fields,
        "horizon": str(compaction.horizon),
        "ledgers": [
            {
                **ledger.unknown_fields,
                "ledgerId": ledger.ledger_id,
                "entries": ledger.entries,
                "size": ledger.size_bytes,
                "through": str(ledger.through),
            }
            for ledger in compaction.ledgers
        ],
    }


def compaction_of(item: dict[str, Any] | None) -> Compaction | None:
    """The inverse of `compaction_record`; takes the fields out. Raises MetadataError, KeyError, TypeError, ValueError, AttributeError."""
    if item is None:
        return None
    return Compaction(
        horizon=Position.parse(item.pop("horizon")),
        ledgers=tuple(
            CompactedLedger(
                ledger_id=check_ledger_id(check_integer(each.pop("ledgerId"))),
                entries=check_integer(each.pop("entries")),
                size_bytes=check_integer(each.pop("size")),
                through=Position.parse(each.pop("through")),
                unknown_fields=each,
            )
            for each in item.pop("ledgers")
        ),
        unknown_fields=item,
    )


def _time(value: object) -> int | None:
    return None if value is None else check_integer(value)
