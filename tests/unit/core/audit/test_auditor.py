"""The auditor: who is lost, which ledgers need a task, and when all is well again."""

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from daybook.core.audit.auditor import Auditor, AuditorPolicy
from daybook.core.audit.cycle import CycleScope
from daybook.core.effects import CasMetadata
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.repair import requests as rq
from daybook.core.repair.judgement import Findings
from daybook.core.repair.work import Outcome
from tests.unit.core.one_ledger import LEDGER
from tests.unit.core.repair.judgement_kit import listing, up
from tests.unit.core.repair.queue_kit import Queue, heal, task_for
from tests.unit.core.repair.repair_model import Cluster, closed_ledger, open_ledger

METADATA = closed_ledger(3, 3, 2, [(0, "abc")], 9)


def auditor(**policy: int) -> Auditor:
    return Auditor(make_policy(), random.Random(1), AuditorPolicy(**{"lost_delay_ms": 0, **policy}))


def named(*names: str) -> frozenset[str]:
    """Cookies."""
    return frozenset(names)


# Cycles.


def test_a_report_sorts_ledgers_by_what_is_left_of_them() -> None:
    for alive, (none, ack, write) in {
        "abc": ((), (), ()),
        "ab": ((), (), (7,)),
        "a": ((), (7,), (7,)),
        "": ((7,), (7,), (7,)),
    }.items():
        queue = Queue(Cluster(METADATA), up(alive))
        report = queue.cycle(auditor())
        assert report.ledgers == 1
        assert (report.without_replica, report.below_ack_quorum, report.below_write_quorum) == (
            none,
            ack,
            write,
        )
        assert report.is_fully_replicated is (alive == "abc")


def test_a_ledger_that_could_not_be_read_is_never_called_replicated() -> None:
    queue = Queue(Cluster(METADATA), up("abc"))
    queue.before = lambda asked: rq.LedgerUnreadable("damaged") if isinstance(asked, rq.ReadLedger) else None
    report = queue.cycle(auditor())
    assert (report.unread, report.ledgers, report.is_fully_replicated) == ((LEDGER,), 1, False)


def test_a_deleted_ledger_loses_its_task_and_says_nothing() -> None:
    cluster = Cluster(METADATA)
    cluster.change(None)
    queue = Queue(cluster, up("abc"), task_for("gap b"))
    report = queue.cycle(auditor())
    assert queue.names() == ["ReadTask", "ReadLedger", "DeleteTask"]
    assert (report.ledgers, report.tasks_removed, report.is_fully_replicated) == (0, 1, True)
    queue = Queue(cluster, up("abc"))
    assert queue.cycle(auditor()).tasks_removed == 0
    assert queue.names() == ["ReadLedger"]


def test_rule_33_a_bookie_is_lost_for_a_cycle_as_it_was_last_observed() -> None:
    queue, auditing = Queue(Cluster(METADATA, "d"), up("abcd")), auditor(lost_delay_ms=100)
    queue.cycle(auditing)
    queue.registered = up("abd")
    assert queue.cycle(auditing).by_reason == {"missing": (7,)}
    queue.now_ms = 100
    report = queue.cycle(auditing)
    assert (report.by_reason, report.under_replicated, report.tasks_marked) == ({"lost": (7,)}, (7,), 1)
    assert queue.task is not None
    assert queue.task.reasons == ("lost c",)
    assert queue.cycle(auditing).tasks_marked == 0, "it is marked already"


def test_a_cycle_has_something_to_find_when_a_bookie_came_or_others_are_lost() -> None:
    auditing = auditor(lost_delay_ms=100)
    assert not auditing.observe(0, up("abc"))
    assert auditing.registered == up("abc")
    assert not auditing.observe(10, up("ab"))
    assert auditing.observe(110, up("ab"))
    assert not auditing.observe(120, up("ab"))
    assert auditing.observe(130, up("abc"))
    assert not auditing.observe(140, up("abc"))
    assert auditing.observe(150, up("abc") | {"b": BookieInfo("b", boot_id="another")}), "it started anew"
    assert not auditing.observe(160, {})
    assert auditing.observe(170, up("a")), "the first that comes after all were away"


def test_a_bookie_with_a_cookie_is_expected_and_one_without_is_decommissioned() -> None:
    auditing = auditor()
    auditing.expect(named("a", "b"), up("a").keys())
    auditing.observe(0, up("a"))
    assert auditing.bookies.lost() == named("b")
    auditing.expect(named("a"), up("a").keys())
    auditing.observe(1, up("a"))
    assert not auditing.bookies.missing()


