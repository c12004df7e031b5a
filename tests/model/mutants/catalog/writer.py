"""Mutants of the ledger writer."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from daybook.core.effects import WriterEffect
from daybook.core.errors import REACTIONS, Code, DaybookError, EntryIdError, Reaction
from daybook.core.events import CasAnswered, MetadataRead, WriterEvent
from daybook.core.ids import NO_ENTRY, BookieId, EntryId
from daybook.core.lac_rows import LacRows
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.ledger.update import MetadataUpdate
from daybook.core.machine import RequestIds
from daybook.core.quorum import Quorum, is_ack_quorum
from daybook.core.writer import policy as writer_policy
from daybook.core.writer.ensemble import Ensemble, Stop
from daybook.core.writer.forcing import Forcing
from daybook.core.writer.member import MemberState
from daybook.core.writer.queue import AppendQueue, ExplicitQueue
from daybook.core.writer.reactions import Reactions
from daybook.core.writer.replacement import why_not_own
from daybook.core.writer.state import WriterState
from daybook.core.writer.window import Batch, BatchWindow, Member
from daybook.core.writer.writer import LedgerWriter
from tests.model.mutants.catalog.swarms import EXPLICIT_IDS, LATE_CHANGES, MIXED_ANSWERS, REPAIRS, RESTARTS
from tests.model.mutants.registry import around, instead_of, mutant

_WRITER = "tests/unit/core/writer/test_writer.py::"
_ERRORS = "tests/unit/core/writer/test_writer_errors.py::"
_NO_SPARE = "tests/unit/core/writer/test_writer_no_spare.py::"
_LATE = "tests/unit/core/writer/test_writer_late_failure.py::"
_ENSEMBLE = "tests/unit/core/writer/test_writer_ensemble.py::"
_CLOSE = "tests/unit/core/writer/test_writer_close.py::"
_FORCE = "tests/unit/core/writer/test_writer_force.py::"
_EXPLICIT = "tests/unit/core/writer/test_writer_explicit_ids.py::"


@mutant(8, f"{_WRITER}test_rule_08_a_weak_ack_quorum_is_warned_about")
def every_ack_quorum_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is warned that one lost bookie loses acknowledged entries."""
    from tests.unit.core.writer import test_writer

    def silent(_quorum: Quorum) -> None:
        return None

    monkeypatch.setattr(writer_policy, "quorum_warning", silent)
    monkeypatch.setattr(test_writer, "quorum_warning", silent)


@mutant(11, f"{_CLOSE}test_rule_11_the_loser_of_a_closing_race_returns_the_winners_close")
@instead_of(LedgerWriter, "_metadata_read")
def the_loser_of_a_closing_race_fails(self: LedgerWriter, event: MetadataRead) -> None:
    """A writer that finds the ledger closed takes that for a failure."""
    if self._state.update.was_read(event):
        error = why_not_own(self.metadata, event.metadata)
        assert error is not None
        self._closing.lost(error)


@mutant(11, f"{_CLOSE}test_rule_11_a_close_never_overwrites_a_recovery_at_work")
def a_recovery_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer closes on top of whatever it reads."""
    monkeypatch.setattr("daybook.core.writer.writer.why_not_own", lambda _own, _read: None)


@mutant(13, f"{_WRITER}test_rule_13_after_a_fence_pending_appends_are_unknown_and_later_ones_are_not_written")
def a_fence_means_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was pending when the fence came is said to be not written."""
    monkeypatch.setattr(
        "daybook.core.writer.reactions.bookie_refuses_ledger",
        lambda *_: DaybookError("fenced: nothing was written"),
    )


