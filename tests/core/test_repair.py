"""Repair: what it copies, in which order it does what, and what it does when the world changes under it."""

import itertools
from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybook.core.errors import Code, CorruptEntryError, NotEnoughReplicasError
from daybook.core.events import (
    BookieFailed,
    CasAnswered,
    CasMetadata,
    CasOutcome,
    ClearLimbo,
    Effect,
    Event,
    FrameAcked,
    LimboCleared,
    LimboRead,
    LockLost,
    MetadataUnreadable,
    ReadAnswered,
    ReadLimbo,
    ReadMetadata,
    RepairAbandoned,
    RepairFailed,
    RepairFinished,
    SendFrame,
    SendRead,
    Tick,
)
from daybook.core.intervals import IntervalSet
from daybook.core.quorum import stripe_of
from daybook.core.repair import LedgerRepair
from daybook.core.repair_copy import RepairPolicy
from daybook.core.repair_plan import CopyJob, FragmentRepair, RepairPlan, limbo_plan
from tests.core.repair_model import Cluster, closed_ledger, open_ledger, payload

Todo: TypeAlias = list[tuple[int, str]]
SMALL = RepairPolicy(read_bytes_max=60, bytes_in_flight_max=200)


def repair_of(
    cluster: Cluster, *fragments: FragmentRepair, policy: RepairPolicy = SMALL, lost: str = ""
) -> LedgerRepair:
    """A repair planned from the cluster's metadata as it is now."""
    assert cluster.metadata is not None
    plan = RepairPlan(fragments)
    return LedgerRepair(cluster.metadata, cluster.version, plan, policy=policy, unavailable=frozenset(lost))


def limbo_repair(cluster: Cluster, bookie: str, policy: RepairPolicy = SMALL) -> LedgerRepair:
    """The repair that ends the limbo of `bookie`."""
    assert cluster.metadata is not None
    return LedgerRepair(
        cluster.metadata, cluster.version, limbo_plan(cluster.metadata, bookie), policy=policy
    )


def one(
    first: int, position: int, old: str, target: str, entries: IntervalSet | None = None
) -> FragmentRepair:
    """A fragment with one position to repair."""
    return FragmentRepair(first, (CopyJob(position, old, target, entries),))


def named(cluster: Cluster) -> list[str]:
    """The fragments' bookies, one word each."""
    assert cluster.metadata is not None
    return ["".join(fragment.bookies) for fragment in cluster.metadata.fragments]


def on_first(cluster: Cluster, kind: type, action: Callable[[], list[Event] | None]) -> list[Effect]:
    """Call `action()` before the first effect of `kind` is carried out; returns the list that will hold it."""
    seen: list[Effect] = []

    def before(effect: Effect) -> list[Event] | None:
        if isinstance(effect, kind) and not seen:
            seen.append(effect)
            return action()
        return None

    cluster.before = before
    return seen


# Copying.


def test_a_lost_bookie_is_replaced_by_a_full_copy() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc"), (10, "abd")], 19), "e")
    repair = repair_of(cluster, one(0, 1, "b", "e"), one(10, 1, "b", "e"), lost="b")
    assert isinstance(cluster.run(repair), RepairFinished)
    assert named(cluster) == ["aec", "aed"]
    assert cluster.lacks("e") == set()
    assert repair.copied_entries == 20
    assert not cluster.bookies["b"].asked


def test_rule_32_every_striped_position_gets_the_very_bytes_of_its_stripe() -> None:
    for position, old in enumerate("abcd"):
        cluster = Cluster(closed_ledger(4, 3, 2, [(0, "abcd")], 40), "x")
        repair = repair_of(cluster, one(0, position, old, "x"), lost=old)
        assert isinstance(cluster.run(repair), RepairFinished)
        assert cluster.bookies["x"].entries == cluster.owed("x"), "its share, not an entry more"
        stripe = stripe_of(repair.metadata.quorum, position)
        assert {header.stripe for header in cluster.bookies["x"].headers} == {stripe}
        assert named(cluster)[0].index("x") == position


