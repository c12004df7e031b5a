"""The watches: kopf as the reflector, which lists, watches and restarts, and passes each event on.

kopf runs in threads with event loops of their own, because at its end it cancels every task of its loop. Its handlers
are of one kind, `on.event`: edge-triggered ones keep their progress on the object and lose updates, daemons and timers
put finalizers on it. Pods and the like are watched by label, on the server's side.

Each namespace that is named has a kopf of its own, and so have the nodes: one refusal ends a whole kopf, and a namespace
whose role is gone (it was deleted, or the role was not made yet) must not keep the operator from watching the others.
"""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import kopf

from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger
from daybook_operator.kube.api import Kube, KubeError, kind_of, load_configuration
from daybook_operator.kube.queue import BOOKIE_POOL, TOPIC
from daybook_operator.metrics import OperatorMetrics
from daybook_operator.plan.names import GROUP, PAUSE, POOL_LABEL
from daybook_operator.plan.news import PlanFacts, facts_of
from daybook_operator.settings import OperatorSettings

_LOG: Final = get_logger(__name__)

KOPFS_FINALIZER: Final = f"{GROUP}/kopf"
"""Never put on anything. It must not be the operator's own: kopf takes its finalizer off what no handler of its asks for."""
_JOIN_S: Final = 15.0
_POLL_S: Final = 0.5
_FIRST_WITHIN_MS: Final = 120_000
_OTHERS_WITHIN_MS: Final = 5_000
_PAUSE_S: Final = 1.0
_PAUSE_MAX_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """What is kept of an event about an object."""

    kind: str
    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    pool: str = ""
    """The pool that the spec names, of what is stored in one."""
    version: str = ""
    """Changes with the spec, a pause, a deletion, `status.metadata` and the bookie that a drain takes out; not with the rest of the status."""
    deleted: bool = False
    facts: PlanFacts | None = None
    """Of a Topic: what its own plan depends on."""
    job_facts: str = ""
    """Of a Topic that names the schedule of a job: what its pool's CronJobs depend on."""
    body: Mapping[str, Any] | None = None
    """All of it, of a pool or a Topic that is there; see `reconcile.inventory`."""


def event_from(kind: str, event_type: str | None, body: Mapping[str, Any]) -> WatchEvent:
    """The event, as far as keys depend on it."""
    meta = body["metadata"]
    spec = body.get("spec") or {}
    status = body.get("status") or {}
    leaving = (status.get("drain") or {}).get("bookie")
    terminates = bool(meta.get("deletionTimestamp"))
    is_paused = (meta.get("annotations") or {}).get(PAUSE) == "true"
    facts = (meta.get("uid"), meta.get("generation"), terminates, is_paused, status.get("metadata"), leaving)
    return WatchEvent(
        kind,
        meta.get("namespace") or "",
        meta["name"],
        dict(meta.get("labels") or {}),
        (spec.get("poolRef") or {}).get("name", ""),
        json.dumps(facts, sort_keys=True),
        event_type == "DELETED",
        facts_of(body) if kind == TOPIC else None,
        _job_facts(spec, facts) if kind == TOPIC and event_type != "DELETED" else "",
        body if kind in {BOOKIE_POOL, TOPIC} and event_type != "DELETED" else None,
    )


def _job_facts(spec: Mapping[str, Any], facts: tuple[object, ...]) -> str:
    """All that may change a CronJob; "" where the Topic names none (`plan.topic.spec.timings_of`), as most of thousands may."""
    names_one = (spec.get("compaction") or {}).get("schedule") is not None or spec.get("offload") is not None
    return json.dumps(facts, sort_keys=True) if names_one else ""


@dataclass(frozen=True, slots=True)
class Watched:
    """The kinds that are watched; of those `by_label` only objects that have a pool's label."""

    kinds: tuple[str, ...]
    by_label: tuple[str, ...]


