"""Repair while the world changes under it: metadata, the lock, faults of every kind at every moment."""

import itertools

import pytest

from daybook.core.effects import (
    CasMetadata,
    ClearLimbo,
    Effect,
    ReadLimbo,
    ReadMetadata,
    RepairAbandoned,
    RepairFailed,
    RepairFinished,
    SendFrame,
    SendRead,
)
from daybook.core.events import (
    BookieFailed,
    BookiesChanged,
    CasAnswered,
    CasOutcome,
    CloseRequested,
    FrameAcked,
    LockLost,
    MetadataUnreadable,
    RepairEvent,
    Tick,
)
from daybook.core.format.intervals import IntervalSet
from daybook.core.repair.copy import RepairPolicy
from tests.unit.core.repair.repair_kit import SMALL, Todo, limbo_repair, named, on_first, one, repair_of
from tests.unit.core.repair.repair_model import Cluster, closed_ledger, open_ledger


def test_rule_31_an_open_last_fragment_is_never_copied() -> None:
    cluster = Cluster(open_ledger(3, 3, 2, [(0, "abc"), (10, "abd")]), "e")
    verdict = cluster.run(repair_of(cluster, one(10, 2, "d", "e")))
    assert isinstance(verdict, RepairFailed)
    assert "recover the ledger before it is repaired (rule 31)" in str(verdict.error)
    assert not cluster.bookies["e"].entries


def test_rule_56_a_deletion_during_the_copy_is_noticed() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")
    on_first(cluster, CasMetadata, lambda: cluster.change(None))
    verdict = cluster.run(repair_of(cluster, one(0, 1, "b", "e")))
    assert isinstance(verdict, RepairAbandoned)
    assert "deleted" in verdict.why
    assert cluster.metadata is None


def test_rule_56_a_deletion_during_a_copy_without_a_change_of_its_own_is_noticed() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9))
    cluster.bookies["b"].entries.clear()
    on_first(cluster, ReadMetadata, lambda: cluster.change(None))
    assert isinstance(cluster.run(repair_of(cluster, one(0, 1, "b", "b"))), RepairAbandoned)


@pytest.mark.parametrize(("others", "verdict"), [("aec", RepairFinished), ("afc", RepairAbandoned)])
def test_rule_56_a_copy_made_again_after_the_change_is_confirmed_by_a_read(
    others: str, verdict: type
) -> None:
    """Metadata named the successor, whose disk was lost: another worker may have named somebody else meanwhile."""
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "ef")
    on_first(cluster, CasMetadata, lambda: cluster.bookies["e"].lose_disk(None))
    wiping, asked = cluster.before, []

    def before(effect: Effect) -> list[RepairEvent] | None:
        if isinstance(effect, ReadMetadata):
            asked.append(effect)
            cluster.change(closed_ledger(3, 3, 2, [(0, others)], 9))
        return wiping(effect)

    cluster.before = before
    assert isinstance(cluster.run(repair_of(cluster, one(0, 1, "b", "e"))), verdict)
    assert len(asked) == 1
    assert cluster.lacks("e") == set()


@pytest.mark.parametrize("other", ["afc", "fbc"])
def test_rule_56_another_repair_of_the_same_fragment_wins_and_this_one_stops(other: str) -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "ef")
    on_first(cluster, CasMetadata, lambda: cluster.change(closed_ledger(3, 3, 2, [(0, other)], 9)))
    assert isinstance(cluster.run(repair_of(cluster, one(0, 1, "b", "e"))), RepairAbandoned)
    assert named(cluster) == [other]


def test_rule_56_a_writer_that_adds_a_fragment_costs_one_more_attempt_and_keeps_its_change() -> None:
    cluster = Cluster(open_ledger(3, 3, 2, [(0, "abc"), (10, "abd")]), "e")
    longer = open_ledger(3, 3, 2, [(0, "abc"), (10, "abd"), (15, "abe")])
    on_first(cluster, CasMetadata, lambda: cluster.change(longer))
    repair = repair_of(cluster, one(0, 2, "c", "e"))
    assert isinstance(cluster.run(repair), RepairFinished)
    assert named(cluster) == ["abe", "abd", "abe"]
    assert repair.copied_entries == 10, "nothing is removed from a ledger that is not closed: no second copy"