def test_rule_32_metadata_changes_only_after_the_copies() -> None:
    cluster = Cluster(closed_ledger(4, 3, 2, [(0, "abcd")], 40), "x")
    missing: list[int] = []
    on_first(
        cluster,
        CasMetadata,
        lambda: missing.append(
            sum(e not in cluster.bookies["x"].entries for e in cluster.bookies["a"].entries)
        ),
    )
    assert isinstance(cluster.run(repair_of(cluster, one(0, 0, "a", "x"))), RepairFinished)
    assert missing == [0]


def test_rule_32_no_bookie_is_named_twice_in_a_fragment() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9))
    verdict = cluster.run(repair_of(cluster, one(0, 1, "b", "c")))
    assert isinstance(verdict, RepairAbandoned)
    assert "c is in the fragment" in verdict.why
    assert named(cluster) == ["abc"]


def test_rule_10_copies_pass_the_fence() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")
    assert isinstance(cluster.run(repair_of(cluster, one(0, 1, "b", "e"))), RepairFinished)
    assert all(header.is_recovery for header in cluster.bookies["e"].headers)


def test_copies_tell_the_target_a_lac_that_is_confirmed_and_its_length() -> None:
    metadata = open_ledger(3, 3, 2, [(0, "abc"), (10, "abd")])
    cluster = Cluster(metadata, "e")
    assert isinstance(cluster.run(repair_of(cluster, one(0, 2, "c", "e"))), RepairFinished)
    told = {(h.last_add_confirmed, h.length_at_lac) for h in cluster.bookies["e"].headers}
    assert told == {(9, metadata.fragments[1].length_before)}


def test_a_gap_on_a_live_bookie_is_filled_without_a_metadata_change() -> None:
    cluster = Cluster(closed_ledger(4, 3, 2, [(0, "abcd")], 40))
    gap = IntervalSet()
    for entry in (1, 9, 16, 17):
        del cluster.bookies["b"].entries[entry]
        gap.add(entry, entry)
    repair = repair_of(cluster, one(0, 1, "b", "b", gap))
    assert isinstance(cluster.run(repair), RepairFinished)
    assert repair.copied_entries == 4
    assert cluster.lacks("b") == set()
    assert (cluster.version, named(cluster)) == (3, ["abcd"])


def test_two_positions_of_a_fragment_are_named_in_one_change() -> None:
    cluster = Cluster(closed_ledger(5, 3, 2, [(0, "abcde")], 30), "xy")
    plan = FragmentRepair(0, (CopyJob(0, "a", "x"), CopyJob(1, "b", "y")))
    assert isinstance(cluster.run(repair_of(cluster, plan, lost="ab")), RepairFinished)
    assert (named(cluster), cluster.version) == (["xycde"], 4)
    assert not cluster.lacks("x") | cluster.lacks("y")


def test_rule_47_a_fragment_without_entries_is_repaired_in_metadata_alone() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc"), (10, "bcd")], 9), "e")
    assert isinstance(cluster.run(repair_of(cluster, one(10, 2, "d", "e"), lost="d")), RepairFinished)
    assert named(cluster) == ["abc", "bce"]
    assert not [effect for effect in cluster.log if isinstance(effect, SendRead | SendFrame)]


def test_the_leaving_bookie_is_the_last_one_asked() -> None:
    cluster = Cluster(closed_ledger(2, 2, 2, [(0, "ab")], 9), "e")
    cluster.bookies["b"].damaged = {4}
    assert isinstance(cluster.run(repair_of(cluster, one(0, 0, "a", "e"))), RepairFinished)
    assert cluster.lacks("e") == set()
    assert {read.first for read in cluster.bookies["a"].asked} == {4}


# Fail-over.


@settings(max_examples=60, deadline=None)
@given(data=st.data(), e=st.integers(2, 5))
def test_an_entry_is_found_wherever_it_still_is(data: st.DataObject, e: int) -> None:
    qw = data.draw(st.integers(2, e))
    cluster = Cluster(closed_ledger(e, qw, 1, [(0, "abcde"[:e])], 24), "x")
    position = data.draw(st.integers(0, e - 1))
    old = "abcde"[position]
    owed = cluster.owed(old)
    for entry in owed:
        holders = [name for name, bookie in cluster.bookies.items() if entry in bookie.entries]
        kept = data.draw(st.sampled_from(holders))
        for name in holders:
            if name != kept:
                if data.draw(st.booleans()):
                    cluster.bookies[name].damaged.add(entry)
                else:
                    del cluster.bookies[name].entries[entry]
    assert isinstance(cluster.run(repair_of(cluster, one(0, position, old, "x"))), RepairFinished)
    assert cluster.bookies["x"].entries == owed


