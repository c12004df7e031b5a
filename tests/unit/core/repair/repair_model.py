"""A cluster in miniature for the tests of repair: bookies in memory, metadata one record with a version.

It answers every effect at once and in order. A test changes the world between two steps through `before`, a function
that sees each effect before it is carried out and may drop it or answer in its place.
"""

from collections import deque
from collections.abc import Callable, Iterable

from daybook.core.effects import (
    Effect,
    RepairAbandoned,
    RepairFailed,
    RepairFinished,
    SendFrame,
    SendRead,
)
from daybook.core.events import (
    RepairEvent,
)
from daybook.core.format.frame import FrameHeader, decode_header
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata, LedgerState
from daybook.core.quorum import check_quorum, write_set
from daybook.core.repair.repair import LedgerRepair
from tests.unit.core.one_ledger import LEDGER, LedgerBookie, OneLedger


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


class Cluster(OneLedger[LedgerBookie]):
    """The world of one ledger. `before(effect)` returns None to carry it out, or the events to answer instead."""

    def __init__(self, metadata: LedgerMetadata, extra: str = "") -> None:
        """Every named bookie has everything it owes; `extra` ones are empty."""
        super().__init__(
            metadata, {name: LedgerBookie(name) for name in sorted(metadata.bookies() | set(extra))}
        )
        self.version = 3
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

    def lose(self, name: BookieId, *entries: EntryId) -> IntervalSet:
        """`name` has these entries no more; what was lost."""
        lost = IntervalSet()
        lost.add_ids(entries)
        for entry in entries:
            del self.bookies[name].entries[entry]
        return lost

    def reads(self, name: BookieId) -> list[SendRead]:
        """What `name` was asked for."""
        return [effect for effect in self.log if isinstance(effect, SendRead) and effect.bookie == name]

    def headers(self, name: BookieId) -> list[FrameHeader]:
        """The headers of the frames that `name` was sent."""
        frames = [
            effect.frame for effect in self.log if isinstance(effect, SendFrame) and effect.bookie == name
        ]
        return [decode_header(frame) for frame in frames]

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
