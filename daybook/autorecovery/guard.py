"""Keeps a machine of a worker that may have lost its lock from changing anything (rule 34).

A worker that was paused beyond its session runs on with its next instruction, before anybody can notify it. So the
certain life of its lease is asked at the last moment, where a machine's decision to commit leaves the machine; what
was sent before that is harmless, because every commit is a compare-and-set against the version it started from.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic

from daybook.autorecovery.cluster import LeaseLostError
from daybook.core.effects import CasMetadata, ClearLimbo, EffectT, RepairFailed, SendFrame
from daybook.core.events import Event, FrameAcked
from daybook.core.machine import Machine


class Guarded(Generic[EffectT]):
    """`machine`, which ends with RepairFailed instead of committing without `may_commit`."""

    def __init__(
        self, machine: Machine[Any, EffectT], may_commit: Callable[[], bool], on_copied: Callable[[int], None]
    ) -> None:
        """`on_copied` is given the bytes of each frame that its target acknowledged."""
        self._machine = machine
        self._may_commit = may_commit
        self._on_copied = on_copied
        self._in_flight: dict[int, int] = {}
        self._ended = False

    @property
    def is_done(self) -> bool:
        """Whether the machine is done, or was stopped here."""
        return self._ended or self._machine.is_done

    def start(self) -> Sequence[EffectT | RepairFailed]:
        """The machine's first effects."""
        return self._checked(self._machine.start())

    def step(self, event: Event) -> Sequence[EffectT | RepairFailed]:
        """The machine's step."""
        if self._ended:
            return []
        if isinstance(event, FrameAcked) and event.send_id in self._in_flight:
            self._on_copied(self._in_flight.pop(event.send_id))
        return self._checked(self._machine.step(event))

    def _checked(self, effects: Sequence[EffectT]) -> Sequence[EffectT | RepairFailed]:
        for effect in effects:
            if isinstance(effect, SendFrame):
                self._in_flight[effect.send_id] = len(effect.frame)
        if any(isinstance(effect, CasMetadata | ClearLimbo) for effect in effects) and not self._may_commit():
            self._ended = True
            msg = "the lock may belong to another worker by now: nothing is committed without it"
            return [RepairFailed(LeaseLostError(msg))]
        return effects
