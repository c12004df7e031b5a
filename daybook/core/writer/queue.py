"""What was appended and not yet sealed, and where it is cut into frames.

Appends gather here while earlier frames are under way, so that a frame holds as much as came in meanwhile. Entry ids
are assigned in order, or by the caller (rule 55): then completion is still in order, a duplicate is refused, and what
is sealed is split at every gap, because a batch is contiguous.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, TypeAlias

from daybook.core.errors import EntryIdError
from daybook.core.format.frame import FRAME_ENTRIES_MAX, Buffer
from daybook.core.ids import ENSEMBLE_SIZE_MAX, MAX_ID, NO_ENTRY, EntryId

ENTRY_ID_MAX: Final = MAX_ID - FRAME_ENTRIES_MAX * ENSEMBLE_SIZE_MAX
"""The last id that leaves room for a frame; `decode_header` refuses frames beyond."""


class Run:
    """Contiguous entries for one batch."""

    __slots__ = ("first", "payload_bytes", "payloads")

    def __init__(self, first: EntryId, payloads: Sequence[Buffer], payload_bytes: int) -> None:
        self.first = first
        self.payloads = payloads
        self.payload_bytes = payload_bytes


class AppendQueue:
    """Appends with consecutive ids."""

    __slots__ = ("_payloads", "_target", "next_entry", "payload_bytes")

    def __init__(self, frame_bytes_target: int) -> None:
        self._target = frame_bytes_target
        self._payloads: list[Buffer] = []
        self.next_entry: EntryId = 0
        self.payload_bytes = 0

    def __len__(self) -> int:
        return len(self._payloads)

    @property
    def is_full(self) -> bool:
        """Whether a whole frame is waiting."""
        return self.payload_bytes >= self._target or len(self._payloads) >= FRAME_ENTRIES_MAX

    def check(self, payloads: Sequence[Buffer], entry_ids: Sequence[EntryId] | None) -> None:
        """Raise EntryIdError if these cannot be appended here."""
        if entry_ids is not None:
            msg = "this ledger assigns entry ids itself: create it with explicit ids to choose them"
            raise EntryIdError(msg)
        if self.next_entry + len(payloads) > ENTRY_ID_MAX:
            msg = f"the ledger has no entry ids left after {self.next_entry - 1}: continue in a new one"
            raise EntryIdError(msg)

    def add(
        self, payloads: Sequence[Buffer], entry_ids: Sequence[EntryId] | None, size_bytes: int
    ) -> tuple[EntryId, EntryId]:
        """Queue `payloads`, which `check` let pass; the first and last id they got."""
        assert entry_ids is None
        first = self.next_entry
        self._payloads.extend(payloads)
        self.next_entry += len(payloads)
        self.payload_bytes += size_bytes
        return first, self.next_entry - 1

    def drain(self, *, only_full: bool) -> list[Run]:
        """Take what is queued, cut into frames; `only_full` leaves a last one that is not full."""
        payloads = self._payloads
        if not payloads:
            return []
        first = self.next_entry - len(payloads)
        if self.is_full:
            runs = list(_cut(first, payloads, self._target))
        else:
            assert not only_full, "who asks for full frames alone has seen that there is one"
            runs = [Run(first, payloads, self.payload_bytes)]
        self._payloads, self.payload_bytes = [], 0
        if only_full and len(runs) > 1 and runs[-1].payload_bytes < self._target:
            left = runs.pop()
            self._payloads, self.payload_bytes = list(left.payloads), left.payload_bytes
        return runs

    @property
    def gap(self) -> EntryId | None:
        """The id that completion waits for and nobody appended; consecutive ids leave no gap."""
        return None

    def confirm(self, first: EntryId, last: EntryId) -> None:
        """The entries first … last are complete; consecutive ids need no memory of it."""

    def clear(self) -> None:
        """Forget what is queued: the handle ended."""
        self._payloads, self.payload_bytes = [], 0

    def roll_back(self, first: EntryId) -> None:
        """Forget what is queued and give the ids from `first` on again: no bookie has them."""
        assert first <= self.next_entry
        self.clear()
        self.next_entry = first


class ExplicitQueue:
    """Appends whose ids the caller assigns."""

    __slots__ = ("_pending", "_queued", "_target", "completed", "next_entry", "payload_bytes")

    def __init__(self, frame_bytes_target: int) -> None:
        self._target = frame_bytes_target
        self._queued: dict[EntryId, Buffer] = {}
        self._pending: set[EntryId] = set()
        self.completed: EntryId = NO_ENTRY
        self.next_entry: EntryId = 0
        self.payload_bytes = 0

    def __len__(self) -> int:
        return len(self._queued)

    @property
    def is_full(self) -> bool:
        """Whether a whole frame is waiting."""
        return self.payload_bytes >= self._target or len(self._queued) >= FRAME_ENTRIES_MAX

    def check(self, payloads: Sequence[Buffer], entry_ids: Sequence[EntryId] | None) -> None:
        """Raise EntryIdError for ids that are missing, out of range or used before (rule 55)."""
        if entry_ids is None or len(entry_ids) != len(payloads):
            given = "no ids" if entry_ids is None else f"{len(entry_ids)} ids"
            msg = f"{len(payloads)} entries with {given}: this ledger needs one id from the caller for each"
            raise EntryIdError(msg)
        if not all(0 <= entry_id < ENTRY_ID_MAX for entry_id in entry_ids):
            msg = f"an entry id is out of range: {min(entry_ids)} … {max(entry_ids)}; use 0 to {ENTRY_ID_MAX - 1}"
            raise EntryIdError(msg)
        self._check_unused(entry_ids)

    def _check_unused(self, entry_ids: Sequence[EntryId]) -> None:
        seen: set[EntryId] = set()
        for entry_id in entry_ids:
            if entry_id <= self.completed or entry_id in self._pending or entry_id in seen:
                msg = f"entry id {entry_id} was used before: an entry is written once"
                raise EntryIdError(msg)
            seen.add(entry_id)

    def add(
        self, payloads: Sequence[Buffer], entry_ids: Sequence[EntryId] | None, size_bytes: int
    ) -> tuple[EntryId, EntryId]:
        """Queue `payloads`, which `check` let pass; the first and last id of them."""
        assert entry_ids is not None
        self._queued.update(zip(entry_ids, payloads, strict=True))
        self._pending.update(entry_ids)
        first, last = min(entry_ids), max(entry_ids)
        self.next_entry = max(self.next_entry, last + 1)
        self.payload_bytes += size_bytes
        return first, last

    def drain(self, *, only_full: bool) -> list[Run]:
        """Take what is queued, split at gaps and cut into frames."""
        if not self._queued or (only_full and not self.is_full):
            return []
        queued = sorted(self._queued.items())
        self._queued, self.payload_bytes = {}, 0
        runs: list[Run] = []
        begin = 0
        for i in range(1, len(queued) + 1):
            if i == len(queued) or queued[i][0] != queued[i - 1][0] + 1:
                runs.extend(_cut(queued[begin][0], [data for _, data in queued[begin:i]], self._target))
                begin = i
        return runs

    @property
    def gap(self) -> EntryId | None:
        """The id that completion waits for, if nobody appended it and somebody a later one."""
        following = self.completed + 1
        return following if self._pending and following not in self._pending else None

    def confirm(self, first: EntryId, last: EntryId) -> None:
        """The entries first … last are complete: their ids need no memory of their own any more."""
        assert first == self.completed + 1
        self.completed = last
        self._pending.difference_update(range(first, last + 1))

    def clear(self) -> None:
        """Forget what is queued: the handle ended."""
        self._queued, self.payload_bytes = {}, 0


EntryQueue: TypeAlias = AppendQueue | ExplicitQueue
"""What a writer's parts need to know of its queue, whoever assigns the ids."""


def _cut(first: EntryId, payloads: Sequence[Buffer], target: int) -> Iterator[Run]:
    """Frames of about `target` payload bytes, at least one entry each."""
    ends = list(accumulate(map(len, payloads), initial=0))
    begin = 0
    while begin < len(payloads):
        end = bisect_right(ends, ends[begin] + target) - 1
        end = min(max(end, begin + 1), begin + FRAME_ENTRIES_MAX)
        yield Run(first + begin, payloads[begin:end], ends[end] - ends[begin])
        begin = end
