"""When a finalizer must be removed: where none is used, and from a namespace that terminates after a bound.

A finalizer delays the deletion of a resource until it is done in ZooKeeper as well. Where that is impossible, because
ZooKeeper or the bookies stop with the same namespace, a namespace that never terminates is worse than what is left
behind; an event names what is. An operator that uses no finalizers releases also what one holds from before, without
asking ZooKeeper, which may be gone.
"""

from dataclasses import dataclass

from daybook_operator.plan.conditions import from_iso
from daybook_operator.plan.effects import Manifest
from daybook_operator.plan.names import FINALIZER


@dataclass(frozen=True, slots=True)
class FinalizerRules:
    """`used`: the operator puts finalizers on resources. `bound_ms`: how long one may hold a terminating namespace."""

    used: bool = True
    bound_ms: int = 60_000

    def why_released(self, undone: str) -> str:
        """Why a finalizer goes before its work is done, as part of a sentence; `undone` is what could not be done in time."""
        if not self.used:
            return "operator.finalizers is false, by which no reclaimPolicy is carried out"
        return f"the namespace terminates and {undone} within {self.bound_ms / 1000:g} s"


def has_finalizer(manifest: Manifest) -> bool:
    """Whether the operator's finalizer is on the object."""
    return FINALIZER in (manifest["metadata"].get("finalizers") or ())


def held_for_ms(manifest: Manifest, now_ms: int) -> int:
    """For how long the object has been waiting for its finalizers."""
    deleted_at = manifest["metadata"].get("deletionTimestamp")
    return 0 if deleted_at is None else max(0, now_ms - from_iso(deleted_at))


def must_release(
    manifest: Manifest, *, namespace_is_terminating: bool, rules: FinalizerRules, now_ms: int
) -> bool:
    """Whether the finalizer must be removed now, whatever is left behind."""
    if not rules.used:
        return True
    return namespace_is_terminating and held_for_ms(manifest, now_ms) >= rules.bound_ms


def must_release_after_s(manifest: Manifest, rules: FinalizerRules, now_ms: int) -> float:
    """After how many seconds `must_release` may become true."""
    return max(0.5, (rules.bound_ms - held_for_ms(manifest, now_ms)) / 1000)
