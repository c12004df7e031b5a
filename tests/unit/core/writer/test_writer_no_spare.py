"""How the writer goes on where no spare bookie is left, and when it waits (rule 45)."""

from dataclasses import replace

import pytest

from daybook.core.effects import EnsembleChanged
from daybook.core.errors import Code, NotEnoughBookiesError
from daybook.core.events import (
    BookiesChanged,
)
from daybook.core.ledger.metadata import Fragment
from daybook.core.writer.policy import WriterPolicy
from tests.unit.core.writer.writer_world import WriterWorld


@pytest.mark.parametrize(
    "failed_code", [Code.TIMEOUT, Code.CONNECTION_LOST, Code.READ_ONLY, Code.LIMBO, Code.IO_ERROR]
)
def test_rule_45_without_a_spare_a_quorum_goes_on_and_says_so(failed_code: Code) -> None:
    world = WriterWorld(spares="")
    token = world.write("x")
    world.fail("c", failed_code)
    world.ack("a b")
    assert world.completed == [token]
    assert world.degraded == ("c",)
    assert world.writer.is_degraded
    assert world.pending_cas is None
    world.write("y")
    assert world.sent_to("c") == [(0,)]


def test_rule_45_a_bookie_that_returns_begins_a_new_fragment_with_the_same_ensemble() -> None:
    world = WriterWorld(spares="")
    world.write("x")
    world.fail("c", Code.CONNECTION_LOST)
    world.ack("a b")
    world.write("y")
    world.ack("a b")
    world.write("z")
    world.tick(600)
    assert world.sent_to("c")[-1] == ()
    world.ack("c")
    assert world.current.fragments == (Fragment(0, 0, ("a", "b", "c")),)
    world.ack("a b")
    assert world.lac == 1, "a change is undecided"
    world.cas()
    assert world.current.last_fragment == Fragment(2, 2, ("a", "b", "c"))
    assert world.sent_to("c")[-1] == (2,)
    assert world.degraded == ()
    assert not world.writer.is_degraded
    assert world.lac == 2


def test_rule_45_a_missing_bookie_is_asked_again_until_it_answers() -> None:
    world = WriterWorld(spares="", policy=WriterPolicy(probe_ms=100))
    world.write("x")
    world.fail("c", Code.CONNECTION_LOST)
    world.ack("a b")
    for _ in range(3):
        world.tick(100)
        world.fail("c", Code.CONNECTION_LOST)
        assert world.pending_cas is None
    world.tick(100)
    world.tick(100)
    assert len(world.owed("c")) == 1, "one question at a time"
    world.ack("c")
    assert world.pending_cas is not None


def test_a_bookie_that_keeps_going_missing_is_asked_less_and_less() -> None:
    world = WriterWorld(spares="", policy=WriterPolicy(probe_ms=100, lac_publish_ms=1000))
    pauses = []
    for _ in range(4):
        world.write("x")
        world.fail("c", Code.CONNECTION_LOST)
        world.ack("a b")
        asked_at = world.now_ms
        while not world.owed("c"):
            world.tick(100)
        pauses.append(world.now_ms - asked_at)
        world.fail("c", Code.TIMEOUT)
        asked_at = world.now_ms
        while not world.owed("c"):
            world.tick(100)
        pauses.append(world.now_ms - asked_at)
        world.ack("c")
        world.cas()
    assert pauses == [100, 100, 200, 200, 400, 400, 800, 800]


def test_a_missing_bookie_that_cannot_take_entries_is_not_asked() -> None:
    world = WriterWorld(spares="")
    world.write("x")
    world.fail("c", Code.READ_ONLY)
    world.ack("a b")
    world.registry["c"] = replace(world.registry["c"], writable=False)
    world.step(BookiesChanged(dict(world.registry)))
    world.tick(600)
    assert world.owed("c") == []
    world.registry["c"] = replace(world.registry["c"], writable=True)
    world.step(BookiesChanged(dict(world.registry)))
    assert len(world.owed("c")) == 1


def test_rule_45_a_bookie_that_is_lost_again_before_the_change_is_still_missing() -> None:
    world = WriterWorld(spares="")
    world.write("x")
    world.fail("c", Code.CONNECTION_LOST)
    world.ack("a b")
    world.tick(600)
    world.ack("c")
    world.down("c")
    world.cas()
    assert world.degraded == ("c",)
    world.write("y")
    assert (1,) not in world.sent_to("c")
    world.ack("a b")
    assert world.lac == 1


def test_rule_45_two_lost_and_one_spare_replaces_one_and_goes_on_without_the_other() -> None:
    world = WriterWorld("a b c d e", "x", quorum=(5, 5, 3))
    world.write("1")
    world.metadata_away()
    world.down("d e")
    world.metadata_back()
    world.cas()
    assert world.current.last_fragment.bookies == ("a", "b", "c", "x", "e")
    assert world.degraded == ("e",)
    world.ack("a b x")
    assert world.lac == 0


