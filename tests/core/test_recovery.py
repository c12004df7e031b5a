"""Recovery closes a ledger at an end that holds everything acknowledged, or it does not close it."""

import random
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import combinations, product

import pytest

from daybook.core.errors import (
    Code,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    RecoveryFailedError,
    UnauthorizedError,
)
from daybook.core.events import (
    BookieFailed,
    CasAnswered,
    CasMetadata,
    CasOutcome,
    Effect,
    MetadataRead,
    MetadataUnreadable,
    ReadMetadata,
    Recovered,
    RecoveryFailed,
    SendFence,
    SendFrame,
    SendRead,
    Tick,
)
from daybook.core.frame import Entry, decode_header
from daybook.core.ids import BookieId
from daybook.core.metadata import Fragment, LedgerMetadata, LedgerState
from daybook.core.placement import BookieInfo, RandomSource
from daybook.core.quorum import Quorum, write_set
from daybook.core.recovery import LedgerRecovery, Phase, RecoveryPolicy
from daybook.core.write_back import Spares, WriteBack
from tests.core.small_cluster import ENTRY_BYTES, LEDGER, Cluster, Run, entry, failed


class FirstSpare:
    """Placement that takes the first bookie by name, so that tests can tell which."""

    def choose(
        self,
        quorum: Quorum,
        bookies: Mapping[BookieId, BookieInfo],
        rng: RandomSource,
        *,
        exclude: AbstractSet[BookieId] = frozenset(),
        avoid: AbstractSet[BookieId] = frozenset(),
    ) -> tuple[BookieId, ...]:
        return tuple(sorted(bookies.keys() - exclude)[: quorum.ensemble_size])

    def replace(
        self,
        quorum: Quorum,
        ensemble: Sequence[BookieId],
        positions: AbstractSet[int],
        bookies: Mapping[BookieId, BookieInfo],
        rng: RandomSource,
        *,
        exclude: AbstractSet[BookieId] = frozenset(),
        avoid: AbstractSet[BookieId] = frozenset(),
    ) -> tuple[BookieId, ...]:
        free = sorted(bookies.keys() - exclude - set(ensemble))
        if len(free) < len(positions):
            msg = "too few"
            raise NotEnoughBookiesError(msg)
        changed = list(ensemble)
        for position, bookie in zip(sorted(positions), free, strict=False):
            changed[position] = bookie
        return tuple(changed)

    def problems(
        self, quorum: Quorum, ensemble: Sequence[BookieId], bookies: Mapping[BookieId, BookieInfo]
    ) -> Sequence[str]:
        return ()


def recovery_of(cluster: Cluster, policy: RecoveryPolicy | None = None) -> LedgerRecovery:
    return LedgerRecovery(
        LEDGER,
        placement=FirstSpare(),
        rng=random.Random(1),
        bookies={name: BookieInfo(name) for name in cluster.bookies if name not in cluster.down},
        policy=policy,
    )


def run_of(cluster: Cluster, policy: RecoveryPolicy | None = None) -> Run:
    machine = recovery_of(cluster, policy)
    return Run(cluster, machine.step, machine.start())


def recover(cluster: Cluster, policy: RecoveryPolicy | None = None) -> LedgerMetadata:
    """Run a recovery to its end; its close."""
    result = run_of(cluster, policy).finish()[-1]
    assert isinstance(result, Recovered), result
    return result.metadata


def refusal(cluster: Cluster) -> Exception:
    """Run a recovery that must refuse; why it did."""
    result = run_of(cluster).finish()[-1]
    assert isinstance(result, RecoveryFailed), result
    return result.error


# What it does when nothing is in the way


def test_a_ledger_that_was_never_written_closes_at_minus_one() -> None:
    cluster = Cluster()
    closed = recover(cluster)
    assert (closed.state, closed.last_entry, closed.length) == (LedgerState.CLOSED, -1, 0)
    assert cluster.meta == closed


def test_everything_on_an_ack_quorum_is_kept_and_written_back() -> None:
    cluster = Cluster(spares=1)
    cluster.write_everywhere(0, 4)
    cluster.write(5, ["b1", "b3"], lac=4)
    closed = recover(cluster)
    assert (closed.last_entry, closed.length) == (5, 6 * ENTRY_BYTES)
    assert cluster.bookies["b2"].entries[5] == entry(5)
    assert closed.fragments == cluster.meta.fragments
    assert len(closed.fragments) == 1


