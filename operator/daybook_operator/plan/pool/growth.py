"""Volumes grow whatever the pool's health: a full disk must not forbid its own remedy.

The claims grow first. The StatefulSet's templates are immutable, so it is deleted without its pods and made anew with
the new size; the pods and claims stay, and the new one adopts them by their labels.
"""

from dataclasses import dataclass
from typing import Final

from daybook_operator.plan.conditions import Condition, fine, wrong
from daybook_operator.plan.decision import Step
from daybook_operator.plan.effects import Apply, Effect, Propagation, Ref, Remove
from daybook_operator.plan.pool.observed import ObservedClaim, ObservedPool
from daybook_operator.plan.quantities import bytes_of, in_words

STORAGE_RESIZING: Final = "StorageResizing"
RECREATE_S: Final = 1.0
"""After how long to see whether the old StatefulSet is gone; its deletion is an event, too."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The step, its condition, how many volumes still grow, and what the StatefulSet's immutable templates ask for.

    `outgrown`: the templates are of another size than the spec's, so the StatefulSet cannot be applied. `recreates`: it
    is deleted now, without its pods; otherwise it stays as it is until its pods have stopped.
    """

    step: Step
    condition: Condition
    growing: int
    outgrown: bool
    recreates: bool


def growth_step(pool: ObservedPool, *, may_recreate: bool = True) -> Growth:
    """Raise the claims that are smaller than the spec says. `may_recreate`: a StatefulSet can be made now."""
    effects: list[Effect] = []
    growing: list[ObservedClaim] = []
    fixed: list[ObservedClaim] = []
    for _, claim in sorted(pool.claims.items()):
        volume = pool.spec.storage.volumes.get(claim.role)
        if volume is None or claim.terminating or not pool.spec.storage.resize_in_use_volumes:
            continue
        if claim.requested_bytes < volume.size_bytes:
            if pool.expandable.get(claim.storage_class) is False:
                fixed.append(claim)
                continue
            effects.append(_grown(pool, claim, volume.size))
            growing.append(claim)
        elif 0 < claim.capacity_bytes < volume.size_bytes:
            growing.append(claim)
    outgrown = _has_old_templates(pool)
    is_halfway = pool.is_stopping and not pool.is_stopped  # pods that stop need a StatefulSet that says so
    recreates = may_recreate and outgrown and not is_halfway
    if recreates:
        assert pool.stateful_set is not None
        ref = Ref("apps/v1", "StatefulSet", pool.namespace, pool.name, pool.stateful_set.uid)
        effects.append(Remove(ref, Propagation.ORPHAN))
    condition = _condition(growing, fixed)
    requeue_s = RECREATE_S if recreates else None
    return Growth(Step(tuple(effects), requeue_s), condition, len(growing), outgrown, recreates)


def _grown(pool: ObservedPool, claim: ObservedClaim, size: str) -> Effect:
    return Apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim.name, "namespace": pool.namespace, "uid": claim.uid},
            "spec": {"resources": {"requests": {"storage": size}}},
        }
    )


def _has_old_templates(pool: ObservedPool) -> bool:
    found = pool.stateful_set
    if found is None or found.terminating:
        return False
    templates = found.manifest.get("spec", {}).get("volumeClaimTemplates", ())
    sizes = {
        template["metadata"]["name"]: bytes_of(template["spec"]["resources"]["requests"]["storage"])
        for template in templates
    }
    return bool(sizes) and sizes != {
        role: volume.size_bytes for role, volume in pool.spec.storage.volumes.items()
    }


def _condition(growing: list[ObservedClaim], fixed: list[ObservedClaim]) -> Condition:
    if fixed:
        names = ", ".join(claim.name for claim in fixed)
        return wrong(
            STORAGE_RESIZING,
            "NotExpandable",
            f"Storage class {fixed[0].storage_class!r} does not let the volumes of {names} grow",
            next_step=f"Set allowVolumeExpansion: true on it (`kubectl patch storageclass {fixed[0].storage_class} -p "
            "'{\"allowVolumeExpansion\":true}'`), or add bookies instead.",
        )
    if growing:
        waits = [claim.name for claim in growing if claim.waits_for_restart]
        names = ", ".join(f"{claim.name} ({in_words(claim.capacity_bytes)})" for claim in growing)
        said = "; ".join(f"{claim.name}: {claim.resizing}" for claim in growing if claim.resizing)
        hint = (
            f"If {waits[0]} stays so for minutes, its driver grows volumes only at a start: delete its pod once "
            "FullyReplicated is True."
            if waits
            else "No action is needed: the volumes' driver continues."
        )
        return wrong(
            STORAGE_RESIZING,
            "Growing",
            f"{names} still grow{'s' if len(growing) == 1 else ''}{f'; {said}' if said else ''}",
            next_step=hint,
            status=True,
        )
    return fine(STORAGE_RESIZING, "SizesAsWanted", status=False)
