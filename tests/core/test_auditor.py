"""The auditor: who is lost, what is wrong with a ledger, what mends it, and when all is well again."""

import itertools
import random
from collections.abc import Callable, Iterable
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybook.core.audit_ledger import Findings, LedgerAudit, LedgerAuditor, OpenAction, Problem, Reason
from daybook.core.auditor import (
    Auditor,
    AuditorPolicy,
    CycleReport,
    DecommissionStep,
    PacedReads,
    decommission_step,
)
from daybook.core.errors import MetadataError
from daybook.core.events import CasMetadata, Effect, RepairFinished
from daybook.core.ids import BookieId
from daybook.core.intervals import IntervalSet
from daybook.core.lost_bookies import GracePeriods, LostBookies
from daybook.core.metadata import LedgerMetadata
from daybook.core.placement import BookieInfo
from daybook.core.placement_policies import PlacementSettings, make_policy
from daybook.core.repair import LedgerRepair
from daybook.core.repair_plan import CopyJob, FragmentRepair, RepairPlan
from daybook.core.repair_task import RepairTask, RetryBucket
from daybook.core.surplus import SurplusRemoval, surplus
from tests.core.repair_model import Cluster, closed_ledger, open_ledger

Todo: TypeAlias = list[Callable[[], None]]


def judge() -> LedgerAuditor:
    """An auditor of single ledgers with the default policy."""
    return LedgerAuditor(make_policy(), random.Random(1))


def up(names: str, **racks: str) -> dict[BookieId, BookieInfo]:
    """Registered bookies, one letter each; `racks` puts some of them into racks."""
    return {name: BookieInfo(name, rack=racks.get(name, "")) for name in names}


def listing(cluster: Cluster) -> dict[BookieId, IntervalSet]:
    """What every bookie of the cluster has."""
    listed = {}
    for name, bookie in cluster.bookies.items():
        listed[name] = IntervalSet()
        listed[name].add_ids(sorted(bookie.entries))
    return listed


def audit(metadata: LedgerMetadata, findings: Findings, *, grace_is_over: bool = False) -> LedgerAudit:
    return judge().audit(metadata, findings, grace_is_over=grace_is_over)


def successors(plans: Iterable[RepairPlan]) -> list[tuple[int, str, str]]:
    """(first entry, old, new) of every job."""
    return [(f.first_entry, j.old, j.target) for plan in plans for f in plan.fragments for j in f.jobs]


# Who is lost (rule 33).


def test_rule_33_a_rolling_restart_loses_no_bookie() -> None:
    tracker = LostBookies(delay_ms=60_000)
    everyone = frozenset("abcdef")
    now_ms = 0
    for _ in range(3):
        for name in sorted(everyone):
            tracker.observe(now_ms, everyone - {name}, frozenset())
            now_ms += 55_000
            tracker.observe(now_ms, everyone - {name}, frozenset())
            assert tracker.lost() == frozenset()
            tracker.observe(now_ms + 1, everyone, frozenset())
            now_ms += 1_000


def test_rule_33_a_bookie_is_lost_after_the_delay_and_a_listing_that_still_misses_it() -> None:
    tracker = LostBookies(delay_ms=60_000)
    tracker.observe(0, frozenset("abc"), frozenset())
    tracker.observe(1_000, frozenset("ab"), frozenset())
    assert tracker.next_check_ms() == 61_000
    tracker.observe(60_999, frozenset("ab"), frozenset())
    assert tracker.lost() == frozenset()
    assert tracker.missing() == frozenset("c")
    tracker.observe(61_000, frozenset("ab"), frozenset())
    assert tracker.lost() == frozenset("c")
    assert tracker.next_check_ms() is None
    tracker.observe(61_001, frozenset("abc"), frozenset())
    assert tracker.lost() == frozenset(), "it is back"


def test_rule_33_a_read_only_bookie_is_not_lost() -> None:
    tracker = LostBookies(delay_ms=1_000)
    tracker.observe(0, frozenset("abc"), frozenset())
    for now_ms in (1_000, 5_000, 9_000):
        tracker.observe(now_ms, frozenset("ab"), frozenset("c"))
        assert not tracker.lost() | tracker.missing()


