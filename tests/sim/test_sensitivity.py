"""The simulator is worth something only if it finds bugs: each rule that is taken out here makes a known seed fail.

The seeds are those of a default run, not made for the purpose; how far one has to go says how rare the bug is. When the
simulator or the machines change, seeds shift: `python -m tests.sim.test_sensitivity` looks for new ones.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import pytest

from daybook.core.bookie import AttachVerdict, BookieLedger, FenceVerdict
from daybook.core.effects import Effect
from daybook.core.errors import Code
from daybook.core.events import FrameAcked, ReadAnswered
from daybook.core.evidence import EvidenceWindow
from daybook.core.fence_round import FenceRound
from daybook.core.ids import NO_ENTRY, BookieId, EntryId
from daybook.core.metadata_update import MetadataUpdate
from daybook.core.quorum import is_ack_quorum
from daybook.core.send_window import Member, SendWindow
from daybook.core.write_back import WriteBack
from daybook.core.writer import LedgerWriter
from tests.sim.bookie_gc import Collector
from tests.sim.bookie_model import SimBookie
from tests.sim.metadata_model import MetadataStore
from tests.sim.run import run_chunk
from tests.sim.scenario import run_seed

Patch: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def one_ack_too_few(patch: pytest.MonkeyPatch) -> None:
    """Rule 14: an entry is acknowledged by Qa − 1 bookies."""

    def judge(self: LedgerWriter, batch: object) -> bool:
        quorum = self.metadata.quorum
        fewer = quorum._replace(ack_quorum=max(1, quorum.ack_quorum - 1))
        return is_ack_quorum(fewer, batch.acked, batch.first, batch.last)  # type: ignore[attr-defined] # a batch

    patch.setattr(LedgerWriter, "_is_acknowledged", judge)


def recovery_does_not_fence(patch: pytest.MonkeyPatch) -> None:
    """Rules 1 and 2: neither fence requests nor recovery reads fence anything."""
    patch.setattr(BookieLedger, "fence", lambda self, key: FenceVerdict(AttachVerdict.OK))


def the_fence_stops_nothing(patch: pytest.MonkeyPatch) -> None:
    """Rule 10: bookies take normal frames of a fenced ledger."""
    patch.setattr(BookieLedger, "_refuses_normal", lambda self: Code.OK)


def bookies_answer_before_they_sync(patch: pytest.MonkeyPatch) -> None:
    """Rule 23: a frame is answered when it is in memory."""
    patch.setattr(BookieLedger, "may_ack_before_sync", lambda self, header: True)


def recovery_starts_at_the_beginning(patch: pytest.MonkeyPatch) -> None:
    """Rule 5: the start of the last fragment is forgotten."""

    def start(self: FenceRound) -> tuple[EntryId, int]:
        return max([(NO_ENTRY, 0), *self._lac_answers])

    patch.setattr(FenceRound, "starting_point", start)


def one_denial_is_enough(patch: pytest.MonkeyPatch) -> None:
    """Rule 6: one bookie's "not found" ends the ledger."""
    patch.setattr(EvidenceWindow, "_denials_needed", lambda self: 1)


def failures_count_as_not_found(patch: pytest.MonkeyPatch) -> None:
    """Rule 6: what is unknown is taken for absent."""
    answer = EvidenceWindow.answer

    def take(self: EvidenceWindow, position: int, first: EntryId, answered: ReadAnswered) -> None:
        if answered.code.value:
            answered = ReadAnswered(
                answered.bookie, answered.request_id, type(answered.code).OK, through=1 << 40
            )
        answer(self, position, first, answered)

    patch.setattr(EvidenceWindow, "answer", take)


def limbo_vouches(patch: pytest.MonkeyPatch) -> None:
    """Rule 29: a bookie that lost its disk is not marked."""
    patch.setattr(SimBookie, "_must_mark", lambda self, found: False)


def compare_and_set_does_not_compare(patch: pytest.MonkeyPatch) -> None:
    """Rule 11: the version of a compare-and-set is dropped."""
    patch.setattr(MetadataStore, "_version_matches", staticmethod(lambda actual, expected: True))


