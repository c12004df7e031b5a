"""The brokers of the cluster, the leader, this broker's health and its metrics."""

from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from daybook.metadata.brokers import BrokerInfo
from daybook_broker.admin.api import Api, Route
from daybook_broker.errors import NotReadyError

_HEALTH: Final = ("/health", "/admin/v2/brokers/health", "/admin/v2/brokers/ready")
ALWAYS: Final = frozenset({*_HEALTH, "/metrics"})
"""The paths that are answered also while the broker does not serve."""


async def health(api: Api, _: web.Request) -> web.Response:
    """`ok`, or why clients should not come."""
    problem = api.broker.unready()
    if problem is not None:
        raise NotReadyError(problem)
    return web.Response(text="ok")


async def metrics(api: Api, _: web.Request) -> web.Response:
    """What the Prometheus endpoint has."""
    found = generate_latest(api.broker.metrics.registry)
    return web.Response(body=found, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def clusters(api: Api, _: web.Request) -> list[str]:
    """The one cluster that this broker knows."""
    return [api.broker.settings.cluster]


async def brokers(api: Api, _: web.Request) -> list[str]:
    """The admin addresses of the registered brokers, which are their names in Pulsar's tools."""
    return [_address(info) for info in api.broker.ownership.view.brokers.values()]


async def leader(api: Api, _: web.Request) -> dict[str, str]:
    """The broker that assigns bundles."""
    view = api.broker.ownership.view
    info = view.brokers.get(view.leader or "")
    if info is None:
        msg = "the brokers are electing a leader: try again"
        raise NotReadyError(msg)
    return {"brokerId": info.broker, "serviceUrl": info.admin_urls.plain or info.admin_urls.tls}


async def loads(api: Api, _: web.Request) -> dict[str, Any]:
    """What each broker reported last. Daybook's own."""
    return {
        name: {
            "serviceUrl": info.urls.plain,
            "serviceUrlTls": info.urls.tls,
            "adminUrl": info.admin_urls.plain or info.admin_urls.tls,
            "busy": round(info.load.busy, 3),
            "bundles": info.load.bundles,
            "version": info.version,
            "startedAtMs": info.started_at_ms,
        }
        for name, info in api.broker.ownership.view.brokers.items()
    }


def _address(info: BrokerInfo) -> str:
    return urlsplit(info.admin_urls.plain or info.admin_urls.tls).netloc or info.broker


ROUTES: Final[tuple[Route, ...]] = (
    *(("GET", path, health) for path in _HEALTH),
    ("GET", "/metrics", metrics),
    ("GET", "/admin/v2/clusters", clusters),
    ("GET", "/admin/v2/brokers", brokers),
    ("GET", "/admin/v2/brokers/leaderBroker", leader),
    ("GET", "/admin/v2/brokers/load", loads),
    ("GET", "/admin/v2/brokers/{cluster}", brokers),
)
