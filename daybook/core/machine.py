"""What all machines of the core have in common: their contract, and two parts that most of them need.

The package's docstring (daybook/core/__init__.py) shows the contract at work, in the loop of a driver.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

EventT_contra = TypeVar("EventT_contra", contravariant=True)
EffectT_co = TypeVar("EffectT_co", covariant=True)


class Machine(Protocol[EventT_contra, EffectT_co]):
    """A state machine: events in, effects out, until it is done.

    `EventT_contra` is the union of the events that the machine takes, `EffectT_co` that of the effects it gives. `step`
    raises AssertionError for any other event.
    """

    @property
    def is_done(self) -> bool:
        """Whether the machine asks for nothing more, but for deletions. Its last effect, or an attribute of its own, says what came of it."""

    def start(self) -> Sequence[EffectT_co]:
        """The first effects, in order. Called once, before any `step`."""

    def step(self, event: EventT_contra) -> Sequence[EffectT_co]:
        """Take an event; the effects that follow from it, in order. A machine that is done only answers its user."""


class RequestIds:
    """The ids of one machine's requests: 1, 2, 3, …; no request has the id 0.

    A machine shares one source with all its parts, and with a machine that takes its place, so that an answer is never taken for another request's (rule 18).
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """An id that no earlier request has."""
        self._last += 1
        return self._last


class RetryTimer:
    """When a machine asks again: `pause_ms` after `start`, once. It knows no clock; time is an argument."""

    __slots__ = ("_due_ms", "_pause_ms")

    def __init__(self, pause_ms: int) -> None:
        self._pause_ms = pause_ms
        self._due_ms: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether the pause is not over yet."""
        return self._due_ms is not None

    def start(self, now_ms: int) -> None:
        """Begin the pause, anew if it runs already."""
        self._due_ms = now_ms + self._pause_ms

    def stop(self) -> None:
        """Ask no more."""
        self._due_ms = None

    def fires(self, now_ms: int) -> bool:
        """Whether the pause is over. True once for each `start`."""
        if self._due_ms is None or now_ms < self._due_ms:
            return False
        self._due_ms = None
        return True
