"""A run of entries of one fragment, being fetched: which replicas are asked, and what their answers amount to.

A piece is fetched in rounds. A round asks as few bookies as hold every entry between them (one, without striping); an
entry that none of them could give is asked from its other replicas, and so is a bookie's whole share when it fails or is
slow. "Not found" on one replica says nothing here: below the LAC the entry exists, and another replica has it.
Entries are handled by the answer, not one by one: a whole answer that continues the piece is passed on as it came.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from daybook.core.effects import Deliver
from daybook.core.errors import Code
from daybook.core.events import ReadAnswered
from daybook.core.format.entries import Entry, payload_sizes
from daybook.core.ids import BookieId, EntryId
from daybook.core.quorum import Quorum, write_set, write_set_masks

_entry_id = itemgetter(0)


@dataclass(slots=True)
class Ask:
    """A request to make: the position, and the first entry to ask for."""

    position: int
    first: EntryId


class Piece:
    """Entries first … last of a fragment with the ensemble `bookies`; `cursor` is the first that is not here yet."""

    def __init__(
        self,
        quorum: Quorum,
        bookies: tuple[BookieId, ...],
        first: EntryId,
        last: EntryId,
        rank: Callable[[BookieId], tuple[int, ...]],
    ) -> None:
        self.quorum = quorum
        self.bookies = bookies
        self.first = first
        self.last = last
        self.cursor = first
        self.round = 0
        """Counts rounds: an answer to an earlier one is dropped."""
        self.ready: list[Deliver] = []
        """What was fetched and not passed on yet: entries up to `cursor`, in order."""
        self.ready_bytes = 0
        self.reasons: dict[int, Code] = {}
        """Why each position that was tried cannot give the entry at `cursor`."""
        self._rank = rank
        self._asked: set[int] = set()
        self._answers: dict[int, ReadAnswered] = {}

    @property
    def is_complete(self) -> bool:
        """Whether every entry is here."""
        return self.cursor > self.last

    def start_round(self) -> list[Ask]:
        """Ask for what is missing; nothing if the entry at `cursor` has no replica left to try."""
        self.round += 1
        self._asked.clear()
        self._answers.clear()
        return self._ask_for(set(range(len(write_set_masks(self.quorum)))), set())

    def ask_others(self) -> list[Ask]:
        """Ask other replicas for the share of those that have not answered (speculative second read)."""
        slow = set(self._asked)
        return self._ask_for(self._uncovered(self._answers.keys()), slow)

    def answer(self, position: int, answered: ReadAnswered) -> list[Ask]:
        """Take an answer; the requests that follow from it. With none, and none waiting: `is_exhausted`."""
        self._asked.discard(position)
        if answered.code is not Code.OK:
            self.reasons[position] = answered.code
        elif answered.through < self.cursor:
            self.reasons[position] = Code.IO_ERROR
        else:
            self._answers[position] = answered
        if self._uncovered(self._answers.keys()):
            asks = self._ask_for(self._uncovered(self._answers.keys() | self._asked), set())
            if self._asked:
                return asks
        self._take()
        return [] if self.is_complete else self.start_round()

    @property
    def is_exhausted(self) -> bool:
        """Whether no replica that could give the entry at `cursor` is left."""
        return not self.is_complete and not self._asked

    def _residues(self, position: int) -> set[int]:
        masks = write_set_masks(self.quorum)
        return {residue for residue, mask in enumerate(masks) if mask >> position & 1}

    def _needed(self) -> set[int]:
        """The write sets that the missing entries meet."""
        masks = len(write_set_masks(self.quorum))
        if self.last - self.cursor + 1 >= masks:
            return set(range(masks))
        return {entry_id % masks for entry_id in range(self.cursor, self.last + 1)}

    def _uncovered(self, positions: Iterable[int]) -> set[int]:
        """The write sets of the missing entries that none of `positions` belongs to."""
        needed = self._needed()
        for position in positions:
            needed -= self._residues(position)
        return needed

    def _ask_for(self, wanted: set[int], but: set[int]) -> list[Ask]:
        """Requests to positions that hold the write sets `wanted` between them; what has no replica left is left out.

        The write set of the entry at `cursor` comes first: without it nothing can be passed on.
        """
        wanted = wanted & self._needed()
        useless = but | self._asked | self._answers.keys() | self.reasons.keys()
        candidates = {p: self._residues(p) for p in range(self.quorum.ensemble_size) if p not in useless}
        first_residue = self.cursor % len(write_set_masks(self.quorum))
        if first_residue in wanted and not any(first_residue in held for held in candidates.values()):
            return []
        asks: list[Ask] = []
        while any(held & wanted for held in candidates.values()):
            must = {first_residue} & wanted or wanted
            useful = [p for p, held in candidates.items() if held & must]
            best = min(useful, key=lambda p: self._preference(p, candidates[p] & wanted))
            wanted = wanted - candidates.pop(best)
            self._asked.add(best)
            asks.append(Ask(best, self.cursor))
        return asks

    def _preference(self, position: int, gain: set[int]) -> tuple[int, ...]:
        """The nearest first, then the one that holds most of what is wanted, then whose turn it is."""
        return (*self._rank(self.bookies[position]), -len(gain), self._turn(position))

    def _turn(self, position: int) -> int:
        """Equally near replicas in the order of the write set, so that ledgers spread their reads over bookies."""
        return (position - self.cursor) % self.quorum.ensemble_size

    def _take(self) -> None:
        """Move what the answers hold, up to the first gap, to `ready`."""
        through = self._spoken_through()
        if len(self._answers) == 1:
            (entries,) = (answer.entries for answer in self._answers.values())
            if entries and self._continues(entries, through):
                self._pass_on(entries)
                return
        merged = self._merged(through)
        run = self._run_of(merged)
        if run:
            self._pass_on(tuple(merged[:run]))
        if self.cursor <= through:
            self._blame()

    def _spoken_through(self) -> EntryId:
        """The last entry up to which every entry has been answered for."""
        masks = len(write_set_masks(self.quorum))
        reach = dict.fromkeys(self._needed(), self.cursor - 1)
        for position, answer in self._answers.items():
            for residue in self._residues(position) & reach.keys():
                reach[residue] = max(reach[residue], answer.through)
        first_open = (end + 1 + (residue - end - 1) % masks for residue, end in reach.items())
        return min(self.last, min(first_open) - 1)

    def _continues(self, entries: Sequence[Entry], through: EntryId) -> bool:
        """Whether `entries` are exactly those from `cursor` through `through`."""
        return (
            entries[0][0] == self.cursor
            and entries[-1][0] == through
            and len(entries) == through - self.cursor + 1
        )

    def _merged(self, through: EntryId) -> list[Entry]:
        """The entries of all answers, each once, from `cursor` through `through`, in order."""
        by_id: dict[EntryId, Entry] = {}
        for answer in self._answers.values():
            by_id.update(zip(map(_entry_id, answer.entries), answer.entries, strict=True))
        entry_ids = sorted(by_id)
        if entry_ids and (entry_ids[0] < self.cursor or entry_ids[-1] > through):
            entry_ids = [entry_id for entry_id in entry_ids if self.cursor <= entry_id <= through]
        return list(map(by_id.__getitem__, entry_ids))

    def _run_of(self, merged: list[Entry]) -> int:
        """How many of `merged` follow `cursor` without a gap."""
        if merged and merged[-1][0] == self.cursor + len(merged) - 1:
            return len(merged)
        run = 0
        while run < len(merged) and merged[run][0] == self.cursor + run:
            run += 1
        return run

    def _pass_on(self, entries: Sequence[Entry]) -> None:
        size_bytes = sum(payload_sizes(entries))
        self.ready.append(Deliver(entries, size_bytes))
        self.ready_bytes += size_bytes
        self.cursor = entries[-1][0] + 1
        self.reasons.clear()

    def _blame(self) -> None:
        """The entry at `cursor` is missing: its replicas that answered for it will not be asked for it again."""
        for position in write_set(self.quorum, self.cursor):
            answer = self._answers.get(position)
            if answer is None or answer.through < self.cursor:
                continue
            if self.cursor in answer.damaged:
                self.reasons[position] = Code.IO_ERROR
            else:
                self.reasons[position] = Code.LIMBO if answer.limbo else Code.NO_SUCH_ENTRY
