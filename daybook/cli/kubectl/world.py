"""What the API server knows of Daybook at one moment, and how its objects hang together. Nothing here asks anybody."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from daybook.cli.kubectl.api import Object

POOL_LABEL: Final = "daybook.dev/pool"
PAUSE: Final = "daybook.dev/pause"
OURS: Final = "app.kubernetes.io/name=daybook"
COMPONENT: Final = "app.kubernetes.io/component"

WANTED: Final[Mapping[str, str]] = {
    "Ready": "True",
    "FullyReplicated": "True",
    "RackPlacementSatisfied": "True",
    "RackDiverse": "True",
    "DiskPressure": "False",
    "ClusterSettingsAccepted": "True",
    "RecoveryBlocked": "False",
    "RetentionHealthy": "True",
    "AuditHealthy": "True",
}
"""Conditions of pools and ledgers that are wrong with any other status, unless the reason is one of `AS_ASKED`."""
AS_ASKED: Final = ("Hibernated",)
TROUBLES: Final = (
    "Blocked",
    "LedgersUnreadable",
    "NotExpandable",
    "ProgressDeadlineExceeded",
    "Refused",
    "SealFailed",
    "StepFailed",
    "TooFewBookies",
    "ZooKeeperUnreachable",
)
"""Reasons that make any other condition wrong: Progressing, Draining, Sealed … otherwise only describe progress."""


@dataclass(frozen=True, slots=True)
class World:
    """Objects as the API server lists them. `unread`: kinds that could not be listed, and why."""

    pools: Sequence[Object] = ()
    ledgers: Sequence[Object] = ()
    pods: Sequence[Object] = ()
    claims: Sequence[Object] = ()
    nodes: Sequence[Object] = ()
    jobs: Sequence[Object] = ()
    events: Sequence[Object] = ()
    unread: Mapping[str, str] = field(default_factory=dict)

    def pod(self, namespace: str, name: str) -> Object | None:
        """The pod, if it exists."""
        return _find(self.pods, namespace, name)

    def claim(self, namespace: str, name: str) -> Object | None:
        """The volume claim, if it exists."""
        return _find(self.claims, namespace, name)

    def node(self, name: str) -> Object | None:
        """The node, if it exists."""
        return _find(self.nodes, "", name)

    def component(self, name: str) -> list[Object]:
        """The pods of the operator, or of ZooKeeper."""
        return [pod for pod in self.pods if labels_of(pod).get(COMPONENT) == name]

    def ledgers_of(self, pool: Object) -> list[Object]:
        """The Ledger resources that the pool stores."""
        namespace, name = place(pool)
        return [
            ledger
            for ledger in self.ledgers
            if place(ledger)[0] == namespace and ledger["spec"]["poolRef"]["name"] == name
        ]

    def jobs_of(self, pool: Object) -> list[Object]:
        """The recovery Jobs of the pool that have not ended."""
        uid = pool["metadata"].get("uid")
        return [
            job
            for job in self.jobs
            if any(owner.get("uid") == uid for owner in job["metadata"].get("ownerReferences", ()))
            and not has_ended(job)
        ]

    def events_of(self, thing: Object) -> list[str]:
        """The warnings about an object, the last one first."""
        namespace, name = place(thing)
        found = [
            event
            for event in self.events
            if event.get("type") == "Warning"
            and event["involvedObject"].get("kind") == thing["kind"]
            and event["involvedObject"].get("name") == name
            and event["involvedObject"].get("namespace", "") == namespace
        ]
        found.sort(key=_last_seen, reverse=True)
        return [f"{event.get('reason', '')}: {event.get('message', '')}".strip() for event in found]


def observe(listing: Callable[..., Iterable[Object]], namespace: str) -> World:
    """Read everything by `listing(kind, namespace, labels)`; pools and ledgers must be readable, the rest may not be."""
    from daybook.cli.kubectl.api import ApiError

    unread: dict[str, str] = {}

    def optional(kind: str, where: str, labels: str = "") -> list[Object]:
        try:
            return list(listing(kind, where, labels))
        except ApiError as error:
            unread[kind] = str(error)
            return []

    def pods() -> list[Object]:
        """Of all namespaces, since the operator has one of its own; of one, where more is not allowed."""
        found = optional("Pod", "", OURS)
        return optional("Pod", namespace, OURS) if namespace and "Pod" in unread else found

    return World(
        pools=list(listing("BookiePool", namespace, "")),
        ledgers=list(listing("Ledger", namespace, "")),
        pods=pods(),
        claims=optional("PersistentVolumeClaim", namespace, OURS),
        nodes=optional("Node", ""),
        jobs=optional("Job", namespace, OURS),
        events=optional("Event", namespace),
        unread=unread,
    )


def place(thing: Object) -> tuple[str, str]:
    """Namespace and name."""
    return thing["metadata"].get("namespace", ""), thing["metadata"]["name"]


def title(thing: Object) -> str:
    """`BookiePool data/bk`."""
    namespace, name = place(thing)
    return f"{thing['kind']} {namespace}/{name}" if namespace else f"{thing['kind']} {name}"


def labels_of(thing: Object) -> dict[str, str]:
    """Its labels."""
    return thing["metadata"].get("labels") or {}


def status_of(thing: Object) -> dict[str, Any]:
    """Its status; empty before anybody wrote one."""
    return thing.get("status") or {}


def condition(thing: Object, kind: str) -> dict[str, str]:
    """A condition of its status; without one, Unknown."""
    for each in status_of(thing).get("conditions", ()):
        if each["type"] == kind:
            found: dict[str, str] = each
            return found
    return {"type": kind, "status": "Unknown", "reason": "NotReported", "message": ""}


def wrong_conditions(thing: Object) -> list[dict[str, str]]:
    """The conditions that are reported and are not as they should be."""
    return [each for each in status_of(thing).get("conditions", ()) if _is_wrong(each)]


def _is_wrong(each: Mapping[str, str]) -> bool:
    wanted = WANTED.get(each["type"])
    if wanted is None:
        return each["reason"] in TROUBLES
    return each["status"] != wanted and each["reason"] not in AS_ASKED


def is_stale(thing: Object) -> bool:
    """Whether the operator has not reconciled the last change yet."""
    seen = status_of(thing).get("observedGeneration", 0)
    return bool(seen < thing["metadata"].get("generation", 0))


def is_paused(thing: Object) -> bool:
    """Whether the object is paused."""
    return (thing["metadata"].get("annotations") or {}).get(PAUSE) == "true"


def bookies_of(pool: Object) -> list[dict[str, Any]]:
    """The pool's bookies by ordinal, as its status has them."""
    return sorted(status_of(pool).get("bookies", ()), key=lambda bookie: bookie.get("ordinal", 0))


def rack_of(bookie: Mapping[str, Any]) -> str:
    """`zone/rack`, or what is known of it."""
    return "/".join(part for part in (bookie.get("zone"), bookie.get("rack")) if part) or "unknown"


def is_ready(pod: Object) -> bool:
    """Whether its containers are."""
    return any(
        each["type"] == "Ready" and each["status"] == "True" for each in status_of(pod).get("conditions", ())
    )


def has_ended(job: Object) -> bool:
    """Whether a Job is complete or has failed."""
    return any(
        each["type"] in ("Complete", "Failed") and each["status"] == "True"
        for each in status_of(job).get("conditions", ())
    )


def _find(things: Iterable[Object], namespace: str, name: str) -> Object | None:
    return next((thing for thing in things if place(thing) == (namespace, name)), None)


def _last_seen(event: Object) -> str:
    series = event.get("series") or {}
    seen = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(seen or event["metadata"].get("creationTimestamp", ""))
