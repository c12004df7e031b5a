"""What is wrong with one ledger, and what mends it."""

import random
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

import pytest

from daybook.core.audit.lost_bookies import GracePeriods
from daybook.core.errors import NotEnoughBookiesError
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import BookieId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.placement.policies import PlacementSettings, make_policy
from daybook.core.placement.policy import BookieInfo, RandomSource
from daybook.core.quorum import Quorum
from daybook.core.repair.judgement import Findings, LedgerJudge, OpenAction, Problem, Reason
from daybook.core.repair.plan import RepairPlan
from daybook.core.repair.task import RECOVER, reasons_of
from tests.unit.core.one_ledger import kept_in
from tests.unit.core.repair.judgement_kit import audit, listing, successors, up
from tests.unit.core.repair.queue_kit import heal
from tests.unit.core.repair.repair_model import Cluster, closed_ledger, open_ledger


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
    assert {text.split(" ")[0] for text in reasons_of(found)} == {"leaving", "lost"}


def test_rule_47_that_a_bookie_leaves_hides_no_gap() -> None:
    metadata = closed_ledger(2, 2, 1, [(0, "ab")], 9)
    cluster = Cluster(metadata)
    told = listing(cluster)
    leaving = frozenset("b")
    assert audit(metadata, Findings(up("abc"), leaving=leaving, listed=told)).is_fully_replicated
    told["b"] = IntervalSet()
    found = audit(metadata, Findings(up("abc"), leaving=leaving, listed=told))
    assert [problem.reason for problem in found.problems] == [Reason.LEAVING, Reason.GAP]
    assert not found.is_fully_replicated
    assert successors(found.plans) == [(0, "b", "c")], "nothing is copied to who leaves"
    del told["b"]
    silent = audit(metadata, Findings(up("abc"), leaving=leaving, listed=told))
    assert [problem.reason for problem in silent.problems] == [Reason.LEAVING, Reason.UNLISTED]
    still_written = open_ledger(2, 2, 1, [(0, "ab")])
    told["b"] = IntervalSet()
    findings = Findings(up("abc"), leaving=leaving, listed=told, last_add_confirmed=5)
    assert not audit(still_written, findings).is_fully_replicated


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
    cluster.lose("b", 7, 8, 9)
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


def test_rule_29_a_closed_ledger_in_limbo_is_copied_back_whole() -> None:
    closed = closed_ledger(3, 3, 2, [(0, "abc"), (10, "bcd")], 30)
    cluster = Cluster(closed)
    cluster.bookies["b"].lose_disk("n")
    found = audit(closed, Findings(up("abcd"), limbo=frozenset("b"), listed=listing(cluster)))
    assert [plan.clear_limbo for plan in found.plans] == ["b"]
    assert not found.is_fully_replicated
    assert found.replicas_min == 2


@pytest.mark.parametrize(("last", "cleared"), [("acd", "b"), ("bcd", None)])
def test_rule_29_an_open_ledger_keeps_its_mark_while_its_last_fragment_names_the_bookie(
    last: str, cleared: str | None
) -> None:
    """What the bookie owes of former fragments comes back in both cases."""
    opened = open_ledger(3, 3, 2, [(0, "abc"), (10, last)])
    cluster = Cluster(opened)
    cluster.bookies["b"].lose_disk("n")
    findings = Findings(up("abcd"), limbo=frozenset("b"), listed=listing(cluster), last_add_confirmed=19)
    found = audit(opened, findings)
    assert [plan.clear_limbo for plan in found.plans] == [cleared]
    assert successors(found.plans) == [(0, "b", "b")]
    assert [problem.first_entry for problem in found.problems] == ([0] if cleared else [0, 10])


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
    auditor = LedgerJudge(policy, random.Random(1))
    racks = {"a": "r1", "b": "r1", "c": "r1", "d": "r2", "e": "r3"}
    metadata = closed_ledger(3, 3, 2, [(0, "abc")], 9)
    for _ in range(2):
        found = auditor.audit(metadata, Findings(up("abcde", **racks)), grace_is_over=False)
        ((_, old, new),) = successors(found.plans)
        metadata = metadata.with_replica(0, old, new)
    assert {racks[b] for b in metadata.bookies()} == {"r1", "r2", "r3"}


# The open fragment (rule 31, rule 45).


def test_rule_31_an_open_fragment_is_recovered_after_a_grace_period_and_never_copied() -> None:
    metadata = open_ledger(3, 3, 2, [(0, "abc"), (10, "abd")])
    findings = Findings(up("abce"), lost=frozenset("d"))
    early = audit(metadata, findings)
    assert (early.open_action, early.plans) == (OpenAction.WAIT, ())
    late = audit(metadata, findings, grace_is_over=True)
    assert (late.open_action, late.plans) == (OpenAction.RECOVER, ())
    assert RECOVER in reasons_of(late)


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


