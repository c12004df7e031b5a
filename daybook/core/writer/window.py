"""What is under way: the members of the current ensemble, the batches, and which bookie still owes which answer.

A member is a position of the ensemble that metadata names; no other bookie is ever sent anything (rule 16). An answer
counts only if its send is still owed by a member: those of bookies that were replaced or have failed find nothing here
(rule 18). A batch stays until every member that got it has answered, because a bookie that is only late should still
get all of it; `pending_bytes` counts it as long, and so bounds the memory.
"""

from enum import Enum

from daybook.core.effects import Effect, SendFrame
from daybook.core.ids import BookieId, EntryId
from daybook.core.writer.batch import Batch


class MemberState(Enum):
    """What the writer thinks of the bookie at a position."""

    LIVE = "it gets every frame"
    FAILED = "it failed; the ensemble changes when an entry needs it"
    MISSING = "it failed and there is no spare: the writer goes on without it (rule 45)"
    RETURNED = "it was missing and answers again; a new fragment brings it back"


class Member:
    """A position of the ensemble and its bookie."""

    __slots__ = ("absences", "bookie", "next_probe_ms", "outstanding", "position", "state")

    def __init__(self, position: int, bookie: BookieId) -> None:
        self.position = position
        self.bookie = bookie
        self.state = MemberState.LIVE
        self.outstanding: dict[int, Batch | None] = {}
        """Sends without an answer, oldest first; None for frames without entries."""
        self.absences = 0
        """How often it went missing."""
        self.next_probe_ms = 0

    @property
    def bit(self) -> int:
        """The position as a mask."""
        return 1 << self.position


class SendWindow:
    """The members and the batches under way."""

    __slots__ = (
        "_last_send_id",
        "by_bookie",
        "has_failed",
        "lagging",
        "members",
        "payload_bytes",
        "uncompleted",
    )

    def __init__(self, bookies: tuple[BookieId, ...]) -> None:
        self.members = [Member(position, bookie) for position, bookie in enumerate(bookies)]
        self.by_bookie = {member.bookie: member for member in self.members}
        self.uncompleted: dict[EntryId, Batch] = {}
        """By first entry, in the order they were sealed."""
        self.lagging: dict[EntryId, Batch] = {}
        """Completed, but some member still owes its answer."""
        self.payload_bytes = 0
        self.has_failed = False
        """Whether some member is FAILED: a replacement waits for the next append."""
        self._last_send_id = 0

    @property
    def bookies(self) -> tuple[BookieId, ...]:
        """The ensemble."""
        return tuple(member.bookie for member in self.members)

    def in_state(self, *states: MemberState) -> list[Member]:
        """The members in one of `states`, by position."""
        return [member for member in self.members if member.state in states]

    @property
    def live(self) -> int:
        """The positions that get frames, as a mask."""
        return sum(member.bit for member in self.members if member.state is MemberState.LIVE)

    def set_state(self, member: Member, state: MemberState) -> None:
        """`member` is now thought of as `state`."""
        member.state = state
        member.absences += state is MemberState.MISSING
        self._note_failed()

    def _note_failed(self) -> None:
        self.has_failed = any(member.state is MemberState.FAILED for member in self.members)

    def add(self, batch: Batch, out: list[Effect]) -> None:
        """Take a sealed batch and send it to the live members."""
        assert batch.first not in self.uncompleted
        self.uncompleted[batch.first] = batch
        self.payload_bytes += batch.payload_bytes
        for member in self.members:
            if member.state is MemberState.LIVE:
                self.send(member, batch, out)

    def send(self, member: Member, batch: Batch, out: list[Effect]) -> None:
        """Send `member` its frame of `batch`, if it has one."""
        frame = batch.frames[member.position]
        if frame is not None:
            batch.waiting += 1
            out.append(SendFrame(member.bookie, self._owe(member, batch), frame))

    def publish(self, member: Member, frame: bytes, out: list[Effect]) -> None:
        """Send `member` a frame without entries."""
        out.append(SendFrame(member.bookie, self._owe(member, None), frame))

    def _owe(self, member: Member, batch: Batch | None) -> int:
        self._last_send_id += 1
        member.outstanding[self._last_send_id] = batch
        return self._last_send_id

    def answered(self, bookie: BookieId, send_id: int) -> tuple[Member, Batch | None] | None:
        """Who answered for what; None for an answer that no one waits for any more (rule 18)."""
        member = self.by_bookie.get(bookie)
        if member is None or send_id not in member.outstanding:
            return None
        batch = member.outstanding.pop(send_id)
        if batch is not None:
            batch.waiting -= 1
            assert batch.waiting >= 0
        return member, batch

    def release(self, batch: Batch) -> None:
        """Forget `batch` if it is complete and no one owes an answer."""
        if batch.waiting == 0 and self.lagging.pop(batch.first, None) is not None:
            self.payload_bytes -= batch.payload_bytes
            assert self.payload_bytes >= 0

    def complete(self, batch: Batch, now_ms: int) -> None:
        """`batch` is acknowledged; stragglers may still answer."""
        assert batch.completed_ms is None
        batch.completed_ms = now_ms
        self.lagging[batch.first] = self.uncompleted.pop(batch.first)
        self.release(batch)

    def withdraw(self, batch: Batch) -> None:
        """Forget a batch that no bookie has."""
        assert not batch.acked
        assert not batch.waiting
        del self.uncompleted[batch.first]
        self.payload_bytes -= batch.payload_bytes

    def forget_sends(self, member: Member) -> None:
        """`member` failed: what it owes will not be waited for; whether it has it is unknown."""
        for batch in member.outstanding.values():
            if batch is not None:
                batch.waiting -= 1
                batch.is_uncertain = True
                self.release(batch)
        member.outstanding.clear()

    def seat(self, position: int, bookie: BookieId, out: list[Effect]) -> None:
        """Metadata names `bookie` at `position` from the LAC on: it gets all that is not complete.

        What was acknowledged from this position no longer counts for those entries, be it by another bookie or by the
        same one before it went missing (rule 15, rule 17).
        """
        old = self.members[position]
        self.forget_sends(old)
        del self.by_bookie[old.bookie]
        assert bookie not in self.by_bookie
        member = self.members[position] = self.by_bookie[bookie] = Member(position, bookie)
        if old.bookie == bookie:
            member.absences = old.absences
        self._note_failed()
        for batch in self.uncompleted.values():
            batch.is_uncertain |= bool(batch.acked & member.bit)
            batch.acked &= ~member.bit
            batch.refused &= ~member.bit
            self.send(member, batch, out)

    def lag_bytes(self, member: Member) -> int:
        """The bytes of acknowledged entries that `member` owes."""
        return sum(
            batch.payload_bytes
            for batch in member.outstanding.values()
            if batch is not None and batch.completed_ms is not None
        )

    def lag_since_ms(self, member: Member) -> int | None:
        """When the oldest entry that `member` owes was acknowledged; None if it owes none."""
        return min(
            (
                batch.completed_ms
                for batch in member.outstanding.values()
                if batch is not None and batch.completed_ms is not None
            ),
            default=None,
        )

    @property
    def oldest_lag_ms(self) -> int | None:
        """When the oldest entry that anybody owes was acknowledged; None if nothing is owed."""
        for batch in self.lagging.values():  # in the order they completed
            return batch.completed_ms
        return None

    def clear(self) -> None:
        """Forget everything under way: the handle ended."""
        for member in self.members:
            member.outstanding.clear()
        self.uncompleted.clear()
        self.lagging.clear()
        self.payload_bytes = 0
