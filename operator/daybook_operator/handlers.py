"""Watches: every event about an object becomes the key of what is to be looked at, and nothing else.

kopf keeps the watches alive, in a thread with an event loop of its own, because at its end it cancels every task of its
loop. Its handlers are of one kind, `on.event`: edge-triggered ones keep their progress on the object and lose updates,
daemons and timers put finalizers on it. Pods and the like are watched by label, on the server's side.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import kopf
from kopf._cogs.structs.references import Insights  # a parameter's type that kopf does not export

from daybook.runtime.logs import get_logger
from daybook_operator.kube import KINDS, load_configuration
from daybook_operator.metrics import OperatorMetrics
from daybook_operator.plan.decision import GROUP
from daybook_operator.queue import BOOKIE_POOL, LEDGER, Key
from daybook_operator.reconcile.inventory import Inventory, keys_of_pool
from daybook_operator.settings import OperatorSettings

_LOG: Final = get_logger(__name__)

POOL_LABEL: Final = "daybook.dev/pool"
OWNED: Final = ("StatefulSet", "Pod", "PersistentVolumeClaim", "Job", "Service", "PodDisruptionBudget")
"""Kinds whose objects say by a label which pool they belong to."""
KOPFS_FINALIZER: Final = f"{GROUP}/kopf"
"""Never put on anything. It must not be the operator's own: kopf takes its finalizer off what no handler of its asks for."""
_JOIN_S: Final = 15.0
_LOOK_S: Final = 0.2
WATCHED: Final = (BOOKIE_POOL, LEDGER, "Node", *OWNED)


@dataclass(frozen=True, slots=True)
class Seen:
    """What is kept of an event."""

    kind: str
    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    pool: str = ""
    """The pool that a Ledger is for."""
    deleted: bool = False


def seen_from(kind: str, event_type: str | None, body: Mapping[str, Any]) -> Seen:
    """An event's object, as far as keys depend on it."""
    meta = body["metadata"]
    spec = body.get("spec") or {}
    return Seen(
        kind,
        meta.get("namespace") or "",
        meta["name"],
        dict(meta.get("labels") or {}),
        (spec.get("poolRef") or {}).get("name", "") if kind == LEDGER else "",
        event_type == "DELETED",
    )


class Router:
    """Events → keys. On the operator's own loop."""

    def __init__(self, inventory: Inventory) -> None:
        """`inventory` is kept up to date about what is there."""
        self._inventory = inventory
        self._nodes: dict[str, Mapping[str, str]] = {}

    def keys(self, seen: Seen) -> list[Key]:
        """What to look at because of this event."""
        if seen.kind == BOOKIE_POOL:
            return self._about_pool(seen)
        if seen.kind == LEDGER:
            if not seen.deleted:
                self._inventory.add_ledger(seen.namespace, seen.name, seen.pool)
            return [Key(LEDGER, seen.namespace, seen.name)]
        if seen.kind == "Node":
            return self._about_node(seen)
        pool = seen.labels.get(POOL_LABEL)
        if not pool:
            return []
        keys = keys_of_pool(seen.namespace, pool)
        return list(keys) if seen.kind == "Job" else [keys[0]]

    def _about_pool(self, seen: Seen) -> list[Key]:
        if seen.deleted:
            self._inventory.remove_pool(seen.namespace, seen.name)
        else:
            self._inventory.add_pool(seen.namespace, seen.name)
        return [
            *keys_of_pool(seen.namespace, seen.name),
            *self._inventory.ledgers_of_pool(seen.namespace, seen.name),
        ]

    def _about_node(self, seen: Seen) -> list[Key]:
        """Nodes tell of themselves all the time; only their labels, and that they are there, matter."""
        before = self._nodes.get(seen.name)
        if seen.deleted:
            self._nodes.pop(seen.name, None)
        elif before == seen.labels:
            return []
        else:
            self._nodes[seen.name] = seen.labels
        return self._inventory.pools()


