"""Recovery's writing half: entries that were found go back to all of their write set, and count once Qa have them.

An entry that recovery found may be on a single bookie, so the ledger may not end after it before Qa bookies hold it
durably. Every frame carries the recovery flag, which passes the fence (rule 10), and the LAC that recovery started
from: were it to rise, a second recoverer that decides otherwise could leave readers a LAC beyond the ledger's end
(rule 12). A bookie that fails is replaced from the first unconfirmed entry on; such changes stay in memory and reach
metadata only with the close (rule 9). A spare may count towards Qa before metadata names it, unlike a writer's
(rule 16): as long as the ledger is open recovery reads the old ensemble, and in a closed ledger "not found" ends nothing.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from daybook.core.effects import SendFrame
from daybook.core.errors import Code, NotEnoughBookiesError
from daybook.core.format.checksums import entry_crcs
from daybook.core.format.entries import Entry
from daybook.core.format.frame import FLAG_RECOVERY, FRAME_BYTES_TARGET, FRAME_ENTRIES_MAX, encode_frame
from daybook.core.format.payloads import payload_bytes
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import Fragment
from daybook.core.machine import RequestIds
from daybook.core.placement.policy import BookieInfo, PlacementPolicy, RandomSource
from daybook.core.quorum import DENSE, Quorum, can_still_ack, is_ack_quorum, stripe_of

WRITE_BACK_FLAGS: Final = FLAG_RECOVERY


@dataclass(slots=True)
class _Batch:
    first: EntryId
    last: EntryId
    payload_bytes: int
    frames: dict[int, bytes]
    """By position; without striping all hold the same object. A position that holds none of the entries has none."""
    acked: int = 0


@dataclass(slots=True)
class _Sent:
    batch: _Batch
    position: int
    size_bytes: int


@dataclass(slots=True)
class Spares:
    """Where replacements come from."""

    placement: PlacementPolicy
    rng: RandomSource
    bookies: Mapping[BookieId, BookieInfo]
    unfit: set[BookieId] = field(default_factory=set)

    def replace(
        self, quorum: Quorum, ensemble: Sequence[BookieId], positions: AbstractSet[int]
    ) -> tuple[BookieId, ...] | None:
        """The ensemble with other bookies at `positions`, or None where there are too few."""
        exclude = self.unfit | set(ensemble)
        try:
            return self.placement.replace(
                quorum, ensemble, positions, self.bookies, self.rng, exclude=frozenset(exclude)
            )
        except NotEnoughBookiesError:
            return None


class WriteBack:
    """Writes entries back in order. Its methods return the frames to send; nothing else has an effect outside."""

    def __init__(
        self,
        ledger_id: LedgerId,
        quorum: Quorum,
        start: Fragment,
        last_add_confirmed: EntryId,
        length_at_lac: int,
        spares: Spares,
        ids: RequestIds,
        straggler_bytes_max: int,
    ) -> None:
        self.ledger_id = ledger_id
        self.quorum = quorum
        self.start_lac = last_add_confirmed
        self.start_length = length_at_lac
        self.recovered_to = last_add_confirmed
        """The last entry that Qa bookies hold, like all before it."""
        self.added_to = last_add_confirmed
        self.length = length_at_lac
        self.ensemble = start.bookies
        self.changes: list[Fragment] = []
        """The fragments that the close adds (rule 9)."""
        self.missing = 0
        """Positions that failed and could not be replaced, as a mask."""
        self.failures: dict[BookieId, Code] = {}
        self.pending_bytes = 0
        """Payload bytes that fewer than Qa bookies hold."""
        self._spares = spares
        self._ids = ids
        self._straggler_bytes_max = straggler_bytes_max
        self._batches: deque[_Batch] = deque()
        self._sent: dict[int, _Sent] = {}
        self._unanswered_bytes = [0] * quorum.ensemble_size

    @property
    def is_idle(self) -> bool:
        """Whether everything that was added is held by Qa bookies."""
        return not self._batches

    @property
    def is_stuck(self) -> bool:
        """Whether Qa of some write set can no longer be reached."""
        alive = (1 << self.quorum.ensemble_size) - 1 & ~self.missing
        return not can_still_ack(self.quorum, alive)

    def add(self, entries: Sequence[Entry]) -> list[SendFrame]:
        """Write back `entries`, which continue those added before."""
        effects = self._replace_missing()
        for first, last in _cut(entries):
            batch = self._make_batch(entries[first:last])
            self._batches.append(batch)
            self.added_to = batch.last
            self.pending_bytes += batch.payload_bytes
            for position in sorted(batch.frames):
                effects += self._send(batch, position)
        return effects + self._drop_stragglers()

    def acked(self, send_id: int) -> None:
        """A bookie has the frame durably."""
        sent = self._answered(send_id)
        if sent is None:
            return
        sent.batch.acked |= 1 << sent.position
        while self._batches and self._is_confirmed(self._batches[0]):
            batch = self._batches.popleft()
            self.recovered_to = batch.last
            self.length += batch.payload_bytes
            self.pending_bytes -= batch.payload_bytes

    def failed(self, send_id: int, code: Code) -> list[SendFrame]:
        """A bookie refused the frame, or it is not known whether it has it."""
        sent = self._answered(send_id)
        if sent is None:
            return []
        return self.bookie_failed(self.ensemble[sent.position], code)

    def bookie_failed(self, bookie: BookieId, code: Code) -> list[SendFrame]:
        """`bookie` is gone: what it was sent and did not answer is unknown."""
        if bookie not in self.ensemble:
            return []
        position = self.ensemble.index(bookie)
        self._forget_sent(position)
        self.failures[bookie] = code
        self._spares.unfit.add(bookie)
        self.missing |= 1 << position
        return self._replace_missing() if self._batches else []

    def owes(self, bookie: BookieId) -> bool:
        """Whether `bookie` has a frame that it did not answer."""
        return any(self.ensemble[sent.position] == bookie for sent in self._sent.values())

    def _frame_lac(self) -> tuple[EntryId, int]:
        """Frozen where recovery started (rule 12)."""
        return self.start_lac, self.start_length

    def _make_batch(self, entries: Sequence[Entry]) -> _Batch:
        entry_ids = [entry.entry_id for entry in entries]
        payloads = [entry.data for entry in entries]
        crcs = entry_crcs(self.ledger_id, entry_ids, payloads)
        lac, length_at_lac = self._frame_lac()
        frames: dict[int, bytes] = {}
        for position in range(self.quorum.ensemble_size):
            stripe = stripe_of(self.quorum, position)
            if stripe == DENSE and frames:
                frames[position] = frames[0]
                continue
            held = [i for i, entry_id in enumerate(entry_ids) if stripe.holds(entry_id)]
            if held:
                frames[position] = encode_frame(
                    self.ledger_id,
                    entry_ids[held[0]],
                    [payloads[i] for i in held],
                    [crcs[i] for i in held],
                    last_add_confirmed=lac,
                    length_at_lac=length_at_lac,
                    flags=WRITE_BACK_FLAGS,
                    stripe=stripe,
                    entry_ids=[entry_ids[i] for i in held],
                )
        return _Batch(entry_ids[0], entry_ids[-1], payload_bytes(payloads), frames)

    def _is_confirmed(self, batch: _Batch) -> bool:
        return is_ack_quorum(self.quorum, batch.acked, batch.first, batch.last)

    def _send(self, batch: _Batch, position: int) -> list[SendFrame]:
        frame = batch.frames.get(position)
        if frame is None or self.missing >> position & 1:
            return []
        send_id = self._ids.next()
        self._sent[send_id] = _Sent(batch, position, len(frame))
        self._unanswered_bytes[position] += len(frame)
        return [SendFrame(self.ensemble[position], send_id, frame)]

    def _answered(self, send_id: int) -> _Sent | None:
        sent = self._sent.pop(send_id, None)
        if sent is not None:
            self._unanswered_bytes[sent.position] -= sent.size_bytes
        return sent

    def _forget_sent(self, position: int) -> None:
        for send_id in [i for i, sent in self._sent.items() if sent.position == position]:
            self._answered(send_id)

    def _drop_stragglers(self) -> list[SendFrame]:
        """A bookie that only queues what others have long taken has failed: the queue is memory of ours."""
        effects: list[SendFrame] = []
        for position, unanswered in enumerate(self._unanswered_bytes):
            if unanswered > self._straggler_bytes_max:
                effects += self.bookie_failed(self.ensemble[position], Code.TIMEOUT)
        return effects

    def _replace_missing(self) -> list[SendFrame]:
        """Put spares where bookies are missing, from the first unconfirmed entry on, and send them what is unconfirmed."""
        positions = {p for p in range(self.quorum.ensemble_size) if self.missing >> p & 1}
        if not positions:
            return []
        ensemble = self._spares.replace(self.quorum, self.ensemble, positions)
        if ensemble is None:
            return self._replace_one_by_one(positions)
        return self._change_to(ensemble, positions)

    def _replace_one_by_one(self, positions: AbstractSet[int]) -> list[SendFrame]:
        """Where spares are fewer than failures, some are better than none."""
        effects: list[SendFrame] = []
        for position in sorted(positions):
            ensemble = self._spares.replace(self.quorum, self.ensemble, {position})
            if ensemble is not None:
                effects += self._change_to(ensemble, {position})
        return effects

    def _change_to(self, ensemble: tuple[BookieId, ...], positions: AbstractSet[int]) -> list[SendFrame]:
        self.ensemble = ensemble
        fragment = Fragment(self.recovered_to + 1, self.length, ensemble)
        if self.changes and self.changes[-1].first_entry == fragment.first_entry:
            self.changes.pop()
        self.changes.append(fragment)
        effects: list[SendFrame] = []
        for position in sorted(positions):
            self.missing &= ~(1 << position)
            for batch in self._batches:
                batch.acked &= ~(1 << position)
                effects += self._send(batch, position)
        return effects


def _cut(entries: Sequence[Entry]) -> list[tuple[int, int]]:
    """Where `entries` are cut into frames: (first, last + 1) of each, near FRAME_BYTES_TARGET."""
    cuts: list[tuple[int, int]] = []
    start = 0
    ends = list(accumulate((len(entry.data) for entry in entries), initial=0))
    for i in range(1, len(entries) + 1):
        full = ends[i] - ends[start] >= FRAME_BYTES_TARGET or i - start >= FRAME_ENTRIES_MAX
        if full or i == len(entries):
            cuts.append((start, i))
            start = i
    return cuts
