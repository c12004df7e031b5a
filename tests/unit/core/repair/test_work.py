"""One ledger's turn in the queue of repairs: the order of the steps, what is passed over, and how the task is settled."""

from collections.abc import Callable

import pytest

from daybook.core.effects import Recovered, RecoveryFailed, RepairAbandoned, RepairFailed, RepairFinished
from daybook.core.errors import RecoveryFailedError, RepairError
from daybook.core.events import LockLost
from daybook.core.ids import BookieId
from daybook.core.repair import requests as rq
from daybook.core.repair.judgement import Problem
from daybook.core.repair.order import TaskOrder
from daybook.core.repair.task import RepairTask
from daybook.core.repair.work import TRIES_OF_A_PLAN, Outcome
from tests.unit.core.one_ledger import LEDGER
from tests.unit.core.repair.judgement_kit import up
from tests.unit.core.repair.queue_kit import Queue, task_for
from tests.unit.core.repair.repair_model import Cluster, closed_ledger, open_ledger

METADATA = closed_ledger(3, 3, 2, [(0, "abc")], 9)


def lacking(*names: str, entry: int = 4) -> Cluster:
    """A cluster of one closed ledger, of which `names` lack an entry."""
    cluster = Cluster(METADATA, "d")
    for name in names:
        del cluster.bookies[name].entries[entry]
    return cluster


def test_a_ledger_is_repaired_plan_by_plan_and_its_task_is_deleted() -> None:
    metadata = closed_ledger(3, 3, 2, [(0, "abc"), (5, "abd")], 9)
    cluster = Cluster(metadata)
    del cluster.bookies["b"].entries[2]
    del cluster.bookies["d"].entries[7]
    queue = Queue(cluster, up("abcd"), task_for("gap b", "gap d"))
    result = queue.turn()
    assert queue.names() == ["ReadTask", "Examine", "Repair", "Examine", "Repair", "Examine", "DeleteTask"]
    assert (result.outcome, result.plans, result.copied_entries) == (Outcome.REPAIRED, 2, 2)
    assert result.copied_bytes > 0
    assert queue.task is None
    assert not cluster.lacks("b") | cluster.lacks("d")


def test_a_ledger_without_a_task_is_left_alone() -> None:
    queue = Queue(lacking("b"), up("abc"))
    assert queue.turn().outcome is Outcome.SOUND
    assert queue.names() == ["ReadTask"]


def test_rule_33_a_task_whose_reason_is_over_is_deleted_and_nothing_is_copied() -> None:
    queue = Queue(lacking(), up("abcd"), task_for("lost b"))
    assert queue.turn().outcome is Outcome.SOUND
    assert queue.names() == ["ReadTask", "Examine", "DeleteTask"]


def test_a_deleted_ledger_has_no_task() -> None:
    cluster = lacking()
    cluster.change(None)
    queue = Queue(cluster, up("abc"), task_for("gap b"))
    assert queue.turn().outcome is Outcome.DELETED
    assert queue.task is None


def test_a_ledger_whose_metadata_cannot_be_read_is_set_aside() -> None:
    queue = Queue(lacking(), up("abc"), task_for("gap b"))
    queue.before = lambda asked: rq.LedgerUnreadable("damaged") if isinstance(asked, rq.Examine) else None
    assert queue.turn().outcome is Outcome.FAILED
    assert queue.task is not None
    assert queue.task.why_not == "damaged"


def test_rule_31_an_open_ledger_is_recovered_before_an_older_fragment_is_repaired() -> None:
    metadata = open_ledger(3, 3, 2, [(0, "abc"), (5, "abd")])
    cluster = Cluster(metadata, "e")
    del cluster.bookies["c"].entries[2]
    queue = Queue(cluster, up("abce"), task_for("lost d", "gap c", "recover"))

    def recovered(request: object) -> rq.RepairEnded | None:
        if not isinstance(request, rq.Recover):
            return None
        closed = closed_ledger(3, 3, 2, [(0, "abc"), (5, "abe")], 19)
        cluster.bookies["e"].entries.update(cluster.bookies["a"].entries)
        cluster.change(closed)
        return rq.RepairEnded(Recovered(closed))

    queue.before = recovered
    assert queue.turn().outcome is Outcome.REPAIRED
    assert queue.names() == ["ReadTask", "Examine", "Recover", "Examine", "Repair", "Examine", "DeleteTask"]


def test_rule_31_without_the_auditors_observation_an_open_ledger_is_not_recovered() -> None:
    queue = Queue(Cluster(open_ledger(3, 3, 2, [(0, "abc")]), "d"), up("abd"), task_for("lost c"))
    result = queue.turn()
    assert "Recover" not in queue.names()
    assert result.outcome is Outcome.SOUND, "the auditor decides when it is time for the open fragment"


