"""What is known of one subscription by someone who sees everything, and the checks of rule 40.

Each owner that opens the cursor begins with a state, and each acknowledgement makes another one. What it was told is durable is at
least what the next owner finds, and the next owner finds a state that its predecessor had: so nothing is acknowledged that was not,
and nothing is delivered again that was persisted.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from daybook.core.errors import DaybookError, MetadataError, NoSuchLedgerError
from daybook.core.ids import LedgerId
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import NO_POSITION, Position
from tests.model.sim.trace import Tally

_RUN: int = 1000


@dataclass(slots=True)
class Opening:
    """The cursor as one owner has had it."""

    owner: str
    epoch: int
    """How many owners the topic had before."""
    counts: bool
    """Whether its owner still had the topic: what another one opens, it never persists."""
    states: list[CursorRecord]
    """What was found, and what became of it."""
    versions: dict[int, int] = field(default_factory=dict)
    """The places of the states, by the versions of the acknowledgements."""
    claimed: int = 0
    """The place of the newest state that the owner knows to be durable."""
    resets: list[int] = field(default_factory=list)
    """The places of the states that seeks have made."""
    floor: Position = NO_POSITION
    """The smallest mark-delete position that the next owner may find."""
    is_lost: bool = False
    """Whether it found the ledger unreadable, and took the older record of the node."""
    before: "Opening | None" = None
    found_at: int = -1
    """The place among the states of the opening `before`, if a record of that was found."""

    @property
    def lasting(self) -> list[CursorRecord]:
        """What the next owner may find: also what this one could not read, until it persists something."""
        earlier = self.before.lasting if self.is_lost and not self.claimed and self.before is not None else []
        return self.states[self.claimed :] + earlier

    @property
    def since_reset(self) -> int | None:
        """The place of the last seek that is durable."""
        return max((at for at in self.resets if at <= self.claimed), default=None)


@dataclass(slots=True)
class CursorOracle:
    """One subscription of one topic."""

    name: str
    fail: Callable[[str, str], None]
    tally: Tally
    first: CursorRecord
    """As it was created."""
    node: CursorRecord
    """As it is in ZooKeeper."""
    openings: list[Opening] = field(default_factory=list)
    delivered: set[Position] = field(default_factory=set)
    """What some consumer got."""
    skipped: set[Position] = field(default_factory=set)
    """What was published before it was created."""

    def floor_of(self, owner: str) -> Position:
        """What the trimming of this owner may rely on."""
        found = self._by(owner)
        return NO_POSITION if found is None else found.floor

    def _by(self, owner: str) -> Opening | None:
        return next((each for each in reversed(self.openings) if each.owner == owner), None)

    # What an owner does with it

    def record_lost(self, owner: str, ledger_id: LedgerId, error: DaybookError) -> None:
        """The owner of the topic takes the node's older record: only where the ledger cannot be read."""
        if isinstance(error, MetadataError | NoSuchLedgerError):
            what = f"{owner} finds no record of {self.name} in ledger {ledger_id}: {error} (rule 40)"
            self.fail("the ledger that a cursor names has its record", what)

    def opened(
        self,
        owner: str,
        epoch: int,
        found: CursorRecord,
        extent: TopicExtent,
        *,
        is_owner: bool,
        is_lost: bool,
    ) -> None:
        """The owner has read it."""
        before = max(
            (each for each in self.openings if each.counts and each.epoch < epoch),
            key=lambda each: each.epoch,
            default=None,
        )
        opening = Opening(owner, epoch, is_owner, [found], {0: 0}, before=before)
        opening.floor, opening.is_lost = found.mark_delete, is_lost
        self.openings.append(opening)
        if not is_owner:
            return
        entries = list(entries_of(extent))
        view = _view(found, entries)
        allowed = self._older(before) if is_lost else [self.first] if before is None else before.lasting
        if all(_view(state, entries) != view for state in allowed):
            what = f"{owner} finds {_text(found)} of {self.name}, not one of {list(map(_text, allowed))}"
            self.fail("the next owner finds what was acknowledged and persisted", f"{what} (rule 40)")
        if before is not None and not is_lost:
            places = [at for at, state in enumerate(before.states) if _view(state, entries) == view]
            opening.found_at = max(places, default=-1)
            if 0 <= opening.found_at < len(before.states) - 1:
                self.tally.state("delivered again")

    def _older(self, last: Opening | None) -> list[CursorRecord]:
        """Every state since the last seek that is durable: an older record in the node may have any of them."""
        found: list[CursorRecord] = []
        while last is not None:
            since = last.since_reset
            found += last.states[since or 0 :]
            if since is not None:
                return found
            last = last.before
        return [*found, self.first]

    def changed(self, owner: str, version: int, state: CursorRecord, *, is_reset: bool) -> None:
        """Something was acknowledged, or a consumer went back."""
        opening = self._by(owner)
        assert opening is not None
        if is_reset:
            opening.resets.append(len(opening.states))
        opening.versions[version] = len(opening.states)
        opening.states.append(state)

    def sent(self, owner: str, record: CursorRecord) -> None:
        """A record leaves for the ledger or the node: from now on the next owner may find it."""
        if (opening := self._by(owner)) is not None:
            opening.floor = min(opening.floor, record.mark_delete)

    def persisted(self, owner: str, version: int) -> None:
        """The owner learns that the state of this version is durable."""
        opening = self._by(owner)
        assert opening is not None
        claimed = opening.versions[version]
        assert claimed >= opening.claimed
        opening.claimed = claimed
        opening.floor = opening.states[claimed].mark_delete
        for later in self.openings:
            if later.before is opening and later.counts and 0 <= later.found_at < claimed:
                what = (
                    f"{owner} takes {_text(opening.states[claimed])} of {self.name} for durable, and {later.owner} has"
                    f" found {_text(later.states[0])} (rule 40)"
                )
                self.fail("what is persisted is found", what)


def entries_of(extent: TopicExtent) -> Iterator[Position]:
    """All that exist."""
    run = extent.run(extent.first, _RUN)
    while run is not None:
        ledger_id, first, last = run
        yield from (Position(ledger_id, entry_id) for entry_id in range(first, last + 1))
        run = extent.run(Position(ledger_id, last + 1), _RUN)


def _view(record: CursorRecord, entries: list[Position]) -> tuple[object, ...]:
    """What a record says of the entries that exist: which are acknowledged, and what of which batch is left."""
    acked = {
        Position(each.ledger_id, entry_id)
        for each in record.ranges
        for entry_id in range(each.first_entry, each.last_entry + 1)
    }
    left = dict(record.batches)
    return tuple(
        () if position <= record.mark_delete or position in acked else left.get(position, (-1,))
        for position in entries
    )


def _text(record: CursorRecord) -> str:
    ranges = " ".join(f"{each.first}-{each.last_entry}" for each in record.ranges)
    batches = " ".join(f"{position}/{words}" for position, words in record.batches)
    return f"<{record.mark_delete} {ranges} {batches}>"
