"""What is set for namespaces and topics: retention, TTL, backlog quotas, inactive topics and durability.

Pulsar's bodies have units of their own (minutes, MB, seconds); what is stored has units in its names. `policy` is Daybook's own: all
values as they are stored, and what holds in the end.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any, Final, TypeAlias

from aiohttp import web

from daybook.core.topics.permissions import Operation, permissions_record
from daybook.core.topics.policy import UNLIMITED, BacklogAction, Policy, PolicyLayer, merged
from daybook.metadata.store.store import Versioned
from daybook_broker.admin.api import (
    Api,
    BadRequestError,
    Route,
    integer_of,
    manager_uid,
    namespace_of,
    object_of,
    topic_of,
)
from daybook_broker.errors import AuthorizationError

Record: TypeAlias = Mapping[str, Any]
Read: TypeAlias = Callable[[Api, web.Request], Awaitable[Versioned[PolicyLayer]]]
Write: TypeAlias = Callable[[Api, web.Request, Versioned[PolicyLayer], PolicyLayer], Awaitable[None]]

_MINUTE_MS: Final = 60_000
_MB: Final = 1024 * 1024
_DECIMAL: Final = re.compile(r"-?[0-9]{1,19}")
"""Numbers of 64 bits have no more digits."""
_BY_SIZE: Final = "destination_storage"
_BY_AGE: Final = "message_age"
"""Pulsar's names of the quotas of a backlog."""


# Where a policy is


async def _read_namespace(api: Api, request: web.Request) -> Versioned[PolicyLayer]:
    return await api.policies.namespace(*namespace_of(request))


async def _write_namespace(
    api: Api, request: web.Request, current: Versioned[PolicyLayer], layer: PolicyLayer
) -> None:
    await api.policies.set_namespace(*namespace_of(request), current, layer)


async def _read_topic(api: Api, request: web.Request) -> Versioned[PolicyLayer]:
    return await api.policies.topic(topic_of(request))


async def _write_topic(
    api: Api, request: web.Request, current: Versioned[PolicyLayer], layer: PolicyLayer
) -> None:
    await api.policies.set_topic(topic_of(request), current, layer, manager_uid=manager_uid(request))


# Pulsar's bodies


def _scaled(limit: int | None, unit: int) -> int | None:
    return limit if limit is None or limit == UNLIMITED else limit // unit


def _limit(record: Record, name: str, unit: int) -> int:
    value = _number(record.get(name, UNLIMITED))
    if type(value) is not int or value < UNLIMITED:
        msg = f"{name}={str(value)[:50]!r}: use a whole number, or −1 for no limit"
        raise BadRequestError(msg)
    return value if value == UNLIMITED else value * unit


def _retention_of(layer: PolicyLayer) -> dict[str, int | None] | None:
    if layer.retention_ms is None and layer.retention_bytes is None:
        return None
    return {
        "retentionTimeInMinutes": _scaled(layer.retention_ms, _MINUTE_MS),
        "retentionSizeInMB": _scaled(layer.retention_bytes, _MB),
    }


async def _with_retention(request: web.Request, layer: PolicyLayer) -> PolicyLayer:
    return with_retention(await object_of(request), layer)


def with_retention(record: Record, layer: PolicyLayer) -> PolicyLayer:
    """With Pulsar's RetentionPolicies. Raises BadRequestError, PolicyError."""
    return replace(
        layer,
        retention_ms=_limit(record, "retentionTimeInMinutes", _MINUTE_MS),
        retention_bytes=_limit(record, "retentionSizeInMB", _MB),
    )


def _ttl_of(layer: PolicyLayer) -> int | None:
    return _scaled(layer.ttl_ms, 1000)


async def _with_ttl(request: web.Request, layer: PolicyLayer) -> PolicyLayer:
    text = request.query.get("messageTTL")
    seconds = await integer_of(request) if text is None else text
    return with_ttl({"messageTTL": seconds}, "messageTTL", layer)


def with_ttl(record: Record, name: str, layer: PolicyLayer) -> PolicyLayer:
    """With the TTL in seconds that the record has by this name. Raises BadRequestError, PolicyError."""
    return replace(layer, ttl_ms=_limit(record, name, 1) * 1000)


