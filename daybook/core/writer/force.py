"""Deferred sync: what only a force acknowledges (rule 22).

Appends are answered before they are durable, so the LAC stays where the last force put it. A force covers everything
appended before it: once every bookie of the ensemble has accepted its share, each is asked to sync, and all must answer.
A bookie that restarted since the first unforced append may have lost what it accepted; its answers carry another boot
id then, and the force fails.
"""

from collections import deque

from daybook.core.ids import NO_ENTRY, BookieId, EntryId


class PendingForce:
    """A force that was asked for and is not answered."""

    __slots__ = ("length", "owing", "point", "target", "token")

    def __init__(self, token: int, target: EntryId) -> None:
        self.token = token
        self.target = target
        """The last entry that was appended when it was asked for."""
        self.point: EntryId | None = None
        """What it will confirm: the end of the batch that completed `target`."""
        self.length = 0
        self.owing: dict[BookieId, int] = {}
        """The request that each bookie still owes an answer to."""


class Forces:
    """The forces under way, in order, and the boot ids that accepted what is unforced."""

    __slots__ = ("_boots", "active", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[PendingForce] = deque()
        self.active: PendingForce | None = None
        self._boots: dict[BookieId, str] = {}

    def __bool__(self) -> bool:
        return self.active is not None or bool(self.waiting)

    @property
    def tokens(self) -> list[int]:
        """The requests without an answer."""
        active = [self.active] if self.active is not None else []
        return [force.token for force in (*active, *self.waiting)]

    def passed(self, last: EntryId, length: int) -> None:
        """Everything up to `last`, `length` payload bytes, is accepted by an ack quorum."""
        for force in self.waiting:
            if force.point is None and force.target <= last:
                force.point, force.length = last, length

    def same_boot(self, bookie: BookieId, boot_id: str) -> bool:
        """Whether `bookie` still runs as when it accepted the first unforced append; notes it if this is the first."""
        return self._boots.setdefault(bookie, boot_id) == boot_id

    def is_answered(self, last_add_confirmed: EntryId) -> bool:
        """Whether the oldest force is done: what it is about is confirmed already."""
        return bool(self.waiting) and self.active is None and self.waiting[0].target <= last_add_confirmed

    def begin(self) -> PendingForce:
        """The next force, now under way."""
        assert self.active is None
        self.active = self.waiting.popleft()
        return self.active

    def was_forced(self, last_pushed: EntryId) -> None:
        """The active force is done: everything up to its point is durable everywhere."""
        assert self.active is not None
        if self.active.point == last_pushed:
            self._boots.clear()
        self.active = None

    def clear(self) -> None:
        """Forget all: the handle ended."""
        self.waiting.clear()
        self.active = None
        self._boots.clear()

    @property
    def next_point(self) -> EntryId:
        """What the next force waits for; NO_ENTRY if there is none or its entries are not accepted yet."""
        if self.active is not None or not self.waiting or self.waiting[0].point is None:
            return NO_ENTRY
        return self.waiting[0].point