def test_an_entry_on_a_single_bookie_is_made_safe_before_the_close() -> None:
    cluster = Cluster()
    cluster.write(0, ["b2"])
    closed = recover(cluster)
    assert closed.last_entry == 0
    assert [0 in bookie.entries for bookie in cluster.bookies.values()] == [True, True, True]


def test_a_closed_ledger_is_returned_as_it_is() -> None:
    cluster = Cluster()
    cluster.write_everywhere(0, 2)
    cluster.metadata = cluster.meta.closed(1, 6)
    run = run_of(cluster)
    assert run.finish() == [Recovered(cluster.meta)]
    assert cluster.version == 1


@pytest.mark.parametrize(
    ("ensemble", "write", "ack"), [(3, 3, 2), (5, 3, 2), (4, 3, 2), (3, 2, 2), (3, 2, 1)]
)
def test_long_tails_are_read_in_windows_and_come_out_the_same(ensemble: int, write: int, ack: int) -> None:
    cluster = Cluster(ensemble, write, ack)
    cluster.write_everywhere(0, 99, lac=9)
    closed = recover(cluster, RecoveryPolicy(window_entries=16, window_bytes=7 * ENTRY_BYTES))
    assert (closed.last_entry, closed.length) == (99, 100 * ENTRY_BYTES)
    for entry_id in range(100):
        for name in cluster.holders(entry_id):
            assert cluster.bookies[name].entries[entry_id] == entry(entry_id)
    assert all(set(b.entries) <= set(range(100)) for b in cluster.bookies.values())


def test_a_striped_write_back_sends_a_bookie_only_what_it_holds() -> None:
    cluster = Cluster(5, 3, 2)
    for entry_id in range(12):
        cluster.write(entry_id, cluster.holders(entry_id)[:2], lac=-1)
    assert recover(cluster).last_entry == 11
    for position, bookie in enumerate(cluster.bookies.values()):
        owed = {i for i in range(12) if position in write_set(cluster.quorum, i)}
        assert set(bookie.entries) == owed


def test_many_entries_travel_in_few_frames() -> None:
    cluster = Cluster()
    cluster.write_everywhere(0, 199, lac=-1)
    for bookie in cluster.bookies.values():
        bookie.frames.clear()
    recover(cluster)
    assert [len(bookie.frames) for bookie in cluster.bookies.values()] == [1, 1, 1]


def test_an_unreadable_entry_is_taken_from_another_replica() -> None:
    cluster = Cluster()
    cluster.write_everywhere(0, 3, lac=-1)
    cluster.bookies["b1"].damaged = {1, 2}
    cluster.bookies["b2"].damaged = {2}
    assert recover(cluster).last_entry == 3


# Rules


SHAPES = [(6, 3, 2), (3, 3, 2), (3, 2, 2), (3, 2, 1), (4, 3, 3), (5, 5, 3)]


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
    run = run_of(cluster)
    run.until(SendFence)
    for fence in [e for e in run.queue if isinstance(e, SendFence)]:
        run.queue.remove(fence)
        if fence.bookie != "b3":  # the request to b3 is lost
            for event in cluster.perform(fence):
                run.feed(event)
    while run.queue:  # b2's answer to the read is late, so the end is proven by b1 and b3
        effect = run.queue.popleft()
        if isinstance(effect, SendRead) and effect.bookie == "b2":
            run.feed(failed(effect, Code.TIMEOUT))
        elif isinstance(effect, Recovered):
            assert effect.metadata.last_entry == -1
        else:
            for event in cluster.perform(effect):
                run.feed(event)
    assert cluster.meta.is_closed
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


def test_rule_05_recovery_starts_after_the_highest_lac_that_is_known() -> None:
    cluster = Cluster()
    cluster.write_everywhere(0, 5, lac=-1)
    cluster.write(6, ["b2"], lac=5)
    run = run_of(cluster)
    run.until(SendRead)
    assert {effect.first for effect in run.queue if isinstance(effect, SendRead)} == {6}


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
                bookie.damaged = {0}
            if answer == "limbo":
                bookie.ledger.enter_limbo("nonce")
            if answer == "down":
                cluster.down.add(name)
        run = run_of(cluster)
        while run.queue:
            effect = run.queue[0]
            if (
                isinstance(effect, SendRead)
                and effect.first == 0
                and answers[int(effect.bookie[1:]) - 1] == "error"
            ):
                run.queue.popleft()
                run.feed(failed(effect, Code.IO_ERROR))
            else:
                run.one()
        result = run.results[-1]
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


