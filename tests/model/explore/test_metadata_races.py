"""Deletion, recovery and repair of one ledger in every order of their metadata operations (rule 56).

Between two metadata operations an actor runs alone: what it does with bookies meanwhile is explored elsewhere. What an
actor reports as done must still stand when everyone has finished, and whoever comes after a deletion must say so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import pytest

from daybook.core.effects import CasMetadata, ReadMetadata, Recovered, RepairFinished
from daybook.core.events import MetadataRead
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.repair.plan import CopyJob, FragmentRepair, RepairPlan
from daybook.core.repair.repair import LedgerRepair
from tests.model.mutants.catalog import recovery as recovery_mutants
from tests.unit.core.recovery.recovery_kit import recovery_of
from tests.unit.core.small_cluster import ENTRY_BYTES, Cluster, Run


@dataclass(frozen=True)
class DeleteMetadata:
    """Delete the metadata if the version is still the expected one."""

    expected_version: int


@dataclass(frozen=True)
class Deleted:
    """The ledger is gone."""


class Deletion:
    """What a client does to delete a ledger: never one that is not CLOSED, always against the version it read."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.recovery: Run | None = None

    def start(self) -> list[object]:
        return [ReadMetadata(1)]

    def step(self, event: object) -> list[object]:
        if event is True:
            return [Deleted()]
        if event is False:
            return [ReadMetadata(1)]
        assert isinstance(event, MetadataRead)
        if event.metadata is None:
            return [Deleted()]
        if event.metadata.is_closed:
            return [DeleteMetadata(event.version)]
        machine = recovery_of(self.cluster)
        self.recovery = Run(self.cluster, machine.step, machine.start())
        return []


class Actor:
    """Runs up to and including its next metadata operation when it is its turn."""

    def __init__(
        self, name: str, cluster: Cluster, step: Callable[..., Sequence[object]], first: Sequence[object]
    ) -> None:
        self.name = name
        self.cluster = cluster
        self.step = step
        self.queue: list[object] = list(first)
        self.results: list[object] = []
        self.was_after_deletion = False
        """Whether its last metadata operation came after the deletion."""

    @property
    def is_done(self) -> bool:
        return not self.queue

    def turn(self) -> None:
        """Carry out everything up to the next metadata operation, and that."""
        while self.queue:
            effect = self.queue.pop(0)
            is_metadata = isinstance(effect, (ReadMetadata, CasMetadata, DeleteMetadata))
            if is_metadata:
                self.was_after_deletion = self.cluster.metadata is None
            self._perform(effect)
            if is_metadata:
                self._run_to_metadata()
                return

    def _run_to_metadata(self) -> None:
        """Nothing that bookies do waits for another turn."""
        while self.queue and not any(
            isinstance(self.queue[0], kind) for kind in (ReadMetadata, CasMetadata, DeleteMetadata)
        ):
            self._perform(self.queue.pop(0))

    def _perform(self, effect: object) -> None:
        events: Sequence[object]
        if isinstance(effect, DeleteMetadata):
            events = [self._delete(effect)]
        else:
            events = self.cluster.perform(effect)  # type: ignore[arg-type]  # what is no request has no answer
            if not events:
                self.results.append(effect)
        for event in events:
            self.queue.extend(self.step(event))

    def _delete(self, effect: DeleteMetadata) -> bool:
        if self.cluster.metadata is None or effect.expected_version != self.cluster.version:
            return False
        assert self.cluster.meta.is_closed, "a ledger that is not closed was deleted (rule 20)"
        self.cluster.metadata = None
        self.cluster.version += 1
        return True


def recovery_actor(cluster: Cluster) -> Actor:
    machine = recovery_of(cluster)
    return Actor("recovery", cluster, machine.step, machine.start())


def repair_actor(cluster: Cluster) -> Actor:
    plan = RepairPlan((FragmentRepair(0, (CopyJob(0, "b1", "b4"),)),))
    machine = LedgerRepair(cluster.meta, cluster.version, plan)
    return Actor("repair", cluster, machine.step, machine.start())


def deletion_actor(cluster: Cluster) -> Actor:
    deletion = Deletion(cluster)
    actor = Actor("deletion", cluster, deletion.step, deletion.start())

    def step(event: object) -> Sequence[object]:
        """While it recovers, the recovery's effects are the deletion's; then it reads again."""
        if deletion.recovery is not None:
            effects: list[object] = list(deletion.recovery.step(event))
            if any(not _is_request(effect) for effect in effects):
                deletion.recovery = None
                return [ReadMetadata(1)]
            return effects
        effects = deletion.step(event)
        return list(deletion.recovery.queue) if deletion.recovery is not None else effects

    actor.step = step
    return actor


def _is_request(effect: object) -> bool:
    return type(effect).__name__.startswith(("Send", "Read", "Cas")) and not isinstance(effect, Recovered)


ACTORS = {"recovery": recovery_actor, "repair": repair_actor, "deletion": deletion_actor}


def ledger(closed: bool) -> Cluster:
    """Two fragments; the first has lost b1, the last may be open."""
    cluster = Cluster(spares=1, start=(2, 2 * ENTRY_BYTES))
    cluster.write_everywhere(0, 2)
    if closed:
        cluster.metadata = cluster.meta.closed(2, 3 * ENTRY_BYTES)
    return cluster


def race(names: Sequence[str], order: Sequence[int], *, closed: bool) -> tuple[Cluster, list[Actor]]:
    """Let the actors take turns in `order`, then finish one after the other."""
    cluster = ledger(closed)
    actors = [ACTORS[name](cluster) for name in names]
    for turn in order:
        actors[turn].turn()
    for actor in actors:
        while not actor.is_done:
            actor.turn()
    return cluster, actors


def check(cluster: Cluster, actors: Sequence[Actor]) -> None:
    """What was reported as done stands; whoever came after the deletion noticed it."""
    now: LedgerMetadata | None = cluster.metadata
    for actor in actors:
        result = actor.results[-1]
        succeeded = isinstance(result, (Recovered, RepairFinished))
        assert not (succeeded and actor.was_after_deletion), f"{actor.name} did not notice the deletion"
        if now is None:
            continue
        if isinstance(result, Recovered):
            assert now.is_closed
            assert (now.last_entry, now.length) == (2, 3 * ENTRY_BYTES)
        if isinstance(result, RepairFinished):
            assert now.fragments[0].bookies == ("b4", "b2", "b3"), "a finished repair was undone"
            assert {0, 1} <= cluster.bookies["b4"].entries.keys()
        assert not isinstance(result, Deleted), "a deleted ledger came back"


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(
    "names", [*combinations(ACTORS, 2), ("repair", "repair"), tuple(ACTORS)], ids="-".join
)
def test_rule_56_deletion_recovery_and_repair_notice_each_other(names: tuple[str, ...], closed: bool) -> None:
    outcomes = set()
    for order in product(range(len(names)), repeat=8 if len(names) == 2 else 6):
        cluster, actors = race(names, order, closed=closed)
        check(cluster, actors)
        outcomes.add(tuple(type(actor.results[-1]).__name__ for actor in actors))
    if "deletion" in names:
        assert any("Deleted" in outcome for outcome in outcomes)
        assert len(outcomes) > 1, "the order made no difference: the race was never run"


def test_a_close_that_overwrites_a_repair_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    recovery_mutants.a_close_overwrites_what_changed_meanwhile(monkeypatch)
    with pytest.raises(AssertionError, match="a finished repair was undone"):
        test_rule_56_deletion_recovery_and_repair_notice_each_other(("recovery", "repair"), closed=False)
