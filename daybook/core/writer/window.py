"""What is under way: batches, the members that got them, and which bookie still owes which answer.

A *batch* is the unit in which a writer sends, counts acknowledgements and completes: entries first … last, contiguous, encoded
once. There is no object per entry. Acknowledgements are a bit mask of ensemble positions, because a bookie answers for a
frame as a whole. Without striping all positions share one run of bytes; with it each position has a frame of the
entries that its stripe holds, and perhaps none.

The *window* sends to members alone, that is to bookies that metadata names (rule 16). An answer counts only if its send is
still owed by a member: answers of bookies that were replaced or have failed find nothing here (rule 18). A batch stays until
every member that got it has answered, because a bookie that is only late should still get all of it. `payload_bytes` counts it as
long, and so bounds the memory.
"""

from collections.abc import Iterable, Iterator
from itertools import compress, cycle
from typing import Final

from daybook.core.effects import PublishLac, SendFrame, SendFrames, WriterEffect
from daybook.core.errors import Code
from daybook.core.format.checksums import entry_crcs
from daybook.core.format.frame import FLAG_DEFERRED_SYNC, encode_entry, encode_frame
from daybook.core.ids import NO_ENTRY, BookieId, EntryId
from daybook.core.quorum import stripe_of
from daybook.core.writer.member import TRANSITIONS, MemberState
from daybook.core.writer.queue import Run
from daybook.core.writer.state import WriterState


class Batch:
    """A sealed run of entries on its way to the bookies."""

    __slots__ = (
        "acked",
        "completed_ms",
        "first",
        "frames",
        "is_uncertain",
        "last",
        "payload_bytes",
        "refusal",
        "refused",
        "waiting",
    )

    def __init__(
        self, first: EntryId, last: EntryId, payload_bytes: int, frames: tuple[bytes | None, ...]
    ) -> None:
        assert 0 <= first <= last
        self.first = first
        self.last = last
        self.payload_bytes = payload_bytes
        self.frames = frames
        """The frame of each ensemble position; None where the stripe holds none of the entries."""
        self.acked = 0
        """Positions of the current ensemble that have their frame durably, as a mask."""
        self.refused = 0
        """Positions that refused the frame as every bookie would (rule 21)."""
        self.refusal: Code | None = None
        self.waiting = 0
        """Sends without an answer."""
        self.is_uncertain = False
        """Whether some bookie may have the frame though no answer says so."""
        self.completed_ms: int | None = None

    @property
    def holders(self) -> int:
        """The positions that get a frame, as a mask."""
        return sum(1 << position for position, frame in enumerate(self.frames) if frame is not None)


def seal_batch(state: WriterState, run: Run) -> Batch:
    """Encode the entries of `run`; every frame carries the LAC and its length (rule 44)."""
    ledger_id, quorum = state.ledger_id, state.quorum
    lac, length_at_lac = state.last_add_confirmed, state.length_at_lac
    flags = FLAG_DEFERRED_SYNC if state.deferred_sync else 0
    first, payloads, payload_bytes = run.first, run.payloads, run.payload_bytes
    is_striped = quorum.ensemble_size != quorum.write_quorum
    if len(payloads) == 1 and not is_striped:
        frame = encode_entry(
            ledger_id,
            first,
            payloads[0],
            state.seed,
            last_add_confirmed=lac,
            length_at_lac=length_at_lac,
            flags=flags,
        )
        return Batch(first, first, payload_bytes, (frame,) * quorum.ensemble_size)
    last = first + len(payloads) - 1
    entry_ids = range(first, last + 1)
    crcs = entry_crcs(ledger_id, entry_ids, payloads)
    if not is_striped:
        frame = encode_frame(
            ledger_id,
            first,
            payloads,
            crcs,
            last_add_confirmed=lac,
            length_at_lac=length_at_lac,
            flags=flags,
        )
        return Batch(first, last, payload_bytes, (frame,) * quorum.ensemble_size)
    striped: list[bytes | None] = []
    for position in range(quorum.ensemble_size):
        stripe = stripe_of(quorum, position)
        held = [stripe.holds(first + i) for i in range(stripe.period)]
        own_ids = list(compress(entry_ids, cycle(held)))
        if not own_ids:
            striped.append(None)
            continue
        striped.append(
            encode_frame(
                ledger_id,
                own_ids[0],
                list(compress(payloads, cycle(held))),
                list(compress(crcs, cycle(held))),
                last_add_confirmed=lac,
                length_at_lac=length_at_lac,
                flags=flags,
                stripe=stripe,
                entry_ids=own_ids,
            )
        )
    return Batch(first, last, payload_bytes, tuple(striped))