def test_rule_35_an_unreachable_entry_is_named_and_nothing_changes() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")
    cluster.bookies["a"].damaged = {6}
    del cluster.bookies["c"].entries[6]
    verdict = cluster.run(repair_of(cluster, one(0, 1, "b", "e"), lost="b"))
    assert isinstance(verdict, RepairFailed)
    assert verdict.unrecoverable
    assert isinstance(verdict.error, CorruptEntryError)
    assert "entry 6 (a: damaged, c: not there)" in str(verdict.error)
    assert (named(cluster), cluster.version) == (["abc"], 3)


def test_a_bookie_that_does_not_answer_is_passed_over_and_proves_nothing() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")
    cluster.bookies["a"].refuses = Code.TIMEOUT
    assert isinstance(cluster.run(repair_of(cluster, one(0, 1, "b", "e"), lost="b")), RepairFinished)
    assert len(cluster.bookies["a"].asked) == 1, "once is enough while another one answers"
    cluster.bookies["c"].refuses = Code.CONNECTION_LOST
    verdict = cluster.run(repair_of(cluster, one(0, 1, "e", "b"), lost="e"))
    assert isinstance(verdict, RepairFailed)
    assert isinstance(verdict.error, NotEnoughReplicasError)


def test_a_lost_channel_fails_over_and_a_lost_target_ends_the_repair() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")
    reads = on_first(cluster, SendRead, lambda: [BookieFailed("a")])
    assert isinstance(cluster.run(repair_of(cluster, one(0, 1, "b", "e"))), RepairFinished)
    assert reads
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")
    on_first(cluster, SendFrame, lambda: [BookieFailed("e")])
    verdict = cluster.run(repair_of(cluster, one(0, 1, "b", "e")))
    assert isinstance(verdict, RepairFailed)
    assert not verdict.unrecoverable
    assert cluster.version == 3


def test_a_target_that_refuses_ends_the_repair_for_now() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")
    cluster.bookies["e"].refuses = Code.READ_ONLY
    verdict = cluster.run(repair_of(cluster, one(0, 1, "b", "e")))
    assert isinstance(verdict, RepairFailed)
    assert not verdict.unrecoverable
    assert "e does not take the copies (READ_ONLY)" in str(verdict.error)


def test_an_answer_that_speaks_for_nothing_is_taken_for_unreadable() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")
    repair = repair_of(cluster, one(0, 1, "b", "e"))
    (read,) = repair.start()
    assert isinstance(read, SendRead)
    (next_read,) = repair.step(ReadAnswered(read.bookie, read.request_id, Code.OK, through=-1))
    assert isinstance(next_read, SendRead)
    assert next_read.bookie != read.bookie


def test_entries_far_apart_are_not_read_with_everything_between() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 3000))
    gap = IntervalSet()
    for entry in (1, 2, 2900):
        del cluster.bookies["b"].entries[entry]
        gap.add(entry, entry)
    repair = repair_of(cluster, one(0, 1, "b", "b", gap), policy=RepairPolicy())
    assert isinstance(cluster.run(repair), RepairFinished)
    reads = [(effect.first, effect.last) for effect in cluster.log if isinstance(effect, SendRead)]
    assert reads == [(1, 2), (2900, 2900)]


# Throttling.


def test_bytes_on_their_way_are_bounded() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 99), "e")
    repair = repair_of(
        cluster, one(0, 1, "b", "e"), policy=RepairPolicy(read_bytes_max=200, bytes_in_flight_max=500)
    )
    held: list[SendFrame] = []
    todo = repair.start()
    while todo:
        effect = todo.pop(0)
        if isinstance(effect, SendFrame):
            held.append(effect)
        else:
            for event in cluster.perform(effect):
                todo += repair.step(event)
    assert 500 <= sum(len(frame.frame) for frame in held) < 500 + 2 * 400, "it reads no further without acks"
    assert repair.step(FrameAcked("e", held[0].send_id)) != []


