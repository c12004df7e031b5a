"""One change of a node at a time, which is judged where its answer was lost, or said that the version is another one (rule 38, rule 46).

The judge is a `sync` and a read. What it finds says what became of the change: the target is there, and was applied; or the expected
version is there, and the change is tried again, which also overtakes a first attempt that is still on its way; or the topic is another
owner's. A version that has moved on rules out that an attempt is applied later. What the target is, and whose the topic is, its
owners know: the list of a topic (list_update) and the node of a cursor (cursor_node).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from daybook.core.machine import RequestIds


class Outcome(Enum):
    """What became of a change."""

    PENDING = "nobody knows yet"
    DONE = "the target is stored"
    SUPERSEDED = "the topic is another owner's"


class _Phase(Enum):
    IDLE = "nothing is asked"
    PROPOSED = "a write is under way"
    JUDGED = "its outcome is being read"


TRANSITIONS: Final[Mapping[tuple[_Phase, _Phase], str]] = {
    (_Phase.IDLE, _Phase.PROPOSED): "the owner makes a change",
    (_Phase.PROPOSED, _Phase.IDLE): "it is done",
    (_Phase.PROPOSED, _Phase.JUDGED): "it met another version, or has no answer",
    (_Phase.JUDGED, _Phase.PROPOSED): "the topic is still ours, and the expected version is there: once more",
    (_Phase.JUDGED, _Phase.IDLE): "the target is there, or the topic is another owner's",
}


class JudgedChange:
    """Where a change is, and the one request that is under way for it."""

    __slots__ = ("_ids", "_phase", "_request_id")

    def __init__(self, ids: RequestIds) -> None:
        self._ids = ids
        self._phase = _Phase.IDLE
        self._request_id = 0

    @property
    def is_pending(self) -> bool:
        """Whether a change was sent whose outcome is not known."""
        return self._phase is not _Phase.IDLE

    def write(self) -> int:
        """The change is sent, for the first time or once more; the id of the request."""
        self._go_to(_Phase.PROPOSED)
        return self._ask()

    def is_written(self, request_id: int) -> bool:
        """Whether `request_id` is that of the write that is under way."""
        return self._phase is _Phase.PROPOSED and request_id == self._request_id

    def doubt(self) -> None:
        """The answer to the write does not settle what became of it."""
        self._go_to(_Phase.JUDGED)

    def read(self) -> int:
        """The outcome is read, for the first time or once more; the id of the request."""
        assert self._phase is _Phase.JUDGED
        return self._ask()

    def is_answer(self, request_id: int) -> bool:
        """Whether `request_id` is that of the read that judges the change."""
        return self._phase is _Phase.JUDGED and request_id == self._request_id

    def drop_read(self) -> None:
        """The read had no answer: one that comes late is dropped."""
        self._request_id = 0

    def settle(self) -> None:
        """The outcome is known."""
        self._go_to(_Phase.IDLE)

    def _ask(self) -> int:
        self._request_id = self._ids.next()
        return self._request_id

    def _go_to(self, phase: _Phase) -> None:
        assert (self._phase, phase) in TRANSITIONS, f"{phase} while {self._phase}: one change at a time"
        self._phase = phase