def test_rule_47_a_removal_by_the_successor_itself_makes_the_copy_begin_again() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")

    def removes_its_replicas() -> None:
        assert cluster.metadata is not None
        cluster.change(cluster.metadata)
        cluster.bookies["e"].entries.clear()

    on_first(cluster, CasMetadata, removes_its_replicas)
    assert isinstance(cluster.run(repair_of(cluster, one(0, 1, "b", "e"))), RepairFinished)
    assert named(cluster) == ["aec"]
    assert cluster.lacks("e") == set()


def test_an_unknown_outcome_is_read_until_it_is_known() -> None:
    for applied in (False, True):
        cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")

        def lost_reply(
            effect: Effect, c: Cluster = cluster, applied: bool = applied
        ) -> list[RepairEvent] | None:
            if isinstance(effect, CasMetadata):
                c.before = lambda effect: None
                if applied:
                    c.perform(effect)
                return [CasAnswered(effect.request_id, CasOutcome.UNKNOWN)]
            return None

        cluster.before = lost_reply
        assert isinstance(cluster.run(repair_of(cluster, one(0, 1, "b", "e"))), RepairFinished)
        assert (named(cluster), cluster.version) == (["aec"], 4)


def test_metadata_that_cannot_be_read_is_read_again_later() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9))
    repair = repair_of(cluster, one(0, 1, "b", "b", IntervalSet()))
    (asked,) = repair.start()
    assert isinstance(asked, ReadMetadata)
    assert repair.step(MetadataUnreadable(asked.request_id)) == []
    assert repair.step(Tick(999)) == []
    (again,) = repair.step(Tick(1000))
    assert isinstance(again, ReadMetadata)
    assert isinstance(repair.step(*cluster.perform(again))[0], RepairFinished)


def test_it_gives_up_for_now_when_metadata_keeps_changing() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")

    def always(effect: Effect) -> list[RepairEvent] | None:
        if isinstance(effect, CasMetadata):
            cluster.change(cluster.metadata)
        return None

    cluster.before = always
    verdict = cluster.run(repair_of(cluster, one(0, 1, "b", "e")))
    assert isinstance(verdict, RepairFailed)
    assert not verdict.unrecoverable
    assert sum(isinstance(effect, CasMetadata) for effect in cluster.log) == SMALL.attempts_max


def test_a_second_run_of_the_same_repair_does_no_harm() -> None:
    cluster = Cluster(closed_ledger(4, 3, 2, [(0, "abcd")], 40), "x")
    first, second = (repair_of(cluster, one(0, 0, "a", "x")) for _ in range(2))
    assert isinstance(cluster.run(first), RepairFinished)
    assert isinstance(cluster.run(second), RepairFinished | RepairAbandoned)
    assert named(cluster) == ["xbcd"]
    assert cluster.lacks("x") == set()


def test_late_answers_of_an_earlier_request_are_ignored() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")
    repair = repair_of(cluster, one(0, 1, "b", "e"))
    (read,) = repair.start()
    assert repair.step(CasAnswered(77, CasOutcome.DONE, 9)) == []
    assert repair.step(FrameAcked("e", 55)) == []
    (answer,) = cluster.perform(read)
    sent = repair.step(answer)
    assert repair.step(answer) == []
    assert [effect for effect in sent if isinstance(effect, SendFrame)]


