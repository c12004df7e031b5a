"""What roles may do with the topics of a namespace, at Pulsar's paths. It counts only where authentication is on."""

from dataclasses import replace
from typing import Final

from aiohttp import web

from daybook.core.topics.permissions import Permissions, actions_of, check_role, permissions_record
from daybook_broker.admin.api import Api, Route, body_of, namespace_of

_PATH: Final = "/admin/v2/namespaces/{tenant}/{namespace}/permissions"


async def permissions(api: Api, request: web.Request) -> dict[str, list[str]]:
    """The actions of each role."""
    layer = (await api.policies.namespace(*namespace_of(request))).value
    return permissions_record(layer.permissions)


async def grant(api: Api, request: web.Request) -> None:
    """Give a role the actions of the body, a list, instead of those that it had."""
    role = check_role(request.match_info["role"])
    actions = actions_of(await body_of(request))
    found = await api.policies.namespace(*namespace_of(request))
    changed: Permissions = {**found.value.permissions, role: actions}
    await api.policies.set_namespace(*namespace_of(request), found, replace(found.value, permissions=changed))


async def revoke(api: Api, request: web.Request) -> None:
    """Take all actions from a role."""
    found = await api.policies.namespace(*namespace_of(request))
    role = request.match_info["role"]
    changed = {name: actions for name, actions in found.value.permissions.items() if name != role}
    await api.policies.set_namespace(*namespace_of(request), found, replace(found.value, permissions=changed))


ROUTES: Final[tuple[Route, ...]] = (
    ("GET", _PATH, permissions),
    ("POST", f"{_PATH}/{{role}}", grant),
    ("DELETE", f"{_PATH}/{{role}}", revoke),
)
