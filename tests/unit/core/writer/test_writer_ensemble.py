"""How the writer changes its ensemble, and how it goes on where it cannot."""

import pytest

from daybook.core.effects import Closed, EnsembleChanged, SendFrame
from daybook.core.errors import (
    Code,
    LedgerClosedError,
    LedgerFencedError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
)
from daybook.core.events import CasAnswered, CasOutcome, MetadataRead, MetadataUnreadable
from daybook.core.ledger.metadata import Fragment
from daybook.core.writer.policy import WriterPolicy
from tests.unit.core.writer.writer_world import WriterWorld


def _striped() -> WriterWorld:
    """Six bookies, each entry on two of them: the schedules of bk#4651 and bk#4097."""
    return WriterWorld("a b c d e f", "g h", quorum=(6, 2, 2))


def test_rule_15_nothing_completes_while_the_change_is_undecided() -> None:
    world = WriterWorld()
    token = world.write("x")
    world.fail("c", Code.TIMEOUT)
    world.ack("a b")
    assert world.completed == []
    world.write("y")
    world.ack("a b")
    assert world.completed == []
    world.cas()
    assert world.completed[0] == token
    assert world.lac == 1


def test_rule_15_acks_of_a_removed_bookie_are_dropped_for_what_is_not_confirmed() -> None:
    world = _striped()
    world.write("0")
    world.write("1", "2", "3", "4", "5")
    world.ack("a b c d e f", 1)
    world.ack("a", 5)
    world.fail("a", Code.CONNECTION_LOST, 0)
    world.cas()
    assert world.current.last_fragment.bookies == ("g", "b", "c", "d", "e", "f")
    world.ack("g", 0)
    world.ack("b c d e f")
    assert world.lac == 0, "entry 5 is on f and on a, which is no longer in its ensemble"
    world.ack("g", 5)
    assert world.lac == 5


def test_rule_15_the_fragment_begins_at_the_lac_that_holds_when_it_is_proposed() -> None:
    world = WriterWorld()
    for data in ("x", "yy", "zzz"):
        world.write(data)
    world.ack("a b", 0)
    world.ack("a b", 1)
    world.down("c")
    assert world.writer.ensemble == ("a", "b", "c"), "the change is not stored yet"
    world.cas()
    assert world.current.last_fragment == Fragment(2, 3, ("a", "b", "d"))
    assert world.writer.ensemble == ("a", "b", "d")
    assert world.sent_to("d") == [(2,)]


def test_rule_16_a_new_bookie_is_sent_nothing_before_metadata_names_it() -> None:
    world = WriterWorld()
    world.write("x")
    world.fail("c", Code.TIMEOUT)
    world.write("y")
    world.tick(5000)
    world.cas(CasOutcome.UNKNOWN, applied=False)
    world.read(fails=True)
    world.tick(5000)
    assert world.sent_to("d") == []
    world.read()
    assert world.sent_to("d") == []
    world.cas()
    assert world.sent_to("d") == [(0,), (1,)]


def test_rule_17_a_change_from_the_same_entry_replaces_the_fragment() -> None:
    world = WriterWorld()
    world.write("x")
    world.ack("a b c")
    world.write("y")
    world.fail("c", Code.TIMEOUT)
    world.cas()
    world.fail("b", Code.TIMEOUT)
    world.cas()
    assert world.current.fragments == (Fragment(0, 0, ("a", "b", "c")), Fragment(1, 1, ("a", "e", "d")))
    world.ack("a d")
    assert world.lac == 1


def test_rule_17_a_change_to_the_same_bookies_sends_again() -> None:
    """bk#4459: the set is the same, and yet the bookie that was away lacks what was sent meanwhile."""
    world = WriterWorld(spares="")
    world.write("x")
    world.fail("c", Code.CONNECTION_LOST)
    world.fail("b", Code.CONNECTION_LOST)
    world.write("y")
    world.tick(600)
    world.ack("c")
    world.cas()
    assert world.current.fragments == (Fragment(0, 0, ("a", "b", "c")),)
    assert world.sent_to("c") == [(0,), (), (0,), (1,)]
    world.ack("a c")
    assert world.lac == 1


def test_rule_19_a_repair_of_an_older_fragment_is_kept() -> None:
    world = WriterWorld(spares="d e f")
    world.write("x")
    world.ack("a b c")
    world.down("c")
    world.write("y")
    world.cas()
    world.ack("a b d")
    world.store(world.current.with_replica(0, "a", "f"))
    world.down("b")
    world.write("z")
    world.cas()
    world.read()
    world.cas()
    assert [fragment.bookies for fragment in world.current.fragments] == [
        ("f", "b", "c"),
        ("a", "b", "d"),
        ("a", "e", "d"),
    ]
    world.ack("a d")
    assert world.lac == 2