def test_rule_29_an_open_ledger_is_closed_with_the_bookie_in_limbo_where_nobody_else_could_take_its_place() -> (
    None
):
    """Without a close the mark would stand for ever; the next ledger may name the bookie, so no writer stops for nothing."""
    metadata = open_ledger(3, 3, 2, [(0, "abc")])
    findings = Findings(up("abc"), limbo=frozenset("c"))
    assert audit(metadata, findings).open_action is OpenAction.WAIT
    found = audit(metadata, findings, grace_is_over=True)
    assert (found.open_action, found.plans, found.blocked) == (OpenAction.RECOVER, (), ())
    closed = audit(metadata.in_recovery().closed(9, 90), findings)
    assert [plan.clear_limbo for plan in closed.plans] == ["c"], "and then it is refilled where it is"
    assert successors(closed.plans) == [(0, "c", "c")]


def test_rule_29_two_of_three_in_limbo_leave_a_writer_alone_because_nobody_could_say_where_it_ends() -> None:
    metadata = open_ledger(3, 3, 2, [(0, "abc")])
    found = audit(metadata, Findings(up("abc"), limbo=frozenset("bc")), grace_is_over=True)
    assert found.open_action is OpenAction.LEAVE
    assert "no bookie could take the place of b, c" in found.blocked[0]
    one_copy = open_ledger(3, 3, 1, [(0, "abc")])
    found = audit(one_copy, Findings(up("abc"), limbo=frozenset("c")), grace_is_over=True)
    assert found.open_action is OpenAction.LEAVE, (
        "any of the three may have been the one to acknowledge (rule 8)"
    )
    striped = open_ledger(6, 3, 2, [(0, "abcdef")])
    for limbo, action in [("ad", OpenAction.RECOVER), ("ab", OpenAction.LEAVE)]:
        found = audit(striped, Findings(up("abcdef"), limbo=frozenset(limbo)), grace_is_over=True)
        assert found.open_action is action, limbo


def test_rule_31_a_bookie_in_limbo_that_the_next_ledger_could_not_name_needs_a_replacement() -> None:
    metadata = open_ledger(3, 3, 2, [(0, "abc")])
    here = up("abc")
    full = {**here, "c": replace(here["c"], writable=False)}
    limbo = frozenset("c")
    for findings in (Findings(full, limbo=limbo), Findings(here, limbo=limbo, leaving=limbo)):
        assert audit(metadata, findings, grace_is_over=True).open_action is OpenAction.LEAVE


def test_rule_31_beside_one_in_limbo_a_lost_bookie_needs_a_replacement_all_the_same() -> None:
    metadata = open_ledger(4, 4, 2, [(0, "abcd")])
    for spares, action in [("", OpenAction.LEAVE), ("e", OpenAction.LEAVE)]:
        findings = Findings(up("abc" + spares), lost=frozenset("d"), limbo=frozenset("c"))
        assert audit(metadata, findings, grace_is_over=True).open_action is action, "two of four cannot vouch"
    metadata = open_ledger(5, 5, 4, [(0, "abcde")])
    for spares, action in [("", OpenAction.LEAVE), ("f", OpenAction.RECOVER)]:
        findings = Findings(up("abcd" + spares), lost=frozenset("e"), limbo=frozenset("d"))
        assert audit(metadata, findings, grace_is_over=True).open_action is action, spares


def test_rule_31_the_grace_period_begins_anew_with_a_new_fragment() -> None:
    grace = GracePeriods(grace_ms=30_000)
    begun = Fragment(10, 0, ("a", "b", "c"))
    assert not grace.is_over(7, begun, 0)
    assert not grace.is_over(7, begun, 29_999)
    later = Fragment(25, 0, ("a", "b", "d"))
    assert not grace.is_over(7, later, 30_000), "the writer lives: it changed the ensemble"
    assert not grace.is_over(7, later, 59_999)
    others = Fragment(25, 0, ("a", "e", "d"))
    assert not grace.is_over(7, others, 60_000), "and once more, before anything was acknowledged"
    assert grace.is_over(7, others, 90_000)
    grace.end(7)
    assert not grace.is_over(7, others, 120_000)


def test_an_unfinished_recovery_is_taken_up_after_a_grace_period() -> None:
    metadata = open_ledger(3, 3, 2, [(0, "abc")]).in_recovery()
    found = audit(metadata, Findings(up("abc")), grace_is_over=True)
    assert found.open_action is OpenAction.RECOVER
    assert Reason.UNFINISHED in {problem.reason for problem in found.problems}


