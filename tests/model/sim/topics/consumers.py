"""What consumers of a subscription do on one owner: they get entries in order, acknowledge some in any order, and go back now and then.

Each entry is a batch of several messages, so that a part of one may be acknowledged. Everything is acknowledged in the end.
"""

from typing import TYPE_CHECKING, Final

from daybook.core.topics.ledger_list import NO_POSITION, Position
from tests.model.sim.topics.drivers import state_of

if TYPE_CHECKING:
    from tests.model.sim.topics.drivers import WatchedCursor
    from tests.model.sim.topics.owner import TopicOwner

_BATCH: Final = 3
"""Messages of an entry."""
_RUN_MAX: Final = 4
_FLUSH: Final = 0.1


class Consumer:
    """All consumers of one subscription, as one."""

    def __init__(self, owner: "TopicOwner", cursor: "WatchedCursor") -> None:
        self._owner = owner
        self._cursor = cursor
        self._rng = owner.world.rng(f"{owner.name}/{cursor.subscription}")
        self._at = NO_POSITION
        """Where it gets the next entry."""
        self._pending: list[Position] = []
        """What it has got and not acknowledged."""
        self.is_eager = False
        """It takes and acknowledges everything, and goes back no more."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left for it."""
        return not self._cursor.acks.unacked_entries()

    def step(self) -> None:
        """Something of all that."""
        rng = self._rng
        if not self.is_eager and rng.random() < self._owner.swarm.seek:
            self._seek()
        elif rng.random() < 0.1:
            self._at = NO_POSITION  # what is not acknowledged is delivered again
            self._pending.clear()
        self._receive()
        if self.is_eager:
            self._acknowledge_all()
        elif self._pending and rng.random() < 0.7:
            self._acknowledge()
        if rng.random() < _FLUSH:
            self._owner.begin_flush(self._cursor)

    def _receive(self) -> None:
        acks = self._cursor.acks
        run = acks.run(self._at, self._rng.randrange(1, _RUN_MAX))
        if run is None:
            return
        ledger_id, first, last = run
        positions = [Position(ledger_id, entry_id) for entry_id in range(first, last + 1)]
        assert not any(map(acks.is_acked, positions)), "only what is not acknowledged is delivered"
        self._cursor.oracle.delivered.update(positions)
        self._pending += positions
        self._at = Position(ledger_id, last + 1)

    def _acknowledge_all(self) -> None:
        for position in self._pending:
            self._cursor.acks.ack(position)
            self._changed()
        self._pending.clear()

    def _acknowledge(self) -> None:
        acks, rng = self._cursor.acks, self._rng
        index = rng.randrange(len(self._pending))
        position = self._pending[index]
        way = rng.random()
        if way < 0.5:
            acks.ack(position)
        elif way < 0.7:
            acks.ack_batch(position, (rng.randrange(1 << _BATCH),), _BATCH)
        elif all(acks.is_acked(each) or each in self._pending for each in self._before(position)):
            acks.ack_through(position)
        self._changed()
        self._pending = [each for each in self._pending if not acks.is_acked(each)]

    def _before(self, position: Position) -> list[Position]:
        """What is not acknowledged and comes before it: all of that has to have been delivered here."""
        acks, found, at = self._cursor.acks, [], NO_POSITION
        while (run := acks.run(at, 1)) is not None and Position(run[0], run[1]) < position:
            found.append(Position(run[0], run[1]))
            at = Position(run[0], run[2] + 1)
        return found

    def _seek(self) -> None:
        extent = self._owner.extent
        back = extent.nth_after(NO_POSITION, self._rng.randrange(1 + extent.count(NO_POSITION)))
        if back <= self._cursor.acks.mark_delete:
            self._cursor.acks.reset(back)
            self._at = NO_POSITION
            self._pending.clear()
            self._changed(is_reset=True)

    def _changed(self, *, is_reset: bool = False) -> None:
        acks = self._cursor.acks
        state = state_of(acks, self._owner.extent)
        self._cursor.oracle.changed(self._owner.name, acks.version, state, is_reset=is_reset)