@pytest.mark.parametrize("spares", ["", "d"])
def test_rule_46_without_zookeeper_writes_go_on_without_a_failed_bookie(spares: str) -> None:
    world = WriterWorld(spares=spares)
    world.metadata_away()
    first = world.write("x")
    world.fail("c", Code.CONNECTION_LOST)
    world.ack("a b")
    second = world.write("y")
    world.tick(30_000)
    world.ack("a b")
    assert world.completed == [first, second]
    assert world.pending_cas is None
    assert world.degraded == ("c",)
    world.metadata_back()
    assert (world.pending_cas is not None) == bool(spares)
    if spares:
        world.cas()
        assert world.current.last_fragment == Fragment(2, 2, ("a", "b", "d"))


def test_rule_46_once_a_change_was_sent_completions_wait_until_its_outcome_is_known() -> None:
    world = WriterWorld()
    token = world.write("x")
    world.fail("c", Code.TIMEOUT)
    world.cas(CasOutcome.UNKNOWN, applied=True)
    world.metadata_away()
    world.ack("a b")
    world.read(fails=True)
    world.tick(10_000)
    assert world.completed == []
    world.read(fails=True)
    world.metadata_back()
    world.read()
    assert world.completed == [token]
    assert world.sent_to("d") == [(0,)]


def test_rule_46_an_attempt_that_may_still_arrive_is_overtaken_before_anything_completes() -> None:
    """The answer is lost and the read finds the old version: the first attempt could land after all."""
    world = WriterWorld(spares="d")
    token = world.write("x")
    world.fail("c", Code.TIMEOUT)
    lost = world.pending_cas
    assert lost is not None
    world.cas(CasOutcome.UNKNOWN, applied=False)
    world.register("a b c")
    world.ack("a b")
    world.read()
    assert world.completed == [], "d is gone, so there is nothing to change; and yet"
    world.store(lost.metadata)
    world.cas()
    world.read()
    assert world.current.last_fragment.bookies == ("a", "b", "d")
    assert world.writer.metadata.last_fragment.bookies == ("a", "b", "d"), "it did land"
    assert world.completed == [token]


def test_a_fragment_that_an_earlier_attempt_made_is_adopted() -> None:
    world = WriterWorld(spares="d e")
    world.write("x")
    world.fail("c", Code.TIMEOUT)
    lost = world.pending_cas
    assert lost is not None
    world.cas(CasOutcome.UNKNOWN, applied=False)
    world.register("a b c e")
    world.read()
    assert world.pending_cas is not None
    assert world.pending_cas.metadata.last_fragment.bookies == ("a", "b", "e")
    world.store(lost.metadata)
    world.cas()
    world.read()
    assert world.sent_to("d") == [(0,)]
    assert world.sent_to("e") == []
    world.ack("a d")
    assert world.lac == 0


def test_a_ledger_recovered_by_another_is_found_out_by_a_change() -> None:
    world = WriterWorld()
    token = world.write("x")
    world.store(world.current.in_recovery())
    world.fail("c", Code.TIMEOUT)
    world.ack("a b")
    world.cas()
    world.read()
    assert isinstance(world.end, LedgerFencedError)
    assert isinstance(world.errors[token], LedgerFencedError)


def test_a_ledger_deleted_by_another_is_found_out_by_a_change() -> None:
    world = WriterWorld()
    token = world.write("x")
    world.store(None)
    world.fail("c", Code.TIMEOUT)
    world.cas()
    world.read()
    assert isinstance(world.errors[token], NoSuchLedgerError)


def test_answers_to_no_question_change_nothing() -> None:
    world = WriterWorld()
    world.write("x")
    world.fail("c", Code.TIMEOUT)
    cas = world.pending_cas
    assert cas is not None
    assert world.step(CasAnswered(cas.request_id + 7, CasOutcome.DONE, 9)) == []
    assert world.step(MetadataRead(cas.request_id, world.stored, 9)) == []
    world.cas()
    assert world.step(CasAnswered(cas.request_id, CasOutcome.DONE, 9)) == []
    assert world.writer.version == 1


def test_a_failure_during_a_change_leads_to_another_one() -> None:
    world = WriterWorld()
    world.write("x")
    world.fail("c", Code.TIMEOUT)
    world.fail("b", Code.TIMEOUT)
    world.ack("a")
    world.cas()
    world.cas()
    assert world.current.last_fragment.bookies == ("a", "e", "d")
    world.ack("e")
    assert world.lac == 0
    assert len(world.of_kind(EnsembleChanged)) == 2


def test_rule_21_ensemble_changes_are_capped() -> None:
    world = WriterWorld(spares="d e f g h", policy=WriterPolicy(ensemble_changes_max=2))
    token = world.write("x")
    for bookie in ("c", "d"):
        world.fail(bookie, Code.READ_ONLY)
        world.cas()
    world.fail("e", Code.READ_ONLY)
    assert isinstance(world.end, NotEnoughBookiesError)
    assert world.pending_cas is None
    world.ack("a b")
    assert world.completed == [token], "two of three have it all the same"
    world.cas()
    assert world.of_kind(Closed) == [Closed(None, world.current)]
    assert world.current.last_entry == 0


