"""What works in the background goes on after an error, or ends the process: nothing of it dies unheard."""

import threading
from collections.abc import Callable
from queue import SimpleQueue

import pytest
from daybook_bookie.disk.watch import SpaceState, Usage
from daybook_bookie.service.long_poll import LongPolls

from daybook.core.bookie.ledger import LacAnswer
from daybook.core.bookie.polls import Poll
from daybook.core.placement.policy import BookieInfo
from daybook.runtime.clock import monotonic_ms
from tests.unit.bookie.server_kit import RunningBookie, eventually
from tests.unit.bookie.stream_kit import WAIT_S

StartBookie = Callable[..., RunningBookie]


def test_the_disk_watch_survives_a_poll_that_fails(start_bookie: StartBookie) -> None:
    bookie = start_bookie(disk_check_ms=10)
    watch = bookie.bookie.disk_watch
    looked = threading.Event()

    def fail() -> list[Usage]:
        looked.set()
        raise OSError(5, "the file system hangs")

    look, watch._measure = watch._measure, fail
    assert looked.wait(WAIT_S)
    watch._measure = look
    bookie.usages = [Usage("store", 100, 1)]
    assert eventually(lambda: watch.state is SpaceState.EXHAUSTED)


def test_a_long_poll_that_cannot_be_looked_at_keeps_no_other_from_its_answer() -> None:
    polls = LongPolls(10, lambda _: None, lambda: True)
    answers: list[tuple[str, LacAnswer | None]] = []
    answered = threading.Event()
    lac = LacAnswer(-1, 0, limbo=False, fenced=False)
    looks = iter([lac])

    def look_once() -> LacAnswer:
        return next(looks)  # parked with this one; the second raises

    def answer(name: str) -> Callable[[LacAnswer | None], None]:
        def take(found: LacAnswer | None) -> None:
            answers.append((name, found))
            if len(answers) == 2:
                answered.set()

        return take

    assert polls.park(Poll(1, -1, known_fenced=False, deadline_ms=0, look=look_once, answer=answer("broken")))
    assert polls.park(
        Poll(2, -1, known_fenced=False, deadline_ms=0, look=lambda: lac, answer=answer("sound"))
    )
    assert answered.wait(WAIT_S)
    polls.close()
    assert dict(answers) == {"broken": None, "sound": lac}


def test_polls_that_wait_no_more_leave_nothing_behind() -> None:
    polls = LongPolls(10, lambda _: None, lambda: True)
    nothing, news = (LacAnswer(lac, 0, limbo=False, fenced=False) for lac in (-1, 0))
    answers: SimpleQueue[LacAnswer | None] = SimpleQueue()
    late = monotonic_ms() + 3_600_000

    def parked(ledger_id: int) -> Poll:
        poll = Poll(
            ledger_id, -1, known_fenced=False, deadline_ms=late, look=lambda: nothing, answer=answers.put
        )
        assert polls.park(poll)
        return poll

    stays = parked(1)
    for _ in range(500):
        polls.forget(parked(2))
        parked(3)
        polls.wake(3, news, is_durable=True)
        assert answers.get(timeout=WAIT_S) is news
    assert len(polls._polls._deadlines) < 100
    polls.wake(2, news, is_durable=True)
    polls.forget(stays)
    polls.close()
    assert answers.empty()


def test_a_ready_file_that_cannot_be_written_is_heard_of(
    bookie: RunningBookie, caplog: pytest.LogCaptureFixture
) -> None:
    def unwritable() -> None:
        raise OSError(28, "no space left on device")

    bookie.bookie.register(BookieInfo("b0", bookie.address), unwritable)
    assert eventually(lambda: "no space left on device" in caplog.text)
