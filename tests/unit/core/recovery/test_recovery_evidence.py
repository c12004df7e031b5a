"""What recovery takes for proof: of the fence, of the last add confirmed, of an entry and of its absence."""

from collections.abc import Sequence
from itertools import combinations, product

import pytest

from daybook.core.effects import (
    CasMetadata,
    ReadMetadata,
    Recovered,
    RecoveryFailed,
    SendFence,
    SendFrame,
    SendRead,
)
from daybook.core.errors import (
    Code,
    RecoveryFailedError,
    UnauthorizedError,
)
from daybook.core.events import BookieFailed, Tick
from daybook.core.ledger.metadata import LedgerState
from daybook.core.quorum import write_set
from tests.fixtures.memory_bookie import Request, fails
from tests.unit.core.one_ledger import LEDGER
from tests.unit.core.recovery.recovery_kit import SHAPES, recover, refusal, run_of
from tests.unit.core.small_cluster import ENTRY_BYTES, Cluster, entry


def test_rule_01_recovery_goes_on_only_when_no_ack_quorum_is_left() -> None:
    """For every subset of bookies that answer the fence: go on exactly if every write set has Qf of them."""
    for ensemble, write, ack in SHAPES:
        names = [f"b{i + 1}" for i in range(ensemble)]
        for size in range(ensemble + 1):
            for answering in combinations(names, size):
                cluster = Cluster(ensemble, write, ack)
                cluster.down = set(names) - set(answering)
                run = run_of(cluster)
                while run.queue and isinstance(run.queue[0], (ReadMetadata, CasMetadata, SendFence)):
                    run.one()
                went_on = any(isinstance(effect, SendRead) for effect in run.queue)
                acks_left = any(
                    len(cluster.down & {names[p] for p in write_set(cluster.quorum, i)}) >= ack
                    for i in range(ensemble)
                )
                assert went_on is not acks_left, (ensemble, write, ack, answering)


def test_rule_01_the_fenced_writer_can_complete_nothing_whatever_subset_answered() -> None:
    for ensemble, write, ack in SHAPES:
        names = [f"b{i + 1}" for i in range(ensemble)]
        for answering in [s for n in range(ensemble + 1) for s in combinations(names, n)]:
            cluster = Cluster(ensemble, write, ack)
            cluster.silent = set(names) - set(answering)
            run = run_of(cluster)
            run.finish()
            for entry_id in range(ensemble):
                codes = cluster.write(entry_id, cluster.holders(entry_id))
                acks = [code for code in codes.values() if code is Code.OK]
                if any(isinstance(effect, SendRead) for effect in cluster.held) or run.results:
                    assert len(acks) < ack, (ensemble, write, ack, answering, entry_id)


def test_rule_02_recovery_reads_fence() -> None:
    """bk#2614: the fence to b3 is lost, a late add reaches b3 and b2's queue; the writer must never get its Qa acks."""
    cluster = Cluster()
    cluster.bookies["b3"].fault = fails(SendFence, Code.TIMEOUT)  # the request to b3 is lost
    cluster.bookies["b2"].fault = fails(SendRead, Code.TIMEOUT)  # so the end is proven by b1 and b3
    assert recover(cluster).last_entry == -1
    # b3 said "not found": from then on it takes no add, although no fence request ever reached it
    assert cluster.write(0, ["b3"])["b3"] is Code.FENCED


def test_rule_05_recovery_starts_at_the_last_fragment() -> None:
    """bk#2615: no bookie of the new ensemble knows a LAC yet; recovery must not begin in the fragment before."""
    cluster = Cluster(start=(10, 10 * ENTRY_BYTES))
    run = run_of(cluster)
    run.until(SendRead)
    assert {effect.first for effect in run.queue if isinstance(effect, SendRead)} == {10}
    run.finish()
    assert (cluster.meta.last_entry, cluster.meta.length) == (9, 10 * ENTRY_BYTES)


def cannot_read_entry_0(request: Request) -> Code | None:
    return Code.IO_ERROR if isinstance(request, SendRead) and request.first == 0 else None


ANSWERS = ("found", "absent", "error", "damaged", "limbo", "down")


def allowed_ends(answers: Sequence[str], ack: int) -> set[int | None]:
    """What rule 6 lets recovery decide of entry 0: kept (0), proven absent (-1), or undecided (None)."""
    alive = sum(answer != "down" for answer in answers)
    coverage = len(answers) - ack + 1
    if alive < coverage:
        return {None}
    ends: set[int | None] = set()
    if "found" in answers:
        can_deny_the_next = alive - answers.count("limbo") >= coverage
        ends.add(0 if alive >= ack and can_deny_the_next else None)
    if answers.count("absent") >= coverage:
        ends.add(-1)
    return ends or {None}