def test_rule_21_a_bookie_that_returns_when_the_changes_are_spent_ends_the_handle() -> None:
    """It could never be brought back: the ledger would go on with a copy less for as long as it is written."""
    world = WriterWorld(spares="", policy=WriterPolicy(ensemble_changes_max=1))
    world.write("x")
    world.fail("c", Code.CONNECTION_LOST)
    world.ack("a b")
    world.tick(600)
    world.ack("c")
    world.cas()
    token = world.write("y")
    world.fail("c", Code.CONNECTION_LOST)
    world.ack("a b")
    assert world.completed[-1] == token
    assert world.degraded == ("c",), "without a spare it goes on, as ever (rule 45)"
    world.tick(2000)
    pending, unsealed = world.write("z"), world.append("!")
    world.ack("c")
    assert "changed its ensemble 1 times, the limit" in str(world.end)
    refused, force = world.append("late"), world.force()
    assert isinstance(world.errors[refused], LedgerClosedError)
    assert "NotEnoughBookiesError" in str(world.errors[force])
    assert world.pending_cas is None, "what is under way still completes"
    world.ack("a b")
    assert world.completed[-2:] == [pending, unsealed]
    world.cas()
    assert world.of_kind(Closed) == [Closed(None, world.current)]
    assert world.current.last_entry == 3


def test_rule_21_a_handle_at_the_limit_ends_at_once_where_no_quorum_is_left_for_what_is_under_way() -> None:
    world = WriterWorld(spares="", policy=WriterPolicy(ensemble_changes_max=0))
    world.write("x")
    world.fail("c", Code.CONNECTION_LOST)
    world.ack("a b")
    pending = world.write("y")
    world.register("a b n")
    assert isinstance(world.end, NotEnoughBookiesError)
    world.fail("a", Code.CONNECTION_LOST)
    assert isinstance(world.errors[pending], NotEnoughBookiesError)
    assert isinstance(world.end, NotEnoughBookiesError), "told once"
    world.cas()
    assert world.current.last_entry == 0


def test_rule_21_a_close_that_is_under_way_is_none_the_worse_for_the_limit() -> None:
    world = WriterWorld(spares="d", policy=WriterPolicy(ensemble_changes_max=0))
    token = world.write("x")
    close = world.close()
    world.fail("c", Code.CONNECTION_LOST)
    world.ack("a b")
    world.cas()
    assert (world.completed, world.end) == ([token], None)
    assert world.of_kind(Closed) == [Closed(close, world.current)]


def test_rule_21_a_policy_that_forbids_to_do_without_a_bookie_ends_the_handle_at_once() -> None:
    policy = WriterPolicy(ensemble_changes_max=0, go_on_without_spare=False)
    world = WriterWorld(spares="d", policy=policy)
    pending = world.write("x")
    world.fail("c", Code.CONNECTION_LOST)
    assert "changed its ensemble 0 times" in str(world.errors[pending])


def test_rule_21_a_spare_that_comes_when_the_changes_are_spent_ends_the_handle() -> None:
    world = WriterWorld(spares="", policy=WriterPolicy(ensemble_changes_max=0))
    world.write("x")
    world.fail("c", Code.CONNECTION_LOST)
    world.ack("a b")
    world.metadata_away()
    world.register("a b n")
    assert world.degraded == ("c",)
    assert world.of_kind(Closed) == []
    world.metadata_back()
    assert isinstance(world.end, NotEnoughBookiesError)
    world.cas()
    assert world.current.last_entry == 0


def test_resent_frames_are_the_same_bytes() -> None:
    world = WriterWorld()
    world.write("x", "y")
    world.fail("c", Code.TIMEOUT)
    effects = world.cas()
    (resent,) = (effect for effect in effects if isinstance(effect, SendFrame))
    assert resent.frame is world.all_sent[0].frame


def test_fragments_that_the_writer_did_not_make_end_its_handle() -> None:
    """Only a second writer could have made them; there must be none (rule 53), so nothing is risked."""
    world = WriterWorld()
    world.write("x")
    world.ack("a b c")
    world.write("y")
    world.store(world.current.with_ensemble(1, 1, ("a", "b", "d")))
    world.store(world.current.with_ensemble(2, 2, ("a", "b", "e")))
    world.fail("c", Code.TIMEOUT)
    world.cas()
    world.read()
    assert isinstance(world.end, LedgerFencedError)


def test_a_late_answer_to_a_metadata_read_repeats_nothing() -> None:
    world = WriterWorld()
    world.write("x")
    world.down("c")
    world.cas(CasOutcome.UNKNOWN, applied=False)
    asked = world.pending_read
    assert asked is not None
    assert world.step(MetadataUnreadable(asked + 1)) == []
    assert world.tick(WriterPolicy().metadata_retry_ms) == [], "the read itself is still out"
    world.read(fails=True)
    assert world.pending_read is None
    world.tick(WriterPolicy().metadata_retry_ms)
    assert world.pending_read is not None
