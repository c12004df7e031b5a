"""The watches begin whole, although kopf looks once for what is served, and a namespace that refuses blinds no other."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from daybook_operator.kinds import OWNED, WATCHED
from daybook_operator.kube import watches as module
from daybook_operator.kube.api import KINDS, Kind, Kube, load_configuration
from daybook_operator.kube.watches import ListingProgress, Watched, Watches, WatchEvent
from daybook_operator.metrics import OperatorMetrics
from daybook_operator.settings import OperatorSettings
from kubernetes import client as kubernetes

from tests.cluster.control_plane import ControlPlane
from tests.kubernetes.api.operator_kit import ledger
from tests.kubernetes.api.rest import Resources, role
from tests.unit.bookie.server_kit import eventually

pytestmark = [pytest.mark.integration]

PATIENCE_S = 60.0


class News:
    """What the watches told."""

    def __init__(self) -> None:
        self.seen: list[WatchEvent] = []
        self.ended = ""
        self._changed = asyncio.Event()

    def note(self, seen: WatchEvent) -> None:
        self.seen.append(seen)
        self._changed.set()

    def end(self, why: str) -> None:
        self.ended = why
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                assert not self.ended, self.ended
                self._changed.clear()
                with suppress(TimeoutError):  # not everything that is waited for is an event
                    await asyncio.wait_for(self._changed.wait(), 0.2)

    def names(self, kind: str) -> set[tuple[str, str]]:
        return {(each.namespace, each.name) for each in self.seen if each.kind == kind}


@asynccontextmanager
async def watching(settings: OperatorSettings, metrics: OperatorMetrics) -> AsyncIterator[News]:
    news = News()
    kube = Kube(load_configuration(settings.kubeconfig), threads=2, timeout_s=10, metrics=metrics)
    watches = Watches(kube, settings, metrics, Watched(WATCHED, OWNED), news.note, news.end)
    watches.start()
    try:
        yield news
    finally:
        await watches.stop()
        kube.close()


def test_a_kind_that_was_not_served_at_first_is_watched_all_the_same(
    control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = f"{namespace}.example.org"
    monkeypatch.setitem(KINDS, "Late", Kind(f"{group}/v1", "lates"))
    monkeypatch.setattr(module, "_OTHERS_WITHIN_MS", 500)
    deaf = threading.Event()

    class Noting(ListingProgress):
        def overdue(self, now_ms: int) -> list[str]:
            missing = super().overdue(now_ms)
            if missing == ["Late"]:
                deaf.set()
            return missing

    monkeypatch.setattr(module, "ListingProgress", Noting)
    settings = OperatorSettings(kubeconfig=control_plane.kubeconfig, namespaces=namespace)
    monkeypatch.setattr(module, "scopes_of", lambda *_: [(namespace, ("Service", "Late"))])

    async def scene() -> None:
        async with watching(settings, OperatorMetrics()) as news:
            assert await asyncio.to_thread(deaf.wait, PATIENCE_S)
            await asyncio.to_thread(_serve_late, control_plane, group, namespace)
            await news.until(lambda: (namespace, "one") in news.names("Late"))

    asyncio.run(scene())
    control_plane.kubectl("delete", "crd", f"lates.{group}", "--wait=false")


def _serve_late(plane: ControlPlane, group: str, namespace: str) -> None:
    schema = {"openAPIV3Schema": {"type": "object"}}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"lates.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "lates", "singular": "late", "kind": "Late"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    plane.apply([crd])
    established = "jsonpath={.status.conditions[?(@.type=='Established')].status}"
    asked = (
        "get",
        "crd",
        f"lates.{group}",
        "-o",
        established,
    )  # `kubectl wait` fails where there is no condition yet
    assert eventually(lambda: plane.kubectl(*asked) == "True", PATIENCE_S)
    meta = {"name": "one", "namespace": namespace}
    plane.apply([{"apiVersion": f"{group}/v1", "kind": "Late", "metadata": meta}])


def test_a_namespace_without_a_role_blinds_the_operator_to_no_other(
    control_plane: ControlPlane, api: kubernetes.ApiClient, namespace: str
) -> None:
    other = f"{namespace}-other"
    kubernetes.CoreV1Api(api).create_namespace({"metadata": {"name": other}})
    user = control_plane.kubeconfig_of_user(f"watcher-{namespace}", ())
    control_plane.apply([*_rights(f"watcher-{namespace}", namespace), *_node_rights(f"watcher-{namespace}")])
    for each in (namespace, other):
        Resources(control_plane, each).create(ledger("orders"))
    settings = OperatorSettings(kubeconfig=user, namespaces=f"{namespace},{other}")
    metrics = OperatorMetrics()

    async def scene() -> None:
        async with watching(settings, metrics) as news:
            await news.until(lambda: (namespace, "orders") in news.names("Ledger"))
            failures = ("daybook_operator_watch_failures_total", {"namespace": other})
            await news.until(lambda: (metrics.registry.get_sample_value(*failures) or 0) > 1)
            assert (other, "orders") not in news.names("Ledger")
            Resources(control_plane, namespace).create(ledger("later"))
            await news.until(lambda: (namespace, "later") in news.names("Ledger"))
            control_plane.apply(_rights(f"watcher-{namespace}", other))
            await news.until(lambda: (other, "orders") in news.names("Ledger"))
            assert not news.ended

    asyncio.run(scene())
    control_plane.kubectl("delete", "namespace", other, "--wait=false")


def _rights(user: str, namespace: str) -> list[Mapping[str, Any]]:
    verbs = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["list", "watch"]}
    return role("", user, verbs, namespace)


def _node_rights(user: str) -> list[Mapping[str, Any]]:
    return role("Cluster", user, {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]})
