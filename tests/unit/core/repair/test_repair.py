"""Repair: what it copies, in which order it does what, and what it does when the world changes under it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybook.core.effects import (
    CasMetadata,
    Effect,
    RepairAbandoned,
    RepairFailed,
    RepairFinished,
    SendFrame,
    SendRead,
)
from daybook.core.errors import Code, CorruptEntryError, NotEnoughReplicasError
from daybook.core.events import BookieFailed, FrameAcked, FrameFailed, ReadAnswered, Tick
from daybook.core.quorum import stripe_of
from daybook.core.repair.copy import RepairPolicy
from daybook.core.repair.plan import CopyJob, FragmentRepair, RepairPlan
from tests.unit.core.repair.repair_kit import named, on_first, one, repair_of
from tests.unit.core.repair.repair_model import Cluster, closed_ledger, open_ledger, payload

# Copying.


def test_a_lost_bookie_is_replaced_by_a_full_copy() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc"), (10, "abd")], 19), "e")
    repair = repair_of(cluster, one(0, 1, "b", "e"), one(10, 1, "b", "e"), lost="b")
    assert isinstance(cluster.run(repair), RepairFinished)
    assert named(cluster) == ["aec", "aed"]
    assert cluster.lacks("e") == set()
    assert repair.copied_entries == 20
    assert not cluster.reads("b")


def test_rule_32_every_striped_position_gets_the_very_bytes_of_its_stripe() -> None:
    for position, old in enumerate("abcd"):
        cluster = Cluster(closed_ledger(4, 3, 2, [(0, "abcd")], 40), "x")
        repair = repair_of(cluster, one(0, position, old, "x"), lost=old)
        assert isinstance(cluster.run(repair), RepairFinished)
        assert cluster.bookies["x"].entries == cluster.owed("x"), "its share, not an entry more"
        stripe = stripe_of(repair.metadata.quorum, position)
        assert {header.stripe for header in cluster.headers("x")} == {stripe}
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
    assert all(header.is_recovery for header in cluster.headers("e"))


def test_copies_tell_the_target_a_lac_that_is_confirmed_and_its_length() -> None:
    metadata = open_ledger(3, 3, 2, [(0, "abc"), (10, "abd")])
    cluster = Cluster(metadata, "e")
    assert isinstance(cluster.run(repair_of(cluster, one(0, 2, "c", "e"))), RepairFinished)
    told = {(h.last_add_confirmed, h.length_at_lac) for h in cluster.headers("e")}
    assert told == {(9, metadata.fragments[1].length_before)}


def test_a_gap_on_a_live_bookie_is_filled_without_a_metadata_change() -> None:
    cluster = Cluster(closed_ledger(4, 3, 2, [(0, "abcd")], 40))
    repair = repair_of(cluster, one(0, 1, "b", "b", cluster.lose("b", 1, 9, 16, 17)))
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
    cluster.bookies["b"].damaged.add(4)
    assert isinstance(cluster.run(repair_of(cluster, one(0, 0, "a", "e"))), RepairFinished)
    assert cluster.lacks("e") == set()
    assert {read.first for read in cluster.reads("a")} == {4}


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
    cluster.bookies["a"].damaged.add(6)
    del cluster.bookies["c"].entries[6]
    verdict = cluster.run(repair_of(cluster, one(0, 1, "b", "e"), lost="b"))
    assert isinstance(verdict, RepairFailed)
    assert verdict.unrecoverable
    assert isinstance(verdict.error, CorruptEntryError)
    assert "entry 6 (a: damaged, c: not there)" in str(verdict.error)
    assert (named(cluster), cluster.version) == (["abc"], 3)


def test_a_bookie_that_does_not_answer_is_passed_over_and_proves_nothing() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")
    cluster.bookies["a"].fault = lambda _: Code.TIMEOUT
    assert isinstance(cluster.run(repair_of(cluster, one(0, 1, "b", "e"), lost="b")), RepairFinished)
    assert len(cluster.reads("a")) == 1, "once is enough while another one answers"
    cluster.bookies["c"].fault = lambda _: Code.CONNECTION_LOST
    verdict = cluster.run(repair_of(cluster, one(0, 1, "e", "b"), lost="e"))
    assert isinstance(verdict, RepairFailed)
    assert isinstance(verdict.error, NotEnoughReplicasError)


@pytest.mark.parametrize("code", [Code.TIMEOUT, Code.CONNECTION_LOST, Code.UNAVAILABLE, Code.IO_ERROR])
def test_rule_35_an_entry_that_a_bookie_may_have_that_does_not_answer_is_not_unrecoverable(
    code: Code,
) -> None:
    """The bookie is only overloaded or cut off for a while: nobody must be told to delete the ledger."""
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")
    cluster.bookies["a"].fault = lambda _: code
    cluster.bookies["c"].damaged.add(6)
    verdict = cluster.run(repair_of(cluster, one(0, 1, "b", "e"), lost="b"))
    assert isinstance(verdict, RepairFailed)
    assert f"entry 6 (a: {code.name}, c: damaged)" in str(verdict.error)
    assert not verdict.unrecoverable


def test_rule_35_an_entry_of_bookies_that_are_all_gone_is_unrecoverable() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")
    verdict = cluster.run(repair_of(cluster, one(0, 1, "b", "e"), lost="abc"))
    assert isinstance(verdict, RepairFailed)
    assert isinstance(verdict.error, NotEnoughReplicasError)
    assert "entry 0 (no replica is left)" in str(verdict.error)
    assert verdict.unrecoverable


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
    cluster.bookies["e"].fault = lambda _: Code.READ_ONLY
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
    gap = cluster.lose("b", 1, 2, 2900)
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
    while not repair.is_done:
        for event in [answer for effect in todo for answer in cluster.perform(effect)]:
            todo = repair.step(event)
            if isinstance(event, FrameAcked) and not todo:
                break
        while not todo:
            now_ms += 50
            todo = repair.step(Tick(now_ms))
    bytes_copied = sum(len(payload(entry)) for entry in range(10))
    assert now_ms >= (bytes_copied - 60) * 1000 // 100


def test_a_bookie_that_is_not_being_read_may_fail_meanwhile() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 19), "e")
    repair = repair_of(cluster, one(0, 2, "c", "e"), lost="c")
    (read,) = repair.start()
    assert isinstance(read, SendRead)
    assert repair.step(BookieFailed("c", Code.TIMEOUT)) == []
    assert repair.step(FrameFailed("e", 10**6, Code.IO_ERROR)) == [], "nobody sent it"
    assert not repair.is_done


def test_answers_to_copies_that_are_over_are_dropped() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")
    repair = repair_of(cluster, one(0, 1, "b", "e"), lost="b")
    late: list[Effect] = []

    def before_the_cas() -> None:
        late.extend(repair.step(FrameAcked("e", 1, "boot-1")))

    on_first(cluster, CasMetadata, before_the_cas)
    assert isinstance(cluster.run(repair), RepairFinished)
    assert late == []


def test_a_copy_back_and_a_replacement_of_one_fragment_change_metadata_for_the_replacement_alone() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")
    both = FragmentRepair(0, (CopyJob(0, "a", "a", cluster.lose("a", 4)), CopyJob(1, "b", "e")))
    assert isinstance(cluster.run(repair_of(cluster, both, lost="b")), RepairFinished)
    assert named(cluster) == ["aec"]
    assert cluster.lacks("a") | cluster.lacks("e") == set()


def test_entries_with_holes_between_travel_in_frames_without_holes() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 19))
    wanted = cluster.lose("a", 2, 3, 7, 8)
    assert isinstance(
        cluster.run(repair_of(cluster, one(0, 0, "a", "a", wanted), policy=RepairPolicy())), RepairFinished
    )
    assert cluster.lacks("a") == set()
    assert [(h.first_entry, h.count) for h in cluster.headers("a")] == [(2, 2), (7, 2)]


def test_a_bookie_that_fails_is_blamed_only_for_what_it_was_asked() -> None:
    """Two wanted entries far apart are two reads; who failed the first is asked for the second, last of all."""
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 199))
    wanted = cluster.lose("a", 2, 190)
    cluster.lose("b", 190)
    first = on_first(cluster, SendRead, lambda: [BookieFailed("c", Code.TIMEOUT)])
    assert isinstance(cluster.run(repair_of(cluster, one(0, 0, "a", "a", wanted))), RepairFinished)
    assert [read.bookie for read in first if isinstance(read, SendRead)] == ["c"]
    assert cluster.lacks("a") == set()


def test_a_plan_whose_fragment_is_gone_is_abandoned() -> None:
    """A writer that closes with no entry after an ensemble change may take its last fragment back (rule 17)."""
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc"), (10, "abd")], 19), "e")
    repair = repair_of(cluster, one(5, 1, "b", "e"), lost="b")
    verdict = cluster.run(repair)
    assert isinstance(verdict, RepairAbandoned)
    assert "no fragment begins at entry 5" in verdict.why


def test_what_was_found_ahead_of_a_hole_is_kept_when_the_hole_is_read_again() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 5), "e")
    cluster.lose("b", 1, 4)
    repair = repair_of(cluster, one(0, 0, "a", "e"), lost="a", policy=RepairPolicy())
    assert isinstance(cluster.run(repair), RepairFinished)
    asked = [(e.bookie, e.first, e.last) for e in cluster.log if isinstance(e, SendRead)]
    assert asked == [("b", 0, 5), ("c", 1, 4)]
    assert cluster.lacks("e") == set()


def test_a_plan_that_failed_is_known_again_by_its_place_whoever_the_successor_is() -> None:
    def plan(target: str, *, position: int = 0, clear_limbo: str | None = None) -> RepairPlan:
        return RepairPlan((FragmentRepair(0, (CopyJob(position, "b1", target),)),), clear_limbo)

    assert plan("b4").key == plan("b5").key
    assert len({plan("b4").key, plan("b4", position=1).key, plan("b1", clear_limbo="b1").key}) == 3