def test_rule_33_auto_recovery_can_be_turned_off_for_all() -> None:
    tracker = LostBookies(delay_ms=1_000)
    tracker.observe(0, frozenset("abc"), frozenset())
    tracker.observe(10, frozenset("ab"), frozenset())
    tracker.set_enabled(enabled=False)
    tracker.observe(50_000, frozenset("ab"), frozenset())
    assert tracker.lost() == frozenset()
    assert tracker.next_check_ms() is None
    tracker.set_enabled(enabled=True)
    tracker.observe(50_001, frozenset("ab"), frozenset())
    assert tracker.lost() == frozenset(), "the delay begins anew"
    tracker.observe(51_001, frozenset("ab"), frozenset())
    assert tracker.lost() == frozenset("c")


def test_a_bookie_that_only_metadata_knows_can_be_lost_and_a_decommissioned_one_cannot() -> None:
    tracker = LostBookies(delay_ms=1_000)
    tracker.expect(frozenset("xy"))
    tracker.observe(0, frozenset("a"), frozenset())
    tracker.forget("y")
    tracker.observe(2_000, frozenset("a"), frozenset())
    assert tracker.lost() == frozenset("x")


def test_rule_33_a_worker_looks_again_before_it_copies() -> None:
    metadata = closed_ledger(3, 3, 2, [(0, "abc")], 9)
    found = audit(metadata, Findings(up("ade"), lost=frozenset("bc")))
    task = RepairTask.of(found)
    assert task.still_lost(frozenset("ade")) == frozenset("bc")
    back = up("abde")
    again = audit(metadata, Findings(back, lost=task.still_lost(back.keys())))
    assert {old for _, old, _ in successors(again.plans)} == {"c"}
    missing_only = RepairTask.of(audit(metadata, Findings(up("ade"), lost=frozenset("b"))))
    assert missing_only.still_lost(frozenset("ade")) == frozenset("b"), "c is away, but not for long"


# What is wrong with a ledger.


def test_a_sound_ledger_has_no_problem() -> None:
    cluster = Cluster(closed_ledger(4, 3, 2, [(0, "abcd"), (10, "bcde")], 30))
    assert cluster.metadata is not None
    found = audit(cluster.metadata, Findings(up("abcde"), listed=listing(cluster)))
    assert not found.problems
    assert not found.plans
    assert found.is_fully_replicated
    assert found.replicas_min == 3
    assert not audit(cluster.metadata, Findings(up("abcde"))).is_fully_replicated, "nobody looked for gaps"


def test_lost_and_leaving_bookies_are_replaced_by_ones_that_stay() -> None:
    metadata = closed_ledger(3, 3, 2, [(0, "abc"), (10, "abd")], 30)
    found = audit(metadata, Findings(up("adefg"), lost=frozenset("bc"), leaving=frozenset("df")))
    assert {p.reason for p in found.problems} == {Reason.LOST, Reason.LEAVING}
    moves = successors(found.plans)
    assert [(first, old) for first, old, _ in moves] == [(0, "b"), (0, "c"), (10, "b"), (10, "d")]
    assert {new for _, _, new in moves} == {"e", "g"}
    assert found.replicas_min == 1
    assert not found.is_fully_replicated
    assert RepairTask.of(found).reasons == (Reason.LEAVING, Reason.LOST)


def test_a_bookie_that_is_merely_away_is_a_problem_without_a_plan() -> None:
    found = audit(closed_ledger(3, 3, 2, [(0, "abc")], 9), Findings(up("abde")))
    assert found.problems == (Problem(0, "c", Reason.MISSING),)
    assert not found.plans
    assert not found.is_fully_replicated


def test_with_one_spare_for_two_lost_bookies_one_is_replaced_and_the_rest_reported() -> None:
    found = audit(closed_ledger(3, 3, 2, [(0, "abc")], 9), Findings(up("ad"), lost=frozenset("bc")))
    assert successors(found.plans) == [(0, "b", "d")]
    (why,) = found.blocked
    assert "2 writable bookie(s) needed, 1 available" in why


def test_rule_47_one_missing_entry_in_the_middle_is_found() -> None:
    cluster = Cluster(closed_ledger(4, 3, 2, [(0, "abcd")], 40))
    assert cluster.metadata is not None
    held = sorted(cluster.bookies["c"].entries)
    gone = held[len(held) // 2]
    del cluster.bookies["c"].entries[gone]
    found = audit(cluster.metadata, Findings(up("abcd"), listed=listing(cluster)))
    assert found.problems == (Problem(0, "c", Reason.GAP),)
    ((job,),) = [fragment.jobs for plan in found.plans for fragment in plan.fragments]
    assert (job.old, job.target) == ("c", "c")
    assert job.entries is not None
    assert [job.entries.count, job.entries.last] == [1, gone]


def test_rule_47_stragglers_of_a_close_are_repaired() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9))
    for entry in (7, 8, 9):
        del cluster.bookies["b"].entries[entry]
    heal(cluster, up("abc"))
    assert cluster.lacks("b") == set()
    assert cluster.version == 3