def removed_bookies_still_count(patch: pytest.MonkeyPatch) -> None:
    """Rule 15: what a removed bookie acknowledged counts for its successor."""
    seat = SendWindow.seat

    def keep(self: SendWindow, position: int, bookie: BookieId, out: list[Effect]) -> None:
        acked = {batch.first: batch.acked for batch in self.uncompleted.values()}
        seat(self, position, bookie, out)
        for batch in self.uncompleted.values():
            batch.acked |= acked[batch.first]

    patch.setattr(SendWindow, "seat", keep)


def new_bookies_are_written_to_before_metadata_names_them(patch: pytest.MonkeyPatch) -> None:
    """Rule 16: frames go to a new bookie while its compare-and-set is under way."""
    propose = LedgerWriter._propose

    def early(self: LedgerWriter, bookies: tuple[BookieId, ...]) -> None:
        propose(self, bookies)
        members: list[Member] = list(self._window.members)
        for member, bookie in zip(members, bookies, strict=True):
            if member.bookie != bookie:
                self._window.seat(member.position, bookie, self._out)

    patch.setattr(LedgerWriter, "_propose", early)


def recovery_raises_the_lac(patch: pytest.MonkeyPatch) -> None:
    """Rule 12: frames of a recovery carry its progress as the LAC."""
    patch.setattr(WriteBack, "_frame_lac", lambda self: (self.added_to, self.length + self.pending_bytes))


def completion_while_metadata_is_pending(patch: pytest.MonkeyPatch) -> None:
    """Rule 15: entries complete although an ensemble change is undecided."""
    acked = LedgerWriter._frame_acked

    def eager(self: LedgerWriter, event: FrameAcked) -> None:
        acked(self, event)
        phase, self._update._phase = self._update._phase, MetadataUpdate(0)._phase
        self._complete()
        self._update._phase = phase

    patch.setattr(LedgerWriter, "_frame_acked", eager)


def listings_decide_what_is_deleted(patch: pytest.MonkeyPatch) -> None:
    """Rule 28: a ledger that a listing lacks is collected without a second look."""
    confirmed = Collector._confirmed
    patch.setattr(Collector, "_confirmed", lambda self, ledger, answer: confirmed(self, ledger, None))


WINDOW: Final = 100

MUTANTS: Final[dict[Patch, int]] = {
    one_ack_too_few: 0,
    recovery_does_not_fence: 15,
    the_fence_stops_nothing: 15,
    bookies_answer_before_they_sync: 0,
    recovery_starts_at_the_beginning: 181,
    one_denial_is_enough: 49,
    failures_count_as_not_found: 15,
    limbo_vouches: 63,
    compare_and_set_does_not_compare: 7,
    removed_bookies_still_count: 1,
    new_bookies_are_written_to_before_metadata_names_them: 70,
    recovery_raises_the_lac: 16,
    completion_while_metadata_is_pending: 31,
    listings_decide_what_is_deleted: 7,
}
"""Each with a seed that fails."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("mutant", "seed"), MUTANTS.items(), ids=[mutant.__name__ for mutant in MUTANTS])
def test_a_rule_that_is_taken_out_makes_a_seed_fail(
    mutant: Patch, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The known seed comes first; a few more, because a harmless change of the core may shift what a seed meets."""
    assert run_seed(seed).failure is None
    mutant(monkeypatch)
    assert any(run_seed(candidate).failure for candidate in range(seed, seed + WINDOW))


def _look(most: int) -> None:
    """Print a failing seed for each mutant."""
    for mutant in MUTANTS:
        with pytest.MonkeyPatch.context() as patch:
            mutant(patch)
            for seed in range(most):
                failures = run_chunk([seed]).failures
                if failures:
                    print(f"    {mutant.__name__}: {seed},  # {failures[0].failure}")
                    break
            else:
                print(f"    {mutant.__name__}: none of {most}")


if __name__ == "__main__":
    _look(2000)