def test_without_a_quorum_writes_wait_and_go_on_when_a_bookie_returns() -> None:
    world = WriterWorld(spares="", policy=WriterPolicy(quorum_wait_ms=5000))
    token = world.write("x")
    world.down("b c")
    world.tick(4000)
    world.ack("a b")
    world.cas()
    world.ack("b")
    assert world.completed == [token]
    world.tick(4000)
    assert world.end is None, "the wait is over"


def test_without_a_quorum_an_idle_handle_does_not_end_and_each_write_waits_its_full_time() -> None:
    world = WriterWorld(spares="", policy=WriterPolicy(quorum_wait_ms=5000))
    world.write("x")
    world.down("b c")
    world.ack("a")
    world.tick(2000)
    assert world.end is None
    world.tick(3000)
    assert isinstance(world.end, NotEnoughBookiesError)


def test_bookies_that_refuse_everything_one_after_the_other_do_not_let_writes_wait_without_end() -> None:
    """Each is taken again once its quarantine is over, as in limbo of the ledger: nothing is acknowledged meanwhile."""
    policy = WriterPolicy(quorum_wait_ms=5000, quarantine_ms=1000)
    world = WriterWorld(spares="d", quorum=(3, 3, 3), policy=policy)
    token = world.write("x")
    world.ack("a b")
    refusing, waited_ms = ("c", "d"), 0
    while world.end is None and waited_ms < 20_000:
        for bookie in refusing:
            if bookie in world.current.last_fragment.bookies and world.owed(bookie):
                world.fail(bookie, Code.LIMBO)
        if world.pending_cas is not None:
            world.cas()
        world.tick(250)
        waited_ms += 250
    assert isinstance(world.errors[token], NotEnoughBookiesError)
    assert waited_ms <= policy.quorum_wait_ms + 2 * policy.quarantine_ms
    assert len(world.of_kind(EnsembleChanged)) > 2, "they took turns"


def test_the_wait_for_a_quorum_begins_anew_once_something_was_acknowledged() -> None:
    world = WriterWorld(spares="", policy=WriterPolicy(quorum_wait_ms=5000))
    world.write("x")
    world.down("b c")
    world.tick(4000)
    world.register("a b c")
    world.ack("b")
    world.cas()
    world.ack("a b")
    assert world.lac == 0
    token = world.write("y")
    world.down("b")
    world.tick(4000)
    assert world.end is None, "it waits for the second quorum since 4 s"
    world.tick(1000)
    assert isinstance(world.errors[token], NotEnoughBookiesError)


def test_a_quarantined_bookie_is_taken_where_no_quorum_is_left_without_it() -> None:
    world = WriterWorld(spares="d")
    world.write("x")
    world.fail("c", Code.TIMEOUT)
    world.cas()
    world.fail("b", Code.TIMEOUT)
    assert world.degraded == ("b",), "a and d are enough; c failed just now"
    world.fail("d", Code.TIMEOUT)
    assert world.pending_cas is not None
    world.cas()
    assert "c" in world.current.last_fragment.bookies


def test_bookies_that_fail_one_after_the_other_are_taken_again_after_longer_and_longer_pauses() -> None:
    """All bookies restart at once: each refuses at once for a while, and the limit of changes must outlast that (rule 21)."""
    world = WriterWorld(spares="d", policy=WriterPolicy(probe_ms=100, quarantine_ms=60_000))
    world.write("x")
    changed_ms: list[int] = []
    while len(changed_ms) < 6:
        world.down(" ".join(world.current.last_fragment.bookies))
        while world.pending_cas is None:
            world.tick(10)
        changed_ms.append(world.now_ms)
        world.cas()
    assert changed_ms == [0, 0, 100, 300, 700, 1500]
    world.ack(" ".join(world.current.last_fragment.bookies))
    world.write("y")
    for _ in range(2):
        world.down(" ".join(world.current.last_fragment.bookies))
        changed_ms.append(world.now_ms)
        assert world.pending_cas is not None, "something was acknowledged in between"
        world.cas()
        world.ack(" ".join(world.current.last_fragment.bookies))
        world.write("z")


def test_a_quarantine_ends_with_time() -> None:
    world = WriterWorld(spares="d", policy=WriterPolicy(quarantine_ms=1000))
    world.write("x")
    world.fail("c", Code.TIMEOUT)
    world.cas()
    world.fail("b", Code.TIMEOUT)
    assert world.pending_cas is None
    world.tick(1000)
    world.cas()
    assert world.current.last_fragment.bookies == ("a", "c", "d")


