"""Kubernetes' own objects as plain values: pods, claims, the StatefulSet."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from daybook_operator.plan.names import OWNER_ANNOTATION, RACK_LABEL
from daybook_operator.plan.pods import BOOKIE
from daybook_operator.plan.pool.observed import ROLES, ObservedClaim, ObservedPod, ObservedStatefulSet
from daybook_operator.plan.quantities import bytes_of

_REVISION: Final = "controller-revision-hash"
_FINISHED: Final = {"Succeeded", "Failed"}


def ordinal_in(name: str, prefix: str) -> int | None:
    """The ordinal in `<prefix><ordinal>`, or None."""
    rest = name.removeprefix(prefix)
    return int(rest) if rest != name and rest.isdecimal() and str(int(rest)) == rest else None


def observed_pods(pods: Iterable[Mapping[str, Any]], pool: str) -> dict[int, ObservedPod]:
    """By ordinal; pods with other names are left out."""
    found: dict[int, ObservedPod] = {}
    for pod in pods:
        ordinal = ordinal_in(pod["metadata"]["name"], f"{pool}-")
        if ordinal is not None:
            found[ordinal] = observed_pod(pod, ordinal)
    return found


def observed_pod(pod: Mapping[str, Any], ordinal: int = -1) -> ObservedPod:
    """One pod; the ordinal is −1 for a pod of another pool."""
    meta, status = pod["metadata"], pod.get("status", {})
    labels = meta.get("labels") or {}
    statuses: list[Mapping[str, Any]] = status.get("containerStatuses") or []
    container: Mapping[str, Any] = next((each for each in statuses if each["name"] == BOOKIE), {})
    state = container.get("state") or {}
    ended = state.get("terminated") or (
        "running" not in state and (container.get("lastState") or {}).get("terminated")
    )
    conditions = _conditions(pod)
    images = [c["image"] for c in pod["spec"]["containers"] if c["name"] == BOOKIE]
    return ObservedPod(
        name=meta["name"],
        ordinal=ordinal,
        uid=meta["uid"],
        node=pod["spec"].get("nodeName") or "",
        ready=conditions.get("Ready", {}).get("status") == "True" and status.get("phase") not in _FINISHED,
        terminating="deletionTimestamp" in meta,
        revision=labels.get(_REVISION, ""),
        image=images[0] if images else "",
        rack=labels.get(RACK_LABEL, ""),
        exit_code=ended["exitCode"] if ended else None,
        last_words=(ended.get("message") or "").strip() if ended else "",
        waits_for=waits_for(pod),
    )


def _conditions(pod: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {each["type"]: each for each in (pod.get("status") or {}).get("conditions") or ()}


def waits_for(pod: Mapping[str, Any]) -> str:
    """Why a pod of one container does not run yet, in Kubernetes' words; "" if nothing keeps it from running."""
    scheduled = _conditions(pod).get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return str(scheduled.get("message") or scheduled.get("reason") or "")
    containers = (pod.get("status") or {}).get("containerStatuses") or [{}]
    waiting = (containers[0].get("state") or {}).get("waiting") or {}
    if waiting.get("reason") == "ContainerCreating":
        return ""
    return ": ".join(text for key in ("reason", "message") if (text := waiting.get(key)))


def observed_claims(claims: Iterable[Mapping[str, Any]], pool: str) -> dict[str, ObservedClaim]:
    """By name: `<role>-<pool>-<ordinal>`."""
    found: dict[str, ObservedClaim] = {}
    for claim in claims:
        name = claim["metadata"]["name"]
        for role in ROLES:
            ordinal = ordinal_in(name, f"{role}-{pool}-")
            if ordinal is not None:
                found[name] = _claim(claim, role, ordinal)
    return found


def _claim(claim: Mapping[str, Any], role: str, ordinal: int) -> ObservedClaim:
    meta, spec, status = claim["metadata"], claim["spec"], claim.get("status", {})
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    waits = conditions.get("FileSystemResizePending", {}).get("status") == "True"
    said = [
        str(each.get("message") or kind) for kind, each in conditions.items() if each.get("status") == "True"
    ]
    return ObservedClaim(
        name=meta["name"],
        ordinal=ordinal,
        role=role,
        uid=meta["uid"],
        requested_bytes=bytes_of(spec["resources"]["requests"]["storage"]),
        capacity_bytes=bytes_of((status.get("capacity") or {}).get("storage", "0")),
        storage_class=spec.get("storageClassName") or "",
        waits_for_restart=waits,
        resizing="; ".join(said),
        terminating="deletionTimestamp" in meta,
        owner_uid=(meta.get("annotations") or {}).get(OWNER_ANNOTATION, ""),
    )


def observed_stateful_set(found: Mapping[str, Any] | None) -> ObservedStatefulSet | None:
    """The StatefulSet; its newest revision only once its controller has seen the last change."""
    if found is None:
        return None
    meta, spec, status = found["metadata"], found["spec"], found.get("status", {})
    is_current = status.get("observedGeneration", 0) >= meta.get("generation", 0)
    owners = [
        (template["metadata"].get("annotations") or {}).get(OWNER_ANNOTATION, "")
        for template in spec.get("volumeClaimTemplates") or ()
    ]
    return ObservedStatefulSet(
        uid=meta["uid"],
        replicas=spec.get("replicas", 1),
        update_revision=status.get("updateRevision", "") if is_current else "",
        terminating="deletionTimestamp" in meta,
        owner_uid=next(filter(None, owners), ""),
        manifest=found,
    )
