"""CPU of a loop's thread for what it does turn by turn."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from daybook.runtime.garbage import collect_rarely

T = TypeVar("T")


async def us_for_each(
    things: Sequence[T], in_turn: int, entries: int, work: Callable[[Sequence[T]], Awaitable[None]]
) -> float:
    """µs of CPU for an entry: `work` has one of each of `in_turn` things at a time, round and round until there were `entries`."""
    collect_rarely()
    parts = [things[at : at + in_turn] for at in range(0, len(things) - in_turn, in_turn)]
    done = 0
    began = time.process_time()
    while done < entries:
        for part in parts:
            await work(part)
            done += len(part)
    return (time.process_time() - began) / done * 1e6
