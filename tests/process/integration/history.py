"""A history of what writers submitted, what was acknowledged and what readers saw, and a judge of it.

The judge knows no protocol, only the promise: what was acknowledged is never lost, reordered or changed, and no reader
sees what may still be lost. A ledger has one writer, whose entries get their ids in the order they are submitted; so a
ledger that is closed must be exactly a beginning of what was submitted to it, at least as long as what was
acknowledged. What was submitted and not acknowledged may be there or not (rule 13), but never with a hole before it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple, TypeAlias

Seen: TypeAlias = tuple[int, bytes]
"""An entry as a reader got it: its id and its payload."""


class Kind(Enum):
    """How a promise was broken."""

    LOST = "acknowledged, and not there"
    CHANGED = "not what was submitted, or not what another reader saw"
    REORDERED = "not in the order in which it was submitted"
    DUPLICATE = "there more than once"
    PHANTOM = "never submitted, or seen and then cut off by the close"
    UNREAD = "never read back: nothing is known of it"


class Violation(NamedTuple):
    """One broken promise; `entry_id` is −1 where it concerns the ledger as a whole."""

    kind: Kind
    ledger_id: int
    entry_id: int
    detail: str


Found: TypeAlias = Iterator[tuple[Kind, int, str]]
"""Violations of a ledger: kind, entry, detail."""


@dataclass(slots=True)
class Close:
    """A ledger as somebody found it closed: its last entry and length by metadata, and all that was read."""

    last_entry: int
    length: int
    entries: list[Seen]


@dataclass(slots=True)
class LedgerHistory:
    """What is known of one ledger."""

    submitted: list[bytes] = field(default_factory=list)
    acknowledged: list[tuple[int, int]] = field(default_factory=list)
    """(first, last) in the order in which the acknowledgements came."""
    reads: dict[str, list[Seen]] = field(default_factory=dict)
    """What each reader saw, in the order in which it saw it."""
    closes: list[Close] = field(default_factory=list)

    def judge(self) -> Found:
        """Everything that is wrong."""
        yield from self._judge_acknowledgements()
        if not self.closes:
            yield Kind.UNREAD, -1, f"{len(self.submitted)} entries submitted, the closed ledger was not read"
        for close in self.closes:
            yield from self._judge_close(close)
        for reader, seen in sorted(self.reads.items()):
            yield from _judge_order(reader, seen)
            yield from self._judge_reader(reader, seen)

    def _judge_acknowledgements(self) -> Found:
        """In order, without a hole (rule 14)."""
        following = 0
        for first, last in self.acknowledged:
            if first != following:
                yield Kind.REORDERED, first, f"acknowledged when entry {following} was to be next"
            if last >= len(self.submitted):
                yield Kind.PHANTOM, last, f"acknowledged, and only {len(self.submitted)} were submitted"
            following = max(following, last + 1)

    def _judge_close(self, close: Close) -> Found:
        yield from _judge_order("the read of the closed ledger", close.entries)
        if close.last_entry != self.closes[0].last_entry:
            yield Kind.CHANGED, close.last_entry, f"closed before at {self.closes[0].last_entry}"
        length = sum(len(payload) for _, payload in close.entries)
        if length != close.length:
            yield Kind.CHANGED, -1, f"{length} bytes are there, the metadata says {close.length}"
        places = {payload: place for place, payload in enumerate(self.submitted)}
        seen_at: dict[bytes, int] = {}
        for entry_id, payload in close.entries:
            yield from self._judge_entry(entry_id, payload, places, seen_at)
            seen_at.setdefault(payload, entry_id)
        there = {entry_id for entry_id, _ in close.entries}
        for first, last in self.acknowledged:
            for entry_id in range(first, last + 1):
                if entry_id not in there:
                    yield Kind.LOST, entry_id, f"the ledger ends at {close.last_entry}"
        for entry_id in range(close.last_entry + 1):
            if entry_id not in there and not self._is_acknowledged(entry_id):
                yield Kind.LOST, entry_id, f"before the end of the ledger ({close.last_entry}), and not there"

    def _is_acknowledged(self, entry_id: int) -> bool:
        return any(first <= entry_id <= last for first, last in self.acknowledged)

    def _judge_entry(
        self, entry_id: int, payload: bytes, places: dict[bytes, int], seen_at: dict[bytes, int]
    ) -> Found:
        if entry_id < len(self.submitted) and self.submitted[entry_id] == payload:
            return
        if payload in seen_at:
            yield Kind.DUPLICATE, entry_id, f"is what entry {seen_at[payload]} is"
        elif payload in places:
            yield Kind.REORDERED, entry_id, f"was submitted as entry {places[payload]}"
        elif entry_id < len(self.submitted):
            yield Kind.CHANGED, entry_id, f"{payload[:40]!r} instead of {self.submitted[entry_id][:40]!r}"
        else:
            yield Kind.PHANTOM, entry_id, f"{payload[:40]!r} was never submitted"

    def _judge_reader(self, reader: str, seen: list[Seen]) -> Found:
        """What a reader saw as confirmed must be in the closed ledger, and the same."""
        if not self.closes:
            return
        final = dict(self.closes[0].entries)
        for entry_id, payload in seen:
            if entry_id not in final:
                yield Kind.PHANTOM, entry_id, f"{reader} saw it, and the closed ledger does not have it"
            elif final[entry_id] != payload:
                yield Kind.CHANGED, entry_id, f"{reader} saw {payload[:40]!r} before"


def _judge_order(reader: str, seen: list[Seen]) -> Found:
    """A reader gets entries one after the other."""
    for (before, _), (entry_id, _) in pairwise(seen):
        if entry_id == before:
            yield Kind.DUPLICATE, entry_id, f"{reader} got it twice"
        elif entry_id < before:
            yield Kind.REORDERED, entry_id, f"{reader} got it after entry {before}"
        elif entry_id > before + 1:
            yield Kind.LOST, before + 1, f"{reader} got entry {entry_id} after entry {before}"


class History:
    """Collects what happens; `judge` says what is wrong with it. Payloads must be unique in all of it."""

    def __init__(self) -> None:
        """Nothing happened yet."""
        self.ledgers: dict[int, LedgerHistory] = {}

    def created(self, ledger_id: int) -> None:
        """A ledger was created for a writer of this history."""
        assert ledger_id not in self.ledgers, f"ledger {ledger_id} was created twice"
        self.ledgers[ledger_id] = LedgerHistory()

    def submitted(self, ledger_id: int, payloads: Sequence[bytes]) -> None:
        """They are about to be handed to the writer: from now on they may be there."""
        self.ledgers[ledger_id].submitted.extend(payloads)

    def acknowledged(self, ledger_id: int, first: int, last: int) -> None:
        """The entries first … last of the ledger were acknowledged: from now on they must be there."""
        self.ledgers[ledger_id].acknowledged.append((first, last))

    def read(self, reader: str, ledger_id: int, entry_id: int, payload: bytes) -> None:
        """`reader` was given an entry as confirmed. A reader reads a ledger once; give each read its own name."""
        self.ledgers[ledger_id].reads.setdefault(reader, []).append((entry_id, payload))

    def closed(self, ledger_id: int, last_entry: int, length: int, entries: Sequence[Seen]) -> None:
        """The ledger was found closed at `last_entry`, with `length` bytes, and read as `entries`."""
        self.ledgers[ledger_id].closes.append(Close(last_entry, length, list(entries)))

    @property
    def acknowledged_entries(self) -> int:
        """How many entries were acknowledged in all."""
        spans = [span for ledger in self.ledgers.values() for span in ledger.acknowledged]
        return sum(last - first + 1 for first, last in spans)

    def judge(self) -> list[Violation]:
        """Everything that is wrong, by ledger."""
        found = [
            Violation(kind, ledger_id, entry_id, detail)
            for ledger_id, ledger in sorted(self.ledgers.items())
            for kind, entry_id, detail in ledger.judge()
        ]
        return found + list(self._judge_homes())

    def _judge_homes(self) -> Iterator[Violation]:
        """No payload is in two ledgers."""
        homes: dict[bytes, int] = {}
        for ledger_id, ledger in sorted(self.ledgers.items()):
            for payload in {payload for close in ledger.closes for _, payload in close.entries}:
                home = homes.setdefault(payload, ledger_id)
                if home != ledger_id:
                    yield Violation(
                        Kind.DUPLICATE, ledger_id, -1, f"{payload[:40]!r} is in ledger {home}, too"
                    )