def test_a_recovery_that_fails_is_not_tried_again_in_the_same_turn() -> None:
    queue = Queue(Cluster(open_ledger(3, 3, 2, [(0, "abc")]), "d"), up("abd"), task_for("lost c", "recover"))
    failed = RecoveryFailed(RecoveryFailedError("nobody vouches"))
    queue.before = lambda asked: rq.RepairEnded(failed) if isinstance(asked, rq.Recover) else None
    result = queue.turn()
    assert (result.outcome, result.why, result.unrecoverable) == (Outcome.FAILED, "nobody vouches", False)
    assert queue.names() == ["ReadTask", "Examine", "Recover", "Examine", "SetTaskAside"]


def test_rule_35_a_failed_repair_is_set_aside_for_a_time_that_doubles() -> None:
    queue = Queue(lacking("a", "b", "c"), up("abc"), task_for("gap a", "gap b", "gap c"))
    for attempts, pause_ms in enumerate((1_000, 2_000, 4_000, 8_000, 8_000), 1):
        result = queue.turn()
        assert (result.outcome, result.unrecoverable) == (Outcome.FAILED, True)
        assert queue.task is not None
        assert (queue.task.attempts, queue.task.not_before_ms) == (attempts, queue.now_ms + pause_ms)
        assert queue.task.is_unrecoverable
        assert "entry 4" in queue.task.why_not
        queue.now_ms = queue.task.not_before_ms


def test_rule_35_a_task_that_another_worker_set_aside_since_it_was_found_is_left_alone() -> None:
    queue = Queue(lacking("a", "b", "c"), up("abc"), task_for("gap a", "gap b", "gap c"))
    for _ in range(2):  # a pause that begins, and one that is extended
        found = queue.task
        assert found is not None
        assert queue.turn(found=found).outcome is Outcome.FAILED, (
            "nothing happened since this worker found it"
        )
        queue.asked.clear()
        late = queue.turn(found=found)
        assert queue.names() == ["ReadTask"]
        assert queue.task is not None
        assert (late.outcome, late.is_done, late.why) == (Outcome.PAUSED, False, queue.task.why_not)


def test_rule_35_a_task_that_became_due_again_since_it_was_found_is_tried() -> None:
    queue = Queue(lacking("a", "b", "c"), up("abc"), task_for("gap a", "gap b", "gap c"))
    found = queue.task
    queue.turn(found=found)
    assert queue.task is not None
    queue.task = queue.task.set_free()
    assert queue.turn(found=found).outcome is Outcome.FAILED


def test_rule_35_a_fragment_that_cannot_be_repaired_keeps_no_other_from_it() -> None:
    metadata = closed_ledger(3, 3, 2, [(0, "abc"), (5, "abd")], 9)
    cluster = Cluster(metadata)
    for name in "abc":
        del cluster.bookies[name].entries[3]
    del cluster.bookies["d"].entries[7]
    queue = Queue(cluster, up("abcd"), task_for("gap a"))
    result = queue.turn()
    assert (result.outcome, result.plans) == (Outcome.FAILED, 1)
    assert not cluster.lacks("d")


def test_a_repair_that_does_not_last_is_tried_so_often() -> None:
    queue = Queue(lacking("b"), up("abc"), task_for("gap b"))
    queue.before = lambda asked: (
        rq.RepairEnded(RepairFinished(METADATA)) if isinstance(asked, rq.Repair) else None
    )
    result = queue.turn()
    assert queue.names().count("Repair") == TRIES_OF_A_PLAN
    assert result.outcome is Outcome.FAILED
    assert "did not last" in result.why


def test_a_fragment_that_others_keep_changing_is_tried_so_often() -> None:
    queue = Queue(lacking("b"), up("abc"), task_for("gap b"))
    queue.before = lambda asked: (
        rq.RepairEnded(RepairAbandoned("changed")) if isinstance(asked, rq.Repair) else None
    )
    assert (queue.turn().outcome, queue.names().count("Repair")) == (Outcome.FAILED, TRIES_OF_A_PLAN)


def test_what_cannot_be_repaired_for_want_of_bookies_is_said() -> None:
    queue = Queue(lacking(), up("ab"), task_for("lost c"))
    result = queue.turn()
    assert result.outcome is Outcome.FAILED
    assert result.why.startswith("ledger 7, entry 0: ")


def test_a_bookie_that_lists_nothing_is_named_with_its_reason() -> None:
    queue = Queue(lacking(), up("abc"), task_for("gap b"), silent=frozenset("b"))
    assert queue.turn().why == "entry 0: b is unlisted (down)"
    unfinished = Queue(
        Cluster(open_ledger(3, 3, 2, [(0, "abc")]).in_recovery()), up("abc"), task_for("gap b")
    )
    assert unfinished.turn().outcome is Outcome.SOUND, "an open fragment is not the order's"