@mutant(14, f"{_WRITER}test_rule_14_appends_complete_in_order_whatever_the_order_of_answers")
@around(LedgerWriter, "_frame_acked")
def completion_skips_holes(acked: Callable[..., None], self: LedgerWriter, *answer: Any) -> None:
    """A batch with its quorum is confirmed although one before it is not."""
    acked(self, *answer)
    for batch in list(self._window.uncompleted.values()):
        if is_ack_quorum(self.metadata.quorum, batch.acked, batch.first, batch.last):
            self._state.completed = batch.first - 1
            self._complete()


@mutant(14, f"{_WRITER}test_rule_14_no_entry_is_acknowledged_with_fewer_than_qa_copies")
def one_copy_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry is confirmed with any acknowledgement at all."""
    monkeypatch.setattr("daybook.core.writer.writer.is_ack_quorum", lambda _, acked, *_ids: bool(acked))


@mutant(15, f"{_ENSEMBLE}test_rule_15_nothing_completes_while_the_change_is_undecided")
@around(LedgerWriter, "_frame_acked")
def completion_does_not_wait_for_a_change(
    acked: Callable[..., None], self: LedgerWriter, *answer: Any
) -> None:
    """Entries are confirmed while a compare-and-set is out."""
    acked(self, *answer)
    update, self._state.update = self._state.update, MetadataUpdate(0, RequestIds())
    self._complete()
    self._state.update = update


@mutant(15, f"{_ENSEMBLE}test_rule_15_acks_of_a_removed_bookie_are_dropped_for_what_is_not_confirmed")
@around(BatchWindow, "seat")
def acks_of_a_removed_bookie_count(
    seat: Any, self: BatchWindow, position: int, bookie: BookieId, out: list[WriterEffect]
) -> None:
    """The successor inherits what the removed bookie acknowledged."""
    acked = {first: batch.acked for first, batch in self.uncompleted.items()}
    seat(self, position, bookie, out)
    for first, batch in self.uncompleted.items():
        batch.acked |= acked[first]


@mutant(16, f"{_ENSEMBLE}test_rule_16_a_new_bookie_is_sent_nothing_before_metadata_names_it")
@around(Ensemble, "_propose")
def a_new_bookie_is_used_at_once(
    propose: Callable[..., None], self: Ensemble, bookies: tuple[BookieId, ...]
) -> None:
    """The writer sends to the successor as soon as it is chosen, and tells metadata meanwhile."""
    propose(self, bookies)
    for position, bookie in enumerate(bookies):
        if bookie != self._window.members[position].bookie:
            self._window.seat(position, bookie, self._state.out)


@mutant(17, f"{_ENSEMBLE}test_rule_17_a_change_from_the_same_entry_replaces_the_fragment")
def a_change_always_adds_a_fragment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two changes at one entry make two fragments that begin there."""
    from daybook.core.ledger.metadata import Fragment

    def adding(
        self: LedgerMetadata, first_entry: EntryId, length_before: int, bookies: tuple[BookieId, ...]
    ) -> LedgerMetadata:
        return replace(self, fragments=(*self.fragments, Fragment(first_entry, length_before, bookies)))

    monkeypatch.setattr(LedgerMetadata, "with_ensemble", adding)


@mutant(17, f"{_ENSEMBLE}test_rule_17_a_change_to_the_same_bookies_sends_again")
@around(BatchWindow, "seat")
def the_same_bookies_need_nothing_sent(
    seat: Any, self: BatchWindow, position: int, bookie: BookieId, out: list[WriterEffect]
) -> None:
    """A bookie that returns to its place is taken to have what was sent while it was away."""
    member = self.members[position]
    if member.bookie == bookie:
        member.state = MemberState.LIVE
    else:
        seat(self, position, bookie, out)


