"""The operator's own metrics, and those of the auditors that it runs, each with its cluster as a label."""

from collections import Counter as Numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class OperatorMetrics:
    """What the operator does."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Register them; in a registry of their own, if none is given."""
        self.registry = CollectorRegistry() if registry is None else registry
        self.leading = self._gauge("leading", "1 while this process leads and reconciles.")
        self.queue_depth = self._gauge("queue_depth", "Objects that wait for a reconcile.")
        self.objects = self._gauge("objects", "Objects that the operator manages, by kind.", "kind")
        self.last_resync = self._gauge("last_resync_timestamp_seconds", "When everything was listed last.")
        self.reconciles = self._counter("reconciles", "Reconciles, by kind and result.", "kind", "result")
        self.reconcile_seconds = Histogram(
            "daybook_operator_reconcile_seconds",
            "One reconcile of an object, with all its effects.",
            ["kind"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.effects = self._counter(
            "effects", "Writes to the world outside, by kind and result.", "effect", "result"
        )
        self.watch_events = self._counter(
            "watch_events", "Events from the API server, by resource.", "resource"
        )
        self.watch_failures = self._counter(
            "watch_failures",
            "How often a namespace's watches ended and restarted, by namespace.",
            "namespace",
        )
        self.api_requests = self._counter(
            "api_requests", "Requests to the API server, by method and status.", "method", "status"
        )
        self.recovery_jobs = self._gauge("recovery_jobs", "Recovery Jobs that run, by cluster.", "cluster")
        self.under_replicated = self._gauge(
            "under_replicated_ledgers",
            "Ledgers that lack a replica, with a repair task or without, by cluster.",
            "cluster",
        )
        self.unrecoverable = self._gauge(
            "unrecoverable_ledgers",
            "Ledgers with an entry that no bookie has any more, since disks are lost, by cluster.",
            "cluster",
        )
        self.pool_condition = self._gauge(
            "pool_condition",
            "A condition of a BookiePool: 1 is True, 0 is False; absent while it is Unknown. A pool is NAMESPACE/NAME.",
            "pool",
            "condition",
        )
        self.topic_conditions = self._gauge(
            "topic_conditions",
            "Topics whose condition has this status, as the last reconcile of each has it; absent for none. A pool is NAMESPACE/NAME.",
            "pool",
            "condition",
            "status",
        )
        self._of_clusters = (self.recovery_jobs, self.under_replicated, self.unrecoverable)
        self._clusters: set[str] = set()
        self._conditions: dict[str, set[str]] = {}
        self._topics: dict[str, frozenset[tuple[str, str, str]]] = {}
        self._numbers: Numbers[tuple[str, str, str]] = Numbers()

    def repair_of(self, cluster: str, *, under_replicated: int, unrecoverable: int, jobs: int) -> None:
        """The state of the repair of a cluster."""
        self._clusters.add(cluster)
        self.under_replicated.labels(cluster).set(under_replicated)
        self.unrecoverable.labels(cluster).set(unrecoverable)
        self.recovery_jobs.labels(cluster).set(jobs)

    def keep_only(self, clusters: Iterable[str]) -> None:
        """Remove the series of clusters that are not managed any more, which would keep their last value for ever."""
        for cluster in self._clusters - set(clusters):
            self._clusters.remove(cluster)
            for gauge in self._of_clusters:
                gauge.remove(cluster)

    def conditions_of(self, pool: str, conditions: Sequence[Mapping[str, Any]]) -> None:
        """The conditions that the status of a pool has now; none: the pool is gone, and so are its series."""
        known = {each["type"]: each["status"] == "True" for each in conditions if each["status"] != "Unknown"}
        for gone in self._conditions.pop(pool, set()) - known.keys():
            self.pool_condition.remove(pool, gone)
        for condition, is_true in known.items():
            self.pool_condition.labels(pool, condition).set(is_true)
        if known:
            self._conditions[pool] = set(known)

    def topic_conditions_of(self, topic: str, pool: str, conditions: Iterable[Mapping[str, Any]]) -> None:
        """The conditions that the status of a Topic has now; none: the Topic is gone, and counts no more.

        There may be thousands of Topics, so no series is about one of them.
        """
        before = self._topics.pop(topic, frozenset())
        now = frozenset((pool, each["type"], each["status"]) for each in conditions)
        if now:
            self._topics[topic] = now
        self._numbers.update(now - before)
        self._numbers.subtract(before - now)
        for labels in now ^ before:
            if self._numbers[labels]:
                self.topic_conditions.labels(*labels).set(self._numbers[labels])
            else:
                del self._numbers[labels]
                self.topic_conditions.remove(*labels)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"daybook_operator_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"daybook_operator_{name}", text, labels, registry=self.registry)


class LabelledRegistries(Collector):
    """Registries whose metrics have the same names, distinguished by a label."""

    def __init__(self, label: str) -> None:
        """None yet."""
        self._label = label
        self._registries: dict[str, CollectorRegistry] = {}

    def add(self, value: str) -> CollectorRegistry:
        """A registry whose metrics get `value` as their label; a former one of the same value goes."""
        registry = CollectorRegistry()
        self._registries = {**self._registries, value: registry}
        return registry

    def remove(self, value: str) -> None:
        """Forget a registry."""
        self._registries = {each: registry for each, registry in self._registries.items() if each != value}

    def collect(self) -> Iterable[Metric]:
        """All metrics of all registries, those of the same name together."""
        families: dict[str, Metric] = {}
        for value, registry in self._registries.items():
            for family in registry.collect():
                into = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type, family.unit)
                )
                into.samples.extend(
                    Sample(each.name, {**each.labels, self._label: value}, *each[2:])
                    for each in family.samples
                )
        return families.values()
