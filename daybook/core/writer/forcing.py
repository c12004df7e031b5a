"""Deferred sync: what only a force acknowledges (rule 22).

With deferred sync, bookies answer appends before they are durable, so the LAC stays where the last force put it. A force covers
everything appended before it: once every bookie of the ensemble has accepted its share, the writer asks each of them to
sync, and all must answer. A bookie that restarted since the first unforced append may have lost what it accepted; its
answers carry another boot id then, and the force fails.

Without deferred sync every acknowledged entry is durable already, and a force is answered when what was appended before
it is acknowledged.
"""

from collections import deque

from daybook.core.effects import Fail, Forced, SendForce
from daybook.core.errors import DaybookError
from daybook.core.events import ForceAnswered
from daybook.core.ids import BookieId, EntryId
from daybook.core.writer.state import WriterState
from daybook.core.writer.window import BatchWindow


class PendingForce:
    """A force without an answer."""

    __slots__ = ("length", "owing", "point", "target", "token")

    def __init__(self, token: int, target: EntryId) -> None:
        self.token = token
        self.target = target
        """The last entry that was appended when the user asked for it, and that was not rolled back since (rule 21)."""
        self.point: EntryId | None = None
        """What it will confirm: the end of the batch that completed `target`; None before that."""
        self.length = 0
        self.owing: dict[BookieId, int] = {}
        """The request that each bookie still owes an answer to."""


class Forcing:
    """The forces under way, in order, and the boot ids of the bookies that accepted what is unforced."""

    __slots__ = ("_boots", "_state", "_window", "active", "waiting")

    def __init__(self, state: WriterState, window: BatchWindow) -> None:
        self._state = state
        self._window = window
        self.waiting: deque[PendingForce] = deque()
        self.active: PendingForce | None = None
        """The force that bookies were asked for."""
        self._boots: dict[BookieId, str] = {}

    def __bool__(self) -> bool:
        """Whether some force has no answer."""
        return self.active is not None or bool(self.waiting)

    def request(self, token: int, last_pushed: EntryId) -> None:
        """The user asks for a force of everything up to `last_pushed`."""
        self.waiting.append(PendingForce(token, last_pushed))
        self.completed()

    def completed(self) -> None:
        """More entries are complete: the forces that waited for them know what they will confirm."""
        state = self._state
        for force in self.waiting:
            if force.point is None and force.target <= state.completed:
                force.point, force.length = state.completed, state.completed_length

    def rolled_back(self, first: EntryId) -> None:
        """The appends from `first` on failed and their ids are free again (rule 21): no force waits for them any more."""
        for force in self.waiting:
            force.target = min(force.target, first - 1)
        self.completed()

    def advance(self) -> None:
        """Answer the forces that are done; ask every bookie for the next one when all have accepted its entries."""
        waiting, state = self.waiting, self._state
        while waiting and self.active is None:
            force = waiting[0]
            if force.target <= state.last_add_confirmed:
                waiting.popleft()
                state.out.append(Forced(force.token, state.last_add_confirmed))
            elif force.point is None or any(b.last <= force.point for b in self._window.lagging.values()):
                return
            else:
                self.active = waiting.popleft()
                self._ask(self.active)

    def _ask(self, force: PendingForce) -> None:
        for member in self._window.members:
            request_id = force.owing[member.bookie] = self._state.ids.next()
            self._state.out.append(SendForce(member.bookie, request_id))

    def is_owed(self, event: ForceAnswered) -> bool:
        """Whether `event` answers a request of the active force (rule 18)."""
        return self.active is not None and self.active.owing.get(event.bookie) == event.request_id

    def same_boot(self, bookie: BookieId, boot_id: str) -> bool:
        """Whether `bookie` has not restarted since it accepted the first unforced append; this may be the first."""
        return self._boots.setdefault(bookie, boot_id) == boot_id

    def synced(self, bookie: BookieId, last_pushed: EntryId) -> None:
        """`bookie` synced. If it was the last, everything up to the force's point is durable everywhere."""
        force = self.active
        assert force is not None
        del force.owing[bookie]
        if force.owing:
            return
        assert force.point is not None
        self._state.confirm(force.point, force.length)
        if force.point == last_pushed:
            self._boots.clear()
        self.active = None
        self._state.out.append(Forced(force.token, self._state.last_add_confirmed))

    def fail(self, error: DaybookError) -> None:
        """No force can succeed any more: the handle ended."""
        active = [self.active] if self.active is not None else []
        self._state.out.extend(Fail(force.token, error) for force in (*active, *self.waiting))
        self.waiting.clear()
        self.active = None
        self._boots.clear()