def test_rule_31_the_auditor_counts_the_grace_period_over_its_cycles() -> None:
    queue = Queue(Cluster(open_ledger(3, 3, 2, [(0, "abc")]), "d"), up("abcd"))
    auditing = auditor(open_grace_ms=30_000)
    assert queue.cycle(auditing).by_reason == {}
    queue.registered = up("abd")
    for now_ms, waiting in [(0, (7,)), (20_000, (7,)), (30_000, ())]:
        queue.now_ms = now_ms
        assert queue.cycle(auditing).waiting == waiting
    assert queue.task is not None
    assert queue.task.may_recover


# Which entries are listed.


def test_rule_47_a_quick_cycle_compares_what_is_new_and_a_full_one_everything() -> None:
    queue, auditing = Queue(Cluster(METADATA), up("abc")), auditor()
    queue.cycle(auditing, full=False)
    assert queue.names() == ["ReadLedger", "ListEntries"]
    for compares_new in (True, False):
        queue.asked.clear()
        queue.cycle(auditing, full=False, compares_new=compares_new)
        assert queue.names() == ["ReadLedger"]
    del queue.cluster.bookies["b"].entries[4]
    assert queue.cycle(auditing, full=False).by_reason == {}
    assert queue.cycle(auditing).by_reason == {"gap": (7,)}
    assert queue.cycle(auditing, full=False).by_reason == {"gap": (7,)}, "it has a task"
    queue.task = None
    queue.cluster.change(METADATA)
    assert queue.cycle(auditing, full=False, compares_new=False).by_reason == {}


def test_rule_47_a_quick_cycle_finds_the_gap_in_an_ended_fragment_of_an_open_ledger() -> None:
    """It is what a writer leaves that changed its ensemble because a bookie failed behind the others (rule 45)."""
    queue = Queue(Cluster(open_ledger(3, 3, 2, [(0, "abc"), (5, "abd")])), up("abcd"))
    queue.cluster.lose("c", 3, 4)
    auditing = auditor()
    assert queue.cycle(auditing, full=False).by_reason == {"gap": (7,)}
    result = queue.turn()
    assert (result.outcome, result.copied_entries) == (Outcome.REPAIRED, 2)
    assert queue.cluster.lacks("c") == set()
    assert queue.cluster.metadata == open_ledger(3, 3, 2, [(0, "abc"), (5, "abd")]), "it is open as before"
    assert queue.cycle(auditing).is_fully_replicated


def test_rule_47_an_open_ledger_is_compared_once_after_each_change_of_its_ensemble() -> None:
    queue, auditing = Queue(Cluster(open_ledger(3, 3, 2, [(0, "abc")]), "d"), up("abcd")), auditor()
    for changed, listings in ((False, 0), (True, 1), (False, 0)):
        if changed:
            queue.cluster.change(open_ledger(3, 3, 2, [(0, "abc"), (20, "abd")]))
        queue.asked.clear()
        queue.cycle(auditing, full=False)
        assert queue.names().count("ListEntries") == listings


def test_rule_29_a_quick_cycle_knows_limbo_from_the_bookies_lists() -> None:
    cluster = Cluster(METADATA)
    cluster.bookies["b"].machine.mark_limbo(LEDGER, "n")
    assert Queue(cluster, up("abc")).cycle(auditor(), full=False, compares_new=False).by_reason == {}
    found = Queue(cluster, up("abc")).cycle(auditor(), full=False, compares_new=False, limbo=True)
    assert found.by_reason == {"limbo": (7,)}


def test_rule_45_a_live_writers_tail_is_a_gap_only_if_it_is_missing_twice() -> None:
    for arrived, reasons in [(17, {"open-gap": (7,)}), (20, {})]:
        cluster = Cluster(open_ledger(3, 3, 2, [(0, "abc")]))
        late = {entry: cluster.bookies["c"].entries.pop(entry) for entry in range(15, 20)}
        queue = Queue(cluster, up("abc"))

        def arrive(
            request: object,
            cluster: Cluster = cluster,
            late: dict[int, bytes] = late,
            until: int = arrived,
        ) -> None:
            if isinstance(request, rq.Wait):
                cluster.bookies["c"].entries.update({entry: late[entry] for entry in range(15, until)})

        queue.before = arrive
        report = queue.cycle(auditor())
        assert queue.names() == ["ReadLedger", "ListEntries", "Wait", "ListEntries"]
        assert report.by_reason == reasons
        assert report.is_fully_replicated is (not reasons)