@pytest.mark.parametrize("limbo", [False, True])
def test_rule_34_a_worker_whose_lock_is_lost_stops_at_once(limbo: bool) -> None:
    verdicts: list[Effect] = []
    stop_at = 0
    while not verdicts or isinstance(verdicts[-1], RepairFailed):
        cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 20), "e")
        if limbo:
            cluster.bookies["b"].lose_disk("n1")
        repair = limbo_repair(cluster, "b") if limbo else repair_of(cluster, one(0, 1, "b", "e"))
        todo = repair.start()
        for _ in range(stop_at):
            if todo:
                todo += [more for event in cluster.perform(todo.pop(0)) for more in repair.step(event)]
                todo = [effect for effect in todo if not isinstance(effect, RepairFinished)]
        version, mark = cluster.version, cluster.bookies["b"].limbo
        verdicts += repair.step(LockLost()) or [RepairFinished(repair.metadata)]
        for effect in todo:
            if not isinstance(effect, CasMetadata | ClearLimbo):
                assert [repair.step(event) for event in cluster.perform(effect)] == [[]]
        assert (cluster.version, cluster.bookies["b"].limbo) == (version, mark)
        stop_at += 1
    assert len(verdicts) > 8
    assert "lock is gone" in str(verdicts[0])


# All of it at once.

FAULTS = ("wipe", "restart", "raise", "unknown", "applied", "failed", "other")


def fault(cluster: Cluster, kind: str, effect: Effect) -> list[RepairEvent] | None:
    """Let something happen before `effect` is carried out; the answer, if it is not carried out at all."""
    assert cluster.metadata is not None
    if kind == "wipe":
        cluster.bookies["e"].lose_disk(f"n{len(cluster.log)}" if "e" in cluster.metadata.bookies() else None)
    elif kind == "restart":
        cluster.bookies["e"].boot_id += "+"
    elif kind == "raise":
        cluster.change(cluster.metadata)
        if "e" not in cluster.metadata.bookies():
            cluster.bookies["e"].entries.clear()  # the bookie's own removal (rule 47)
    elif kind in {"unknown", "applied"} and isinstance(effect, CasMetadata):
        if kind == "applied":
            cluster.perform(effect)
        return [CasAnswered(effect.request_id, CasOutcome.UNKNOWN)]
    elif kind == "failed" and isinstance(effect, SendRead | SendFrame | ReadLimbo | ClearLimbo):
        return [BookieFailed(effect.bookie)]
    elif kind == "other" and named(cluster)[0][2] == "c":
        cluster.change(cluster.metadata.with_replica(0, "c", "f"))
    return None


@pytest.mark.parametrize("limbo", [False, True])
def test_a_finished_repair_has_everything_in_place_whatever_happened_meanwhile(limbo: bool) -> None:
    """Every pair of faults, before every pair of steps."""
    finished = 0
    moments = list(itertools.product(range(9), FAULTS))
    for faults in itertools.combinations_with_replacement(moments, 2):
        cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abe" if limbo else "abc")], 9), "ef")
        cluster.bookies["f"].entries.update(cluster.bookies["a"].entries)
        if limbo:
            cluster.bookies["e"].lose_disk("n")
        todo = list(faults)

        def before(effect: Effect, cluster: Cluster = cluster, todo: Todo = todo) -> list[RepairEvent] | None:
            answer = None
            while todo and todo[0][0] < len(cluster.log):
                answer = fault(cluster, todo.pop(0)[1], effect)
            return answer

        cluster.before = before
        if limbo:
            repair = limbo_repair(cluster, "e", policy=RepairPolicy())
        else:
            repair = repair_of(cluster, one(0, 1, "b", "e"), policy=RepairPolicy())
        verdict = cluster.run(repair)
        if isinstance(verdict, RepairFinished):
            finished += 1
            assert "".join(named(cluster)).count("e") == 1, faults
            assert cluster.bookies["e"].limbo is None or not limbo, faults
        if isinstance(verdict, RepairFinished) or (limbo and cluster.bookies["e"].limbo is None):
            assert cluster.bookies["e"].limbo or not cluster.lacks("e"), faults
    assert finished > 1000, "most faults are got over"


def test_news_is_no_matter_to_a_repair_and_an_event_of_another_machine_is_an_error() -> None:
    repair = repair_of(Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "d"), one(0, 0, "a", "d"))
    repair.start()
    assert repair.step(BookiesChanged({})) == []
    with pytest.raises(AssertionError, match="CloseRequested"):
        repair.step(CloseRequested(1))  # type: ignore[arg-type]  # a driver's error
