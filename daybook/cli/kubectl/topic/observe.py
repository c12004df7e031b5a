"""What `kubectl daybook topic` knows: Topic resources, pools and pods from the API server, and what brokers answer by their pods' proxy."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from daybook.cli.kubectl.api import Api, ApiError, Object
from daybook.cli.kubectl.topic.pods import PodAdmin, broker_of, broker_problem
from daybook.cli.kubectl.world import bookies_of, is_stale, place, status_of, title
from daybook.cli.topic.explain.asking import ask_brokers
from daybook.cli.topic.explain.facts import Resource, Snapshot
from daybook.client.broker_admin import AdminError
from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.lookup import BundleOwner
from daybook.metadata.partitions import partition_of

WRONG: Final[Mapping[str, tuple[str, ...]]] = {
    "Ready": ("False", "Unknown"),
    "BacklogHealthy": ("False",),
    "ResourceConflict": ("True",),
    "Unsupported": ("True",),
    "JobsHealthy": ("False",),
    "PoolDraining": ("DrainHeldUp",),
}
"""The conditions of Topics, with which status or reason each is wrong: a drain that makes progress is not."""


def topic_of(resource: Object) -> str:
    """The whole name of the topic that a Topic resource is about."""
    spec = resource["spec"]
    tenant, namespace = spec.get("tenant", "public"), spec.get("topicNamespace", "default")
    return str(TopicName(tenant, namespace, spec.get("topicName") or place(resource)[1]))


def names(resource: Object, name: TopicName) -> bool:
    """Whether a Topic resource is about a topic, or about the partitioned topic that it is a partition of."""
    whole = partition_of(name)
    return topic_of(resource) in {str(name), "" if whole is None else str(whole[0])}


def facts_of(resource: Object) -> Resource:
    """A Topic resource as `explain` judges it."""
    problems = [
        f"{title(resource)}: {each['type']} is {each['status']} ({each['reason']}): {each.get('message', '')}".rstrip(
            ": "
        )
        for each in status_of(resource).get("conditions", ())
        if not {each["status"], each["reason"]}.isdisjoint(WRONG.get(each["type"], ()))
    ]
    if is_stale(resource) or not status_of(resource):
        problems.append(f"{title(resource)}: the operator has not reconciled its last change yet")
    namespace, name = place(resource)
    is_managing = bool(resource["spec"].get("managed", True))
    return Resource(namespace, name, resource["metadata"]["uid"], tuple(problems), is_managing)


def owner_of(admin: PodAdmin, name: TopicName) -> str | None:
    """The id of the broker that has the lease of the topic's bundle; None: no broker has it. Nobody takes it for that. Raises AdminError."""
    bundle = Bundle.of(name)
    path = f"/admin/v2/namespaces/{quote(name.tenant, safe='')}/{quote(name.namespace, safe='')}/owners"
    found: str | None = admin.ask_any("GET", path).get(bundle.range)
    return found


def observe(
    api: Api, namespace: str, pods: Iterable[Object], admin: PodAdmin, name: TopicName, now_ms: int
) -> Snapshot:
    """Read a topic whose brokers are in a namespace. Raises AdminError if it does not exist, ApiError if the API server does not answer."""
    asked = ask_brokers(admin, name, now_ms)
    unread = dict(asked.unread)
    found: dict[str, Any] = {"brokers": {broker_of(pod): broker_problem(pod) for pod in pods}}
    try:
        owner = owner_of(admin, name)
        found["owner"] = None if owner is None else BundleOwner(owner)
    except AdminError as error:
        unread["owner"] = str(error)
    try:
        resources, why = _listed(api, "Topic", namespace)
        found["resources"] = [facts_of(each) for each in resources if names(each, name)]
        if why and asked.manager is not None and asked.manager.namespace != namespace:
            unread["resource"] = f"{asked.manager} manages it, and cannot be read: {why}"
    except ApiError as error:
        unread["resource"] = str(error)
    try:
        found["bookies"] = {
            bookie["id"]: bookie.get("state") == "Writable"
            for pool in _listed(api, "BookiePool", namespace)[0]
            for bookie in bookies_of(pool)
        }
    except ApiError as error:
        unread["ensemble"] = str(error)
    return _of_known_pools(replace(asked, **found, unread=unread))


def _listed(api: Api, kind: str, namespace: str) -> tuple[list[Object], str]:
    """The objects of all namespaces; of one, and the reason, for a person who may not read more. Raises ApiError."""
    try:
        return api.listing(kind), ""
    except ApiError as error:
        return api.listing(kind, namespace), str(error)


def _of_known_pools(found: Snapshot) -> Snapshot:
    """The snapshot without bookies if the topic's are none of a pool: then the pools that there are say nothing about the topic."""
    written = None if found.report is None else found.report.open_ledger
    foreign = [each for each in (written.ensemble if written else ()) if each not in (found.bookies or {})]
    if not foreign or found.bookies is None:
        return found
    why = f"no BookiePool has {', '.join(foreign)}, so nothing is known of the bookies"
    return replace(found, bookies=None, unread={**found.unread, "ensemble": why})