@pytest.mark.parametrize(
    ("policy", "wait_ms"),
    [
        (WriterPolicy(lag_ms_max=1000), 1001),
        (WriterPolicy(lag_bytes_max=9, lag_bytes_ms=0), 1),
        (WriterPolicy(lag_bytes_max=9, lag_bytes_ms=500), 501),
    ],
)
def test_a_slow_bookie_is_declared_failed_and_quarantined(policy: WriterPolicy, wait_ms: int) -> None:
    world = WriterWorld(policy=policy)
    world.write("12345")
    world.write("67890")
    world.ack("a b")
    world.tick(wait_ms)
    assert world.quarantined == ["c"]
    assert world.writer.pending_bytes == 0
    world.write("x")
    world.cas()
    assert world.current.last_fragment.bookies == ("a", "b", "d")


def test_a_bookie_that_keeps_up_is_never_declared_slow() -> None:
    world = WriterWorld(policy=WriterPolicy(lag_ms_max=1000, lag_bytes_max=10, lag_bytes_ms=0))
    for _ in range(50):
        world.write("12345")
        world.ack("a b")
        world.tick(500)
        world.ack("c")
    assert world.quarantined == []


def test_all_bookies_slow_is_no_bookie_slow() -> None:
    """Entries that nobody acknowledges wait for the driver's time-out, not for the breaker."""
    world = WriterWorld(policy=WriterPolicy(lag_ms_max=1000))
    world.write("x")
    world.tick(60_000)
    assert world.quarantined == []


def test_without_a_quorum_the_policy_may_forbid_to_wait() -> None:
    world = WriterWorld(spares="", policy=WriterPolicy(quorum_wait_ms=0))
    token = world.write("x")
    world.down("b c")
    assert isinstance(world.errors[token], NotEnoughBookiesError)


def test_at_the_cap_writes_go_on_without_a_spare_for_as_long_as_the_bookie_is_missing() -> None:
    """There is nothing that a change could do; a return ends the handle (rule 21)."""
    world = WriterWorld(spares="", policy=WriterPolicy(ensemble_changes_max=0))
    world.write("x")
    world.down("c")
    world.ack("a b")
    world.tick(600)
    world.fail("c", Code.TIMEOUT)
    assert world.end is None
    token = world.write("y")
    world.ack("a b")
    assert world.completed[-1] == token


def test_a_quorum_lost_between_appends_ends_no_handle_by_itself() -> None:
    """The time for which appends wait begins with the first that waits."""
    world = WriterWorld(spares="")
    world.write("x")
    world.down("a")
    world.ack("b c")
    world.down("b")
    world.down("c")
    world.tick(2 * WriterPolicy().quorum_wait_ms)
    assert world.end is None
    token = world.write("y")
    world.tick(WriterPolicy().quorum_wait_ms)
    assert isinstance(world.errors[token], NotEnoughBookiesError)


def test_a_change_that_lands_when_a_quorum_is_gone_still_waits_for_one() -> None:
    world = WriterWorld(spares="d")
    token = world.write("x")
    world.down("a")
    world.register("b c d")
    world.down("b")
    world.down("c")
    world.cas()
    assert world.completed == []
    assert world.pending_cas is None, "there is no other bookie"
    world.tick(WriterPolicy().quorum_wait_ms)
    assert isinstance(world.errors[token], NotEnoughBookiesError)
    assert world.register("a b c d") == [], "an ended handle looks after no bookie"


def test_rule_69_a_writer_without_a_spare_in_its_pool_takes_none_of_another_pool() -> None:
    world = WriterWorld("q-0 q-1 q-2", "a-0 r-0 q-3", pool="q")
    world.write("x")
    world.fail("q-1", Code.CONNECTION_LOST)
    world.cas()
    assert world.current.last_fragment.bookies == ("q-0", "q-3", "q-2"), "and not a-0, the first by name"
    world.ack("q-0 q-2 q-3")
    world.write("y")
    world.fail("q-0", Code.CONNECTION_LOST)
    world.ack("q-2 q-3")
    assert world.degraded == ("q-0",)
    assert world.lac == 1, "a quorum goes on (rule 45)"
    assert world.current.last_fragment.bookies == ("q-0", "q-3", "q-2")


def test_rule_69_a_writer_that_must_not_degrade_ends_rather_than_leave_its_pool() -> None:
    world = WriterWorld("q-0 q-1 q-2", "r-0", pool="q", policy=WriterPolicy(go_on_without_spare=False))
    world.write("x")
    world.fail("q-1", Code.CONNECTION_LOST)
    assert isinstance(world.end, NotEnoughBookiesError)
    assert world.current.bookies() == {"q-0", "q-1", "q-2"}
