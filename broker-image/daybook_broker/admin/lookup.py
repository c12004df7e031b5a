"""LOOKUP over HTTP, for clients whose service URL is http://."""

from typing import Final

from aiohttp import web

from daybook.core.topics.ownership.bundles import Bundle
from daybook.metadata.brokers import BrokerInfo
from daybook_broker.admin.api import Api, Route, flag, redirect, topic_of
from daybook_broker.errors import NotAllowedError, NotReadyError
from daybook_broker.ownership.api import Elsewhere, NotReady


async def lookup(api: Api, request: web.Request) -> dict[str, str | None]:
    """Who owns a topic; held while nobody knows, and sent on to whoever is to take it."""
    name = topic_of(request)
    ownership = api.broker.ownership
    found = await ownership.lookup(name, authoritative=flag(request, "authoritative"))
    if isinstance(found, NotReady):
        raise NotReadyError(found.why)
    if isinstance(found, Elsewhere) and not found.is_owner:
        raise redirect(request, found)
    owner = found.broker if isinstance(found, Elsewhere) else ownership.info
    listener = request.query.get("listenerName") or request.headers.get("X-Pulsar-ListenerName")
    return _data(owner, listener or "")


def _data(broker: BrokerInfo, listener: str) -> dict[str, str | None]:
    urls = broker.urls_of(listener)
    if urls is None:
        msg = f"broker {broker.broker} has no listener {listener[:200]!r}: use one of {', '.join(broker.listeners) or 'none'}"
        raise NotAllowedError(msg)
    return {
        "brokerUrl": urls.plain or None,
        "brokerUrlTls": urls.tls or None,
        "nativeUrl": urls.plain or None,
        "httpUrl": broker.admin_urls.plain or None,
        "httpUrlTls": broker.admin_urls.tls or None,
    }


async def bundle(_api: Api, request: web.Request) -> web.Response:
    """The range of the bundle that a topic belongs to."""
    return web.Response(text=Bundle.of(topic_of(request)).range)


_TOPIC: Final = "/lookup/v2/topic/persistent/{tenant}/{namespace}/{topic}"
ROUTES: Final[tuple[Route, ...]] = (("GET", _TOPIC, lookup), ("GET", f"{_TOPIC}/bundle", bundle))
