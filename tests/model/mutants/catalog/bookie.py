"""Mutants of a ledger on a bookie."""

from collections.abc import Callable
from dataclasses import replace
from weakref import WeakKeyDictionary

import pytest

from daybook.core.bookie.ledger import AttachVerdict, BookieLedger, FenceVerdict, Purpose
from daybook.core.bookie.open_ledgers import OpenLedgers
from daybook.core.errors import Code
from daybook.core.format.frame import FrameHeader
from daybook.core.ids import EntryId
from tests.model.mutants.catalog.swarms import DELETIONS, LOST_DISKS
from tests.model.mutants.registry import around, instead_of, mutant

_TESTS = "tests/unit/core/bookie/test_bookie.py::"
_TABLES = "tests/unit/core/bookie/test_lac_tables.py::"
_FORGED = "tests/unit/core/bookie/test_bookie_forged_fences.py::"


@mutant(3, f"{_TESTS}test_rule_03_a_fence_creates_the_ledger_where_it_was_never_seen")
@around(BookieLedger, "fence")
def only_known_ledgers_are_fenced(fence: Callable[..., object], self: BookieLedger, key: str) -> object:
    """A fence on a ledger that the bookie never saw leaves no trace."""
    known = self.introduced
    verdict = fence(self, key)
    self.fenced = self.fenced and known
    self.fence_is_durable = lambda number: None  # type: ignore[method-assign]  # nothing to make durable
    return verdict


@mutant(
    3,
    f"{_FORGED}test_rule_03_a_fence_that_metadata_disproves_ends",
    not_simulated="no client of the simulator makes keys up",
)
def a_forged_fence_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fence outlives the key that it came with."""
    monkeypatch.setattr(BookieLedger, "_drop_fence", lambda _: None)


@mutant(
    4,
    f"{_FORGED}test_rule_04_a_dropped_fence_that_becomes_durable_does_not_answer_for_the_next_one",
    not_simulated="no client of the simulator makes keys up",
)
@instead_of(BookieLedger, "fence_is_durable")
def any_fence_that_becomes_durable_answers(self: BookieLedger, _: int) -> None:
    """A fence is answered when an earlier one, which was dropped, becomes durable."""
    self.is_fence_durable = True


@mutant(4, f"{_TESTS}test_rule_04_every_fencer_waits_until_the_fence_is_durable")
@around(BookieLedger, "fence")
def a_second_fencer_does_not_wait(
    fence: Callable[..., FenceVerdict], self: BookieLedger, key: str
) -> FenceVerdict:
    """Whoever finds the fence set is answered at once, durable or not."""
    return replace(fence(self, key), wait=False)


@mutant(10, f"{_TESTS}test_rule_10_only_recovery_frames_pass_the_fence")
@around(BookieLedger, "accept")
def the_fence_stops_write_back(
    accept: Callable[..., Code], self: BookieLedger, stream_id: int, header: FrameHeader
) -> Code:
    """A bookie refuses recovery frames too."""
    return Code.FENCED if self.fenced else accept(self, stream_id, header)


@mutant(10, f"{_TESTS}test_rule_10_only_recovery_frames_pass_the_fence")
@around(BookieLedger, "accept")
def the_fence_stops_nothing(
    accept: Callable[..., Code], self: BookieLedger, stream_id: int, header: FrameHeader
) -> Code:
    """Normal frames pass the fence."""
    fenced, self.fenced = self.fenced, False
    code = accept(self, stream_id, header)
    self.fenced = fenced
    return code


@mutant(20, f"{_TESTS}test_rule_20_a_ledger_that_is_not_known_needs_metadata_before_the_first_normal_frame")
@around(BookieLedger, "attach")
def any_ledger_may_be_written(
    attach: Callable[..., AttachVerdict], self: BookieLedger, stream_id: int, key: str, purpose: Purpose
) -> AttachVerdict:
    """A bookie takes the first frame of a ledger without looking at metadata."""
    self.introduced = True
    return attach(self, stream_id, key, purpose)


@mutant(20, f"{_TESTS}test_rule_20_after_deletion_and_collection_the_old_writer_is_out", swarm=DELETIONS)
def collection_keeps_attachments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collected ledger forgets its fence but not its writer, and lets others in by what was read before."""
    attached = OpenLedgers.attached
    monkeypatch.setattr(BookieLedger, "forget", lambda self: setattr(self, "fenced", False))
    monkeypatch.setattr(
        OpenLedgers,
        "attached",
        lambda self, stream_id, ledger_id: (
            ledger_id in self._ledgers and attached(self, stream_id, ledger_id)
        ),
    )