@mutant(18, f"{_WRITER}test_rule_18_late_answers_of_a_replaced_bookie_change_nothing")
def late_answers_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is booked by its send alone: for the position that was asked, whoever sits there now."""
    answered = BatchWindow.answered
    asked: dict[int, tuple[int, Batch | None]] = {}

    def any_answer(self: BatchWindow, bookie: BookieId, send_id: int) -> tuple[Member, Batch | None] | None:
        found = answered(self, bookie, send_id)
        if found is not None:
            asked[send_id] = found[0].position, found[1]
        elif send_id in asked:
            position, batch = asked[send_id]
            return self.members[position], batch
        return found

    monkeypatch.setattr(BatchWindow, "answered", any_answer)


@mutant(19, f"{_ENSEMBLE}test_rule_19_a_repair_of_an_older_fragment_is_kept", swarm=REPAIRS)
@around(LedgerWriter, "step")
def own_fragments_win(
    step: Callable[..., list[WriterEffect]], self: LedgerWriter, event: WriterEvent
) -> list[WriterEffect]:
    """After a conflict the writer writes what it knew over what it read."""
    if isinstance(event, MetadataRead) and why_not_own(self.metadata, event.metadata) is None:
        event = replace(event, metadata=self.metadata)
    return step(self, event)


@mutant(20, f"{_ERRORS}test_rule_20_a_ledger_that_is_gone_ends_the_handle")
def a_deleted_ledger_is_a_bookie_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer goes on elsewhere when a bookie says that its ledger is gone."""
    for code in (Code.NO_SUCH_LEDGER, Code.NOT_OPEN):
        monkeypatch.setitem(REACTIONS, code, Reaction.BOOKIE_FAILURE)


@mutant(21, f"{_ERRORS}test_rule_21_every_code_has_its_reaction")
def every_error_is_the_bookies_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame that every bookie would refuse makes the writer change bookies one after the other."""
    for code in (Code.TOO_LARGE, Code.BAD_FRAME):
        monkeypatch.setitem(REACTIONS, code, Reaction.BOOKIE_FAILURE)


@mutant(21, f"{_ERRORS}test_rule_21_an_oversized_entry_burns_no_bookie")
def any_size_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """An oversized entry gets an id and goes out."""
    monkeypatch.setattr("daybook.core.writer.writer.check_payloads", lambda _: None)


@mutant(21, f"{_ERRORS}test_rule_21_a_refused_frame_that_one_bookie_has_ends_the_handle", swarm=MIXED_ANSWERS)
@around(Reactions, "decide")
def ids_are_given_twice(decide: Callable[..., bool], self: Reactions, batch: Batch) -> bool:
    """The id of a refused entry is given again although one bookie has the first payload."""
    if batch.refused.bit_count() > 1:
        batch.acked = 0
        self._state.promised = NO_ENTRY
    return decide(self, batch)


@mutant(
    21,
    f"{_ERRORS}test_rule_21_a_refused_frame_whose_ids_were_promised_ends_the_handle",
    not_simulated="a frame that all of its bookies refuse is too rare among drawn histories",
)
def promised_ids_are_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user of a refused entry knows its id, and another entry gets it."""
    monkeypatch.setattr(LedgerWriter, "promise_ids", lambda _: None)


