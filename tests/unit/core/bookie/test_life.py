"""A bookie's life: the order of a start, what a lost claim costs, and which end wins."""

from typing import Final

import pytest

from daybook.core.bookie.exits import (
    EXIT_DISK_LOST,
    EXIT_FORGOTTEN,
    EXIT_NOT_STARTED,
    EXIT_STOPPED,
    EXIT_STORAGE_FAILED,
    EXIT_SUPERSEDED,
)
from daybook.core.bookie.life import (
    TRANSITIONS,
    BookieLife,
    ClaimLost,
    ClaimTaken,
    CompareEpochs,
    Created,
    CreateStorage,
    EpochsCompared,
    JudgeStart,
    LedgersListed,
    LifeEffect,
    LifeEvent,
    LifeState,
    LimboMarked,
    ListLedgers,
    MarkLimbo,
    Refusal,
    Serve,
    StampCookie,
    Stamped,
    StampEpoch,
    Start,
    StartJudged,
    StartRefused,
    StopAnswering,
    StopAsked,
    StorageClosed,
    StorageFailed,
    Superseded,
    TakeClaim,
    WritesAllowed,
)
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.quorum import Quorum

NORMAL: Final = (StartJudged(Start.NORMAL), EpochsCompared(went_back=False))
FAILED: Final = StorageFailed("fdatasync: Input/output error")
SUPERSEDED: Final = Superseded("its cookie was replaced")
AS_NEW: Final = (Stamped(), EpochsCompared(went_back=False))


def lived(*events: LifeEvent) -> BookieLife:
    """A life to which these have happened."""
    bookie = BookieLife("b0")
    bookie.start()
    for event in events:
        bookie.step(event)
    return bookie


def replies(*events: LifeEvent) -> list[LifeEffect]:
    """What follows from each of these in turn."""
    bookie = BookieLife("b0")
    effects = bookie.start()
    assert effects == [JudgeStart()]
    return [effect for event in events for effect in bookie.step(event)]


def test_a_normal_start_needs_no_claim() -> None:
    assert replies(*NORMAL) == [CompareEpochs(), Serve()]


def test_rule_29_a_replacement_marks_limbo_under_the_claim_and_before_its_stamp() -> None:
    judged = StartJudged(Start.REPLACEMENT, (1, 2))
    assert replies(judged, ClaimTaken(), judged, Created(), LimboMarked(), *AS_NEW) == [
        TakeClaim(),
        JudgeStart(),
        CreateStorage(),
        MarkLimbo((1, 2)),
        StampCookie(),
        CompareEpochs(),
        Serve(),
    ]


def test_a_new_bookie_marks_nothing() -> None:
    judged = StartJudged(Start.FIRST)
    effects = replies(judged, ClaimTaken(), judged, Created(), *AS_NEW)
    assert effects == [TakeClaim(), JudgeStart(), CreateStorage(), StampCookie(), CompareEpochs(), Serve()]


def test_rule_57_a_start_that_lost_its_claim_lists_again_and_creates_nothing_twice() -> None:
    first, second = StartJudged(Start.FIRST), StartJudged(Start.REPLACEMENT, (7,))
    effects = replies(first, ClaimTaken(), first, Created(), ClaimLost(), ClaimTaken(), second)
    assert effects[-3:] == [TakeClaim(), JudgeStart(), MarkLimbo((7,))]


def test_a_stamp_whose_answer_was_lost_counts() -> None:
    judged = StartJudged(Start.FIRST)
    effects = replies(judged, ClaimTaken(), judged, Created(), ClaimLost(), ClaimTaken(), NORMAL[0])
    assert effects[-1] == CompareEpochs()


def test_rule_58_disks_that_went_back_are_in_limbo_before_their_epoch_is_raised() -> None:
    went_back = (NORMAL[0], EpochsCompared(went_back=True), ClaimTaken(), LedgersListed((3,)), LimboMarked())
    assert replies(*went_back, Stamped()) == [
        CompareEpochs(),
        TakeClaim(),
        ListLedgers(),
        MarkLimbo((3,)),
        StampEpoch(),
        Serve(),
    ]
    assert replies(*went_back, ClaimLost(), ClaimTaken())[-1] == ListLedgers()


