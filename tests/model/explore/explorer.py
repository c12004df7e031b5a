"""Counts the worlds out, breadth first, and holds each to the invariants; a violation comes with its shortest story.

The invariants are those of the published TLA+ model of BookKeeper, under its names, and two of our own about the LAC
and about who may believe what of a close.
"""

import gc
from collections import Counter, deque
from dataclasses import dataclass, field

from daybook.core.errors import MetadataError
from daybook.core.ids import EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.quorum import write_set
from tests.model.explore.parts import FAILED, WRITER, Action, Bounds, InvariantError, World, payload
from tests.model.explore.world import Universe


@dataclass
class Report:
    """What an exploration saw."""

    bounds: Bounds
    worlds: int = 0
    steps: int = 0
    is_complete: bool = True
    """Whether every world was seen; not when `worlds_max` stopped it."""
    reached: Counter[str] = field(default_factory=Counter)
    """How many worlds were in which noteworthy condition."""

    def __str__(self) -> str:
        bounds = self.bounds
        reached = ", ".join(f"{name} {count}" for name, count in sorted(self.reached.items()))
        return (
            f"E{bounds.ensemble}/Qw{bounds.write}/Qa{bounds.ack} +{bounds.spares}, {bounds.entries} entries, "
            f"{bounds.recoverers} recoverers, {bounds.timeouts} time-outs, {bounds.wipes} wipes, {bounds.repairs} repairs, "
            f"{bounds.unknown_outcomes} unknown outcomes: {self.worlds} worlds, {self.steps} steps"
            f"{'' if self.is_complete else ' (stopped at the limit)'}; {reached}"
        )


class Found(Exception):  # noqa: N818 - a finding, and a test that expects one reads better so
    """An invariant does not hold in a world that can be reached; the message says how."""


def explore(bounds: Bounds, *, worlds_max: int = 10**9) -> Report:
    """See every world within `bounds`. Raises Found with the shortest way to a world that breaks an invariant.

    The collector of cycles is off meanwhile: worlds make none, and it would look through all of them again and again.
    """
    gc.disable()
    try:
        return _explore(bounds, worlds_max)
    finally:
        gc.enable()


def _explore(bounds: Bounds, worlds_max: int) -> Report:
    universe = Universe(bounds)
    invariants = Invariants(universe)
    report = Report(bounds)
    first = universe.first_world()
    came_from: dict[World, tuple[World, Action] | None] = {first: None}
    frontier = deque([first])
    while frontier:
        world = frontier.popleft()
        for action in universe.actions(world):
            report.steps += 1
            try:
                after = universe.after(world, action)
                if after in came_from:
                    continue
                invariants.check(after)
            except (AssertionError, MetadataError) as error:
                story = _story(universe, came_from, world, action)
                msg = f"{error}\n{story}"
                raise Found(msg) from error
            came_from[after] = (world, action)
            frontier.append(after)
            report.reached.update(invariants.conditions(after))
        if len(came_from) >= worlds_max:
            report.is_complete = False
            break
    report.worlds = len(came_from)
    return report


def _story(
    universe: Universe,
    came_from: dict[World, tuple[World, Action] | None],
    world: World,
    action: Action,
) -> str:
    """The actions that led to `world`, and then `action`, one a line."""
    actions = [action]
    before = came_from[world]
    while before is not None:
        actions.append(before[1])
        before = came_from[before[0]]
    return "\n".join(universe.describe(step) for step in reversed(actions))


