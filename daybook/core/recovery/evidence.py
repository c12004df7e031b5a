"""What the answers of bookies prove about a run of entries that may or may not have been written.

Recovery has three answers for an entry and must never mix them up (rule 6): *found*, by any one replica; *absent*, by
Qf explicit "not found" of its write set, which meet every ack quorum it could have had; and everything else, which is
*unknown* and proves nothing. Time-outs, refusals, unreadable entries and bookies in limbo (rule 29) are unknown. A
decision is taken as soon as the answers allow it (rule 7): stragglers change nothing.
"""

from dataclasses import dataclass
from enum import Enum

from daybook.core.errors import Code
from daybook.core.events import ReadAnswered
from daybook.core.format.entries import Entry
from daybook.core.ids import EntryId
from daybook.core.quorum import Quorum, write_set, write_set_masks


class Finding(Enum):
    """What is known of the entry at `EvidenceWindow.cursor`."""

    MORE = "everything before it was found; ask about it in a new window"
    END = "it was never acknowledged, and never can be: the ledger ends before it"
    ASK = "those who have answered do not decide it; others can be asked"
    WAIT = "answers that can decide it are under way"
    UNKNOWN = "every replica has answered or failed, and it is still not decided"


@dataclass(frozen=True, slots=True)
class _Testimony:
    """An answer, and the entries it speaks for."""

    first: EntryId
    through: EntryId
    present: frozenset[EntryId]
    """Found or damaged: not absent."""
    limbo: bool

    def reports_absent(self, entry_id: EntryId) -> bool:
        """Whether this is an explicit "not found"; a bookie in limbo cannot give one (rule 29)."""
        return not self.limbo and self.speaks_for(entry_id) and entry_id not in self.present

    def speaks_for(self, entry_id: EntryId) -> bool:
        return self.first <= entry_id <= self.through


class EvidenceWindow:
    """The answers about entries first … last; `cursor` is the first of them that is not known to be found."""

    def __init__(self, quorum: Quorum, first: EntryId, last: EntryId) -> None:
        self.quorum = quorum
        self.first = first
        self.last = last
        self.cursor = first
        self.asked = 0
        """Positions that were asked, as a mask."""
        self.failed: dict[int, Code] = {}
        self._found: dict[EntryId, Entry] = {}
        self._taken = first
        self._testimony: dict[int, _Testimony] = {}

    def to_ask_first(self, preferred: int) -> list[int]:
        """A few positions that hold every entry between them, those of `preferred` (a mask) as far as they go."""
        wanted = set(range(len(write_set_masks(self.quorum))))
        chosen: list[int] = []
        while wanted:
            gains = {p: len(self._residues(p) & wanted) for p in range(self.quorum.ensemble_size)}
            useful = [p for p, gain in gains.items() if gain]
            best = max(useful, key=lambda p: (preferred >> p & 1, gains[p], -p))
            wanted -= self._residues(best)
            chosen.append(best)
        return sorted(chosen)

    def to_ask_next(self) -> list[int]:
        """The replicas of the entry at `cursor` that were not asked yet."""
        return [p for p in sorted(write_set(self.quorum, self.cursor)) if not self.asked >> p & 1]

    def _residues(self, position: int) -> frozenset[int]:
        masks = write_set_masks(self.quorum)
        return frozenset(residue for residue, mask in enumerate(masks) if mask >> position & 1)

    def answer(self, position: int, first: EntryId, answered: ReadAnswered) -> None:
        """Take the answer of `position`, which was asked from `first` on."""
        if answered.code is not Code.OK or answered.through < first:
            code = Code.IO_ERROR if answered.code is Code.OK else answered.code
            self.failed[position] = code
            return
        entries = {entry[0]: entry for entry in answered.entries}
        self._found.update(entries)
        present = frozenset(entries.keys() | set(answered.damaged))
        self._testimony[position] = _Testimony(first, answered.through, present, answered.limbo)
        while self.cursor <= self.last and self.cursor in self._found:
            self.cursor += 1

    def take_found(self) -> list[Entry]:
        """The entries found before `cursor` that were not taken yet, in order."""
        taken = [self._found.pop(entry_id) for entry_id in range(self._taken, self.cursor)]
        self._taken = self.cursor
        return taken

    def finding(self) -> Finding:
        """What is known of the entry at `cursor`."""
        if self.cursor > self.last:
            return Finding.MORE
        replicas = write_set(self.quorum, self.cursor)
        absent = sum(
            p in self._testimony and self._testimony[p].reports_absent(self.cursor) for p in replicas
        )
        if absent >= self._reports_needed():
            return Finding.END
        cut_short = any(
            p in self._testimony and not self._testimony[p].speaks_for(self.cursor) for p in replicas
        )
        if cut_short:
            return Finding.MORE
        waiting = [p for p in replicas if p not in self._testimony and p not in self.failed]
        if any(not self.asked >> p & 1 for p in waiting):
            answered = any(p in self._testimony or p in self.failed for p in replicas)
            return Finding.ASK if answered else Finding.WAIT
        if waiting:
            return Finding.WAIT
        may_differ_now = self.cursor > self.first and any(p in self.failed for p in replicas)
        return Finding.MORE if may_differ_now else Finding.UNKNOWN

    def _reports_needed(self) -> int:
        """Qf, so that the reports of absence meet every ack quorum that the entry could have had (rule 6, rule 8)."""
        return self.quorum.coverage

    def unknown_because(self) -> str:
        """Why the entry at `cursor` is not decided, for an error message."""
        reasons = []
        for position in write_set(self.quorum, self.cursor):
            testimony = self._testimony.get(position)
            if testimony is None:
                reason = self.failed.get(position, Code.TIMEOUT).name
            elif testimony.reports_absent(self.cursor):
                reason = "not found"
            elif testimony.limbo:
                reason = "in limbo"
            else:
                reason = "damaged"
            reasons.append(f"position {position}: {reason}")
        return ", ".join(reasons)