def _number(value: object) -> object:
    """A number also as Pulsar takes it, in decimal digits as text; what is none as it is."""
    return int(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value


def _quotas_of(layer: PolicyLayer) -> dict[str, Any]:
    action = (layer.backlog_action or Policy().backlog_action).value
    found: dict[str, Any] = {}
    if layer.backlog_bytes not in (None, UNLIMITED):
        found[_BY_SIZE] = {
            "limit": layer.backlog_bytes,
            "limitSize": layer.backlog_bytes,
            "policy": action,
        }
    if layer.backlog_ms not in (None, UNLIMITED):
        found[_BY_AGE] = {"limitTime": _scaled(layer.backlog_ms, 1000), "policy": action}
    return found


def _is_by_age(kind: str) -> bool:
    """Whether that is Pulsar's name of the quota by age; else it is of that by size. Raises BadRequestError."""
    if kind not in (_BY_SIZE, _BY_AGE):
        msg = f"backlogQuotaType={kind[:50]!r}: use {_BY_SIZE} or {_BY_AGE}"
        raise BadRequestError(msg)
    return kind == _BY_AGE


def _quota_type(request: web.Request) -> str:
    return request.query.get("backlogQuotaType", _BY_SIZE)


async def _with_quota(request: web.Request, layer: PolicyLayer) -> PolicyLayer:
    return with_quota(await object_of(request), _quota_type(request), layer)


def with_quota(record: Record, kind: str, layer: PolicyLayer) -> PolicyLayer:
    """With Pulsar's BacklogQuota of that type. Raises BadRequestError, PolicyError."""
    try:
        action = BacklogAction(record.get("policy", layer.backlog_action or Policy().backlog_action))
    except ValueError as error:
        msg = f"policy={str(record.get('policy'))[:50]!r}: use {' or '.join(each.value for each in BacklogAction)}"
        raise BadRequestError(msg) from error
    if _is_by_age(kind):
        return replace(layer, backlog_action=action, backlog_ms=_limit(record, "limitTime", 1000))
    size = _limit(record, "limitSize" if "limitSize" in record else "limit", 1)
    return replace(layer, backlog_action=action, backlog_bytes=size)


def _without_quota(request: web.Request, layer: PolicyLayer) -> PolicyLayer:
    """Without the quota that the request names. The action is that of both, so it stays while the other one has a limit."""
    is_by_age = _is_by_age(_quota_type(request))
    kept = layer.backlog_bytes if is_by_age else layer.backlog_ms
    return replace(
        layer,
        backlog_bytes=kept if is_by_age else None,
        backlog_ms=None if is_by_age else kept,
        backlog_action=None if kept in (None, UNLIMITED) else layer.backlog_action,
    )


def _inactive_of(layer: PolicyLayer) -> dict[str, Any] | None:
    if layer.inactive_ms is None:
        return None
    return {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": _scaled(layer.inactive_ms, 1000),
        "deleteWhileInactive": layer.inactive_ms > 0,
    }


async def _with_inactive(request: web.Request, layer: PolicyLayer) -> PolicyLayer:
    return with_inactive(await object_of(request), layer)


def with_inactive(record: Record, layer: PolicyLayer) -> PolicyLayer:
    """With Pulsar's InactiveTopicPolicies. Raises BadRequestError, PolicyError."""
    seconds = (
        _limit(record, "maxInactiveDurationSeconds", 1) if record.get("deleteWhileInactive", True) else 0
    )
    return replace(layer, inactive_ms=max(0, seconds) * 1000)


def _record_of(layer: PolicyLayer) -> dict[str, Any]:
    """What is set, as `_with_record` takes it back: without permissions, and without fields that are no settings."""
    return replace(layer, permissions={}, unknown_fields={}).to_record()


async def _with_record(request: web.Request, layer: PolicyLayer) -> PolicyLayer:
    """All known values anew; a value that is null, or missing, is not set any more."""
    record = await object_of(request)
    values = {key: value for key, value in record.items() if value is not None}
    known = PolicyLayer.from_record(values)
    if known.permissions:
        msg = "permissions are no setting: POST those of a role to …/namespaces/TENANT/NAMESPACE/permissions/ROLE"
        raise BadRequestError(msg)
    if known.unknown_fields:
        names = ", ".join(
            PolicyLayer(**{each.name: getattr(Policy(), each.name) for each in fields(Policy)}).to_record()
        )
        msg = f"{next(iter(known.unknown_fields))!r} is no setting: use any of {names}"
        raise BadRequestError(msg)
    if known.managed_by not in (None, layer.managed_by):
        raise BadRequestError("managedBy is no setting: the operator sets it for the Topic resource")
    kept = {name: getattr(layer, name) for name in ("permissions", "managed_by", "unknown_fields")}
    return replace(known, **kept)


# Handlers, the same for namespaces and topics


async def _get(read: Read, of: Callable[[PolicyLayer], Any], api: Api, request: web.Request) -> Any:
    found = of((await read(api, request)).value)
    return web.json_response(None) if found is None else found


async def _set(
    read: Read,
    write: Write,
    change: Callable[[web.Request, PolicyLayer], Awaitable[PolicyLayer]],
    api: Api,
    request: web.Request,
) -> None:
    current = await read(api, request)
    await write(api, request, current, await change(request, current.value))


async def _unset(
    read: Read,
    write: Write,
    without: Callable[[web.Request, PolicyLayer], PolicyLayer],
    api: Api,
    request: web.Request,
) -> None:
    current = await read(api, request)
    await write(api, request, current, without(request, current.value))


def _without(*names: str) -> Callable[[web.Request, PolicyLayer], PolicyLayer]:
    """Unsets these values."""
    nothing: dict[str, Any] = dict.fromkeys(names)
    return lambda _request, layer: replace(layer, **nothing)


async def effective(api: Api, request: web.Request) -> dict[str, Any]:
    """What holds for a topic, and what is weak about it. Daybook's own."""
    return _whole(await api.policies.of(topic_of(request)))


async def effective_of_namespace(api: Api, request: web.Request) -> dict[str, Any]:
    """What holds for the topics of a namespace that set nothing. Daybook's own."""
    return _whole(merged(api.policies.default, (await _read_namespace(api, request)).value))


def _whole(policy: Policy) -> dict[str, Any]:
    values = {each.name: getattr(policy, each.name) for each in fields(Policy)}
    return {**PolicyLayer(**values).to_record(), "warning": policy.warning}


async def policies(api: Api, request: web.Request) -> dict[str, Any]:
    """All policies of a namespace as Pulsar's tools show them; its permissions only for those who may read `…/permissions`."""
    layer = (await _read_namespace(api, request)).value
    shown = permissions_record(layer.permissions) if await _may_manage(api, request) else {}
    return {
        "auth_policies": {"namespace_auth": shown},
        "bundles": {"numBundles": 32},
        "retention_policies": _retention_of(layer),
        "message_ttl_in_seconds": _ttl_of(layer),
        "backlog_quota_map": _quotas_of(layer),
        "inactive_topic_policies": _inactive_of(layer),
        "replication_clusters": [api.broker.settings.cluster],
    }


async def _may_manage(api: Api, request: web.Request) -> bool:
    try:
        await api.broker.access.check(api.role_of(request), Operation.MANAGE, *namespace_of(request))
    except AuthorizationError:
        return False
    return True


_KINDS: Final = (
    ("retention", "retention", _retention_of, _with_retention, _without("retention_ms", "retention_bytes")),
    ("messageTTL", "messageTTL", _ttl_of, _with_ttl, _without("ttl_ms")),
    ("backlogQuotaMap", "backlogQuota", _quotas_of, _with_quota, _without_quota),
    ("inactiveTopicPolicies", "inactiveTopicPolicies", _inactive_of, _with_inactive, _without("inactive_ms")),
    ("policy", "policy", _record_of, _with_record, _without(*(each.name for each in fields(Policy)))),
)
"""The path of GET, the one of POST and DELETE, and what they do."""

_PLACES: Final = (
    ("/admin/v2/namespaces/{tenant}/{namespace}", _read_namespace, _write_namespace),
    ("/admin/v2/persistent/{tenant}/{namespace}/{topic}", _read_topic, _write_topic),
)

ROUTES: Final[tuple[Route, ...]] = (
    *(
        ("GET", f"{path}/{got}", partial(_get, read, of))
        for path, read, _ in _PLACES
        for got, _, of, _, _ in _KINDS
    ),
    *(
        ("POST", f"{path}/{changed}", partial(_set, read, write, change))
        for path, read, write in _PLACES
        for _, changed, _, change, _ in _KINDS
    ),
    *(
        ("DELETE", f"{path}/{changed}", partial(_unset, read, write, without))
        for path, read, write in _PLACES
        for _, changed, _, _, without in _KINDS
    ),
    ("GET", f"{_PLACES[0][0]}", policies),
    ("GET", f"{_PLACES[0][0]}/policy/applied", effective_of_namespace),
    ("GET", f"{_PLACES[1][0]}/policy/applied", effective),
)
