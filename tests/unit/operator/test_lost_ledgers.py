"""What is away for a moment is unknown, never lost; who is told to delete has no disk to wait for."""

from dataclasses import replace

from daybook_operator.plan.lost_ledgers import Nowhere, Verdict, verdict_on
from daybook_operator.plan.pool.decide import decide
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operator.pool_sim import PoolSim, grown

NAMED = frozenset({"b0", "b1", "b2"})
SOME = st.frozensets(st.sampled_from(sorted(NAMED | {"b3"})))


def test_two_bookies_that_start_have_lost_nothing() -> None:
    found = verdict_on(Nowhere(7, NAMED), registered={"b0"}, cookies=NAMED, silent=())
    assert (found.awaited, found.gone, found.is_lost) == (("b1", "b2"), (), False)


def test_a_bookie_that_is_back_is_asked_before_it_is_judged() -> None:
    limbo = Nowhere(7, NAMED, frozenset({"b1"}), is_settled=False)
    assert not verdict_on(limbo, registered=NAMED, cookies=NAMED, silent=()).is_lost
    assert verdict_on(replace(limbo, is_settled=True), registered=NAMED, cookies=NAMED, silent=()).is_lost


def test_a_disk_that_was_replaced_or_given_up_is_gone() -> None:
    replaced = Nowhere(7, NAMED, in_limbo=frozenset({"b1", "b2"}))
    assert verdict_on(replaced, registered=NAMED, cookies=NAMED, silent=()).gone == ("b1", "b2")
    forgotten = verdict_on(Nowhere(7, NAMED), registered={"b0", "b1"}, cookies={"b0", "b1"}, silent=())
    assert (forgotten.gone, forgotten.is_lost) == (("b2",), True)


def test_damage_alone_is_no_reason_to_delete() -> None:
    """Every bookie serves, none was replaced, and yet nobody has the entry: the disks are there to be looked at."""
    assert not verdict_on(Nowhere(7, NAMED), registered=NAMED, cookies=NAMED, silent=()).is_lost


@given(SOME, SOME, SOME, SOME, st.booleans())
def test_nothing_is_lost_while_anybody_may_have_it(
    limbo: frozenset[str],
    registered: frozenset[str],
    cookies: frozenset[str],
    silent: frozenset[str],
    is_settled: bool,
) -> None:
    found = verdict_on(
        Nowhere(7, NAMED, limbo & registered, is_settled),
        registered=registered,
        cookies=cookies,
        silent=silent,
    )
    may_come_back = {b for b in NAMED if b not in registered and b in cookies}
    if found.is_lost:
        assert is_settled
        assert not may_come_back
        assert not NAMED & silent
        assert any(b in limbo or b not in registered | cookies for b in NAMED)
    assert may_come_back <= set(found.awaited)


def said(sim: PoolSim, *verdicts: Verdict) -> tuple[str, str, str]:
    seen = sim.world()
    assert seen.cluster is not None
    for each in decide(replace(seen, cluster=replace(seen.cluster, verdicts=verdicts)), sim.now_ms).effects:
        sim.perform(each)
    found = sim.condition("FullyReplicated")
    return found["status"], found["reason"], found["message"]


def test_a_pool_advises_to_delete_only_what_is_lost() -> None:
    sim = grown()
    status, reason, message = said(sim, Verdict(7, awaited=("data.bk-1", "data.bk-2")))
    assert (status, reason) == ("Unknown", "HoldersAway")
    assert "data.bk-1, data.bk-2 may have it" in message
    assert "delete" not in message
    status, reason, message = said(sim, Verdict(7, is_settled=False))
    assert (status, reason, "delete" in message) == ("Unknown", "NotFoundYet", False)
    status, reason, message = said(sim, Verdict(7, awaited=("data.bk-1",)), Verdict(9, gone=("data.bk-2",)))
    assert (status, reason) == ("False", "Unrecoverable")
    assert (
        "Ledger 9 has an entry that no bookie has any more, since the disks of data.bk-2 are lost" in message
    )
    assert "`daybook ledger delete 9 --without-recovery`" in message
