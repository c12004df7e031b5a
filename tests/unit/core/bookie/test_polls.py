"""Long polls: who waits, who is answered by what, and that nothing is left of those who left."""

from daybook.core.bookie.ledger import LacAnswer
from daybook.core.bookie.polls import LacPolls, Poll
from daybook.core.ids import LedgerId

NOTHING = LacAnswer(-1, 0, limbo=False, fenced=False)


def poll(ledger_id: LedgerId = 1, *, deadline_ms: int = 100, lac: int = -1, fenced: bool = False) -> Poll:
    return Poll(ledger_id, lac, fenced, deadline_ms, look=lambda: NOTHING, answer=lambda _: None)


def lac_of(lac: int, *, fenced: bool = False) -> LacAnswer:
    return LacAnswer(lac, 0, limbo=False, fenced=fenced)


def test_a_poll_is_answered_by_a_higher_lac_and_once_by_a_fence() -> None:
    waits = poll(lac=3)
    assert not waits.is_news(lac_of(3))
    assert waits.is_news(lac_of(4))
    assert waits.is_news(lac_of(3, fenced=True))
    assert not poll(lac=3, fenced=True).is_news(lac_of(3, fenced=True))


def test_news_takes_those_for_whom_it_is_news() -> None:
    polls = LacPolls(10)
    behind, ahead, elsewhere = poll(lac=1), poll(lac=7), poll(2)
    for each in (behind, ahead, elsewhere):
        assert polls.park(each)
    assert polls.has_waiters(1)
    assert polls.take_news(1, lac_of(5)) == [behind]
    assert polls.take_news(3, lac_of(5)) == []
    assert polls.count == 2
    assert polls.take_news(1, lac_of(8)) == [ahead]
    assert not polls.has_waiters(1)


def test_a_deadline_takes_those_who_still_wait_in_its_order() -> None:
    polls = LacPolls(10)
    assert polls.next_deadline_ms is None
    late, early, left = poll(deadline_ms=300), poll(deadline_ms=100), poll(deadline_ms=50)
    for each in (late, early, left):
        polls.park(each)
    assert polls.remove(left)
    assert not polls.remove(left)
    assert polls.next_deadline_ms == 50
    assert polls.take_due(99) == []
    assert polls.take_due(100) == [early]
    assert polls.take_due(None) == [late]
    assert polls.count == 0


def test_only_so_many_wait() -> None:
    polls = LacPolls(1)
    assert polls.park(poll())
    assert not polls.park(poll())


def test_deadlines_of_polls_that_left_are_forgotten() -> None:
    polls = LacPolls(10)
    stays = poll()
    polls.park(stays)
    for _ in range(500):
        leaves = poll(2)
        polls.park(leaves)
        polls.remove(leaves)
    assert len(polls._deadlines) < 100
    assert polls.take_due(None) == [stays]