@mutant(
    21,
    f"{_ERRORS}test_rule_21_a_force_does_not_wait_for_entries_that_were_refused",
    not_simulated="a frame that all of its bookies refuse is too rare among drawn histories",
)
def a_force_waits_for_refused_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A force waits until other entries have the ids of those that were refused; if none comes, for ever."""
    monkeypatch.setattr(Forcing, "rolled_back", lambda *_: None)


@mutant(21, f"{_ENSEMBLE}test_rule_21_ensemble_changes_are_capped")
@around(Ensemble, "change")
def ensemble_changes_are_not_counted(change: Callable[..., Stop | None], self: Ensemble) -> Stop | None:
    """A writer changes its ensemble without end."""
    self.changes = 0
    return change(self)


@mutant(21, f"{_ENSEMBLE}test_rule_21_a_bookie_that_returns_when_the_changes_are_spent_ends_the_handle")
@around(Ensemble, "change")
def a_writer_at_its_limit_goes_on_degraded(change: Callable[..., Stop | None], self: Ensemble) -> Stop | None:
    """Once its changes are spent, a writer does without a bookie that is back for as long as it writes."""
    stop = change(self)
    return None if stop is not None and stop.may_complete else stop


@mutant(22, f"{_FORCE}test_rule_22_only_a_force_by_the_whole_ensemble_moves_the_lac", swarm=RESTARTS)
@around(Forcing, "synced")
def a_quorum_of_forces_is_enough(synced: Any, self: Forcing, bookie: BookieId, last_pushed: EntryId) -> None:
    """The LAC moves when Qa bookies have forced."""
    if self.active is not None and len(self.active.owing) == 2:
        self.active.owing = {bookie: self.active.owing[bookie]}
    synced(self, bookie, last_pushed)


@mutant(22, f"{_FORCE}test_rule_22_a_bookie_that_restarted_does_not_answer_a_force", swarm=RESTARTS)
def boot_ids_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie that restarted, and lost what it had not synced, answers the force."""
    monkeypatch.setattr(Forcing, "same_boot", lambda *_: True)


@mutant(22, f"{_FORCE}test_rule_22_any_failure_ends_the_handle_and_the_ensemble_never_changes")
@instead_of(Reactions, "failed")
def unforced_entries_change_ensembles(
    self: Reactions, member: Member, _code: Code, _batch: Batch | None
) -> bool:
    """With deferred sync a failed bookie is replaced like any other."""
    return self._ensemble.failed(member)


@mutant(45, f"{_NO_SPARE}test_rule_45_without_a_spare_a_quorum_goes_on_and_says_so")
@around(LedgerWriter, "__init__")
def no_spare_ends_the_handle(init: Any, self: LedgerWriter, *args: object, **options: object) -> None:
    """One lost bookie of three stops writes."""
    policy = options.get("policy", writer_policy.WriterPolicy())
    options["policy"] = replace(policy, go_on_without_spare=False)  # type: ignore[type-var]  # it is a WriterPolicy
    init(self, *args, **options)


@mutant(45, f"{_NO_SPARE}test_rule_45_a_bookie_that_returns_begins_a_new_fragment_with_the_same_ensemble")
@instead_of(Ensemble, "probe_answered")
def a_returned_bookie_takes_its_place_silently(self: Ensemble, member: Member) -> None:
    """No new fragment begins, so the earlier entries stay in the open one, which is never repaired."""
    self._window.seat(member.position, member.bookie, self._state.out)
    self._report_missing()


