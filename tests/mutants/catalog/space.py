"""Mutants of the watch over full disks: when a disk that refused a write is believed again."""

import pytest
from daybook_bookie import disk
from daybook_bookie.disk_watch import DiskWatch, Trial

from tests.mutants.registry import mutant

SPACE = "tests/bookie/test_server_space.py::"
_DISK = "the simulator's bookies have no file system that refuses a write"


@mutant(
    rule=30,
    caught_by=SPACE + "test_rule_30_a_refusal_that_no_figure_shows_ends_when_room_was_taken_and_not_before",
    not_simulated=_DISK,
)
def a_refused_disk_is_believed_by_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    "Nobody takes the room to prove that it is there."
    monkeypatch.setattr(DiskWatch, "_has_room", lambda self, name: True)


@mutant(
    rule=30,
    caught_by=SPACE + "test_rule_30_a_disk_that_comes_and_goes_is_tried_ever_more_rarely_until_it_holds",
    not_simulated=_DISK,
)
def a_refused_disk_is_tried_at_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    "A disk with room for one file makes the bookie come and go with every file."
    monkeypatch.setattr(Trial, "is_due", lambda self, free_bytes: self.is_refused)


@mutant(
    rule=30,
    caught_by="tests/bookie/test_journal.py::"
    "test_rule_30_room_is_proved_by_taking_it_and_nothing_is_left_behind",
    not_simulated=_DISK,
)
def a_quota_is_no_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    "Only ENOSPC counts as no room."
    monkeypatch.setattr(disk, "FULL", frozenset())