def test_bytes_per_second_are_bounded_by_the_clock() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")
    policy = RepairPolicy(read_bytes_max=60, bytes_per_second=100)
    repair = repair_of(cluster, one(0, 1, "b", "e"), policy=policy)
    now_ms = 0
    todo = repair.start()
    while not repair.ended:
        for event in [answer for effect in todo for answer in cluster.perform(effect)]:
            todo = repair.step(event)
            if isinstance(event, FrameAcked) and not todo:
                break
        while not todo:
            now_ms += 50
            todo = repair.step(Tick(now_ms))
    bytes_copied = sum(len(payload(entry)) for entry in range(10))
    assert now_ms >= (bytes_copied - 60) * 1000 // 100


# The world changes (rules 31, 56, 47).


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

        def lost_reply(effect: Effect, c: Cluster = cluster, applied: bool = applied) -> list[Event] | None:
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

    def always(effect: Effect) -> list[Event] | None:
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
            in_limbo(cluster, "b", "n1")
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


# The successor's disk.


def test_rule_29_a_successor_wiped_before_it_is_named_is_copied_again() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 99), "e")
    on_first(cluster, CasMetadata, lambda: cluster.bookies["e"].wipe(named=False, nonce="n"))
    assert isinstance(cluster.run(repair_of(cluster, one(0, 1, "b", "e"))), RepairFinished)
    assert cluster.lacks("e") == set()


def test_a_successor_that_restarts_between_two_frames_is_copied_again_before_it_is_named() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 99), "e")
    frames: list[Effect] = []

    def before(effect: Effect) -> list[Event] | None:
        if isinstance(effect, SendFrame):
            frames.append(effect)
            if len(frames) == 3:
                cluster.bookies["e"].wipe(named=False, nonce="n")
        if isinstance(effect, CasMetadata):
            assert len(cluster.bookies["e"].entries) == 100
        return None

    cluster.before = before
    assert isinstance(cluster.run(repair_of(cluster, one(0, 1, "b", "e"))), RepairFinished)
    assert cluster.lacks("e") == set()


def test_a_successor_that_cannot_be_asked_after_it_is_named_leaves_the_task_undone() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")
    on_first(cluster, ReadLimbo, lambda: [BookieFailed("e")])
    verdict = cluster.run(repair_of(cluster, one(0, 1, "b", "e")))
    assert isinstance(verdict, RepairFailed)
    assert not verdict.unrecoverable


# Limbo (rule 29).


def in_limbo(cluster: Cluster, bookie: str, nonce: str) -> None:
    """`bookie` loses its disk and comes back under its old name."""
    cluster.bookies[bookie].wipe(named=True, nonce=nonce)


def test_rule_29_limbo_ends_after_everything_owed_is_copied_back() -> None:
    cluster = Cluster(closed_ledger(4, 3, 2, [(0, "abcd"), (20, "eafg"), (30, "bcde")], 40))
    in_limbo(cluster, "a", "n1")
    lacks_when_cleared: list[set[int]] = []
    on_first(cluster, ClearLimbo, lambda: lacks_when_cleared.append(cluster.lacks("a")))
    assert isinstance(cluster.run(limbo_repair(cluster, "a")), RepairFinished)
    assert lacks_when_cleared == [set()]
    assert cluster.bookies["a"].limbo is None
    assert (cluster.version, named(cluster)) == (3, ["abcd", "eafg", "bcde"])


def test_rule_29_the_nonce_is_read_before_the_first_copy() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 20))
    in_limbo(cluster, "b", "n1")
    cluster.run(limbo_repair(cluster, "b"))
    kinds = [type(effect) for effect in cluster.log]
    assert kinds.index(ReadLimbo) < kinds.index(SendRead)