class Invariants:
    """What must hold in every world; answers are remembered by what they depend on."""

    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self._sound: set[tuple[object, ...]] = set()

    def check(self, world: World) -> None:
        """Raise InvariantError if one does not hold."""
        metadata = self.universe.meta_of(world.metadata)
        self._check_ends(world, metadata)
        key = (world.acked, world.metadata, world.bookies, world.wiped)
        if key in self._sound:
            return
        self._check_acked(world, metadata)
        self._check_stored(world)
        if metadata.is_closed:
            self._check_closed(world, metadata)
        self._sound.add(key)

    def conditions(self, world: World) -> list[str]:
        """The noteworthy conditions that the world is in."""
        metadata = self.universe.meta_of(world.metadata)
        found = []
        if metadata.is_closed:
            found.append(f"closed at {metadata.last_entry}")
            if world.acked < metadata.last_entry:
                found.append("closed beyond what was acknowledged")
        if len(metadata.fragments) > 1 or metadata.fragments[0].bookies != self._first_ensemble():
            found.append("ensemble changed")
        if world.ends[WRITER] == FAILED:
            found.append("writer ended")
        for position in () if metadata.is_closed else world.wiped:
            bookie = self.universe.bookie_of(world.bookies[position])
            if bookie.name in metadata.bookies() and not bookie.ledger.in_limbo:
                found.append("limbo ended before the close")
                if bookie.name in metadata.last_fragment.bookies:
                    found.append("written to again after limbo")
        if any(end == FAILED for end in world.ends[1:]):
            found.append("recovery gave up")
        if sum(end is not None and end != FAILED for end in world.ends[1:]) > 1:
            found.append("two recoveries returned")
        return found

    def _first_ensemble(self) -> tuple[str, ...]:
        return tuple(self.universe.names[: self.universe.bounds.ensemble])

    def _holders(self, world: World, metadata: LedgerMetadata, entry_id: EntryId) -> int:
        """How many of the bookies that metadata names for an entry have it."""
        names = metadata.fragment_of(entry_id).bookies
        bookies = [
            self.universe.bookie_of(world.bookies[self.universe.names.index(names[position])])
            for position in write_set(metadata.quorum, entry_id)
        ]
        return sum(entry_id in bookie.entries for bookie in bookies)

    def _check_acked(self, world: World, metadata: LedgerMetadata) -> None:
        """AllAckedEntriesAreReadable."""
        needed = max(1, metadata.quorum.ack_quorum - len(world.wiped))
        for entry_id in range(world.acked + 1):
            if metadata.is_closed and entry_id > metadata.last_entry:
                msg = f"AllAckedEntriesAreReadable: {entry_id} was acknowledged, closed at {metadata.last_entry}"
                raise InvariantError(msg)
            holders = self._holders(world, metadata, entry_id)
            if len(world.wiped) < metadata.quorum.ack_quorum and holders < needed:
                msg = f"AllAckedEntriesAreReadable: {entry_id} was acknowledged, {holders} bookies have it"
                raise InvariantError(msg)

    def _check_stored(self, world: World) -> None:
        """NoOutOfOrderEntries: every bookie stores, under an id, what the writer gave that id."""
        for number in world.bookies:
            bookie = self.universe.bookie_of(number)
            for entry_id, data in bookie.entries.items():
                if data != payload(entry_id):
                    msg = f"NoOutOfOrderEntries: {bookie.name} has {data!r} as entry {entry_id}"
                    raise InvariantError(msg)

    def _check_closed(self, world: World, metadata: LedgerMetadata) -> None:
        """AllCommittedEntriesReachAckQuorum; and no bookie reports a LAC beyond the close (rule 12)."""
        needed = metadata.quorum.ack_quorum - len(world.wiped)
        for entry_id in range(metadata.last_entry + 1):
            holders = self._holders(world, metadata, entry_id)
            if holders < needed:
                msg = f"AllCommittedEntriesReachAckQuorum: {entry_id} is on {holders}, closed at {metadata.last_entry}"
                raise InvariantError(msg)
        if metadata.length != sum(len(payload(i)) for i in range(metadata.last_entry + 1)):
            msg = f"the length {metadata.length} is not that of entries up to {metadata.last_entry} (rule 44)"
            raise InvariantError(msg)
        for number in world.bookies:
            lac = self.universe.bookie_of(number).ledger.last_add_confirmed().last_add_confirmed
            if lac > metadata.last_entry:
                msg = f"a bookie reports LAC {lac}, closed at {metadata.last_entry} (rule 12)"
                raise InvariantError(msg)

    def _check_ends(self, world: World, metadata: LedgerMetadata) -> None:
        """NoDivergenceBetweenClientAndMetaData."""
        for client, end in enumerate(world.ends):
            if end is not None and end != FAILED:
                believed = self.universe.meta_of(end)
                same_end = (believed.last_entry, believed.length) == (metadata.last_entry, metadata.length)
                if not metadata.is_closed or not same_end:
                    msg = f"NoDivergenceBetweenClientAndMetaData: client {client} believes {believed.last_entry}"
                    raise InvariantError(msg)
