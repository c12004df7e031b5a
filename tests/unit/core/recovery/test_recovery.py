"""Recovery closes a ledger at an end that holds everything acknowledged, or it does not close it."""

import pytest

from daybook.core.effects import Recovered, SendFence, SendFrame
from daybook.core.errors import Code
from daybook.core.events import BookieFailed, BookiesChanged, FenceAnswered
from daybook.core.placement.policy import BookieInfo
from daybook.core.recovery.policy import RecoveryPolicy
from daybook.core.recovery.recovery import Phase
from tests.unit.core.recovery.recovery_kit import recover, recovery_of, run_of
from tests.unit.core.small_cluster import ENTRY_BYTES, Cluster, Run, entry

# What it does when nothing is in the way


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


def test_many_entries_travel_in_few_frames() -> None:
    cluster = Cluster()
    cluster.write_everywhere(0, 199, lac=-1)
    cluster.frames.clear()
    recover(cluster)
    assert [len(cluster.frames[name]) for name in cluster.bookies] == [1, 1, 1]


def test_an_unreadable_entry_is_taken_from_another_replica() -> None:
    cluster = Cluster()
    cluster.write_everywhere(0, 3, lac=-1)
    cluster.bookies["b1"].damaged.update({1, 2})
    cluster.bookies["b2"].damaged.add(2)
    assert recover(cluster).last_entry == 3


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


def test_the_failure_of_a_bookie_that_owes_nothing_changes_nothing() -> None:
    cluster = Cluster()
    cluster.write_everywhere(0, 1, lac=-1)
    machine = recovery_of(cluster)
    run = Run(cluster, machine.step, machine.start())
    run.until(SendFrame)
    assert machine.phase is Phase.REPLAYING
    assert machine.step(BookieFailed("b9")) == []
    run.finish()
    assert machine.is_done


def test_a_late_answer_to_a_fence_changes_nothing() -> None:
    cluster = Cluster(3, 3, 2)
    cluster.write_everywhere(0, 2)
    run = run_of(cluster)
    run.until(SendFence)
    fence = run.queue[0]
    assert isinstance(fence, SendFence)
    run.feed(FenceAnswered(fence.bookie, fence.request_id + 100, Code.OK, 50, 50))
    run.finish()
    assert cluster.meta.last_entry == 2


def test_a_spare_that_registers_meanwhile_takes_the_place_of_a_failed_bookie() -> None:
    cluster = Cluster(spares=1)
    cluster.write(0, ["b1", "b2"])
    cluster.down = {"b4"}  # so it is not registered when the recovery begins
    run = run_of(cluster)
    run.until(SendFrame)
    cluster.down = {"b2"}
    run.feed(BookiesChanged({name: BookieInfo(name) for name in cluster.bookies}))
    run.finish()
    assert cluster.meta.is_closed
    assert cluster.meta.last_fragment.bookies == ("b1", "b4", "b3")
    assert cluster.bookies["b4"].entries == {0: entry(0)}
