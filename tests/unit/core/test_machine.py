"""The parts that machines share."""

from daybook.core.machine import RequestIds, RetryTimer


def test_request_ids_begin_at_1_and_never_repeat() -> None:
    ids, others = RequestIds(), RequestIds()
    assert [ids.next(), ids.next(), others.next(), ids.next()] == [1, 2, 1, 3]


def test_a_retry_timer_fires_once_when_its_pause_is_over() -> None:
    timer = RetryTimer(200)
    assert not timer.is_running
    assert not timer.fires(10**9)
    timer.start(1_000)
    assert timer.is_running
    assert not timer.fires(1_199)
    assert timer.fires(1_200)
    assert not timer.is_running
    assert not timer.fires(1_400)


def test_a_retry_timer_can_be_started_anew_and_stopped() -> None:
    timer = RetryTimer(200)
    timer.start(0)
    timer.start(100)
    assert not timer.fires(299)
    timer.stop()
    assert not timer.fires(300)
