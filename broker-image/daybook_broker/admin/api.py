"""What the handlers share: how a request becomes names and values, and who answers it.

Everything about a topic that only its owner knows or may change is sent on to the owner with a redirect, as Pulsar's brokers do. The
owner takes the topic if it is the one that should have it.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from aiohttp import web

from daybook.client.broker_admin import MANAGER_HEADER
from daybook.core.errors import NoSuchTopicError
from daybook.core.topics.manager import check_manager
from daybook.core.topics.name import TopicName, check_entity
from daybook.metadata.brokers import BrokerInfo
from daybook.metadata.partitions import PartitionManager, partition
from daybook.metadata.policies import PolicyManager
from daybook.metadata.topics import TopicManager
from daybook_broker.auth.http import identify
from daybook_broker.broker import Broker
from daybook_broker.errors import NotReadyError
from daybook_broker.ownership.api import Elsewhere, Mine, NotReady

Answer: TypeAlias = Any
"""What a handler returns: a response, or an object for JSON; None is an empty answer."""
Handle: TypeAlias = Callable[["Api", web.Request], Awaitable[Answer]]
Route: TypeAlias = tuple[str, str, Handle]
"""The method, the path and the handler."""

BODY_BYTES_MAX: Final = 256 * 1024


class BadRequestError(ValueError):
    """A request that cannot be understood; the text says what would be."""


class Api:
    """The broker, as handlers know it."""

    def __init__(self, broker: Broker) -> None:
        """Work on the broker's cluster."""
        self.broker = broker
        self.topics: Final[TopicManager] = broker.topics
        self.partitions: Final[PartitionManager] = broker.partitions
        self.policies: Final = PolicyManager(
            broker.client.store, broker.client.layout, broker.settings.policy
        )

    def role_of(self, request: web.Request) -> str:
        """Who sends a request. Raises AuthenticationError."""
        transport = request.transport
        identity = identify(
            self.broker.access,
            request.headers,
            lambda: None if transport is None else transport.get_extra_info("peercert"),
        )
        return identity.role

    async def own(self, request: web.Request, name: TopicName) -> None:
        """Return if this broker owns the topic. Raises a redirect to the broker that does, or NotReadyError."""
        authoritative = flag(request, "authoritative")
        found = await self.broker.ownership.lookup(name, authoritative=authoritative)
        match found:
            case Elsewhere():
                raise redirect(request, found)
            case NotReady(why):
                raise NotReadyError(why)
            case Mine():
                return

    async def check_manager(self, request: web.Request, name: TopicName) -> None:
        """Raise ManagedTopicError if a Topic resource manages the topic and the request does not come from it."""
        if await self.partitions.read(name) is not None:
            name = partition(name, 0)
        try:
            layer = await self.policies.topic(name)
        except NoSuchTopicError:
            return
        check_manager(layer.value.managed_by, manager_uid(request))


def manager_uid(request: web.Request) -> str:
    """The UID of the Topic resource that the request comes from; empty: from none."""
    return request.headers.get(MANAGER_HEADER, "")


class OwnedElsewhere(web.HTTPConflict):
    """Another broker is to answer; of a request that follows no redirects. The body names that broker."""


def admin_url(request: web.Request, broker: BrokerInfo) -> str:
    """Where another broker answers; with TLS, if it has that and the request came so. Raises NotReadyError if it has no admin address."""
    base = broker.admin_urls.tls if request.secure else broker.admin_urls.plain
    base = base or broker.admin_urls.plain or broker.admin_urls.tls
    if not base:
        msg = f"broker {broker.broker} is to answer this, and has no admin address: set its admin_address"
        raise NotReadyError(msg)
    return base


def redirect(
    request: web.Request, found: Elsewhere, **query: str
) -> web.HTTPTemporaryRedirect | OwnedElsewhere:
    """The same request to another broker, which the body names. With `redirect=false` it is no redirect: proxies cannot follow one.

    `query` has further parameters for that broker. Raises NotReadyError if that broker has no admin address, BadRequestError.
    """
    broker, base = found.broker, admin_url(request, found.broker)
    what = "owns the topic" if found.is_owner else "is to take the topic, or knows who is"
    body = json.dumps(
        {
            "reason": f"broker {broker.broker} {what}: ask it, with authoritative={_text(found.authoritative)}",
            "broker": broker.broker,
            "adminUrl": base,
            "isOwner": found.is_owner,
            "authoritative": found.authoritative,
        }
    )
    if not flag(request, "redirect", default=True):
        return OwnedElsewhere(text=body, content_type="application/json")
    target = request.rel_url.update_query(authoritative=_text(found.authoritative), **query)
    return web.HTTPTemporaryRedirect(f"{base}{target}", text=body, content_type="application/json")


def _text(value: bool) -> str:
    return "true" if value else "false"


def topic_of(request: web.Request) -> TopicName:
    """The topic in the path, in three parts or, at Daybook's own paths, as one. Raises TopicNameError."""
    found = request.match_info
    if "tenant" not in found:
        return TopicName.parse(found["topic"])
    return TopicName(found["tenant"], found["namespace"], found["topic"])


def scope_of(request: web.Request) -> tuple[str, str]:
    """The tenant and the namespace that a request is about; empty ones are all. Raises TopicNameError."""
    found = request.match_info
    if "topic" in found and "tenant" not in found:
        name = topic_of(request)
        return name.tenant, name.namespace
    return found.get("tenant", ""), found.get("namespace", "")


def namespace_of(request: web.Request) -> tuple[str, str]:
    """The tenant and the namespace in the path. Raises TopicNameError."""
    found = request.match_info
    return check_entity(found["tenant"], "tenant"), check_entity(found["namespace"], "namespace")


def flag(request: web.Request, name: str, *, default: bool = False) -> bool:
    """A parameter that is true or false. Raises BadRequestError."""
    text = request.query.get(name, _text(default)).lower()
    if text not in {"true", "false"}:
        msg = f"{name}={text[:50]!r}: use true or false"
        raise BadRequestError(msg)
    return text == "true"


def number(text: str, what: str, *, minimum: int = 0) -> int:
    """A whole number of the path or a parameter. Raises BadRequestError."""
    try:
        found = int(text)
    except ValueError:
        found = minimum - 1
    if not minimum <= found < 2**63:
        msg = f"{what}={text[:50]!r}: use a whole number from {minimum} on"
        raise BadRequestError(msg)
    return found


async def body_of(request: web.Request) -> Any:
    """The body, decoded from JSON; None for an empty one. Raises BadRequestError."""
    text = await request.read()
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"the body is no JSON ({error})"
        raise BadRequestError(msg) from error


async def object_of(request: web.Request) -> dict[str, Any]:
    """The body, which must be an object. Raises BadRequestError."""
    found = await body_of(request)
    if not isinstance(found, dict):
        msg = f"the body is to be a JSON object, and is {json.dumps(found)[:200]}"
        raise BadRequestError(msg)
    return found


async def integer_of(request: web.Request) -> int:
    """The body, which must be a whole number. Raises BadRequestError."""
    found = await body_of(request)
    if type(found) is not int:
        msg = f"the body is to be a whole number, and is {json.dumps(found)[:200]}"
        raise BadRequestError(msg)
    return found
