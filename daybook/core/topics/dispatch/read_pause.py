"""The pause after a read that failed: bookies that do not answer are not asked again at once."""

from daybook.core.machine import RequestIds
from daybook.core.topics.dispatch.events import DispatchEffect, StartTimer


class ReadPause:
    """A pause of `pause_ms`, which knows no clock: a timer is requested, and fires."""

    __slots__ = ("_ids", "_pause_ms", "_timer_id")

    def __init__(self, ids: RequestIds, pause_ms: int) -> None:
        self._ids = ids
        self._pause_ms = pause_ms
        self._timer_id = 0

    @property
    def is_on(self) -> bool:
        """Whether nothing is to be read now."""
        return self._timer_id != 0

    def begin(self, out: list[DispatchEffect]) -> None:
        """A read failed."""
        self._timer_id = self._ids.next()
        out.append(StartTimer(self._timer_id, self._pause_ms))

    def ends(self, timer_id: int) -> bool:
        """Whether this timer ends the pause."""
        if timer_id != self._timer_id:
            return False
        self._timer_id = 0
        return True
