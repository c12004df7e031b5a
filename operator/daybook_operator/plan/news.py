"""Whether an event about a Topic concerns its plan, or says only what the operator itself has just written.

A plan depends on its resource by `PlanFacts`, by the name, which never changes, and by the status, which the operator alone writes. So a
status that changes is no news, and neither is the claim (`stored.claim`) that the last reconcile made. Whatever else changes is news, also a claim that a person undoes. What no event reports, such as a status that a person
edits, a resync finds, at most `resync_ms` later.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from daybook_operator.plan.finalizers import has_finalizer
from daybook_operator.plan.names import CLUSTER_ANNOTATION, GROUP


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What a plan may depend on: the API server counts `generation` with each change of the spec.

    `annotations` are Daybook's own, without the one that names the cluster, which is `cluster`; "" without one.
    """

    uid: str
    generation: int
    deleted_at: str
    annotations: frozenset[tuple[str, str]]
    cluster: str
    is_finalized: bool


def facts_of(manifest: Mapping[str, Any]) -> PlanFacts:
    """The facts of a resource as the API server has it."""
    meta = manifest["metadata"]
    annotations = {
        name: text for name, text in (meta.get("annotations") or {}).items() if name.startswith(f"{GROUP}/")
    }
    cluster = annotations.pop(CLUSTER_ANNOTATION, "")
    return PlanFacts(
        meta.get("uid") or "",
        meta.get("generation") or 0,
        meta.get("deletionTimestamp") or "",
        frozenset(annotations.items()),
        cluster,
        has_finalizer(manifest),
    )


def is_news(before: PlanFacts | None, after: PlanFacts, claimed_for: str) -> bool:
    """Whether the plan has to be made again. `claimed_for`: the cluster for which the last reconcile claims the resource, "" for none."""
    if before is None:
        return True
    if after == before:
        return False
    is_claimed = (
        bool(claimed_for) and after.cluster == claimed_for and after.is_finalized >= before.is_finalized
    )
    if not is_claimed or after.deleted_at:
        return True
    return replace(before, cluster=after.cluster, is_finalized=after.is_finalized) != after