class Watches:
    """`on_event` is called on the loop that made this, `on_end` if the watches end by themselves."""

    def __init__(
        self,
        kube: Kube,
        settings: OperatorSettings,
        metrics: OperatorMetrics,
        watched: Watched,
        on_event: Callable[[WatchEvent], None],
        on_end: Callable[[str], None],
    ) -> None:
        """Nothing is watched yet."""
        self._kube = kube
        self._settings = settings
        self._metrics = metrics
        self._watched = watched
        self._on_event = on_event
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=scope, name=f"watches {scope[0]}".rstrip(), daemon=True)
            for scope in scopes_of(settings.namespace_list, watched.kinds)
        ]

    def start(self) -> None:
        """Watch."""
        quieten_kopf()
        for thread in self._threads:
            thread.start()

    async def stop(self) -> None:
        """End the watches."""
        self._stop.set()
        running = [thread for thread in self._threads if thread.is_alive()]
        await asyncio.gather(*(asyncio.to_thread(thread.join, _JOIN_S) for thread in running))

    def _run(self, namespace: str, kinds: tuple[str, ...]) -> None:
        """Watch until `stop`. When the watches of one namespace end, they restart after a pause that doubles."""
        pause_s = _PAUSE_S
        while not self._stop.is_set():
            began_ms, why = monotonic_ms(), "they ended by themselves"
            try:
                self._check_access(namespace)
                if self._watch(namespace, kinds):
                    _LOG.info("the watches restart", namespace=namespace)
                    continue
            except KubeError as error:
                why = str(error)
            except Exception as error:  # noqa: BLE001 - whatever ends watches is reported: in the log, or by the process' last line
                why = f"{type(error).__name__}: {error}"
            if self._stop.is_set():
                return
            if not namespace:
                self._loop.call_soon_threadsafe(self._on_end, f"the watches ended: {why}")
                return
            if monotonic_ms() - began_ms > _PAUSE_MAX_S * 1000:
                pause_s = _PAUSE_S
            self._metrics.watch_failures.labels(namespace).inc()
            _LOG.warning(
                "a namespace cannot be watched now", namespace=namespace, why=why, again_in_s=pause_s
            )
            self._stop.wait(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)

    def _check_access(self, namespace: str) -> None:
        """Raise KubeError where nothing may be listed: kopf tries that eight times for each kind, and logs each."""
        if namespace:
            request = self._kube.is_served(BOOKIE_POOL, namespace)
            asyncio.run_coroutine_threadsafe(request, self._loop).result()

    def _watch(self, namespace: str, kinds: tuple[str, ...]) -> bool:
        """Watch until the end; True: the watches must restart, because kopf did not find every kind."""
        listed, ended, misses_kinds = (
            ListingProgress(kinds, self._watched.by_label),
            threading.Event(),
            threading.Event(),
        )
        threading.Thread(
            target=self._oversee, args=(listed, ended, misses_kinds), name="overseer of watches", daemon=True
        ).start()
        try:
            kopf.run(
                registry=self._registry(kinds),
                settings=kopf_settings(self._settings, listed),
                standalone=True,
                clusterwide=not namespace,
                namespaces=[namespace] if namespace else [],
                stop_flag=ended,
            )
        finally:
            ended.set()
        return misses_kinds.is_set()

    def _oversee(
        self, listed: "ListingProgress", ended: threading.Event, misses_kinds: threading.Event
    ) -> None:
        """End the watches at `stop`, or when kopf, which discovers kinds once, did not find each of them.

        An API server that is starting does not serve all of them at once.
        """
        while not self._stop.wait(_POLL_S) and not ended.is_set():
            if missing := listed.overdue(monotonic_ms()):
                _LOG.warning("the API server does not serve all kinds yet", missing=missing)
                misses_kinds.set()
                break
        ended.set()

    def _registry(self, kinds: tuple[str, ...]) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry, id="login")(self._login)
        for kind in kinds:
            where = kind_of(kind)
            group, _, version = where.api_version.rpartition("/")
            kopf.on.event(group, version, where.plural, registry=registry, id=f"see-{where.plural}")(
                self._handler(kind)
            )
        return registry

    def _handler(self, kind: str) -> Any:
        counter = self._metrics.watch_events.labels(kind_of(kind).plural)

        async def handle(event: kopf.RawEvent, **_: Any) -> None:
            counter.inc()
            seen = event_from(kind, event["type"], event["object"])
            self._loop.call_soon_threadsafe(self._on_event, seen)

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


def scopes_of(namespaces: tuple[str, ...], kinds: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """Each kopf's namespace, "" for all, and the kinds that it watches there."""
    if not namespaces:
        return [("", kinds)]
    inside = tuple(kind for kind in kinds if kind_of(kind).namespaced)
    return [("", tuple(kind for kind in kinds if kind not in inside)), *((ns, inside) for ns in namespaces)]


class ListingProgress:
    """Which kinds kopf has begun to list: it asks for a kind's label selector then, and the answer is given here.

    kopf begins with all kinds that it found at once, so that one that was not found is known soon after the first.
    """

    def __init__(self, kinds: tuple[str, ...], by_label: tuple[str, ...] = ()) -> None:
        """None yet."""
        self._kinds = {kind_of(kind).plural: kind for kind in kinds}
        self._owned = frozenset(kind_of(kind).plural for kind in by_label)
        self._asked: set[str] = set()
        self._began_ms = monotonic_ms()
        self._first_ms: int | None = None

    def is_selected_by_label(self, resource: kopf.Resource) -> bool:
        """Whether only what has the pool's label is asked for."""
        if self._first_ms is None:
            self._first_ms = monotonic_ms()
        self._asked.add(resource.plural)
        return resource.plural in self._owned

    def overdue(self, now_ms: int) -> list[str]:
        """The kinds that ought to be listed by now, and are not."""
        due_ms = (
            self._began_ms + _FIRST_WITHIN_MS
            if self._first_ms is None
            else self._first_ms + _OTHERS_WITHIN_MS
        )
        if now_ms < due_ms:
            return []
        return sorted(kind for plural, kind in self._kinds.items() if plural not in self._asked)


def quieten_kopf() -> None:
    """Leave out of the log that each event was handled, and all of kopf's settings with every line about an object."""
    objects = logging.getLogger("kopf.objects")
    objects.setLevel(logging.WARNING)
    objects.addFilter(_without_settings)


def _without_settings(record: logging.LogRecord) -> bool:
    for name in ("settings", "k8s_skip"):
        record.__dict__.pop(name, None)
    return True


def kopf_settings(settings: OperatorSettings, listed: ListingProgress) -> kopf.OperatorSettings:
    """kopf as it is to behave: short timeouts, nothing of its own on objects."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True  # the kinds are known, and no role may list CRDs
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
    chosen.watching.label_selectors[listed.is_selected_by_label] = POOL_LABEL
    return chosen
