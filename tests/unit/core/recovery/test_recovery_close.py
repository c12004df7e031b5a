"""The close of a recovery: one wins, everyone returns it, and nothing that others changed is overwritten."""

from dataclasses import replace
from itertools import product

import pytest

from daybook.core.effects import CasMetadata, ReadMetadata, Recovered, RecoveryFailed, SendFence, SendRead
from daybook.core.errors import (
    Code,
    LedgerChangedError,
    NoSuchLedgerError,
)
from daybook.core.events import CasAnswered, CasOutcome, MetadataRead, MetadataUnreadable, Tick
from tests.fixtures.memory_bookie import failed
from tests.unit.core.recovery.recovery_kit import recover, recovery_of, run_of
from tests.unit.core.small_cluster import Cluster, Run


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


def test_rule_56_a_recovery_that_is_meant_for_another_version_does_nothing() -> None:
    cluster = Cluster()
    cluster.write_everywhere(0, 1)
    before, cluster.version = cluster.meta, 5
    for run in (run_of(cluster, expected_version=4), run_of(cluster, expected_version=6)):
        (result,) = run.finish()
        assert isinstance(result, RecoveryFailed)
        assert isinstance(result.error, LedgerChangedError)
        assert "is at version 5" in str(result.error)
    assert cluster.meta == before
    (result,) = run_of(cluster, expected_version=5).finish()
    assert result == Recovered(cluster.meta)
    (again,) = run_of(cluster, expected_version=5).finish()
    assert isinstance(again, RecoveryFailed)  # closed meanwhile, at another version


def test_rule_56_a_change_before_the_mark_ends_a_recovery_that_is_meant_for_a_version() -> None:
    for marked_by_another in (False, True):
        cluster = Cluster(spares=1)
        run = run_of(cluster, expected_version=cluster.version)
        run.until(CasMetadata)
        meta = cluster.meta
        cluster.metadata = (
            meta.in_recovery() if marked_by_another else meta.with_ensemble(0, 0, ("b1", "b2", "b4"))
        )
        cluster.version += 1
        changed = cluster.meta
        (result,) = run.finish()
        assert isinstance(result, RecoveryFailed)
        assert isinstance(result.error, LedgerChangedError)
        assert cluster.meta == changed


def test_a_mark_without_an_answer_is_the_recoverys_own_version() -> None:
    for is_applied in (False, True):
        cluster = Cluster()
        cluster.write_everywhere(0, 1)
        run = run_of(cluster, expected_version=cluster.version)
        run.until(CasMetadata)
        mark = run.queue.popleft()
        assert isinstance(mark, CasMetadata)
        if is_applied:
            cluster.perform(mark, run.stream)
        run.feed(CasAnswered(mark.request_id, CasOutcome.UNKNOWN))
        assert run.finish() == [Recovered(cluster.meta)]


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


def test_a_ledger_that_is_recovered_by_many_in_turn_keeps_its_end() -> None:
    cluster = Cluster(5, 3, 2)
    cluster.write_everywhere(0, 20, lac=10)
    closes = {replace(recover(cluster)).last_entry for _ in range(3)}
    assert closes == {20}


def test_a_recovery_that_cannot_decide_ends_though_the_metadata_store_is_away() -> None:
    cluster = Cluster()
    cluster.down = {"b1", "b2", "b3"}
    run = run_of(cluster)
    run.until(SendFence)
    run.until(ReadMetadata)
    look = run.queue.popleft()
    assert isinstance(look, ReadMetadata)
    run.feed(MetadataUnreadable(look.request_id))
    (failure,) = run.finish()
    assert isinstance(failure, RecoveryFailed)
    assert "too few bookies could be fenced" in str(failure.error)
