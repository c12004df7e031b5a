"""Over-replicated entries: what a bookie holds and metadata no longer places there, and when it may go (rule 47)."""

import itertools
from collections.abc import Callable
from typing import TypeAlias

import pytest

from daybook.core.bookie.over_replicated import OverReplicatedRemoval, over_replicated
from daybook.core.bookie.watch import Watch
from daybook.core.effects import Effect, RepairFinished
from daybook.core.format.intervals import IntervalSet
from daybook.core.repair.plan import CopyJob, FragmentRepair, RepairPlan
from daybook.core.repair.repair import LedgerRepair
from tests.unit.core.one_ledger import LEDGER
from tests.unit.core.repair.judgement_kit import listing
from tests.unit.core.repair.repair_model import Cluster, closed_ledger, open_ledger

Todo: TypeAlias = list[Callable[[], None]]


def test_over_replicated_is_what_a_closed_ledger_does_not_place_here() -> None:
    cluster = Cluster(closed_ledger(4, 3, 2, [(0, "abcd"), (20, "bcde")], 40))
    assert cluster.metadata is not None
    listed = listing(cluster)
    for name in "abcde":
        assert not over_replicated(cluster.metadata, name, listed[name])
    listed["a"].add(25, 27)
    extra = over_replicated(cluster.metadata, "a", listed["a"])
    assert [tuple(interval[:2]) for interval in extra] == [(25, 27)]
    opened = open_ledger(4, 3, 2, [(0, "bcde")])
    assert not over_replicated(opened, "a", listed["a"]), "an open ledger's entries stay"
    behind = closed_ledger(3, 3, 2, [(0, "abc"), (10, "bcd")], 9)
    written = IntervalSet()
    written.add(0, 9)
    assert over_replicated(behind, "d", written) == written, "a fragment without entries owes nothing"


def test_rule_47_over_replicated_entries_go_only_after_the_version_was_raised_and_no_add_came() -> None:
    metadata = closed_ledger(3, 3, 2, [(0, "abc")], 9)
    listed = IntervalSet()
    listed.add(0, 9)
    watch = Watch(metadata.ledger_id)
    removal = OverReplicatedRemoval("z", watch)
    assert removal.metadata_read(metadata, 3, listed)
    assert not removal.may_remove(), "nothing goes before the compare-and-set"
    removal.version_raised(4)
    assert removal.may_remove()
    watch.changes += 1
    assert not removal.may_remove(), "a repair has begun to copy again"
    assert not OverReplicatedRemoval("a", watch).metadata_read(metadata, 3, listed), "what it owes stays"


class Remover:
    """Bookie z, which removes what it does not owe, one step at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.z = cluster.bookies["z"]
        self.read_at: int | None = None

    def begin(self) -> None:
        (watch,) = self.z.machine.watches.begin([LEDGER])
        self.removal = OverReplicatedRemoval("z", watch)

    def read_metadata(self) -> None:
        assert self.cluster.metadata is not None
        if self.removal.metadata_read(
            self.cluster.metadata, self.cluster.version, listing(self.cluster)["z"]
        ):
            self.read_at = self.cluster.version

    def raise_version(self) -> None:
        if self.read_at == self.cluster.version:
            self.cluster.change(self.cluster.metadata)
            self.removal.version_raised(self.cluster.version)

    def remove(self) -> None:
        if self.removal.may_remove():
            for interval in self.removal.entries:
                for entry in interval.entry_ids():
                    self.z.entries.pop(entry, None)


@pytest.mark.parametrize("has_old_copies", [False, True])
def test_rule_47_a_removal_beside_a_repair_that_names_the_bookie_again_loses_nothing(
    has_old_copies: bool,
) -> None:
    """The four steps of a removal fall between all steps of a repair towards the same bookie, in every way."""
    for moments in itertools.combinations_with_replacement(range(9), 4):
        cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 12), "z")
        assert cluster.metadata is not None
        if has_old_copies:
            cluster.bookies["z"].entries.update(cluster.bookies["b"].entries)
        remover = Remover(cluster)
        todo = [remover.begin, remover.read_metadata, remover.raise_version, remover.remove]
        when = list(moments)

        def before(
            effect: Effect, cluster: Cluster = cluster, todo: Todo = todo, when: list[int] = when
        ) -> None:
            while when and when[0] < len(cluster.log):
                when.pop(0)
                todo.pop(0)()

        cluster.before = before
        plan = RepairPlan((FragmentRepair(0, (CopyJob(1, "b", "z"),)),))
        verdict = cluster.run(LedgerRepair(cluster.metadata, cluster.version, plan))
        for step in todo:
            step()
        assert isinstance(verdict, RepairFinished)
        assert cluster.lacks("z") == set(), moments
