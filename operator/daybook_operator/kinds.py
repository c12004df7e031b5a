"""The kinds that the operator reconciles, each one entry: a third resource is one more entry, and a CRD.

An entry says which watched objects concern the kind and how an event about one becomes keys of the queue, what
reconciles a key (observe, plan, perform), and which rights that takes; a test holds the rights against the chart's roles.
The pure plan of a kind is in `plan`, under the kind's name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from daybook_operator.kube.queue import BOOKIE_POOL, JOBS, LEDGER, RECOVERY, TOPIC, Key, Reconcile
from daybook_operator.kube.watches import WatchEvent
from daybook_operator.plan.names import POOL_LABEL
from daybook_operator.plan.news import is_news
from daybook_operator.reconcile.inventory import Inventory
from daybook_operator.reconcile.jobs import JobsReconciler
from daybook_operator.reconcile.ledger import LedgerReconciler
from daybook_operator.reconcile.pool import PoolReconciler
from daybook_operator.reconcile.recovery import RecoveryReconciler
from daybook_operator.reconcile.services import Services
from daybook_operator.reconcile.topic import TopicReconciler


class News(NamedTuple):
    """Whom an event concerns: the object `itself`; `others` that depend on it."""

    itself: bool = True
    others: bool = True


Route = Callable[[str, Inventory, WatchEvent, News], list[Key]]
"""(the kind, the inventory, the event, whom it concerns) → keys to reconcile."""


@dataclass(frozen=True, slots=True)
class ReconciledKind:
    """One kind of key.

    `routes`: by the kind of the watched object. `rights`: verbs by `group/resource`. `is_resource`: the keys are objects
    of a CRD of this name, which a resync lists; else they only go under the names of such objects.
    """

    name: str
    reconciler: Callable[[Services], Reconcile]
    routes: Mapping[str, Route]
    rights: Mapping[str, str]
    is_resource: bool = True


# Routes.


def _itself(kind: str, _: Inventory, event: WatchEvent, news: News) -> list[Key]:
    """The object, or the key that goes under its name."""
    return [Key(kind, event.namespace, event.name)] if news.itself else []


def _itself_at_news(kind: str, _: Inventory, event: WatchEvent, news: News) -> list[Key]:
    """As `_itself`, but not for a status that changed."""
    return [Key(kind, event.namespace, event.name)] if news.others else []


def _pool_of_spec(kind: str, _: Inventory, event: WatchEvent, news: News) -> list[Key]:
    """The pool that stores the object."""
    return [Key(kind, event.namespace, event.pool)] if news.others and event.pool else []


def _pool_of_label(kind: str, _: Inventory, event: WatchEvent, __: News) -> list[Key]:
    """The pool that an object says it belongs to."""
    pool = event.labels.get(POOL_LABEL)
    return [Key(kind, event.namespace, pool)] if pool else []


def _all_pools(_: str, inventory: Inventory, __: WatchEvent, news: News) -> list[Key]:
    """Nodes are updated all the time; only their labels, and that they are there, matter."""
    return inventory.pools() if news.others else []


def _of_pool(kind: str, inventory: Inventory, event: WatchEvent, news: News) -> list[Key]:
    """A pool writes its status at every step; what is stored in it, of which there may be thousands, waits for other news."""
    return inventory.stored_in(kind, event.namespace, event.name) if news.others else []


_OF_BOOKIES: Final = ("StatefulSet", "Pod", "PersistentVolumeClaim", "Job", "Service", "PodDisruptionBudget")
OWNED: Final = (*_OF_BOOKIES, "CronJob")
"""Kinds whose objects have the label of the pool that they belong to; no others of these kinds are watched."""

_READ: Final = "get list watch"
_MAKE: Final = "get list watch create patch delete"
_EVENTS: Final = {"/events": "get list create patch"}

KINDS: Final = (
    ReconciledKind(
        BOOKIE_POOL,
        lambda services: PoolReconciler(services).reconcile,
        {BOOKIE_POOL: _itself, "Node": _all_pools, **dict.fromkeys(_OF_BOOKIES, _pool_of_label)},
        {
            "daybook.dev/bookiepools": f"{_READ} patch",
            "daybook.dev/bookiepools/status": "patch",
            "daybook.dev/bookiepools/finalizers": "update",  # to own objects with blockOwnerDeletion
            "apps/statefulsets": _MAKE,
            "/services": _MAKE,
            "/serviceaccounts": _MAKE,
            "/pods": f"{_READ} patch delete",
            "/pods/eviction": "create",
            "/persistentvolumeclaims": f"{_READ} patch delete",
            "policy/poddisruptionbudgets": _MAKE,
            "/nodes": _READ,
            "/namespaces": "get",
            "storage.k8s.io/storageclasses": "get",
            **_EVENTS,
        },
    ),
    ReconciledKind(
        RECOVERY,
        lambda services: RecoveryReconciler(services).reconcile,
        {BOOKIE_POOL: _itself, "Job": _pool_of_label},
        {
            "daybook.dev/bookiepools": _READ,
            "batch/jobs": _MAKE,
            "/serviceaccounts": "create patch",
            "/pods": "list",  # why a Job does not start
            **_EVENTS,
        },
        is_resource=False,
    ),
    ReconciledKind(
        JOBS,
        lambda services: JobsReconciler(services).reconcile,
        {
            BOOKIE_POOL: _itself_at_news,
            TOPIC: _pool_of_spec,
            "CronJob": _pool_of_label,
            "Job": _pool_of_label,
        },
        {
            "daybook.dev/bookiepools": _READ,
            "daybook.dev/topics": _READ,
            "batch/cronjobs": _MAKE,
            "batch/jobs": _READ,
            "/pods": "list",  # what a driver said last
            **_EVENTS,
        },
        is_resource=False,
    ),
    ReconciledKind(
        LEDGER,
        lambda services: LedgerReconciler(services).reconcile,
        {LEDGER: _itself, BOOKIE_POOL: _of_pool},
        {
            "daybook.dev/ledgers": f"{_READ} patch",
            "daybook.dev/ledgers/status": "patch",
            "daybook.dev/bookiepools": _READ,
            "/secrets": "get",  # passwords, where the chart allows it
            "/namespaces": "get",
            **_EVENTS,
        },
    ),
    ReconciledKind(
        TOPIC,
        lambda services: TopicReconciler(services).reconcile,
        {TOPIC: _itself, BOOKIE_POOL: _of_pool},
        {
            "daybook.dev/topics": f"{_READ} patch",
            "daybook.dev/topics/status": "patch",
            "daybook.dev/bookiepools": _READ,
            "/namespaces": "get",
            **_EVENTS,
        },
    ),
)

RESOURCES: Final = tuple(kind.name for kind in KINDS if kind.is_resource)
"""The kinds that have a CRD."""
WATCHED: Final = tuple(dict.fromkeys(each for kind in KINDS for each in kind.routes))
"""The kinds of objects that are watched."""


# What others depend on, of an object of these kinds: an event that leaves it as it was is news for the object alone. "" is nothing.
_FACTS: Final[Mapping[str, Callable[[WatchEvent], object]]] = {
    BOOKIE_POOL: lambda event: event.version,
    TOPIC: lambda event: event.job_facts,
    "Node": lambda event: event.labels,
}


@dataclass(slots=True)
class Router:
    """Events → keys, on the operator's own loop. `inventory` is kept up to date about what is there.

    A listing may be older than an event that came while it was made. So what such an event was about is reconciled after the resync as
    any other object, but is not taken from the listing.
    """

    inventory: Inventory
    _seen: dict[Key, WatchEvent] = field(default_factory=dict)
    _since_listing: set[Key] = field(default_factory=set)

    def keys(self, event: WatchEvent) -> list[Key]:
        """What to reconcile because of this event."""
        object_ = Key(event.kind, event.namespace, event.name)
        self._since_listing.add(object_)
        news = self._news(object_, event)
        self.inventory.note(event.kind, event.namespace, event.name, event.pool, is_there=not event.deleted)
        if event.kind == BOOKIE_POOL:
            self.inventory.note_pool(object_, event.body)
        if news.itself:
            self.inventory.take_listed(object_)
        routes = [(kind.name, kind.routes[event.kind]) for kind in KINDS if event.kind in kind.routes]
        return [key for name, route in routes for key in route(name, self.inventory, event, news)]

    def listing_begins(self) -> None:
        """A resync asks the API server what is there."""
        self._since_listing.clear()

    def keys_at_resync(self, event: WatchEvent) -> list[Key]:
        """The keys that the object itself stands for: what others depend on is listed as well.

        So an event that says what was listed is no news any more.
        """
        self.inventory.note(event.kind, event.namespace, event.name, event.pool, is_there=True)
        object_ = Key(event.kind, event.namespace, event.name)
        if object_ not in self._since_listing:
            self._news(object_, event)
            if event.kind == BOOKIE_POOL:
                self.inventory.note_pool(object_, event.body)
            elif event.body is not None:
                self.inventory.note_listed(object_, event.body)
        return [
            Key(kind.name, event.namespace, event.name)
            for kind in KINDS
            if kind.routes.get(event.kind) in {_itself, _itself_at_news}
        ]

    def _news(self, object_: Key, event: WatchEvent) -> News:
        others_see = _FACTS.get(event.kind)
        if others_see is None:
            return News()
        before = self._seen.pop(object_, None)
        if not event.deleted:
            self._seen[object_] = replace(event, body=None)
        if before is None:
            return News(others=event.deleted or others_see(event) != "")
        if event.deleted:
            return News(others=others_see(before) != "")
        itself = event.facts is None or is_news(
            before.facts, event.facts, self.inventory.claimed_for(object_)
        )
        return News(itself, others_see(before) != others_see(event))