def test_what_an_open_fragment_lacks_is_its_writers_to_send() -> None:
    cluster = Cluster(open_ledger(3, 3, 2, [(0, "abc")]))
    del cluster.bookies["b"].entries[4]
    assert Queue(cluster, up("abc"), task_for("gap b")).turn().outcome is Outcome.SOUND


def test_rule_29_limbo_ends_in_place() -> None:
    cluster = lacking()
    cluster.bookies["b"].lose_disk("n")
    assert Queue(cluster, up("abc"), task_for("limbo b")).turn().outcome is Outcome.REPAIRED
    assert cluster.bookies["b"].limbo is None
    assert not cluster.lacks("b")


@pytest.mark.parametrize(("spare", "outcome"), [("d", Outcome.REPAIRED), ("", Outcome.FAILED)])
def test_a_bookie_that_leaves_is_replaced_or_the_order_is_unfulfilled(spare: str, outcome: Outcome) -> None:
    queue = Queue(lacking(), up("abc" + spare), task_for("leaving c"))
    assert queue.turn().outcome is outcome


def test_rule_56_what_is_marked_during_the_work_stays() -> None:
    queue = Queue(lacking("b"), up("abc"), task_for("gap b"))

    def mark(request: object) -> None:
        if isinstance(request, rq.DeleteTask):
            queue.task = task_for("gap b", "gap c")
            queue.version += 1

    queue.before = mark
    result = queue.turn()
    assert (result.outcome, result.again_ms, result.why) == (Outcome.WAITING, 0, "more was found meanwhile")
    assert queue.task is not None


def test_rule_34_nothing_is_asked_for_once_the_lock_is_lost() -> None:
    queue = Queue(lacking("b"), up("abc"), task_for("gap b"))
    queue.before = lambda asked: LockLost() if isinstance(asked, rq.DeleteTask) else None
    assert queue.turn().outcome is Outcome.LOCK_LOST
    work = queue.work()
    work.start()
    assert work.step(LockLost()) == []
    assert work.is_done
    assert work.step(rq.TaskRead(task_for("gap b"), 1)) == []


def test_a_worker_that_is_to_stop_begins_no_further_plan() -> None:
    queue = Queue(lacking("b"), up("abc"), task_for("gap b"))

    def stop(request: object) -> rq.StopRequested | None:
        second = isinstance(request, rq.Examine) and queue.names().count("Examine") == 2
        return rq.StopRequested() if second else None

    queue.before = stop
    result = queue.turn()
    assert (result.outcome, result.plans, result.is_done) == (Outcome.STOPPED, 1, False)
    assert queue.task is not None


def test_rule_18_an_answer_that_is_not_awaited_is_ignored() -> None:
    work = Queue(lacking("b"), up("abc"), task_for("gap b")).work()
    work.start()
    assert work.step(rq.TaskDeleted(deleted=True)) == []
    assert work.step(rq.RepairEnded(RepairFailed(RepairError("late")))) == []
    assert not work.is_done
    assert work.step(rq.TaskRead(task_for("gap b"), 1)) == [rq.Examine(LEDGER)]


class Awaited(TaskOrder):
    """An order that waits until `again_at_ms`, as far as `bookie` is concerned."""

    waits = True
    again_at_ms: int | None = 500
    bookie: BookieId = "c"

    def again_ms(self) -> int | None:
        return self.again_at_ms

    def concerns(self, problem: Problem) -> bool:
        return problem.bookie == self.bookie


def awaited(task: RepairTask | None) -> Awaited:
    return Awaited(task or task_for())


def test_rule_33_an_order_that_waits_is_kept_while_a_bookie_is_away() -> None:
    result = Queue(lacking(), up("ab")).turn(awaited)
    assert (result.outcome, result.again_ms, result.why) == (Outcome.WAITING, 500, "entry 0: c is missing")
    assert Queue(lacking(), up("abc")).turn(awaited).outcome is Outcome.SOUND


def test_rule_31_an_order_that_waits_includes_the_open_fragment() -> None:
    cluster = Cluster(open_ledger(3, 3, 2, [(0, "abc")]), "d")
    result = Queue(cluster, up("abd"), task_for("lost c")).turn(awaited)
    assert (result.outcome, result.why) == (Outcome.WAITING, "entry 0: c is lost")


def test_an_order_that_does_not_concern_a_bookie_is_fulfilled_without_it() -> None:
    order: Callable[[RepairTask | None], Awaited] = awaited
    result = Queue(lacking(), up("bc"), silent=frozenset("b")).turn(order)
    assert result.outcome is Outcome.SOUND