def test_rule_47_a_fragment_without_entries_does_not_block_a_decommission() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc"), (10, "abd")], 9), "e")
    heal(cluster, up("abcde"), leaving=frozenset("d"))
    assert cluster.metadata is not None
    assert "d" not in cluster.metadata.bookies()


def test_a_bookie_that_does_not_tell_what_it_has_proves_nothing() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9))
    assert cluster.metadata is not None
    told = listing(cluster)
    del told["b"]
    found = audit(cluster.metadata, Findings(up("abc"), listed=told))
    assert found.problems == (Problem(0, "b", Reason.UNLISTED),)
    assert not found.plans
    assert not found.is_fully_replicated


def test_rule_29_a_closed_ledger_in_limbo_is_copied_back_whole_and_an_open_one_keeps_its_mark() -> None:
    closed = closed_ledger(3, 3, 2, [(0, "abc"), (10, "bcd")], 30)
    cluster = Cluster(closed)
    cluster.bookies["b"].wipe(named=True, nonce="n")
    found = audit(closed, Findings(up("abcd"), limbo=frozenset("b"), listed=listing(cluster)))
    assert [plan.clear_limbo for plan in found.plans] == ["b"]
    assert not found.is_fully_replicated
    assert found.replicas_min == 2
    opened = open_ledger(3, 3, 2, [(0, "abc"), (10, "acd")])
    cluster = Cluster(opened)
    cluster.bookies["b"].wipe(named=True, nonce="n")
    found = audit(
        opened, Findings(up("abcd"), limbo=frozenset("b"), listed=listing(cluster), last_add_confirmed=19)
    )
    assert [plan.clear_limbo for plan in found.plans] == [None]
    assert successors(found.plans) == [(0, "b", "b")]


def test_a_limbo_mark_of_a_ledger_that_does_not_name_the_bookie_is_cleared() -> None:
    found = audit(closed_ledger(3, 3, 2, [(0, "abc")], 9), Findings(up("abcz"), limbo=frozenset("z")))
    assert found.plans == (RepairPlan((), clear_limbo="z"),)


# Badly placed fragments (rule 36).


def test_rule_36_a_fragment_that_lost_its_rack_spread_is_moved_once_the_rack_is_back() -> None:
    metadata = closed_ledger(3, 3, 2, [(0, "abc")], 9)
    racks = {"a": "r1", "b": "r1", "c": "r1", "d": "r1", "e": "r2"}
    assert not audit(metadata, Findings(up("abcd", **racks))).plans, "nothing better is there"
    found = audit(metadata, Findings(up("abcde", **racks)))
    ((first, old, new),) = successors(found.plans)
    assert (first, new) == (0, "e")
    assert found.problems == (Problem(0, old, Reason.MISPLACED),)
    assert audit(metadata.with_replica(0, old, "e"), Findings(up("abcde", **racks))).plans == ()


def test_a_fragment_two_moves_away_from_its_policy_is_moved_step_by_step() -> None:
    policy = make_policy(PlacementSettings(min_racks=3))
    auditor = LedgerAuditor(policy, random.Random(1))
    racks = {"a": "r1", "b": "r1", "c": "r1", "d": "r2", "e": "r3"}
    metadata = closed_ledger(3, 3, 2, [(0, "abc")], 9)
    for _ in range(2):
        found = auditor.audit(metadata, Findings(up("abcde", **racks)), grace_is_over=False)
        ((_, old, new),) = successors(found.plans)
        metadata = metadata.with_replica(0, old, new)
    assert {racks[b] for b in metadata.bookies()} == {"r1", "r2", "r3"}


# The open fragment (rules 31 and 45).


def test_rule_31_an_open_fragment_is_recovered_after_a_grace_period_and_never_copied() -> None:
    metadata = open_ledger(3, 3, 2, [(0, "abc"), (10, "abd")])
    findings = Findings(up("abce"), lost=frozenset("d"))
    early = audit(metadata, findings)
    assert (early.open_action, early.plans) == (OpenAction.WAIT, ())
    late = audit(metadata, findings, grace_is_over=True)
    assert (late.open_action, late.plans) == (OpenAction.RECOVER, ())
    assert RepairTask.of(late).recover


