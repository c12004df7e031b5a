"""Mutants of the watch over full disks: when a disk that refused a write is believed again."""

from functools import partial
from typing import Any

import pytest
from daybook_bookie.disk import disk
from daybook_bookie.disk.errors import StorageFullError
from daybook_bookie.disk.watch import Trial
from daybook_bookie.journal import journal

from tests.model.mutants.registry import around, instead_of, mutant

SPACE = "tests/unit/bookie/upkeep/test_server_space.py::"
DESCRIPTORS = "tests/unit/bookie/service/test_descriptors.py::"
_PROCESS = "the simulator's files have no descriptors"
_DISK = "the simulator's bookies have no file system that refuses a write"
by_test = partial(mutant, not_simulated=_DISK)


@by_test(30, SPACE + "test_rule_30_a_refusal_that_no_figure_shows_ends_when_room_was_taken_and_not_before")
@around(Trial, "__init__")
def a_refused_disk_is_believed_by_its_figures(init: Any, self: Trial, _has_room: Any) -> None:
    "Nobody takes the room to prove that it is there."
    init(self, lambda: True)


@by_test(30, SPACE + "test_rule_30_a_disk_that_comes_and_goes_is_tried_ever_more_rarely_until_it_holds")
def a_refused_disk_is_tried_at_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    "A disk with room for one file makes the bookie come and go with every file."
    monkeypatch.setattr(Trial, "is_due", lambda self, free_bytes: self.is_refused)


@by_test(
    30,
    (
        "tests/unit/bookie/journal/test_journal.py::"
        "test_rule_30_room_is_proved_by_taking_it_and_nothing_is_left_behind"
    ),
)
def a_quota_is_no_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    "Only ENOSPC counts as no room."
    monkeypatch.setattr(disk, "FULL", frozenset())


@mutant(
    30,
    (
        DESCRIPTORS
        + "test_rule_30_a_journal_that_has_no_descriptor_at_all_refuses_and_goes_on_when_there_is_one"
    ),
    not_simulated=_PROCESS,
)
def a_process_without_descriptors_has_a_broken_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    "EMFILE where a journal file begins stops the bookie."
    monkeypatch.setattr(journal, "NO_DESCRIPTORS", frozenset())


@mutant(
    30,
    (DESCRIPTORS + "test_rule_30_a_journal_without_descriptors_begins_file_after_file_and_loses_none"),
    not_simulated=_PROCESS,
)
def no_descriptor_is_kept_in_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    "Who has no descriptor left cannot open a file."
    monkeypatch.setattr(disk, "NO_DESCRIPTORS", frozenset())


@by_test(
    30,
    (
        "tests/unit/bookie/journal/test_journal.py::"
        "test_rule_30_no_room_within_a_file_is_read_only_and_no_byte_is_written_twice"
    ),
)
@instead_of(journal.Journal, "_end_file")
def a_file_that_had_no_room_is_written_on(_: journal.Journal, error: OSError) -> None:
    "What comes next is written over what was cut short."
    raise StorageFullError(str(error)) from error