def test_rule_45_open_fragments_count_as_replicated_up_to_their_lac() -> None:
    metadata = open_ledger(3, 3, 2, [(0, "abc")])
    cluster = Cluster(metadata)
    cluster.lose("c", *range(15, 20))
    for lac, full in [(14, True), (15, False), (None, False), (-1, True)]:
        found = audit(metadata, Findings(up("abc"), listed=listing(cluster), last_add_confirmed=lac))
        assert found.is_fully_replicated is full, lac
        assert not found.plans


def test_what_cannot_be_better_placed_stays_where_it_is() -> None:
    """All in one rack, and no other bookie to move to: no error, no plan."""
    metadata = closed_ledger(3, 3, 2, [(0, "abc")], 9)
    racks = {"a": "r", "b": "r", "c": "r"}
    assert not audit(metadata, Findings(up("abc", **racks))).plans
    full = replace(up("d", d="other")["d"], writable=False)
    assert not audit(metadata, Findings({**up("abc", **racks), "d": full})).plans, (
        "the other rack takes nothing"
    )


class OneAtATime:
    """A placement that replaces any bookie, but never two in one go."""

    def __init__(self) -> None:
        self._real = make_policy()

    def replace(
        self,
        quorum: Quorum,
        ensemble: Sequence[BookieId],
        positions: AbstractSet[int],
        bookies: Mapping[BookieId, BookieInfo],
        rng: RandomSource,
        **kinds: AbstractSet[BookieId],
    ) -> tuple[BookieId, ...]:
        if len(positions) > 1:
            raise NotEnoughBookiesError("one at a time")
        return self._real.replace(quorum, ensemble, positions, bookies, rng, **kinds)

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


def test_bookies_that_cannot_be_replaced_together_are_replaced_one_by_one() -> None:
    auditor = LedgerJudge(OneAtATime(), random.Random(1))  # type: ignore[arg-type]  # the rest is delegated
    findings = Findings(up("ade"), lost=frozenset("bc"))
    found = auditor.audit(closed_ledger(3, 3, 2, [(0, "abc")], 9), findings, grace_is_over=False)
    assert {(old, new) for _, old, new in successors(found.plans)} in (
        {("b", "d"), ("c", "e")},
        {("b", "e"), ("c", "d")},
    )


# Pools

POOL = {f"q-{n}": BookieInfo(f"q-{n}") for n in range(4)}
OTHERS = {f"r-{n}": BookieInfo(f"r-{n}") for n in range(3)}


def of_pool(bookies: str, *, closed: bool = True) -> LedgerMetadata:
    """A ledger that stays in pool q, on bookies separated by spaces."""
    names = tuple(bookies.split())
    whole = closed_ledger(3, 3, 2, [(0, "abc")], 9) if closed else open_ledger(3, 3, 2, [(0, "abc")])
    return kept_in("q", replace(whole, fragments=(Fragment(0, 0, names),)))


def test_rule_69_who_is_lost_or_leaves_is_replaced_within_the_pool() -> None:
    ledger = of_pool("q-0 q-1 q-2")
    registered = {**POOL, **OTHERS}
    going = frozenset({"q-1"})
    for findings in (Findings(registered, lost=going), Findings(registered, leaving=going)):
        assert successors(audit(ledger, findings).plans) == [(0, "q-1", "q-3")]


def test_rule_69_a_ledger_whose_pool_has_too_few_bookies_stays_under_replicated_with_the_reason() -> None:
    registered = {name: info for name, info in {**POOL, **OTHERS}.items() if name not in {"q-1", "q-3"}}
    found = audit(of_pool("q-0 q-1 q-2"), Findings(registered, lost=frozenset({"q-1"})))
    assert not found.plans
    assert not found.is_fully_replicated
    (why,) = found.blocked
    assert (
        "the ledger stays in pool q, which has 2 of the 5 registered bookies: raise that pool's replicas"
        in why
    )
    still_written = of_pool("q-0 q-1 q-2", closed=False)
    found = audit(still_written, Findings(registered, lost=frozenset({"q-1"})), grace_is_over=True)
    assert found.open_action is OpenAction.LEAVE, "its writer could not go on in the pool (rule 45)"
    (why,) = found.blocked
    assert "start more bookies in pool q" in why


def test_rule_69_a_copy_outside_the_pool_moves_back_when_the_pool_has_room() -> None:
    ledger, full = of_pool("q-0 q-1 r-2"), {**POOL, **OTHERS}
    found = audit(ledger, Findings(full))
    assert found.problems == (Problem(0, "r-2", Reason.MISPLACED),)
    ((first, old, new),) = successors(found.plans)
    assert (first, old) == (0, "r-2")
    assert new in {"q-2", "q-3"}
    few = {name: info for name, info in full.items() if name not in {"q-2", "q-3"}}
    assert audit(ledger, Findings(few)).plans == (), "a copy outside is better than none"