def test_rule_09_ensemble_changes_of_recovery_reach_metadata_only_with_the_close() -> None:
    """A first recovery puts a spare in b1's place and dies; the second must still read from b1, b2 and b3."""
    cluster = Cluster(spares=1)
    cluster.write(0, ["b2", "b3"])
    original = cluster.meta.last_fragment
    first = run_of(cluster)
    first.until(SendFrame)
    cluster.down = {"b1"}
    close = first.up_to_the_cas()
    assert close.metadata.last_fragment.bookies == ("b4", "b2", "b3")
    assert cluster.bookies["b4"].entries == {0: entry(0)}
    assert cluster.meta.fragments == (original,)  # and here the first recoverer dies
    cluster.down = set()
    second = run_of(cluster)
    second.until(SendFence)
    assert [e.bookie for e in second.queue if isinstance(e, SendFence)] == list(original.bookies)
    second.finish()
    assert cluster.meta.last_entry == 0


def test_a_bookie_that_fails_during_write_back_is_replaced_and_the_close_names_the_spare() -> None:
    cluster = Cluster(spares=1)
    cluster.write_everywhere(0, 1, lac=1)
    cluster.write(2, ["b1", "b2"], lac=1)
    run = run_of(cluster)
    run.until(SendFrame)
    cluster.down = {"b2"}
    run.finish()
    assert cluster.meta.fragments == (
        Fragment(0, 0, ("b1", "b2", "b3")),
        Fragment(2, 2 * ENTRY_BYTES, ("b1", "b4", "b3")),
    )
    assert cluster.bookies["b4"].entries == {2: entry(2)}
    assert (cluster.meta.last_entry, cluster.meta.length) == (2, 3 * ENTRY_BYTES)


def test_acks_of_a_replaced_bookie_do_not_count() -> None:
    """b3 acks the first frame and fails the second: the spare in its place has neither."""
    cluster = Cluster(spares=1)
    infos = {name: BookieInfo(name) for name in cluster.bookies}
    ids = iter(range(1, 100))
    write_back = WriteBack(
        LEDGER,
        cluster.quorum,
        cluster.meta.last_fragment,
        -1,
        0,
        Spares(FirstSpare(), random.Random(1), infos),
        lambda: next(ids),
        10**6,
    )
    sent = [{e.bookie: e.send_id for e in write_back.add([Entry(i, entry(i))])} for i in range(2)]
    write_back.acked(sent[0]["b3"])
    to_spare = write_back.failed(sent[1]["b3"], Code.IO_ERROR)
    assert [(effect.bookie, decode_header(effect.frame).first_entry) for effect in to_spare] == [
        ("b4", 0),
        ("b4", 1),
    ]
    write_back.acked(sent[0]["b1"])
    assert write_back.recovered_to == -1
    write_back.acked(to_spare[0].send_id)
    assert (write_back.recovered_to, write_back.length) == (0, ENTRY_BYTES)
    assert write_back.changes == [Fragment(0, 0, ("b1", "b2", "b4"))]


def test_too_few_takers_for_write_back_fail_recovery_and_lose_nothing() -> None:
    cluster = Cluster()
    cluster.write(0, ["b2"])
    run = run_of(cluster)
    run.until(SendFrame)
    cluster.down = {"b1", "b3"}
    run.finish()
    assert isinstance(run.results[-1], RecoveryFailed)
    assert cluster.meta.state is LedgerState.IN_RECOVERY
    cluster.down = set()
    assert recover(cluster).last_entry == 0


def test_rule_10_write_back_passes_the_fence() -> None:
    cluster = Cluster()
    cluster.write(0, ["b1"])
    assert recover(cluster).last_entry == 0
    frames = [decode_header(frame) for frame, _ in cluster.bookies["b2"].frames]
    assert [header.is_recovery for header in frames] == [True]


