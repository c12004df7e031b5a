"""What all topics do at the end of a turn: once, in order, at one time."""

import asyncio
from typing import Any

from daybook_broker.topics.turn import TurnEnd

from daybook.runtime.clock import monotonic_s


async def test_what_is_called_at_the_end_of_a_turn_has_one_time() -> None:
    end, over, times = TurnEnd(), asyncio.Event(), list[float]()
    before_s = monotonic_s()
    for _ in range(2):
        end.call(lambda: times.append(end.now_s))
    end.call(over.set)
    assert not times
    await over.wait()
    assert before_s <= times[0] == times[1] < end.now_s < end.now_s, "outside of it the clock goes on"


async def test_an_error_of_one_keeps_no_other_waiting() -> None:
    def fail() -> None:
        raise KeyError

    end, over, errors, times = TurnEnd(), asyncio.Event(), list[dict[str, Any]](), list[float]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    end.call(fail)
    end.call(lambda: times.append(end.now_s))
    end.call(over.set)
    await over.wait()
    assert [type(error["exception"]) for error in errors] == [KeyError]
    assert times[0] < end.now_s