class Watches:
    """kopf in its thread. `on_seen` is called on the loop that made this, `on_end` if the watches end by themselves."""

    def __init__(
        self,
        settings: OperatorSettings,
        metrics: OperatorMetrics,
        on_seen: Callable[[Seen], None],
        on_end: Callable[[str], None],
    ) -> None:
        """Nothing is watched yet."""
        self._settings = settings
        self._metrics = metrics
        self._on_seen = on_seen
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watches", daemon=True)

    def start(self) -> None:
        """Watch."""
        quieten_kopf()
        self._thread.start()

    async def stop(self) -> None:
        """End the watches."""
        self._stop.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, _JOIN_S)

    def _run(self) -> None:
        why = "the watches ended"
        try:
            while self._watch():
                _LOG.info("the watches begin anew")
        except Exception as error:  # noqa: BLE001 - whatever ends the watches ends the process, with its reason
            why = f"the watches ended: {type(error).__name__}: {error}"
        if not self._stop.is_set():
            self._loop.call_soon_threadsafe(self._on_end, why)

    def _watch(self) -> bool:
        """Watch until all ends; True: it has to begin anew, because not every kind was found."""
        namespaces = self._settings.namespace_list
        found, ended, is_deaf = Insights(), threading.Event(), threading.Event()
        threading.Thread(
            target=self._oversee, args=(found, ended, is_deaf), name="overseer of watches", daemon=True
        ).start()
        try:
            kopf.run(
                registry=self._registry(),
                settings=kopf_settings(self._settings),
                insights=found,
                standalone=True,
                clusterwide=not namespaces,
                namespaces=namespaces,
                stop_flag=ended,
            )
        finally:
            ended.set()
        return is_deaf.is_set()

    def _oversee(self, found: Insights, ended: threading.Event, is_deaf: threading.Event) -> None:
        """End the watches when all is to end, or when kopf, which looks for kinds once, did not find each of them.

        An API server that starts does not serve all of them at once.
        """
        while not found.ready_resources.is_set():
            if self._stop.wait(_LOOK_S) or ended.is_set():
                ended.set()
                return
        known = {resource.plural for resource in found.watched_resources}
        missing = sorted(kind for kind in WATCHED if KINDS[kind].plural not in known)
        if missing:
            _LOG.warning("the API server does not serve all kinds yet", missing=missing)
            is_deaf.set()
        else:
            self._stop.wait()
        ended.set()

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry, id="login")(self._login)
        for kind in WATCHED:
            where = KINDS[kind]
            group, _, version = where.api_version.rpartition("/")
            kopf.on.event(group, version, where.plural, registry=registry, id=f"see-{where.plural}")(
                self._handler(kind)
            )
        return registry

    def _handler(self, kind: str) -> Any:
        counter = self._metrics.watch_events.labels(KINDS[kind].plural)

        async def handle(event: kopf.RawEvent, **_: Any) -> None:
            counter.inc()
            seen = seen_from(kind, event["type"], event["object"])
            self._loop.call_soon_threadsafe(self._on_seen, seen)

        return handle

    def _login(self, **_: Any) -> kopf.ConnectionInfo:
        configuration = load_configuration(self._settings.kubeconfig)
        bearer = configuration.auth_settings().get(
            "BearerToken"
        )  # a pod's account; people may have certificates
        header = str(bearer["value"]) if bearer else ""
        scheme, _separator, token = header.partition(" ")
        return kopf.ConnectionInfo(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
            scheme=scheme or None,
            token=token or None,
        )


def quieten_kopf() -> None:
    """Leave out of the log that each event was handled, and all of kopf's settings with every line about an object."""
    objects = logging.getLogger("kopf.objects")
    objects.setLevel(logging.WARNING)
    objects.addFilter(_without_settings)


def _without_settings(record: logging.LogRecord) -> bool:
    for name in ("settings", "k8s_skip"):
        record.__dict__.pop(name, None)
    return True


def kopf_settings(settings: OperatorSettings) -> kopf.OperatorSettings:
    """kopf as it is to behave: short timeouts, nothing of its own on objects."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True  # the kinds are known, and CRDs are nobody's to list
    chosen.watching.server_timeout = 300
    chosen.watching.client_timeout = 310
    chosen.watching.connect_timeout = 30
    chosen.watching.reconnect_backoff = 2
    chosen.watching.inactivity_timeout = 70
    chosen.watching.chunk_size = 500
    chosen.networking.request_timeout = settings.api_timeout_ms / 1000
    chosen.networking.error_backoffs = (0.5, 1, 2, 3, 5, 8, 13)
    chosen.execution.default_backoff = 15
    chosen.queueing.worker_limit = 64
    chosen.queueing.exit_timeout = 1
    chosen.persistence.finalizer = KOPFS_FINALIZER
    chosen.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    chosen.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP)
    for kind in OWNED:
        chosen.watching.label_selectors[KINDS[kind].plural] = POOL_LABEL
    return chosen
