"""Conditions of a status: what is true, since when, why, and what a person can do about it.

`lastTransitionTime` changes only with the condition's status. A condition that says that something is wrong cannot be
made without the next step.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from daybook_operator.plan.effects import EventType, Ref, Report

MESSAGE_CHARACTERS_MAX: Final = 32_768
"""What metav1.Condition allows."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition; `status` None is Unknown. Make it by `fine`, `wrong` or `unknown`."""

    type: str
    status: bool | None
    reason: str
    message: str
    is_wrong: bool

    @property
    def word(self) -> str:
        """The status as Kubernetes spells it."""
        return "Unknown" if self.status is None else str(self.status)


def fine(type_: str, reason: str, message: str = "", *, status: bool = True) -> Condition:
    """Nothing is wrong; `status` False is for conditions whose good state is False, like Paused."""
    return Condition(type_, status, reason, _cut(message), is_wrong=False)


def wrong(type_: str, reason: str, message: str, *, next_step: str, status: bool = False) -> Condition:
    """Something is wrong, or not done yet; `next_step` says what a person can do, or that no action is needed."""
    return Condition(type_, status, reason, _cut(_sentences(message, next_step)), is_wrong=True)


def unknown(type_: str, reason: str, message: str, *, next_step: str) -> Condition:
    """It is not known now."""
    return Condition(type_, None, reason, _cut(_sentences(message, next_step)), is_wrong=True)


def merge(
    current: Sequence[Mapping[str, Any]], wanted: Iterable[Condition], *, generation: int, now_ms: int
) -> list[dict[str, Any]]:
    """`wanted` as the status has them, by type. A condition whose status is the same as in `current` keeps its time."""
    before = {condition["type"]: condition for condition in current}
    merged = []
    for condition in sorted(wanted, key=lambda each: each.type):
        old = before.get(condition.type, {})
        same = old.get("status") == condition.word
        merged.append(
            {
                "type": condition.type,
                "status": condition.word,
                "reason": condition.reason,
                "message": condition.message,
                "observedGeneration": generation,
                "lastTransitionTime": old["lastTransitionTime"] if same else iso(now_ms),
            }
        )
    assert len({each["type"] for each in merged}) == len(merged), "each condition is given once"
    return merged


def reports(
    ref: Ref, current: Sequence[Mapping[str, Any]], wanted: Iterable[Condition]
) -> tuple[Report, ...]:
    """An event for each condition whose status or reason changes; none for a new one that is not wrong."""
    before = {condition["type"]: (condition["status"], condition["reason"]) for condition in current}
    news = []
    for condition in sorted(wanted, key=lambda each: each.type):
        old = before.get(condition.type)
        if old == (condition.word, condition.reason) or (old is None and not condition.is_wrong):
            continue
        kind = EventType.WARNING if condition.is_wrong else EventType.NORMAL
        text = condition.message or condition.reason
        news.append(Report(ref, kind, condition.reason, f"{condition.type} is {condition.word}: {text}"))
    return tuple(news)


def find(conditions: Sequence[Mapping[str, Any]], type_: str) -> Mapping[str, Any] | None:
    """The condition of this type, if the status has it."""
    return next((each for each in conditions if each["type"] == type_), None)


def iso(at_ms: int) -> str:
    """Wall-clock milliseconds as Kubernetes writes a time: whole seconds, UTC."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_iso(text: str) -> int:
    """The inverse of `iso`, and of the API server's own times. Raises ValueError."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _sentences(message: str, next_step: str) -> str:
    assert message, "a condition that is wrong says what is wrong"
    assert next_step, "and what to do next"
    return f"{message.rstrip('.')}. {next_step}"


def _cut(text: str) -> str:
    return text if len(text) <= MESSAGE_CHARACTERS_MAX else f"{text[: MESSAGE_CHARACTERS_MAX - 1]}…"
