"""When a full audit is owed, and when the next one is to begin (rule 47). Pure, with time as an argument.

An audit is owed after a bookie came, and while a plan waits for one that began after a time of the wall clock. Each of
these causes one audit, which begins as soon as it can count: not before the time that it must begin after. A repeated
audit, and one that nothing waits for, keeps a pause, which bounds what audits cost.
"""

from dataclasses import dataclass
from typing import Final

_SHARE: Final = 10
"""Audits that nothing waits for take at most a tenth of the time; those that something waits for, half of it."""


@dataclass(frozen=True, slots=True)
class _Cause:
    """What the audit is owed for."""

    came_ms: int
    wanted_after_ms: int
    is_waited_for: bool


class AuditDebt:
    """Monotonic times unless a name says `wall`; all in ms."""

    def __init__(self, now_ms: int, pause_ms: int) -> None:
        """An audit is owed: what was before is not known. `pause_ms` is the shortest pause between two audits."""
        self.came_ms = now_ms
        """When a bookie last came or started anew."""
        self._pause_ms = pause_ms
        self._took_ms = 0
        self._clean: tuple[int, int] | None = None
        self._wanted_after_wall_ms = 0
        self._waited_for_wall_ms = 0
        self._asked_ms: int | None = None
        self._asked_for: _Cause | None = None

    @property
    def clean_since_wall_ms(self) -> int | None:
        """When the last full audit began that was clean; None if there was none since the last bookie came."""
        if self._clean is None or self._clean[0] <= self.came_ms:
            return None
        return self._clean[1]

    def came(self, now_ms: int) -> None:
        """A bookie came, or started anew."""
        self.came_ms = now_ms

    def want(self, after_wall_ms: int, *, is_waited_for: bool) -> bool:
        """A plan needs a clean audit that began after this; whether that is new. `is_waited_for`: something is blocked until then."""
        is_new = after_wall_ms > self._wanted_after_wall_ms
        self._wanted_after_wall_ms = max(self._wanted_after_wall_ms, after_wall_ms)
        if is_waited_for and after_wall_ms > self._waited_for_wall_ms:
            self._waited_for_wall_ms = after_wall_ms
            is_new = True
        return is_new

    def ended(self, *, began_ms: int, began_wall_ms: int, took_ms: int, is_clean: bool) -> None:
        """A full audit ended."""
        self._took_ms = took_ms
        if is_clean:
            self._clean = (began_ms, began_wall_ms)

    def due_ms(self, now_ms: int, wall_ms: int) -> int | None:
        """When to begin the next audit; None: none is owed."""
        clean_wall_ms = self.clean_since_wall_ms
        if clean_wall_ms is not None and clean_wall_ms > self._wanted_after_wall_ms:
            return None
        cause = self._cause()
        can_count_ms = max(self.came_ms + 1, now_ms + max(0, self._wanted_after_wall_ms + 1 - wall_ms))
        if self._asked_ms is None:
            return can_count_ms
        if cause.is_waited_for and cause != self._asked_for:
            return can_count_ms
        share = 1 if cause.is_waited_for else _SHARE
        return max(can_count_ms, self._asked_ms + max(self._pause_ms, share * self._took_ms))

    def asked(self, now_ms: int) -> None:
        """An audit begins now."""
        self._asked_ms, self._asked_for = now_ms, self._cause()

    def _cause(self) -> _Cause:
        return _Cause(
            self.came_ms,
            self._wanted_after_wall_ms,
            self._waited_for_wall_ms >= self._wanted_after_wall_ms > 0,
        )
