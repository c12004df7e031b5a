"""What a plan returns: effects in order, and when to reconcile again.

Effects are carried out one after the other, up to the first that fails. The status is the last of them, so that it never
reports something that was not done.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from daybook_operator.plan.conditions import Condition, fine, merge, reports, wrong
from daybook_operator.plan.effects import Effect, Manifest, Ref, SetStatus
from daybook_operator.plan.names import PAUSE

PAUSED: Final = "Paused"


@dataclass(frozen=True, slots=True)
class Decision:
    """`requeue_after_s`: reconcile again then, unless an event comes before; None: at the next event or resync."""

    effects: tuple[Effect, ...] = ()
    requeue_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What one part of a plan adds: its effects, and after how long the object must be reconciled again."""

    effects: tuple[Effect, ...] = ()
    requeue_after_s: float | None = None


def sooner(*times_s: float | None) -> float | None:
    """The smallest of the times that are given; None if there is none."""
    given = [time_s for time_s in times_s if time_s is not None]
    return min(given) if given else None


def is_paused(manifest: Manifest) -> bool:
    """Whether a person asked the operator to leave the object alone."""
    annotations = manifest["metadata"].get("annotations") or {}
    return bool(annotations.get(PAUSE) == "true")


def is_terminating(manifest: Manifest) -> bool:
    """Whether the object (or namespace) was deleted and waits for its finalizers."""
    return bool(manifest["metadata"].get("deletionTimestamp"))


def paused(ref: Ref, manifest: Manifest, now_ms: int) -> Decision:
    """The plan for a paused object, also for one that was deleted: the condition Paused, and the rest of its status as it is."""
    status = dict(manifest.get("status") or {})
    kept = [each for each in status.get("conditions", ()) if each["type"] != PAUSED]
    said = _held() if is_terminating(manifest) else _paused()
    before = status.get("conditions", ())
    generation = manifest["metadata"].get("generation", 0)
    status["conditions"] = sorted(
        [*kept, *merge(before, [said], generation=generation, now_ms=now_ms)], key=lambda each: each["type"]
    )
    return Decision((*reports(ref, before, [said]), *set_status(ref, manifest, status)))


def _paused() -> Condition:
    return fine(PAUSED, "PauseAnnotation", f"Remove the annotation {PAUSE} to resume.")


def _held() -> Condition:
    return wrong(
        PAUSED,
        "DeletionHeld",
        f"The object was deleted, and the annotation {PAUSE} holds what its deletion would do",
        next_step="Remove the annotation to have it deleted.",
        status=True,
    )


def not_paused() -> Condition:
    """The condition Paused of an object that is reconciled."""
    return fine(PAUSED, "Reconciling", status=False)


def finish(
    ref: Ref,
    manifest: Manifest,
    *,
    effects: Iterable[Effect],
    status: Mapping[str, Any],
    conditions: Iterable[Condition],
    now_ms: int,
    requeue_after_s: float | None = None,
    keep_others: bool = False,
) -> Decision:
    """The usual end of a plan: its effects, then events about conditions that change, then the status if it does.

    `status` is without conditions and observedGeneration, which are added here. With `keep_others`, conditions that are
    not given stay as they are: they may not be known now.
    """
    wanted = [*conditions, not_paused()]
    current = (manifest.get("status") or {}).get("conditions", ())
    generation = manifest["metadata"].get("generation", 0)
    merged = merge(current, wanted, generation=generation, now_ms=now_ms)
    if keep_others:
        said = {each["type"] for each in merged}
        merged = sorted(
            [*merged, *(each for each in current if each["type"] not in said)], key=lambda each: each["type"]
        )
    full = {**status, "observedGeneration": generation, "conditions": merged}
    events = reports(ref, current, wanted)
    return Decision((*effects, *events, *set_status(ref, manifest, full)), requeue_after_s)


def set_status(ref: Ref, manifest: Manifest, status: Mapping[str, Any]) -> tuple[Effect, ...]:
    """The effect that makes the status so; none if it is."""
    wanted = _without_none(status)
    return () if (manifest.get("status") or {}) == wanted else (SetStatus(ref, wanted),)


def _without_none(value: Any) -> Any:
    """The API server drops nulls, so what is compared with its answer must not have any."""
    if isinstance(value, Mapping):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_without_none(each) for each in value]
    return value
