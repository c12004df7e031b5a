"""A bookie that fails at entries which others have already acknowledged, and a writer that appends nothing more (rule 45).

Repair copies nothing into an open last fragment (rule 31): the writer begins another one, and does so only where that makes
a gap repairable, since each change counts against the limit of rule 21.
"""

from collections.abc import Callable

import pytest

from daybook.core.effects import CasMetadata, Closed, EnsembleChanged
from daybook.core.errors import Code, LedgerFencedError, NotEnoughBookiesError
from daybook.core.ledger.metadata import Fragment
from daybook.core.writer.policy import WriterPolicy
from tests.unit.core.writer.writer_world import WriterWorld

OLD = Fragment(0, 0, ("a", "b", "c"))


def written(**options: object) -> WriterWorld:
    """A ledger whose one entry is acknowledged by a and b, and owed by c."""
    world = WriterWorld(**options)  # type: ignore[arg-type]  # those of WriterWorld
    world.write("x")
    world.ack("a b")
    assert world.completed == [1]
    return world


def refuses(world: WriterWorld) -> None:
    world.fail("c", Code.IO_ERROR)


def is_unreachable(world: WriterWorld) -> None:
    world.down("c")


def is_slow(world: WriterWorld) -> None:
    world.tick(WriterPolicy().lag_ms_max + 1)


@pytest.mark.parametrize("fails", [refuses, is_unreachable, is_slow])
def test_rule_45_an_idle_ledger_ends_the_fragment_in_which_a_bookie_lacks_what_is_acknowledged(
    fails: Callable[[WriterWorld], None],
) -> None:
    world = written(spares="d")
    fails(world)
    world.cas()
    assert world.current.fragments == (OLD, Fragment(1, 1, ("a", "b", "d")))
    assert world.sent_to("d") == [], "nothing is written"
    world.write("y")
    world.ack("a d")
    assert world.lac == 1


def test_rule_48_a_bookie_that_is_named_while_nothing_is_written_learns_the_lac() -> None:
    """No frame carries it there, and the bookies that had it may be replaced one after the other."""
    world = written(spares="d")
    world.tick(100)
    assert [bookie for bookie, _ in world.published] == ["a", "b", "c"]
    world.down("c")
    world.cas()
    assert [(bookie, row.last_add_confirmed) for bookie, row in world.published[3:]] == [("d", 0)]


def test_rule_48_a_lac_that_is_due_is_not_published_twice_to_a_new_bookie() -> None:
    world = written(spares="d")
    world.down("c")
    world.cas()
    assert world.published == []
    world.tick(100)
    assert [bookie for bookie, _ in world.published] == ["a", "b", "d"]


def test_rule_45_an_idle_ledger_changes_nothing_for_a_bookie_that_lacks_nothing() -> None:
    world = written()
    world.ack("c")
    world.down("a b c")
    world.tick(60_000)
    assert world.of_kind(CasMetadata) == []
    assert world.degraded == ()


def test_rule_45_a_gap_that_is_in_an_earlier_fragment_is_no_reason_for_another_change() -> None:
    world = WriterWorld("a b c", "d e", quorum=(3, 3, 1))
    world.write("x")
    world.ack("a")
    world.down("c")
    world.cas()
    world.fail("b", Code.TIMEOUT)
    assert world.pending_cas is None, "repair copies to b what it lacks before entry 1"
    world.write("y")
    world.cas()
    assert world.current.fragments == (OLD, Fragment(1, 1, ("a", "e", "d")))


def test_rule_45_two_bookies_that_owe_the_same_entry_cost_one_change_if_the_second_fails_while_the_first_is_replaced() -> (
    None
):
    world = WriterWorld("a b c", "d e", quorum=(3, 3, 1))
    world.write("x")
    world.ack("a")
    world.down("c")
    world.down("b")
    world.cas()
    assert world.current.fragments == (OLD, Fragment(1, 1, ("a", "b", "d")))
    assert world.pending_cas is None


def test_rule_45_what_has_its_quorum_while_a_change_is_undecided_goes_to_the_next_ensemble_before_it_is_acknowledged() -> (
    None
):
    """Otherwise it would be acknowledged in an open fragment that names a bookie which failed without it."""
    world = WriterWorld("a b c d", "e f", quorum=(4, 4, 2))
    token = world.write("x")
    world.down("d")
    world.ack("a b")
    world.down("c")
    world.cas()
    assert world.completed == []
    world.cas()
    assert world.completed == [token]
    assert world.current.fragments == (Fragment(0, 0, ("a", "b", "f", "e")),)
    assert world.sent_to("f") == [(0,)]


def test_rule_45_without_a_spare_an_idle_ledger_ends_the_fragment_once_the_bookie_answers_again() -> None:
    world = written(spares="")
    world.fail("c", Code.CONNECTION_LOST)
    assert world.degraded == ("c",)
    assert world.pending_cas is None
    world.tick(600)
    world.ack("c")
    world.cas()
    assert world.current.fragments == (OLD, Fragment(1, 1, ("a", "b", "c")))
    assert not world.writer.is_degraded


