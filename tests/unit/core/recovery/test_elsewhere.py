"""A ledger whose metadata was restored is closed only where no entry beyond the end can lie on bookies that it does not name."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from daybook.core.bookie.ledger import Purpose
from daybook.core.effects import Recovered, RecoveryFailed, SendRead
from daybook.core.errors import Code, RecoveryFailedError
from daybook.core.events import BookieFailed, ReadAnswered
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.recovery.recovery import Phase
from tests.unit.core.recovery.recovery_kit import recovery_of, refusal, run_of
from tests.unit.core.small_cluster import Cluster, Run


def restored(cluster: Cluster, exported: LedgerMetadata) -> None:
    """The metadata goes back to `exported`, as an import writes it."""
    cluster.metadata = replace(exported.in_recovery(), restored_among=tuple(sorted(cluster.bookies)))


def replaced(cluster: Cluster, first: int, bookies: Iterable[str]) -> None:
    """The writer puts `bookies` into the place of the last ensemble, from `first` on."""
    cluster.metadata = cluster.meta.with_ensemble(first, 3 * first, tuple(bookies))
    for name in bookies:
        cluster.bookies[name].attach(
            1, cluster.meta.ledger_id, cluster.meta.password_hash, Purpose.WRITE, cluster.meta
        )


def moved(shape: tuple[int, int, int], ensemble: Iterable[str]) -> Cluster:
    """Entries 0 to 3 in the export; then the writer moves to `ensemble`, and entries 4 and 5 are acknowledged there."""
    cluster = Cluster(*shape, spares=3)
    cluster.write_everywhere(0, 3, lac=1)
    exported = cluster.meta
    replaced(cluster, 4, ensemble)
    cluster.write_everywhere(4, 5, lac=3)
    restored(cluster, exported)
    return cluster


def test_rule_68_an_entry_that_lies_elsewhere_refuses_the_close() -> None:
    cluster = moved((3, 3, 2), ["b4", "b5", "b6"])
    error = refusal(cluster)
    assert isinstance(error, RecoveryFailedError)
    assert "entry 4 is on b4, b5, b6, which the metadata does not name for it" in str(error)
    assert not cluster.meta.is_closed


def test_rule_68_one_copy_elsewhere_is_enough() -> None:
    """The other bookies of its ack quorum have lost theirs."""
    cluster = moved((3, 3, 2), ["b4", "b5", "b6"])
    for name in ("b5", "b6"):
        cluster.bookies[name].entries.clear()
    assert "entry 4 is on b4" in str(refusal(cluster))


def test_rule_68_bookies_that_cannot_say_so_refuse_the_close() -> None:
    cluster = moved((3, 3, 2), ["b4", "b5", "b6"])
    cluster.down = {"b4", "b5", "b6"}
    assert "b4, b5, b6 may have entry 4 and cannot say so now" in str(refusal(cluster))
    cluster.down = set()
    cluster.wipe("b4")
    cluster.bookies["b5"].entries.clear()
    cluster.bookies["b6"].entries.clear()
    cluster.down = {"b1"}
    assert "b4 may have entry 4" in str(refusal(cluster)), "in limbo, and with b1 an ack quorum"


def test_an_ensemble_that_stayed_is_closed_as_ever() -> None:
    cluster = Cluster(3, 3, 2, spares=3)
    cluster.write_everywhere(0, 3, lac=1)
    exported = cluster.meta
    cluster.write_everywhere(4, 5, lac=3)
    restored(cluster, exported)
    (result,) = run_of(cluster).finish()[-1:]
    assert isinstance(result, Recovered)
    assert (result.metadata.last_entry, result.metadata.restored_among) == (5, ())


def test_too_few_silent_bookies_for_an_ack_quorum_prove_enough() -> None:
    cluster = Cluster(3, 3, 2, spares=3)
    cluster.write_everywhere(0, 3, lac=1)
    restored(cluster, cluster.meta)
    cluster.down = {"b4"}
    (result,) = run_of(cluster).finish()[-1:]
    assert isinstance(result, Recovered)
    assert result.metadata.last_entry == 3


def test_rule_68_a_bookie_of_the_ensemble_that_moved_within_it_counts_as_elsewhere() -> None:
    """With E above Qw a bookie may have an entry that, by the metadata, another one owes."""
    cluster = moved((4, 2, 2), ["b3", "b4", "b1", "b2"])
    assert "entry 4 is on b3, b4, which the metadata does not name for it" in str(refusal(cluster))


def test_every_order_of_late_and_foreign_answers_leaves_the_search_as_it_is() -> None:
    cluster = Cluster(3, 3, 2, spares=1)
    cluster.write_everywhere(0, 1, lac=0)
    restored(cluster, cluster.meta)
    machine = recovery_of(cluster)
    run = Run(cluster, machine.step, machine.start())
    while machine.phase is not Phase.SEARCHING:
        run.one()
    asked = [each for each in run.queue if isinstance(each, SendRead)]
    assert {each.bookie for each in asked} >= {"b4"}
    assert machine.step(ReadAnswered("b4", 10_000, Code.OK, through=9)) == []
    assert machine.step(BookieFailed("b9")) == []
    assert machine.phase is Phase.SEARCHING
    run.finish()
    assert machine.is_done


def test_bookies_that_fail_while_they_are_asked_refuse_the_close() -> None:
    cluster = moved((3, 3, 2), ["b4", "b5", "b6"])
    machine = recovery_of(cluster)
    run = Run(cluster, machine.step, machine.start())
    while machine.phase is not Phase.SEARCHING:
        run.one()
    for name in ("b4", "b5", "b6"):
        machine.step(BookieFailed(name))
    (result,) = run.finish()[-1:]
    assert isinstance(result, RecoveryFailed)
    assert "b4, b5, b6 may have entry 4" in str(result.error)


@pytest.mark.parametrize("name", ["b4", "b5", "b6"])
def test_a_search_fences_those_who_are_asked(name: str) -> None:
    """A writer that still lives elsewhere acknowledges nothing more."""
    cluster = moved((3, 3, 2), ["b4", "b5", "b6"])
    result = run_of(cluster).finish()[-1]
    assert isinstance(result, RecoveryFailed)
    assert cluster.write(6, [name])[name] is Code.FENCED