@pytest.mark.parametrize("request_kind", [ReadLimbo, ClearLimbo])
def test_rule_29_limbo_stays_where_the_bookie_gives_no_answer(request_kind: type) -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9))
    in_limbo(cluster, "b", "n1")

    def before(effect: Effect) -> list[Event] | None:
        if not isinstance(effect, request_kind):
            return None
        if isinstance(effect, ReadLimbo):
            return [LimboRead("b", effect.request_id, Code.UNAVAILABLE)]
        assert isinstance(effect, ClearLimbo)
        return [LimboCleared("b", effect.request_id, Code.UNAVAILABLE)]

    cluster.before = before
    verdict = cluster.run(limbo_repair(cluster, "b"))
    assert isinstance(verdict, RepairFailed)
    assert "b does not answer (UNAVAILABLE)" in str(verdict.error)
    assert cluster.bookies["b"].limbo == "n1"


@pytest.mark.parametrize("moment", [SendRead, SendFrame, ReadMetadata, ClearLimbo])
def test_rule_29_a_disk_lost_again_during_the_repair_keeps_its_limbo(moment: type) -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc"), (10, "bcd")], 20))
    in_limbo(cluster, "b", "n1")
    hit = on_first(cluster, moment, lambda: in_limbo(cluster, "b", "n2"))
    verdict = cluster.run(limbo_repair(cluster, "b"))
    assert hit
    assert isinstance(verdict, RepairFailed)
    assert not verdict.unrecoverable
    assert "lost its disk again" in str(verdict.error)
    assert cluster.bookies["b"].limbo == "n2"
    assert isinstance(cluster.run(limbo_repair(cluster, "b")), RepairFinished)
    assert cluster.bookies["b"].limbo is None
    assert not cluster.lacks("b")


def test_rule_29_limbo_never_ends_before_the_ledger_is_closed() -> None:
    cluster = Cluster(open_ledger(3, 3, 2, [(0, "abc"), (10, "acd")]))
    in_limbo(cluster, "b", "n1")
    verdict = cluster.run(limbo_repair(cluster, "b"))
    assert isinstance(verdict, RepairFailed)
    assert "CLOSED" in str(verdict.error)
    assert cluster.bookies["b"].limbo == "n1"


def test_rule_29_an_entry_that_cannot_be_copied_back_keeps_limbo() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9))
    in_limbo(cluster, "b", "n1")
    for name in "ac":
        cluster.bookies[name].damaged = {9}
    verdict = cluster.run(limbo_repair(cluster, "b"))
    assert isinstance(verdict, RepairFailed)
    assert verdict.unrecoverable
    assert cluster.bookies["b"].limbo == "n1"


def test_rule_29_a_fragment_won_during_the_repair_keeps_limbo() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc"), (10, "acd")], 20))
    in_limbo(cluster, "b", "n1")
    on_first(
        cluster, ReadMetadata, lambda: cluster.change(closed_ledger(3, 3, 2, [(0, "abc"), (10, "abd")], 20))
    )
    assert isinstance(cluster.run(limbo_repair(cluster, "b")), RepairFailed)
    assert cluster.bookies["b"].limbo == "n1"


def test_rule_29_limbo_without_a_debt_ends_and_without_a_mark_nothing_is_done() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "z")
    in_limbo(cluster, "z", "n1")
    assert isinstance(cluster.run(limbo_repair(cluster, "z")), RepairFinished)
    assert cluster.bookies["z"].limbo is None
    cluster.log.clear()
    assert isinstance(cluster.run(limbo_repair(cluster, "z")), RepairFinished)
    assert not [effect for effect in cluster.log if isinstance(effect, ClearLimbo)]


# All of it at once.

FAULTS = ("wipe", "restart", "raise", "unknown", "applied", "failed", "other")


def fault(cluster: Cluster, kind: str, effect: Effect) -> list[Event] | None:
    """Let something happen before `effect` is carried out; the answer, if it is not carried out at all."""
    assert cluster.metadata is not None
    if kind == "wipe":
        cluster.bookies["e"].wipe(named="e" in cluster.metadata.bookies(), nonce=f"n{len(cluster.log)}")
    elif kind == "restart":
        cluster.bookies["e"].boot += "+"
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
            in_limbo(cluster, "e", "n")
        todo = list(faults)

        def before(effect: Effect, cluster: Cluster = cluster, todo: Todo = todo) -> list[Event] | None:
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