def test_rule_31_a_lost_bookie_without_a_replacement_leaves_the_writer_alone() -> None:
    metadata = open_ledger(3, 3, 2, [(0, "abc")])
    found = audit(metadata, Findings(up("ab"), lost=frozenset("c")), grace_is_over=True)
    assert found.open_action is OpenAction.LEAVE
    assert not found.needs_task
    assert found.blocked == (
        "ledger 7, entry 0: open, and no bookie could take the place of c: start more bookies",
    )
    only_leaving = Findings(up("abd"), lost=frozenset("c"), leaving=frozenset("d"))
    assert audit(metadata, only_leaving, grace_is_over=True).open_action is OpenAction.LEAVE


def test_rule_31_the_grace_period_begins_anew_with_a_new_fragment() -> None:
    grace = GracePeriods(grace_ms=30_000)
    assert not grace.is_over(7, 10, 0)
    assert not grace.is_over(7, 10, 29_999)
    assert not grace.is_over(7, 25, 30_000), "the writer lives: it changed the ensemble"
    assert not grace.is_over(7, 25, 59_999)
    assert grace.is_over(7, 25, 60_000)
    grace.end(7)
    assert not grace.is_over(7, 25, 90_000)


def test_rule_31_the_auditor_counts_the_grace_period_over_its_cycles() -> None:
    auditor = Auditor(make_policy(), random.Random(1), AuditorPolicy(open_grace_ms=30_000))
    metadata = open_ledger(3, 3, 2, [(0, "abc")])
    findings = Findings(up("abd"), lost=frozenset("c"))
    for now_ms, expected in [(0, OpenAction.WAIT), (20_000, OpenAction.WAIT), (30_000, OpenAction.RECOVER)]:
        auditor.begin(now_ms, [7])
        assert auditor.next_reads(now_ms) == [7]
        assert auditor.judge(metadata, findings, now_ms).open_action is expected
    assert [task.recover for task in auditor.report().tasks] == [True]


def test_an_unfinished_recovery_is_taken_up_after_a_grace_period() -> None:
    metadata = open_ledger(3, 3, 2, [(0, "abc")]).in_recovery()
    found = audit(metadata, Findings(up("abc")), grace_is_over=True)
    assert found.open_action is OpenAction.RECOVER
    assert RepairTask.of(found).reasons == (Reason.UNFINISHED,)


def test_rule_45_open_fragments_count_as_replicated_up_to_their_lac() -> None:
    metadata = open_ledger(3, 3, 2, [(0, "abc")])
    cluster = Cluster(metadata)
    for entry in range(15, 20):
        del cluster.bookies["c"].entries[entry]
    for lac, full in [(14, True), (15, False), (None, False), (-1, True)]:
        found = audit(metadata, Findings(up("abc"), listed=listing(cluster), last_add_confirmed=lac))
        assert found.is_fully_replicated is full, lac
        assert not found.plans


# Unrecoverable ledgers (rule 35).


def test_rule_35_an_unrecoverable_ledger_blocks_no_other() -> None:
    bucket = RetryBucket(first_ms=1_000, max_ms=8_000)
    tasks = [1, 2, 3]
    repaired: set[int] = set()
    tried_1: list[int] = []
    for now_ms in range(0, 20_000, 100):
        ready = bucket.due([t for t in tasks if t not in repaired], now_ms)
        if not ready:
            continue
        if ready[0] == 1:
            tried_1.append(now_ms)
            bucket.failed(1, "entry 4 is nowhere", now_ms, unrecoverable=True)
        else:
            repaired.add(ready[0])
            bucket.repaired(ready[0])
    assert repaired == {2, 3}
    assert tried_1 == [0, 1_000, 3_000, 7_000, 15_000], "pauses double up to the longest"
    (setback,) = bucket.unrecoverable()
    assert (setback.ledger_id, setback.failures, setback.why) == (1, 5, "entry 4 is nowhere")


