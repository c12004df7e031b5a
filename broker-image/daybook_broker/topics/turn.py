"""What all topics of a broker do at the end of a turn of the event loop: one callback of the loop for all of them.

With a thousand topics each turn brings an entry or two to each of a few topics. A callback of the loop for each would cost as much as the
topic's own part of the work.
"""

import asyncio
from collections.abc import Callable

from daybook.runtime.clock import monotonic_s


class TurnEnd:
    """The calls that are due. One for a broker."""

    def __init__(self) -> None:
        """Nothing is due."""
        self._due: list[Callable[[], None]] = []
        self._began_s: float | None = None
        """When the calls that run now began."""

    @property
    def now_s(self) -> float:
        """The time, as `monotonic_s`; for what is called at the end of a turn, when its calls began: a clock for each costs too much."""
        began_s = self._began_s
        return monotonic_s() if began_s is None else began_s

    def call(self, what: Callable[[], None]) -> None:
        """Call `what` in the next turn, after all that was asked for before."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._run)
        self._due.append(what)

    def _run(self) -> None:
        due, self._due = self._due, []
        self._began_s = monotonic_s()
        try:
            for what in due:
                _call(what)
        finally:
            self._began_s = None


def _call(what: Callable[[], None]) -> None:
    try:
        what()
    except Exception as raised:  # noqa: BLE001 - an error of one topic must not keep the others waiting
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"{what!r} failed at the end of a turn", "exception": raised}
        )