@mutant(
    29,
    f"{_TESTS}test_rule_29_limbo_refuses_normal_frames_as_a_bookie_failure_and_vouches_for_nothing",
    swarm=LOST_DISKS,
)
def limbo_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie that lost its disk does not say so: its "not found" and its LAC look like a healthy one's."""
    monkeypatch.setattr(BookieLedger, "in_limbo", property(lambda _: False))


@mutant(29, f"{_TESTS}test_rule_29_limbo_is_cleared_only_with_the_nonce_that_still_stands", swarm=LOST_DISKS)
@instead_of(BookieLedger, "clear_limbo")
def any_repair_clears_limbo(self: BookieLedger, nonce: str) -> bool:
    """The nonce is not compared."""
    self.limbo_nonce = None
    return True


@mutant(43, f"{_TESTS}test_rule_43_an_add_comes_before_the_fence_or_is_refused")
@around(BookieLedger, "accept")
def a_fence_counts_only_once_it_is_durable(
    accept: Callable[..., Code], self: BookieLedger, stream_id: int, header: FrameHeader
) -> Code:
    """Between the fence and its sync adds still pass, so that a recovery read can overtake one."""
    fenced, self.fenced = self.fenced, self.is_fence_durable
    code = accept(self, stream_id, header)
    self.fenced = fenced
    return code


@mutant(44, f"{_TESTS}test_rule_44_lac_and_length_are_one_record")
@around(BookieLedger, "accept")
def the_length_is_not_kept_with_the_lac(
    accept: Callable[..., Code], self: BookieLedger, stream_id: int, header: FrameHeader
) -> Code:
    """A bookie stores the LAC alone."""
    code = accept(self, stream_id, header)
    self.length_at_lac = 0
    return code


@mutant(48, f"{_TABLES}test_rule_48_rows_count_only_from_the_stream_that_its_writer_is_attached_to")
@instead_of(BookieLedger, "publish_lac")
def rows_count_from_any_stream(self: BookieLedger, _: int, lac: EntryId, length: int) -> bool:
    """A row of a table of LACs is taken from whoever sends it."""
    return self._refuses_normal() is Code.OK and self._raise_lac(lac, length)


@mutant(48, f"{_TABLES}test_rule_48_rows_never_pass_a_fence_durable_or_not")
@instead_of(BookieLedger, "publish_lac")
def rows_pass_the_fence(self: BookieLedger, stream_id: int, lac: EntryId, length: int) -> bool:
    """A row of a table of LACs is taken of a ledger that is fenced."""
    return stream_id in self._writers and self._raise_lac(lac, length)


@mutant(54, f"{_TESTS}test_rule_54_an_entry_that_is_there_already_is_acked_only_once_it_is_synced")
def what_is_there_is_acked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An add for an entry in the cache is answered without waiting for a sync."""
    accept = BookieLedger.accept
    here: WeakKeyDictionary[BookieLedger, set[EntryId]] = WeakKeyDictionary()
    is_resent = False

    def noting(self: BookieLedger, stream_id: int, header: FrameHeader) -> Code:
        nonlocal is_resent
        code = accept(self, stream_id, header)
        held = here.setdefault(self, set())
        is_resent = header.first_entry in held
        if code is Code.OK:
            held.add(header.first_entry)
        return code

    monkeypatch.setattr(BookieLedger, "accept", noting)
    monkeypatch.setattr(BookieLedger, "may_ack_before_sync", lambda *_: is_resent)