def test_a_bookie_that_comes_back_gives_every_ledger_a_new_chance() -> None:
    bucket = RetryBucket(first_ms=1_000)
    for _ in range(9):
        bucket.failed(1, "x", 0, unrecoverable=True)
    bucket.failed(2, "x", 0, unrecoverable=False)
    assert bucket.due([1, 2, 3], 0) == [3]
    bucket.new_chance()
    assert bucket.due([1, 2, 3], 0) == [3, 1, 2]
    assert [setback.ledger_id for setback in bucket.unrecoverable()] == [1]
    bucket.repaired(1)
    assert bucket.unrecoverable() == []


# Pace (rule 37).


def test_rule_37_fifty_thousand_ledgers_are_read_at_the_pace_of_the_metadata_store() -> None:
    reads = PacedReads(per_second=500, in_flight_max=50)
    reads.begin(range(50_000), 0)
    now_ms = in_flight = 0
    per_second: dict[int, int] = {}
    seen: list[int] = []
    while not reads.is_over:
        batch = reads.next(now_ms)
        in_flight += len(batch)
        assert in_flight <= 50
        per_second[now_ms // 1000] = per_second.get(now_ms // 1000, 0) + len(batch)
        seen += batch
        while in_flight and (now_ms % 20 == 0):
            reads.answered()
            in_flight -= 1
        now_ms += 10
    assert seen == list(range(50_000))
    assert max(per_second.values()) <= 500 + 125
    assert 99_000 <= now_ms <= 101_000


def test_rule_37_a_cycle_that_follows_at_once_does_not_exceed_the_pace() -> None:
    reads = PacedReads(per_second=100, in_flight_max=1000)
    handed_out = 0
    for _ in range(50):
        reads.begin(range(1000), 0)
        handed_out += len(reads.next(0))
    assert handed_out == 25


# Cycles, tasks, decommission.


def cycle(
    auditor: Auditor, judged: dict[int, tuple[LedgerMetadata, Findings]], now_ms: int = 0
) -> CycleReport:
    auditor.begin(now_ms, judged)
    while not auditor.cycle_is_over:
        for ledger_id in auditor.next_reads(now_ms):
            auditor.judge(*judged[ledger_id], now_ms)
    return auditor.report()


def test_a_report_sorts_ledgers_by_what_is_left_of_them() -> None:
    auditor = Auditor(make_policy(), random.Random(1))
    metadata = closed_ledger(3, 3, 2, [(0, "abc")], 9)
    sound = Cluster(metadata)
    report = cycle(
        auditor,
        {7: (metadata, Findings(up("abc"), listed=listing(sound)))},
    )
    assert report.is_fully_replicated
    assert report.healthy == (7,)
    assert not report.tasks
    assert report.named == frozenset("abc")
    for alive, (none, ack, write) in {
        "ab": ((), (), (7,)),
        "a": ((), (7,), (7,)),
        "": ((7,), (7,), (7,)),
    }.items():
        report = cycle(auditor, {7: (metadata, Findings(up(alive), lost=frozenset("abc") - set(alive)))})
        assert (report.without_replica, report.below_ack_quorum, report.below_write_quorum) == (
            none,
            ack,
            write,
        )
        assert not report.is_fully_replicated


def test_a_ledger_that_could_not_be_read_is_never_called_replicated() -> None:
    auditor = Auditor(make_policy(), random.Random(1))
    auditor.begin(0, [1, 2])
    assert auditor.next_reads(0) == [1, 2]
    auditor.skip(1, deleted=True)
    assert not auditor.cycle_is_over
    auditor.skip(2, deleted=False)
    report = auditor.report()
    assert report.unread == (2,)
    assert not report.is_fully_replicated


def test_tasks_survive_their_json_and_merge() -> None:
    one = RepairTask(7, (Reason.GAP,), ("a", "b"), (), (0, 10))
    two = RepairTask(7, (Reason.LOST,), ("c",), ("c",), (10, 20), recover=True)
    both = one.merged(two)
    assert both == RepairTask(
        7, (Reason.GAP, Reason.LOST), ("a", "b", "c"), ("c",), (0, 10, 20), recover=True
    )
    assert RepairTask.from_json(both.to_json()) == both
    for bad in (
        b"",
        b"[]",
        b"{}",
        both.to_json().replace(b"gap", b"gab"),
        both.to_json().replace(b":1,", b":2,"),
    ):
        with pytest.raises(MetadataError):
            RepairTask.from_json(bad)


def test_a_bookie_is_drained_read_only_until_no_ledger_names_it() -> None:
    auditor = Auditor(make_policy(), random.Random(1))
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc"), (10, "bcd")], 30), "e")
    assert cluster.metadata is not None
    everyone = up("abcde")
    assert decommission_step("b", everyone.keys(), None) is DecommissionStep.MAKE_READ_ONLY
    writable = everyone.keys() - {"b"}
    assert decommission_step("b", writable, None) is DecommissionStep.DRAIN
    leaving = frozenset("b")
    report = cycle(auditor, {7: (cluster.metadata, Findings(everyone, leaving=leaving))})
    assert decommission_step("b", writable, report) is DecommissionStep.DRAIN
    assert [task.reasons for task in report.tasks] == [(Reason.LEAVING,)]
    heal(cluster, everyone, leaving=leaving)
    report = cycle(auditor, {7: (cluster.metadata, Findings(everyone, leaving=leaving))})
    assert decommission_step("b", writable, report) is DecommissionStep.REMOVE
    auditor.begin(0, [7])
    auditor.next_reads(0)
    auditor.skip(7, deleted=False)
    assert decommission_step("b", writable, auditor.report()) is DecommissionStep.DRAIN


# Surplus replicas (rule 47).


def test_surplus_is_what_a_closed_ledger_does_not_place_here() -> None:
    cluster = Cluster(closed_ledger(4, 3, 2, [(0, "abcd"), (20, "bcde")], 40))
    assert cluster.metadata is not None
    listed = listing(cluster)
    for name in "abcde":
        assert not surplus(cluster.metadata, name, listed[name])
    listed["a"].add(25, 27)
    extra = surplus(cluster.metadata, "a", listed["a"])
    assert [tuple(interval[:2]) for interval in extra] == [(25, 27)]
    opened = open_ledger(4, 3, 2, [(0, "bcde")])
    assert not surplus(opened, "a", listed["a"]), "an open ledger's entries stay"


def test_rule_47_surplus_goes_only_after_the_version_was_raised_and_no_add_came() -> None:
    metadata = closed_ledger(3, 3, 2, [(0, "abc")], 9)
    listed = IntervalSet()
    listed.add(0, 9)
    removal = SurplusRemoval("z", adds_seen=5)
    assert removal.metadata_read(metadata, 3, listed)
    assert not removal.may_remove(5), "nothing goes before the compare-and-set"
    removal.version_raised(4)
    assert removal.may_remove(5)
    assert not removal.may_remove(6), "a repair has begun to copy again"
    assert not SurplusRemoval("a", 5).metadata_read(metadata, 3, listed), "what it owes stays"


class Remover:
    """Bookie z, which removes what it does not owe, one step at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.z = cluster.bookies["z"]
        self.read_at: int | None = None

    def begin(self) -> None:
        self.removal = SurplusRemoval("z", len(self.z.headers))

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
        if self.removal.may_remove(len(self.z.headers)):
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


# Everything together.


def heal(
    cluster: Cluster,
    registered: dict[BookieId, BookieInfo],
    *,
    lost: frozenset[BookieId] = frozenset(),
    leaving: frozenset[BookieId] = frozenset(),
) -> LedgerAudit:
    """Audit and repair in turn, as a worker does, until nothing is left to do; the last audit."""
    for _ in range(60):
        assert cluster.metadata is not None
        limbo = frozenset(name for name, bookie in cluster.bookies.items() if bookie.limbo)
        findings = Findings(registered, lost, leaving, limbo=limbo, listed=listing(cluster))
        found = audit(cluster.metadata, findings)
        if not found.plans:
            return found
        repair = LedgerRepair(cluster.metadata, cluster.version, found.plans[0], unavailable=lost)
        verdict = cluster.run(repair)
        assert isinstance(verdict, RepairFinished), verdict
    raise AssertionError("it never ends")


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
    if kind == "limbo":
        cluster.bookies[hurt].wipe(named=True, nonce="n")
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
    assert not any(bookie.limbo for bookie in cluster.bookies.values())
    assert cluster.metadata is not None
    if kind in {"lost", "leaving"}:
        assert hurt not in cluster.metadata.bookies()


def test_a_change_that_the_repair_writes_is_one_that_metadata_allows() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc"), (10, "abd")], 20), "e")
    heal(cluster, up("acde"), lost=frozenset("b"))
    changes = [effect.metadata for effect in cluster.log if isinstance(effect, CasMetadata)]
    assert len(changes) == 2
    assert cluster.metadata == changes[-1]