def test_rule_45_a_spare_that_registers_takes_the_place_of_a_bookie_that_an_idle_ledger_misses() -> None:
    world = written(spares="")
    world.down("c")
    world.register("a b n")
    world.cas()
    assert world.current.last_fragment == Fragment(1, 1, ("a", "b", "n"))


@pytest.mark.parametrize("spares", ["", "d"])
def test_rule_45_bookies_that_restart_one_after_the_other_cost_an_idle_ledger_one_change(spares: str) -> None:
    world = written(spares=spares, policy=WriterPolicy(probe_ms=100))
    for _ in range(5):
        for bookie in ("c", "a", "b", *spares):
            world.down(bookie)
            world.tick(1000)
            world.restart(bookie)
            for each in sorted(world.registry):
                world.ack(each)
            if world.pending_cas is not None:
                world.cas()
    assert len(world.of_kind(EnsembleChanged)) == 1
    assert world.degraded == ()


def test_rule_45_a_bookie_that_fails_late_each_time_is_asked_less_and_less() -> None:
    """The pauses of a bookie without a spare hold here too: each return costs a change (rule 21)."""
    world = WriterWorld(spares="", policy=WriterPolicy(probe_ms=100, lac_publish_ms=1000))
    pauses = []
    for _ in range(4):
        world.write("x")
        world.ack("a b")
        world.fail("c", Code.TIMEOUT)
        failed_ms = world.now_ms
        while not world.owed("c"):
            world.tick(100)
        pauses.append(world.now_ms - failed_ms)
        world.ack("c")
        world.cas()
    assert pauses == [100, 200, 400, 800]


def test_rule_46_without_zookeeper_an_idle_ledger_ends_the_fragment_once_zookeeper_is_back() -> None:
    world = written(spares="d")
    world.metadata_away()
    world.down("c")
    assert world.pending_cas is None
    assert world.degraded == ("c",)
    world.metadata_back()
    world.cas()
    assert world.current.fragments == (OLD, Fragment(1, 1, ("a", "b", "d")))


def test_rule_21_at_the_limit_a_late_failure_closes_an_idle_ledger_which_makes_the_gap_repairable() -> None:
    world = written(spares="d", policy=WriterPolicy(ensemble_changes_max=0))
    world.down("c")
    assert isinstance(world.end, NotEnoughBookiesError)
    world.cas()
    assert world.of_kind(Closed) == [Closed(None, world.current)]
    assert world.current.last_entry == 0


def test_rule_45_a_policy_that_forbids_to_do_without_a_bookie_closes_an_idle_ledger_at_a_late_failure() -> (
    None
):
    world = written(spares="", policy=WriterPolicy(go_on_without_spare=False))
    world.down("c")
    assert isinstance(world.end, NotEnoughBookiesError)
    world.cas()
    assert world.current.last_entry == 0


def test_a_late_failure_during_a_close_changes_no_ensemble() -> None:
    """The close gives the fragment its end."""
    world = written(spares="d")
    close = world.close()
    world.down("c")
    world.cas()
    assert world.of_kind(Closed) == [Closed(close, world.current)]
    assert world.current.fragments == (OLD,)
    assert world.of_kind(CasMetadata)[-1].metadata.is_closed


def test_a_late_failure_finds_out_that_another_client_recovers_the_ledger() -> None:
    world = written(spares="d")
    world.store(world.current.in_recovery())
    world.down("c")
    world.cas()
    world.read()
    assert isinstance(world.end, LedgerFencedError)
    assert world.current.fragments == (OLD,)


def test_a_fence_that_comes_late_ends_the_handle_and_changes_no_ensemble() -> None:
    world = written(spares="d")
    world.fail("c", Code.FENCED)
    assert isinstance(world.end, LedgerFencedError)
    assert world.of_kind(CasMetadata) == []


def test_rule_19_a_late_failure_keeps_the_repair_of_an_older_fragment() -> None:
    world = written(spares="d e")
    world.down("c")
    world.cas()
    world.write("y")
    world.ack("a b")
    world.store(world.current.with_replica(0, "c", "e"))
    world.down("d")
    world.cas()
    world.read()
    world.cas()
    assert [fragment.bookies for fragment in world.current.fragments] == [
        ("a", "b", "e"),
        ("a", "b", "d"),
        ("a", "b", "e"),
    ]


def test_rule_45_with_stripes_only_a_bookie_that_holds_the_entry_owes_it() -> None:
    world = WriterWorld("a b c d", "e f", quorum=(4, 2, 1))
    world.write("x")
    world.ack("a")
    world.down("c")
    assert world.pending_cas is None, "entry 0 is on a and b"
    world.down("b")
    world.cas()
    assert world.current.last_fragment == Fragment(1, 1, ("a", "e", "f", "d"))