def test_a_start_that_nobody_authorises_ends() -> None:
    refused = lived(StartJudged(Start.REPLACEMENT), StartRefused())
    assert refused.is_done
    assert (refused.state, refused.exit_code) == (LifeState.REFUSED, EXIT_NOT_STARTED)


@pytest.mark.parametrize(
    ("why", "exit_code"),
    [
        (Refusal.DISK_LOST, EXIT_DISK_LOST),
        (Refusal.FORGOTTEN, EXIT_FORGOTTEN),
        (Refusal.OTHER, EXIT_NOT_STARTED),
    ],
)
def test_a_refused_start_exits_by_what_others_can_do_about_it(why: Refusal, exit_code: int) -> None:
    bookie = BookieLife("b0")
    bookie.step(StartRefused(why))
    assert (bookie.state, bookie.exit_code) == (LifeState.REFUSED, exit_code)


@pytest.mark.parametrize("events", [(), NORMAL[:1], NORMAL])
def test_a_process_that_ends_before_its_life_does_has_not_started(events: tuple[LifeEvent, ...]) -> None:
    bookie = BookieLife("b0")
    for event in events:
        bookie.step(event)
    assert bookie.exit_code == EXIT_NOT_STARTED


def test_rule_29_a_bookie_marks_the_ledgers_that_name_it() -> None:
    ledger = LedgerMetadata(7, Quorum(1, 1, 1), (Fragment(0, 0, ("b0",)), Fragment(5, 0, ("b1",))))
    assert BookieLife("b0").must_mark(ledger)
    assert not BookieLife("nobody").must_mark(ledger)


@pytest.mark.parametrize("before_it_serves", [True, False])
def test_rule_30_a_bookie_without_space_serves(*, before_it_serves: bool) -> None:
    full = (WritesAllowed(allowed=False),)
    bookie = lived(*full, *NORMAL) if before_it_serves else lived(*NORMAL, *full, *full)
    assert bookie.state is LifeState.READ_ONLY
    assert bookie.is_serving


def test_rule_30_a_bookie_that_has_space_again_is_writable() -> None:
    bookie = lived(WritesAllowed(allowed=False), *NORMAL, WritesAllowed(allowed=True))
    assert bookie.state is LifeState.WRITABLE


@pytest.mark.parametrize(
    ("events", "state", "must_end", "exit_code"),
    [
        ([StopAsked(), StorageClosed()], LifeState.STOPPED, False, EXIT_STOPPED),
        ([StopAsked(), FAILED, StorageClosed()], LifeState.FAILED, True, EXIT_STORAGE_FAILED),
        ([FAILED, SUPERSEDED], LifeState.SUPERSEDED, True, EXIT_SUPERSEDED),
        ([SUPERSEDED, FAILED, StopAsked()], LifeState.SUPERSEDED, True, EXIT_SUPERSEDED),
        ([StopAsked(), StorageClosed(), SUPERSEDED], LifeState.STOPPED, False, EXIT_STOPPED),
    ],
)
def test_an_end_gives_way_only_to_a_worse_one(
    events: list[LifeEvent], state: LifeState, *, must_end: bool, exit_code: int
) -> None:
    bookie = lived(*NORMAL, *events)
    assert bookie.is_done
    assert (bookie.state, bookie.must_end, bookie.exit_code) == (state, must_end, exit_code)
    assert bool(bookie.end_reason) == must_end


@pytest.mark.parametrize("end", [FAILED, SUPERSEDED])
def test_rule_23_a_bookie_that_must_end_answers_nothing(end: LifeEvent) -> None:
    bookie = lived(*NORMAL)
    assert bookie.step(end) == [StopAnswering()]
    assert bookie.step(end) == []
    assert not bookie.is_serving


def test_an_answer_that_fits_no_state_is_an_error_of_the_driver() -> None:
    with pytest.raises(AssertionError, match="does not change"):
        lived(*NORMAL).step(ClaimTaken())


def test_every_state_is_in_the_table() -> None:
    assert {state for pair in TRANSITIONS for state in pair} == set(LifeState)
