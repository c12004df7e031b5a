"""A cluster in miniature for the tests of repair: bookies are dictionaries, metadata one record with a version.

It answers every effect at once and in order. A test changes the world between two steps through `before`, a function
that sees each effect before it is carried out and may drop it or answer in its place.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from daybook.core.effects import (
    CasMetadata,
    ClearLimbo,
    Effect,
    ReadLimbo,
    ReadMetadata,
    RepairAbandoned,
    RepairFailed,
    RepairFinished,
    SendFrame,
    SendRead,
)
from daybook.core.errors import Code
from daybook.core.events import (
    CasAnswered,
    CasOutcome,
    FrameAcked,
    FrameFailed,
    LimboCleared,
    LimboRead,
    MetadataRead,
    ReadAnswered,
    RepairEvent,
)
from daybook.core.format.frame import Entry, FrameHeader, check_body, decode_entries, decode_header
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata, LedgerState
from daybook.core.ledger.transitions import check_transition
from daybook.core.quorum import check_quorum, write_set
from daybook.core.repair.repair import LedgerRepair

LEDGER = 7


def payload(entry: EntryId) -> bytes:
    """What the writer appended as `entry`."""
    return b"entry %d " % entry * (1 + entry % 5)


def closed_ledger(
    e: int, qw: int, qa: int, fragments: Iterable[tuple[EntryId, str]], last: EntryId
) -> LedgerMetadata:
    """A CLOSED ledger; a fragment is (first entry, one letter for each bookie)."""
    return LedgerMetadata(
        LEDGER,
        check_quorum(e, qw, qa),
        tuple(Fragment(first, length_until(first), tuple(names)) for first, names in fragments),
        state=LedgerState.CLOSED,
        last_entry=last,
        length=length_until(last + 1),
    )


def open_ledger(e: int, qw: int, qa: int, fragments: Iterable[tuple[EntryId, str]]) -> LedgerMetadata:
    """An OPEN ledger."""
    return LedgerMetadata(
        LEDGER,
        check_quorum(e, qw, qa),
        tuple(Fragment(first, length_until(first), tuple(names)) for first, names in fragments),
    )


def length_until(entry: EntryId) -> int:
    """The payload bytes of the entries before `entry`."""
    return sum(len(payload(n)) for n in range(entry))


@dataclass
class Bookie:
    """What one bookie has of the ledger."""

    entries: dict[EntryId, bytes] = field(default_factory=dict)
    damaged: set[EntryId] = field(default_factory=set)
    limbo: str | None = None
    boot: str = "boot-1"
    refuses: Code | None = None
    headers: list[FrameHeader] = field(default_factory=list)
    asked: list[SendRead] = field(default_factory=list)

    def wipe(self, *, named: bool, nonce: str) -> None:
        """Lose the disk and come back; limbo only if metadata names the bookie (rule 29)."""
        self.entries.clear()
        self.boot += "+"
        self.limbo = nonce if named else None


class Cluster:
    """The world of one ledger. `before(effect)` returns None to carry it out, or the events to answer instead."""

    def __init__(self, metadata: LedgerMetadata, extra: str = "") -> None:
        """Every named bookie has everything it owes; `extra` ones are empty."""
        self.metadata: LedgerMetadata | None = metadata
        self.version = 3
        self.bookies = {name: Bookie() for name in sorted(metadata.bookies() | set(extra))}
        self.before: Callable[[Effect], list[RepairEvent] | None] = lambda effect: None
        self.log: list[Effect] = []
        for index, fragment in enumerate(metadata.fragments):
            end = metadata.fragment_end(index)
            for entry in range(fragment.first_entry, 20 if end is None else end + 1):
                for position in write_set(metadata.quorum, entry):
                    self.bookies[fragment.bookies[position]].entries[entry] = payload(entry)

    def run(self, repair: LedgerRepair, *, steps_max: int = 2000) -> Effect:
        """Drive `repair` to its verdict."""
        todo = deque(repair.start())
        for _ in range(steps_max):
            effect = todo.popleft()
            self.log.append(effect)
            if isinstance(effect, RepairFinished | RepairFailed | RepairAbandoned):
                assert not todo
                assert repair.is_done
                return effect
            answers = self.before(effect)
            for event in self.perform(effect) if answers is None else answers:
                todo.extend(repair.step(event))
            assert todo, f"nothing goes on after {effect}"
        raise AssertionError("no verdict")

    def perform(self, effect: Effect) -> list[RepairEvent]:
        """Carry `effect` out."""
        match effect:
            case SendRead():
                return [self._read(effect)]
            case SendFrame():
                return [self._write(effect)]
            case ReadLimbo(name, number):
                bookie = self.bookies[name]
                return [LimboRead(name, number, bookie.refuses or Code.OK, bookie.limbo, bookie.boot)]
            case ClearLimbo(name, number, nonce):
                stands = self.bookies[name].limbo == nonce
                if stands:
                    self.bookies[name].limbo = None
                return [LimboCleared(name, number, Code.OK, stands)]
            case ReadMetadata(number):
                return [MetadataRead(number, self.metadata, self.version)]
            case CasMetadata(number, changed, expected):
                return [self._cas(number, changed, expected)]
        raise AssertionError(effect)

    def change(self, metadata: LedgerMetadata | None) -> None:
        """Someone else changes the metadata."""
        self.metadata = metadata
        self.version += 1

    def _cas(self, number: int, changed: LedgerMetadata, expected: int) -> RepairEvent:
        if self.metadata is None or expected != self.version:
            return CasAnswered(number, CasOutcome.CONFLICT)
        check_transition(self.metadata, changed)
        self.change(changed)
        return CasAnswered(number, CasOutcome.DONE, self.version)

    def _read(self, read: SendRead) -> RepairEvent:
        bookie = self.bookies[read.bookie]
        bookie.asked.append(read)
        if bookie.refuses is not None:
            return ReadAnswered(read.bookie, read.request_id, bookie.refuses)
        found: list[Entry] = []
        size = 0
        damaged: list[EntryId] = []
        through = read.last
        for entry in sorted(n for n in bookie.entries if read.first <= n <= read.last):
            if found and size + len(bookie.entries[entry]) > read.bytes_max:
                through = entry - 1
                break
            if entry in bookie.damaged:
                damaged.append(entry)
                continue
            found.append(Entry(entry, bookie.entries[entry]))
            size += len(bookie.entries[entry])
        return ReadAnswered(
            read.bookie,
            read.request_id,
            Code.OK,
            tuple(found),
            tuple(damaged),
            through,
            limbo=bookie.limbo is not None,
        )

    def _write(self, sent: SendFrame) -> RepairEvent:
        bookie = self.bookies[sent.bookie]
        if bookie.refuses is not None:
            return FrameFailed(sent.bookie, sent.send_id, bookie.refuses)
        header = decode_header(sent.frame)
        check_body(sent.frame, header)
        if not header.is_recovery:
            return FrameFailed(sent.bookie, sent.send_id, Code.FENCED)
        entries, bad = decode_entries(sent.frame, header)
        assert not bad
        bookie.headers.append(header)
        bookie.entries.update((entry.entry_id, entry.data) for entry in entries)
        return FrameAcked(sent.bookie, sent.send_id, bookie.boot)

    # What must be true in the end.

    def owed(self, name: BookieId) -> dict[EntryId, bytes]:
        """What metadata says `name` has."""
        assert self.metadata is not None
        return {
            entry: payload(entry)
            for first, last, stripe in self.metadata.stripes_of(name)
            if last is not None
            for entry in range(first, last + 1)
            if stripe.holds(entry)
        }

    def lacks(self, name: BookieId) -> set[EntryId]:
        """The entries that `name` owes and has not, or has with other bytes."""
        has = self.bookies[name].entries
        return {entry for entry, data in self.owed(name).items() if has.get(entry) != data}