def test_rule_45_what_was_confirmed_only_after_the_first_listing_does_not_count() -> None:
    cluster = Cluster(open_ledger(3, 3, 2, [(0, "abc")]))
    held = listing(cluster)
    first = Findings(up("abc"), listed=held, last_add_confirmed=17)
    assert first.seen_again(replace(first, last_add_confirmed=19)).last_add_confirmed == 17


# What becomes of tasks.


def test_a_task_with_a_reason_that_is_over_is_deleted_and_what_is_left_is_marked_anew() -> None:
    cluster = Cluster(METADATA)
    del cluster.bookies["b"].entries[4]
    queue = Queue(cluster, up("abc"), task_for("gap b", "lost a"))
    report = queue.cycle(auditor())
    assert queue.names() == ["ReadTask", "ReadLedger", "ListEntries", "DeleteTask", "MarkTask"]
    assert (report.tasks_removed, report.tasks_marked) == (1, 1)
    assert queue.task is not None
    assert queue.task.reasons == ("gap b",)
    cluster.bookies["b"].entries.update(cluster.bookies["a"].entries)
    assert queue.cycle(auditor()).tasks_removed == 1
    assert queue.task is None


def test_rule_33_while_repair_is_switched_off_nothing_is_marked() -> None:
    cluster = Cluster(METADATA)
    del cluster.bookies["b"].entries[4]
    queue = Queue(cluster, up("abc"))
    assert queue.cycle(auditor(), enabled=False).under_replicated == (7,)
    assert queue.task is None


def test_rule_35_a_newcomer_makes_a_task_due_that_was_set_aside() -> None:
    cluster, auditing = Cluster(METADATA), auditor()
    del cluster.bookies["b"].entries[4]
    aside = task_for("gap b").set_aside(until_ms=2**50, why="unrecoverable: entry 4")
    queue = Queue(cluster, up("abc"), aside)
    assert queue.cycle(auditing).unrecoverable == (7,)
    assert queue.task == aside
    queue.registered = up("abcd")
    queue.cycle(auditing)
    assert queue.task == aside.set_free()
    queue.task = aside
    queue.cycle(auditing)
    assert queue.task == aside, "nobody came since"
    queue.registered = up("abcd") | {"b": BookieInfo("b", boot_id="another")}
    queue.cycle(auditing)
    assert queue.task == aside.set_free(), "it started anew within one listing"


def test_rule_35_a_newcomer_is_remembered_until_a_cycle_has_ended_that_could_set_tasks_free() -> None:
    cluster, auditing = Cluster(METADATA), auditor()
    del cluster.bookies["b"].entries[4]
    aside = task_for("gap b").set_aside(until_ms=2**50, why="unrecoverable: entry 4")
    queue = Queue(cluster, up("abc"), aside)
    queue.cycle(auditing)
    auditing.observe(0, up("abcd"))
    auditing.begin(0, [LEDGER], CycleScope())  # and breaks off
    queue.registered = up("abcd")
    queue.cycle(auditing, enabled=False)
    assert queue.task == aside

    def another_comes(_: object) -> None:
        auditing.observe(0, up("abcde"))

    queue.before = another_comes
    queue.cycle(auditing)
    assert queue.task == aside.set_free()
    queue.before, queue.task, queue.registered = lambda _: None, aside, up("abcde")
    queue.cycle(auditing)
    assert queue.task == aside.set_free(), "by the one that came during the cycle"
    queue.task = aside
    queue.cycle(auditing)
    assert queue.task == aside


def test_rule_35_the_first_cycle_of_a_term_makes_tasks_due_that_were_set_aside() -> None:
    """A bookie may have come while another auditor led, or none."""
    cluster, auditing = Cluster(METADATA), auditor()
    del cluster.bookies["b"].entries[4]
    aside = task_for("gap b").set_aside(until_ms=2**50, why="unrecoverable: entry 4")
    queue = Queue(cluster, up("abc"), aside)
    auditing.begin_term()
    queue.cycle(auditing)
    assert queue.task == aside.set_free()
    queue.task = aside
    queue.cycle(auditing)
    assert queue.task == aside