def test_rule_11_two_recoverers_in_every_order_return_one_close() -> None:
    """They disagree (one meets an entry that the other could not see); whoever closes first is right for both."""
    for order in product((0, 1), repeat=10):
        cluster = Cluster()
        cluster.write(0, ["b2"])
        runs = [run_of(cluster), run_of(cluster)]
        for turn in order:
            run = runs[turn]
            if run.queue:
                effect = run.queue[0]
                if turn == 0 and isinstance(effect, (SendFence, SendRead)) and effect.bookie == "b2":
                    run.queue.popleft()
                    run.feed(failed(effect, Code.TIMEOUT))
                else:
                    run.one()
        cluster.down = set()
        results = [run.finish()[-1] for run in runs]
        assert results == [Recovered(cluster.meta)] * 2


def test_rule_11_the_loser_of_a_close_race_returns_the_winners_close() -> None:
    cluster = Cluster()
    cluster.write(0, ["b2"])
    loser = run_of(cluster)
    loser.until(SendFence)
    cluster.down = {"b2"}
    assert loser.up_to_the_cas().metadata.last_entry == -1  # what the loser would have closed at
    cluster.down = set()
    winner = recover(cluster)
    assert winner.last_entry == 0
    assert loser.finish() == [Recovered(winner)]


def test_rule_11_a_writer_that_closes_during_recovery_wins_or_loses_whole() -> None:
    cluster = Cluster()
    cluster.write_everywhere(0, 2)
    run = run_of(cluster)
    run.one()  # the metadata was read; the compare-and-set is on its way
    cluster.metadata = cluster.meta.closed(2, 9)
    cluster.version += 1
    assert run.finish() == [Recovered(cluster.meta)]


def test_rule_12_write_back_keeps_the_lac_that_recovery_started_from() -> None:
    """Two recoverers: the first finds more and dies before its close; no bookie may tell a LAC beyond the second's end."""
    cluster = Cluster()
    cluster.write_everywhere(0, 1, lac=0)
    cluster.write(2, ["b1"], lac=0)
    cluster.write(3, ["b1"], lac=0)
    first = run_of(cluster, RecoveryPolicy(window_bytes=ENTRY_BYTES))
    first.until(SendFence)
    first.up_to_the_cas()  # it has written 1, 2 and 3 back and dies before the close
    headers = [
        decode_header(frame)
        for bookie in cluster.bookies.values()
        for frame, _ in bookie.frames
        if decode_header(frame).is_recovery
    ]
    assert len(headers) == 9
    assert {(h.last_add_confirmed, h.length_at_lac) for h in headers} == {(0, ENTRY_BYTES)}
    assert {b.ledger.last_add_confirmed().last_add_confirmed for b in cluster.bookies.values()} == {0}


def test_rule_12_a_tail_reader_sees_no_entry_beyond_the_final_close() -> None:
    """The first recoverer gets its quorum from spares that no one else will ask, and dies; the second ends earlier."""
    cluster = Cluster(spares=2)
    cluster.write(0, ["b2"])
    cluster.write(1, ["b2"], lac=-1)
    first = run_of(cluster, RecoveryPolicy(window_bytes=ENTRY_BYTES))
    first.until(SendFrame)
    cluster.down = {"b1", "b3"}
    first.finish()
    assert set(cluster.bookies["b4"].entries) == {0, 1}
    assert isinstance(first.results[-1], RecoveryFailed)  # the end cannot be proven with b2 alone
    cluster.down = {"b2"}
    assert recover(cluster).last_entry == -1
    told = max(b.ledger.last_add_confirmed().last_add_confirmed for b in cluster.bookies.values())
    assert told == -1


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
    cluster.bookies["b1"].ledger.enter_limbo("after-wipe")
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


# The metadata store


def test_rule_56_a_ledger_that_is_deleted_during_recovery_ends_it() -> None:
    for steps in range(30):
        cluster = Cluster()
        cluster.write_everywhere(0, 1)
        run = run_of(cluster)
        for _ in range(steps):
            if run.queue:
                run.one()
        if cluster.meta.is_closed:
            break
        cluster.metadata = None
        result = run.finish()[-1]
        assert isinstance(result, RecoveryFailed), steps
        assert isinstance(result.error, NoSuchLedgerError)
    else:
        pytest.fail("recovery never closed the ledger")


def test_a_repair_of_an_older_fragment_is_kept_by_the_close() -> None:
    cluster = Cluster(spares=1, start=(5, 15))
    run = run_of(cluster)
    run.until(SendFence)
    cluster.metadata = cluster.meta.with_replica(0, "b1", "b4")
    cluster.version += 1
    run.finish()
    assert cluster.meta.is_closed
    assert cluster.meta.fragments[0].bookies == ("b4", "b2", "b3")


