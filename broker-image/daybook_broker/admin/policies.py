"""Pulsar's Policies, with which its tools create a namespace: what of it is set, and what is refused.

A namespace that lacks what was asked for would be found late, by lost messages or open doors. So a field that Daybook has no setting for
is refused, unless it has the value that Pulsar's clients send without being asked.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from daybook.core.topics.permissions import permissions_of
from daybook.core.topics.policy import PolicyLayer
from daybook_broker.admin.api import BadRequestError
from daybook_broker.admin.settings import with_inactive, with_quota, with_retention, with_ttl

_Set: TypeAlias = Callable[[Any, PolicyLayer], PolicyLayer]

_TTL: Final = "message_ttl_in_seconds"
_QUOTAS: Final = "backlog_quota_map"
_PERMISSIONS: Final = "namespace_auth"

_IGNORED: Final = frozenset({"replication_clusters", "bundles"})
"""A Daybook cluster replicates to no other one, and each namespace has 32 bundles: tools send these of every namespace, and nothing depends on them."""

_SENT_UNASKED: Final[Mapping[str, object]] = {
    "deleted": False,
    "encryption_required": False,
    "migrated": False,
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "schema_auto_update_compatibility_strategy": "Full",
    "schema_compatibility_strategy": "UNDEFINED",
    "schema_validation_enforced": False,
    "subscription_auth_mode": "None",
}
"""The defaults that Pulsar's clients for Java and Go write into the body; null, and what is empty, are the others."""


def layer_of(body: object) -> PolicyLayer:
    """What the body of a request sets for a namespace that it creates. Raises BadRequestError, PolicyError."""
    if body in (None, ""):
        return PolicyLayer()
    record = _object(body, "the body")
    asked = {name: value for name, value in record.items() if _is_asked(name, value)}
    if unknown := sorted(asked.keys() - _SETTERS.keys()):
        msg = (
            f"Daybook has no such policies of a namespace: {', '.join(unknown)[:500]}; leave them out. It has "
            f"{', '.join(_SETTERS)}"
        )
        raise BadRequestError(msg)
    layer = PolicyLayer()
    for name, value in asked.items():
        layer = _SETTERS[name](value, layer)
    return layer


def _is_asked(name: str, value: object) -> bool:
    if name in _IGNORED or value in (None, "", [], {}):
        return False
    return name not in _SENT_UNASKED or value != _SENT_UNASKED[name]


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        msg = f"{what} is to be a JSON object, and is {str(value)[:200]}"
        raise BadRequestError(msg)
    return value


def _of_object(
    name: str, change: Callable[[Mapping[str, Any], PolicyLayer], PolicyLayer], value: Any, layer: PolicyLayer
) -> PolicyLayer:
    return change(_object(value, name), layer)


def _with_quotas(record: Mapping[str, Any], layer: PolicyLayer) -> PolicyLayer:
    quotas = [_object(quota, f"{_QUOTAS}.{kind}") for kind, quota in record.items()]
    actions = {str(quota["policy"]) for quota in quotas if "policy" in quota}
    if len(actions) > 1:
        msg = f"{_QUOTAS} has the policies {' and '.join(sorted(actions))[:500]}: the quotas by size and by age have one together"
        raise BadRequestError(msg)
    for kind, quota in record.items():
        layer = with_quota(quota, kind, layer)
    return layer


def _with_permissions(record: Mapping[str, Any], layer: PolicyLayer) -> PolicyLayer:
    if others := sorted(name for name, value in record.items() if name != _PERMISSIONS and value):
        msg = f"auth_policies has {', '.join(others)[:500]}: leave them out, a namespace has permissions of roles alone, {_PERMISSIONS}"
        raise BadRequestError(msg)
    return replace(layer, permissions=permissions_of(record.get(_PERMISSIONS) or {}))


_SETTERS: Final[Mapping[str, _Set]] = {
    "retention_policies": partial(_of_object, "retention_policies", with_retention),
    _TTL: lambda seconds, layer: with_ttl({_TTL: seconds}, _TTL, layer),
    _QUOTAS: partial(_of_object, _QUOTAS, _with_quotas),
    "inactive_topic_policies": partial(_of_object, "inactive_topic_policies", with_inactive),
    "auth_policies": partial(_of_object, "auth_policies", _with_permissions),
}