def test_a_bookie_that_leaves_stays_marked_until_the_ledger_no_longer_names_it() -> None:
    queue = Queue(Cluster(METADATA, "d"), up("abcd"), task_for("leaving b"))
    assert queue.cycle(auditor()).under_replicated == (7,)
    assert queue.task is not None
    assert queue.turn().plans == 1
    assert queue.cluster.metadata is not None
    assert "b" not in queue.cluster.metadata.bookies()
    assert queue.cycle(auditor()).by_reason == {}


def test_a_bookie_in_limbo_that_leaves_stays_marked_and_gets_nothing_back() -> None:
    metadata = closed_ledger(3, 3, 2, [(0, "abc"), (5, "bac")], 9)
    queue = Queue(Cluster(metadata, "d"), up("abcd"), task_for("leaving b"))
    queue.cluster.bookies["b"].lose_disk("n")
    report = queue.cycle(auditor())
    assert report.by_reason == {"leaving": (7,), "limbo": (7,)}
    assert not report.is_fully_replicated
    assert queue.task is not None
    assert queue.task.reasons == ("leaving b", "limbo b")
    result = queue.turn()
    assert (result.outcome, result.plans) == (Outcome.REPAIRED, 2)
    assert not queue.task
    assert queue.cluster.metadata is not None
    assert "b" not in queue.cluster.metadata.bookies()
    assert not queue.cluster.bookies["b"].entries
    assert not queue.cluster.lacks("d")
    assert queue.cycle(auditor()).is_fully_replicated


def test_a_bookie_in_limbo_that_leaves_is_copied_back_to_where_no_other_is_free() -> None:
    queue = Queue(Cluster(METADATA), up("abc"), task_for("leaving b"))
    queue.cluster.bookies["b"].lose_disk("n")
    queue.cycle(auditor())
    assert queue.turn().outcome is Outcome.FAILED
    assert queue.cluster.lacks("b") == set()
    assert queue.task is not None
    assert queue.task.leaving == {"b"}


def test_rule_18_an_answer_that_is_not_awaited_is_ignored() -> None:
    auditing = auditor()
    auditing.begin(0, [LEDGER], CycleScope())
    (examination,) = auditing.next_examinations(0)
    examination.start()
    assert examination.step(rq.Waited()) == []
    assert not examination.is_done
    assert not auditing.cycle_is_over


# Everything together.


@settings(max_examples=60, deadline=None)
@given(data=st.data(), e=st.integers(2, 4))
def test_whatever_happens_short_of_the_last_replica_everything_is_fully_replicated_in_the_end(
    data: st.DataObject, e: int
) -> None:
    qw = data.draw(st.integers(2, e))
    names = "abcdefgh"
    ensembles = st.permutations(list(names)).map(lambda order: "".join(order[:e]))
    starts = sorted(data.draw(st.sets(st.integers(1, 30), max_size=2)) | {0})
    last = data.draw(st.integers(starts[-1] - 1, 35))
    cluster = Cluster(closed_ledger(e, qw, 1, [(s, data.draw(ensembles)) for s in starts], last), names)
    hurt = data.draw(st.sampled_from(names))
    kind = data.draw(st.sampled_from(["lost", "leaving", "limbo", "gaps"]))
    assert cluster.metadata is not None
    if kind == "limbo":
        cluster.bookies[hurt].lose_disk("n" if hurt in cluster.metadata.bookies() else None)
    if kind == "gaps":
        for entry in sorted(cluster.bookies[hurt].entries):
            if data.draw(st.booleans()):
                del cluster.bookies[hurt].entries[entry]
    racks = {name: data.draw(st.sampled_from(["r1", "r2", ""])) for name in names}
    alive = up("".join(name for name in names if not (kind == "lost" and name == hurt)), **racks)
    found = heal(
        cluster,
        alive,
        lost=frozenset(hurt if kind == "lost" else ""),
        leaving=frozenset(hurt if kind == "leaving" else ""),
    )
    assert found.is_fully_replicated, found
    assert not found.problems
    assert not any(cluster.lacks(name) for name in names)
    assert cluster.metadata is not None
    assert not any(cluster.bookies[name].limbo for name in cluster.metadata.bookies()), (
        "whoever moved away owes nothing"
    )
    if kind in {"lost", "leaving"}:
        assert hurt not in cluster.metadata.bookies()


def test_a_change_that_the_repair_writes_is_one_that_metadata_allows() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc"), (10, "abd")], 20), "e")
    heal(cluster, up("acde"), lost=frozenset("b"))
    changes = [effect.metadata for effect in cluster.log if isinstance(effect, CasMetadata)]
    assert len(changes) == 2
    assert cluster.metadata == changes[-1]