class Member:
    """A position of the ensemble and its bookie."""

    __slots__ = (
        "absences",
        "bit",
        "bookie",
        "last_owed",
        "next_probe_ms",
        "outstanding",
        "position",
        "state",
    )

    def __init__(self, position: int, bookie: BookieId) -> None:
        self.position = position
        self.bit: Final = 1 << position
        """The position as a mask."""
        self.bookie = bookie
        self.state = MemberState.LIVE
        self.outstanding: dict[int, Batch | None] = {}
        """Sends without an answer, oldest first; None for frames without entries."""
        self.absences = 0
        """How often it went missing."""
        self.next_probe_ms = 0
        self.last_owed: EntryId = NO_ENTRY
        """The last acknowledged entry that it had not answered for when it failed; −1 if there was none."""

    def become(self, state: MemberState) -> None:
        """Go over to `state`."""
        assert (self.state, state) in TRANSITIONS, f"{self.bookie} cannot go from {self.state} to {state}"
        self.state = state
        self.absences += state is MemberState.MISSING


class BatchWindow:
    """The members of the ensemble and the batches under way."""

    __slots__ = (
        "_last_send_id",
        "_live",
        "bookies",
        "by_bookie",
        "has_failed",
        "lagging",
        "members",
        "payload_bytes",
        "uncompleted",
    )

    def __init__(self, bookies: tuple[BookieId, ...]) -> None:
        self.members = [Member(position, bookie) for position, bookie in enumerate(bookies)]
        self.bookies = bookies
        """The ensemble."""
        self.by_bookie = {member.bookie: member for member in self.members}
        self.uncompleted: dict[EntryId, Batch] = {}
        """By first entry, in the order they were sealed."""
        self.lagging: dict[EntryId, Batch] = {}
        """Completed, but some member still owes its answer."""
        self.payload_bytes = 0
        self.has_failed = False
        """Whether some member is FAILED: a replacement waits for the next append."""
        self._last_send_id = 0
        self._live = tuple(self.members)
        """The members that get frames."""

    # Members.

    def in_state(self, *states: MemberState) -> list[Member]:
        """The members in one of `states`, by position."""
        return [member for member in self.members if member.state in states]

    @property
    def live(self) -> int:
        """The positions that get frames, as a mask."""
        return sum(member.bit for member in self._live)

    def set_state(self, member: Member, state: MemberState) -> None:
        """`member` goes over to `state`; see `member.TRANSITIONS`."""
        member.become(state)
        self._note_states()

    def _note_states(self) -> None:
        self.has_failed = any(member.state is MemberState.FAILED for member in self.members)
        self._live = tuple(self.in_state(MemberState.LIVE))

    def seat(self, position: int, bookie: BookieId, out: list[WriterEffect]) -> None:
        """Metadata names `bookie` at `position` from LAC + 1 on: send it all that is not complete.

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
        self.bookies = tuple(each.bookie for each in self.members)
        self._note_states()
        for batch in self.uncompleted.values():
            batch.is_uncertain |= bool(batch.acked & member.bit)
            batch.acked &= ~member.bit
            batch.refused &= ~member.bit
            self._send(member, batch, out)

    # Sends and answers.

    def seal(self, state: WriterState, runs: Iterable[Run]) -> None:
        """Make batches of `runs` and send them to the live members."""
        for run in runs:
            self._add(seal_batch(state, run), state.out)
            state.unpublished_since_ms = None

    def _add(self, batch: Batch, out: list[WriterEffect]) -> None:
        assert batch.first not in self.uncompleted
        self.uncompleted[batch.first] = batch
        self.payload_bytes += batch.payload_bytes
        bookies: list[BookieId] = []
        frames: list[bytes] = []
        first_send_id = send_id = self._last_send_id + 1
        for member in self._live:
            frame = batch.frames[member.position]
            if frame is not None:
                member.outstanding[send_id] = batch
                send_id += 1
                bookies.append(member.bookie)
                frames.append(frame)
        if bookies:
            batch.waiting = len(bookies)
            self._last_send_id = send_id - 1
            out.append(SendFrames(tuple(bookies), first_send_id, tuple(frames)))

    def _send(self, member: Member, batch: Batch, out: list[WriterEffect]) -> None:
        frame = batch.frames[member.position]
        if frame is not None:
            batch.waiting += 1
            out.append(SendFrame(member.bookie, self._owe(member, batch), frame))

    def publish_lac(self, state: WriterState) -> None:
        """Send the LAC alone to the live members, or a reader that tails the ledger would wait for ever (rule 48)."""
        state.out.append(PublishLac(tuple([member.bookie for member in self._live]), state.lac_row()))
        state.unpublished_since_ms = None

    def publish_lac_again(self, state: WriterState, bookie: BookieId) -> None:
        """What was published to `bookie` may have vanished, or was published before the ensemble had it (rule 48)."""
        member = self.by_bookie.get(bookie)
        if member is not None and member.state is MemberState.LIVE:
            state.out.append(PublishLac((bookie,), state.lac_row()))

    def send_empty(self, member: Member, frame: bytes, out: list[WriterEffect]) -> None:
        """Send `member` a frame without entries."""
        out.append(SendFrame(member.bookie, self._owe(member, None), frame))

    def _owe(self, member: Member, batch: Batch | None) -> int:
        self._last_send_id = send_id = self._last_send_id + 1
        member.outstanding[send_id] = batch
        return send_id

    def answered(self, bookie: BookieId, send_id: int) -> tuple[Member, Batch | None] | None:
        """Who answered for what; None for an answer that nobody waits for any more (rule 18)."""
        member = self.by_bookie.get(bookie)
        if member is None or send_id not in member.outstanding:
            return None
        batch = member.outstanding.pop(send_id)
        if batch is not None:
            batch.waiting -= 1
            assert batch.waiting >= 0
        return member, batch

    def forget_sends(self, member: Member) -> None:
        """`member` failed: nobody waits for what it owes; whether it has it is unknown."""
        for batch in member.outstanding.values():
            if batch is not None:
                batch.waiting -= 1
                batch.is_uncertain = True
                self.release(batch)
        member.outstanding.clear()

    # The life of a batch: uncompleted, lagging, released.

    def complete(self, batch: Batch, now_ms: int) -> None:
        """`batch` is acknowledged; stragglers may still answer."""
        assert batch.completed_ms is None
        batch.completed_ms = now_ms
        self.lagging[batch.first] = self.uncompleted.pop(batch.first)
        self.release(batch)

    def release(self, batch: Batch) -> None:
        """Forget `batch` if it is complete and nobody owes an answer."""
        if not batch.waiting and self.lagging.pop(batch.first, None) is not None:
            self.payload_bytes -= batch.payload_bytes
            assert self.payload_bytes >= 0

    def withdraw(self, batch: Batch) -> None:
        """Forget a batch that no bookie has."""
        assert not batch.acked
        assert not batch.waiting
        del self.uncompleted[batch.first]
        self.payload_bytes -= batch.payload_bytes

    def clear(self) -> None:
        """Forget everything under way: the handle ended."""
        for member in self.members:
            member.outstanding.clear()
        self.uncompleted.clear()
        self.lagging.clear()
        self.payload_bytes = 0

    # How far members lag behind.

    def lag_bytes(self, member: Member) -> int:
        """The bytes of acknowledged entries that `member` owes."""
        return sum(batch.payload_bytes for _, batch in _acknowledged(member.outstanding.values()))

    def lag_since_ms(self, member: Member) -> int | None:
        """When the oldest entry that `member` owes was acknowledged; None if it owes none."""
        return min((since_ms for since_ms, _ in _acknowledged(member.outstanding.values())), default=None)

    def note_owed(self, member: Member, failed_at: Batch | None) -> None:
        """`member` fails, at the frame of `failed_at` if that is not None: record up to where it owes acknowledged entries."""
        unanswered = (*member.outstanding.values(), failed_at)
        member.last_owed = max((batch.last for _, batch in _acknowledged(unanswered)), default=NO_ENTRY)

    @property
    def oldest_lag_ms(self) -> int | None:
        """When the oldest entry that any member owes was acknowledged; None if nothing is owed."""
        for batch in self.lagging.values():  # in the order they completed
            return batch.completed_ms
        return None


def _acknowledged(batches: Iterable[Batch | None]) -> Iterator[tuple[int, Batch]]:
    """Those of `batches` whose entries are acknowledged, each with the time since when."""
    for batch in batches:
        if batch is not None and batch.completed_ms is not None:
            yield batch.completed_ms, batch