def test_a_change_of_the_fragment_under_recovery_is_never_overwritten() -> None:
    cluster = Cluster(spares=1)
    run = run_of(cluster)
    run.until(SendFence)
    cluster.metadata = cluster.meta.with_replica(0, "b1", "b4")
    cluster.version += 1
    assert isinstance(run.finish()[-1], RecoveryFailed)
    assert cluster.meta.last_fragment.bookies == ("b4", "b2", "b3")


@pytest.mark.parametrize("applied", [True, False])
def test_a_compare_and_set_without_answer_is_settled_by_reading(applied: bool) -> None:
    cluster = Cluster()
    cluster.write_everywhere(0, 1)
    run = run_of(cluster)
    lost = 0
    while run.queue:
        effect = run.queue[0]
        if isinstance(effect, CasMetadata) and lost < 2 and effect.request_id != lost:
            run.queue.popleft()
            if applied:
                cluster.perform(effect)
            lost += 1
            run.feed(CasAnswered(effect.request_id, CasOutcome.UNKNOWN))
        else:
            run.one()
    assert run.results == [Recovered(cluster.meta)]
    assert cluster.meta.last_entry == 1


def test_unreadable_metadata_is_asked_for_again_after_a_while() -> None:
    cluster = Cluster()
    machine = recovery_of(cluster)
    (read,) = machine.start()
    assert isinstance(read, ReadMetadata)
    assert machine.step(MetadataUnreadable(read.request_id)) == []
    assert machine.step(Tick(499)) == []
    (again,) = machine.step(Tick(500))
    assert isinstance(again, ReadMetadata)
    assert machine.step(MetadataRead(read.request_id, None)) == []  # the late answer to the first is dropped
    run = Run(cluster, machine.step, [again])
    assert run.finish() == [Recovered(cluster.meta)]


def test_a_recovery_that_cannot_decide_returns_the_close_of_one_that_could() -> None:
    cluster = Cluster()
    cluster.write(0, ["b2"])
    stuck = run_of(cluster)
    stuck.until(SendRead)
    winner = recover(cluster)
    cluster.down = set(cluster.bookies)
    assert stuck.finish() == [Recovered(winner)]


def test_a_wrong_password_is_told_as_such() -> None:
    cluster = Cluster()
    run = run_of(cluster)
    while run.queue:
        effect: Effect = run.queue[0]
        if isinstance(effect, SendFence):
            run.queue.popleft()
            run.feed(failed(effect, Code.UNAUTHORIZED))
        else:
            run.one()
    result = run.results[-1]
    assert isinstance(result, RecoveryFailed)
    assert isinstance(result.error, UnauthorizedError)


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


def test_a_bookie_that_only_queues_is_given_up_before_it_fills_the_memory() -> None:
    cluster = Cluster(spares=1)
    cluster.write_everywhere(0, 59, lac=-1)
    run = run_of(cluster, RecoveryPolicy(window_entries=10, straggler_bytes_max=500))
    run.until(SendFrame)
    cluster.silent = {"b3"}
    run.finish()
    assert cluster.meta.is_closed
    assert cluster.meta.last_fragment.bookies == ("b1", "b2", "b4")
    queued = sum(len(e.frame) for e in cluster.held if isinstance(e, SendFrame))
    assert queued < 1000


def test_answers_after_the_end_change_nothing() -> None:
    cluster = Cluster()
    cluster.write_everywhere(0, 1, lac=-1)
    cluster.silent = {"b3"}
    machine = recovery_of(cluster)
    run = Run(cluster, machine.step, machine.start())
    run.finish()
    assert machine.phase is Phase.DONE
    assert cluster.held
    cluster.silent = set()
    for effect in list(cluster.held):
        for event in cluster.perform(effect):
            assert machine.step(event) == []
    assert machine.step(BookieFailed("b1")) == []


def test_a_ledger_that_is_recovered_by_many_in_turn_keeps_its_end() -> None:
    cluster = Cluster(5, 3, 2)
    cluster.write_everywhere(0, 20, lac=10)
    closes = {replace(recover(cluster)).last_entry for _ in range(3)}
    assert closes == {20}
