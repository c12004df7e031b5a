"""Tenants and namespaces: names with policies, and the bundles that brokers own."""

from typing import Any, Final

from aiohttp import web

from daybook.core.errors import NoSuchTopicError
from daybook.core.topics.name import check_entity
from daybook.core.topics.ownership.bundles import Bundle, bundles_of
from daybook_broker.admin.api import Api, Route, body_of, namespace_of, redirect
from daybook_broker.admin.policies import layer_of
from daybook_broker.errors import NotReadyError
from daybook_broker.ownership.api import Elsewhere

_TENANTS: Final = "/admin/v2/tenants"
_NAMESPACES: Final = "/admin/v2/namespaces/{tenant}"
_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"


async def tenants(api: Api, _: web.Request) -> list[str]:
    """The tenants."""
    return list(await api.topics.tenants())


async def tenant(api: Api, request: web.Request) -> dict[str, Any]:
    """A tenant, with what Pulsar's tools expect to be there."""
    name = _tenant_of(request)
    if name not in await api.topics.tenants():
        msg = f"tenant {name} does not exist: create it, or its first topic"
        raise NoSuchTopicError(msg)
    return {"adminRoles": [], "allowedClusters": [api.broker.settings.cluster]}


async def create_tenant(api: Api, request: web.Request) -> None:
    """Create a tenant; the body is accepted and has no meaning."""
    await api.policies.create_tenant(_tenant_of(request))


async def delete_tenant(api: Api, request: web.Request) -> None:
    """Delete a tenant without namespaces."""
    await api.policies.delete_tenant(_tenant_of(request))


async def namespaces(api: Api, request: web.Request) -> list[str]:
    """The namespaces of a tenant."""
    name = _tenant_of(request)
    return [f"{name}/{namespace}" for namespace in await api.topics.namespaces(name)]


async def create_namespace(api: Api, request: web.Request) -> None:
    """Create a namespace with the policies of the body, if it has one, and its tenant."""
    layer = layer_of(await body_of(request))
    await api.policies.create_namespace(*namespace_of(request), layer)


async def delete_namespace(api: Api, request: web.Request) -> None:
    """Delete a namespace without topics."""
    await api.policies.delete_namespace(*namespace_of(request))


async def bundles(_api: Api, request: web.Request) -> dict[str, Any]:
    """The ranges of the bundles."""
    found = bundles_of(*namespace_of(request))
    boundaries = [bundle.range[:10] for bundle in found] + [found[-1].range[11:]]
    return {"boundaries": boundaries, "numBundles": len(found)}


async def owners(api: Api, request: web.Request) -> dict[str, str]:
    """The owners of the bundles that have one. Daybook's own."""
    found = await api.broker.ownership.owners(*namespace_of(request))
    return {bundle.range: broker for bundle, broker in found.items()}


async def topics(api: Api, request: web.Request) -> list[str]:
    """The topics of a namespace, with the partitions of partitioned ones."""
    if request.query.get("mode", "PERSISTENT").upper() == "NON_PERSISTENT":
        return []
    return [str(name) for name in await api.broker.topics_of(*namespace_of(request))]


async def unload_bundle(api: Api, request: web.Request) -> None:
    """Hand a bundle over, to `destinationBroker` if that is given."""
    tenant_name, namespace = namespace_of(request)
    bundle = Bundle.parse(f"{tenant_name}/{namespace}/{request.match_info['bundle']}")
    await _unload(api, request, bundle)


async def _unload(api: Api, request: web.Request, bundle: Bundle) -> None:
    ownership = api.broker.ownership
    owner = (await ownership.owners(bundle.tenant, bundle.namespace)).get(bundle)
    if owner is None:
        return  # nobody has it
    if owner != ownership.info.broker:
        info = ownership.view.brokers.get(owner)
        if info is None:
            msg = f"broker {owner}, which owns bundle {bundle}, is not registered any more: try again in a moment"
            raise NotReadyError(msg)
        raise redirect(request, Elsewhere(info))
    await ownership.unload(bundle, request.query.get("destinationBroker") or None)


async def unload_namespace(api: Api, request: web.Request) -> None:
    """Hand over all bundles of a namespace, whoever owns them; other brokers do so a moment later."""
    await api.broker.ownership.unload_namespace(*namespace_of(request))


def _tenant_of(request: web.Request) -> str:
    return check_entity(request.match_info["tenant"], "tenant")


ROUTES: Final[tuple[Route, ...]] = (
    ("GET", _TENANTS, tenants),
    ("GET", f"{_TENANTS}/{{tenant}}", tenant),
    ("PUT", f"{_TENANTS}/{{tenant}}", create_tenant),
    ("DELETE", f"{_TENANTS}/{{tenant}}", delete_tenant),
    ("GET", _NAMESPACES, namespaces),
    ("PUT", _NAMESPACE, create_namespace),
    ("DELETE", _NAMESPACE, delete_namespace),
    ("GET", f"{_NAMESPACE}/bundles", bundles),
    ("GET", f"{_NAMESPACE}/owners", owners),
    ("GET", f"{_NAMESPACE}/topics", topics),
    ("PUT", f"{_NAMESPACE}/unload", unload_namespace),
    ("PUT", f"{_NAMESPACE}/{{bundle}}/unload", unload_bundle),
)