@pytest.mark.parametrize(("write", "ack"), [(3, 2), (3, 1), (3, 3), (2, 2), (2, 1)])
def test_rule_06_only_explicit_not_found_of_a_quorum_ends_the_ledger(write: int, ack: int) -> None:
    """Every combination of answers of a write set; one positive suffices, the unknown proves nothing."""
    for answers in product(ANSWERS, repeat=write):
        cluster = Cluster(write, write, ack)
        for name, answer in zip(cluster.bookies, answers, strict=True):
            bookie = cluster.bookies[name]
            if answer in ("found", "damaged"):
                bookie.entries[0] = entry(0)
            if answer == "damaged":
                bookie.damaged.add(0)
            if answer == "limbo":
                bookie.machine.mark_limbo(LEDGER, "nonce")
            if answer == "down":
                cluster.down.add(name)
            if answer == "error":
                bookie.fault = cannot_read_entry_0
        result = run_of(cluster).finish()[-1]
        if isinstance(result, RecoveryFailed):
            assert isinstance(result.error, RecoveryFailedError)
            assert cluster.meta.state is LedgerState.IN_RECOVERY
        end = result.metadata.last_entry if isinstance(result, Recovered) else None
        assert end in allowed_ends(answers, ack), answers


def test_rule_07_a_hanging_bookie_does_not_hold_recovery_up() -> None:
    for hanging, since in product(("b1", "b2", "b3"), (SendFence, SendRead, SendFrame)):
        cluster = Cluster()
        cluster.write_everywhere(0, 3, lac=-1)
        run = run_of(cluster)
        run.until(since)
        cluster.silent = {hanging}
        run.finish()
        for now_ms in range(0, 3000, 100):
            run.feed(Tick(now_ms))
            run.finish()
        assert [type(result) for result in run.results] == [Recovered], hanging
        assert cluster.meta.last_entry == 3


def test_rule_08_with_an_ack_quorum_of_one_a_dead_bookie_refuses_recovery() -> None:
    cluster = Cluster(3, 3, 1, spares=1)
    cluster.write(0, ["b2"])  # acknowledged: Qa = 1
    cluster.down = {"b2"}
    assert isinstance(refusal(cluster), RecoveryFailedError)
    assert cluster.meta.state is LedgerState.IN_RECOVERY
    cluster.down = set()
    assert recover(cluster).last_entry == 0


def test_rule_29_a_limbo_bookie_counts_for_the_fence_but_not_for_the_lac_or_for_absence() -> None:
    """bk#2612: b1 lost its disk. Entry 0 was acknowledged by b1 and b2; b2 is away. b1 and b3 prove nothing."""
    cluster = Cluster()
    cluster.write(0, ["b2"])
    cluster.wipe("b1")
    cluster.down = {"b2"}
    assert isinstance(refusal(cluster), RecoveryFailedError)
    assert cluster.meta.state is LedgerState.IN_RECOVERY
    assert cluster.bookies["b1"].ledger.fenced  # the fence was accepted there all the same
    cluster.down = set()
    assert recover(cluster).last_entry == 0


def test_rule_29_the_lac_of_a_limbo_bookie_is_not_believed() -> None:
    cluster = Cluster()
    cluster.bookies["b1"].ledger.lac = 41
    cluster.bookies["b1"].machine.mark_limbo(LEDGER, "after-wipe")
    run = run_of(cluster)
    run.until(SendRead)
    assert {effect.first for effect in run.queue if isinstance(effect, SendRead)} == {0}


def test_rule_44_the_length_is_right_where_a_fragment_has_just_begun() -> None:
    cluster = Cluster(start=(10, 1234))
    assert recover(cluster).length == 1234
    cluster = Cluster(start=(10, 1234))
    cluster.write(10, ["b2"], lac=9, data=b"12345", length_at_lac=1234)
    closed = recover(cluster)
    assert (closed.last_entry, closed.length) == (10, 1239)


def test_rule_44_the_length_at_the_lac_comes_from_the_answer_with_that_lac() -> None:
    cluster = Cluster()
    cluster.write(4, ["b1"], lac=3, length_at_lac=400, data=b"four")
    cluster.write(5, ["b2"], lac=4, length_at_lac=404, data=b"five")
    cluster.write(4, ["b2", "b3"], lac=3, length_at_lac=400, data=b"four")
    closed = recover(cluster)
    assert (closed.last_entry, closed.length) == (5, 408)


def test_a_wrong_password_is_reported_as_such() -> None:
    cluster = Cluster()
    for bookie in cluster.bookies.values():
        bookie.fault = fails(SendFence, Code.UNAUTHORIZED)
    assert isinstance(refusal(cluster), UnauthorizedError)


def test_a_lost_channel_is_an_answer_that_says_nothing() -> None:
    cluster = Cluster()
    cluster.write_everywhere(0, 1)
    cluster.silent = {"b2"}
    run = run_of(cluster)
    run.finish()
    run.feed(BookieFailed("b2"))
    run.finish()
    assert run.results == [Recovered(cluster.meta)]
    cluster = Cluster()
    cluster.silent = {"b2", "b3"}
    run = run_of(cluster)
    run.finish()
    assert run.results == []
    run.feed(BookieFailed("b2"))
    run.feed(BookieFailed("b3"))
    assert isinstance(run.finish()[-1], RecoveryFailed)