@mutant(
    45,
    f"{_LATE}test_rule_45_an_idle_ledger_ends_the_fragment_in_which_a_bookie_lacks_what_is_acknowledged",
)
def the_gap_of_an_idle_ledger_waits_for_an_append(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie that failed behind the others stays in the open fragment until somebody appends."""
    monkeypatch.setattr(BatchWindow, "note_owed", lambda *_: None)


@mutant(
    45,
    f"{_LATE}test_rule_45_what_has_its_quorum_while_a_change_is_undecided_goes_to_the_next_ensemble_before_it_is_acknowledged",
)
@around(Ensemble, "_is_needed")
def what_has_its_quorum_needs_nobody(needed: Callable[..., bool], self: Ensemble, member: Member) -> bool:
    """An entry with its quorum is acknowledged in an open fragment that names a bookie which failed without it."""
    uncompleted = self._window.uncompleted
    quorum = self._state.quorum
    self._window.uncompleted = {
        first: batch
        for first, batch in uncompleted.items()
        if not is_ack_quorum(quorum, batch.acked, batch.first, batch.last)
    }
    is_needed = needed(self, member)
    self._window.uncompleted = uncompleted
    return is_needed


@mutant(46, f"{_ENSEMBLE}test_rule_46_without_zookeeper_writes_go_on_without_a_failed_bookie")
@around(Ensemble, "change")
def zookeeper_is_always_there(change: Callable[..., Stop | None], self: Ensemble) -> Stop | None:
    """The writer proposes a change that nobody can take, and stops until ZooKeeper is back."""
    self._state.is_connected = True
    return change(self)


@mutant(46, f"{_ENSEMBLE}test_rule_46_once_a_change_was_sent_completions_wait_until_its_outcome_is_known")
@around(MetadataUpdate, "cas_answered")
def no_answer_is_taken_for_a_no(
    answered: Callable[..., LedgerMetadata | None],
    self: MetadataUpdate,
    event: CasAnswered,
    out: list[WriterEffect],
) -> LedgerMetadata | None:
    """A compare-and-set without an answer is forgotten, and completions go on."""
    stored = answered(self, event, out)
    self._phase = MetadataUpdate(0, RequestIds())._phase
    return stored


@mutant(
    46,
    f"{_ENSEMBLE}test_rule_46_an_attempt_that_may_still_arrive_is_overtaken_before_anything_completes",
    swarm=LATE_CHANGES,
)
def a_read_settles_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that finds the old version is taken for proof that an attempt never arrives."""
    monkeypatch.setattr(MetadataUpdate, "must_settle", property(lambda _: False))


@mutant(48, f"{_WRITER}test_rule_48_an_idle_writer_publishes_its_lac_within_100_ms")
def an_idle_writer_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last LAC goes out with the next append, if there is one."""
    monkeypatch.setattr(BatchWindow, "publish_lac", lambda *_: None)


@mutant(48, f"{_LATE}test_rule_48_a_bookie_that_is_named_while_nothing_is_written_learns_the_lac")
def a_bookie_named_in_silence_learns_no_lac(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ensemble changes while nothing is written, and its new bookie waits for the next append to learn the LAC."""
    monkeypatch.setattr(Ensemble, "_publish_to", lambda *_: None)


@mutant(
    48,
    "tests/unit/core/test_lac_rows.py::test_rule_48_a_row_is_lost_with_its_stream_unless_something_synced_came_after_it",
)
@instead_of(LacRows, "stream_ended")
def rows_are_sent_once(self: LacRows[Any]) -> None:
    """A row that vanished with its stream is not published on the next one."""
    self._waiting.clear()
    self._sent.clear()


@mutant(53, f"{_WRITER}test_rule_53_a_writer_needs_a_fresh_attach")
def anyone_may_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer takes any metadata."""
    monkeypatch.setattr("daybook.core.writer.state.check_attached", lambda _: None)


@mutant(55, f"{_EXPLICIT}test_rule_55_ids_that_were_used_or_cannot_be_are_refused", swarm=EXPLICIT_IDS)
@around(ExplicitQueue, "check")
def an_id_may_be_used_again(check: Callable[..., None], _self: ExplicitQueue, *given: Any) -> None:
    """A second payload under an id that was given is sent: the ids are judged as those of a queue that has had none."""
    check(ExplicitQueue(1), *given)


@mutant(55, f"{_EXPLICIT}test_rule_55_a_close_ends_before_the_gap_and_fails_the_rest", swarm=EXPLICIT_IDS)
@around(WriterState, "fail_appends")
def a_gap_is_no_end(fail: Any, self: WriterState, error: DaybookError) -> None:
    """What follows a gap is not failed when the ledger closes before it."""
    if not isinstance(error, EntryIdError):
        fail(self, error)


@mutant(55, f"{_WRITER}test_rule_55_only_a_ledger_with_explicit_ids_takes_them")
def ids_from_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that assigns ids itself takes others without a word."""
    add = AppendQueue.add

    def ignoring(self: AppendQueue, payloads: list[bytes], _ids: object, size_bytes: int) -> tuple[int, int]:
        return add(self, payloads, None, size_bytes)

    monkeypatch.setattr(AppendQueue, "check", lambda *_: None)
    monkeypatch.setattr(AppendQueue, "add", ignoring)
