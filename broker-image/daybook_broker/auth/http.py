"""Which operation a request to the admin HTTP is, decided by its method and its path alone, and who sends it."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from daybook.client.broker_admin import TOKEN_HEADER
from daybook.core.topics.permissions import Operation
from daybook_broker.auth.access import Access
from daybook_broker.auth.tokens import Identity
from daybook_broker.errors import AuthenticationError
from daybook_broker.settings import AuthMethod

_BEARER: Final = "bearer"
_TOPICS: Final = ("/admin/v2/persistent/{tenant}/{namespace}", "/lookup/v2/topic/")
_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_OWNED: Final = "/daybook/v1/topics"


def operation_of(method: str, route: str) -> Operation:
    """What a request needs; `route` is the path with the names of its parts in braces.

    To see what is in a namespace any permission there is enough. What belongs to a subscription needs `consume`, what changes topics
    `admin`, and everything else is for superusers. Jobs see all topics, and ask for their upkeep.
    """
    is_reading = method in {"GET", "HEAD"}
    if route == _OWNED:
        return Operation.OBSERVE
    if route.startswith(_OWNED):
        return Operation.LOOK if is_reading else Operation.MAINTAIN
    if route.startswith(_TOPICS):
        if is_reading:
            return Operation.LOOK
        return Operation.CONSUME if "subscription" in route else Operation.MANAGE
    if route.startswith(_NAMESPACE) and is_reading:
        return Operation.MANAGE if "/permissions" in route else Operation.LOOK
    return Operation.GOVERN


def token_of(headers: Mapping[str, str]) -> str:
    """The token of a request, TOKEN_HEADER before `Authorization`; empty if there is none. It is not checked."""
    return _shown(headers)[1]


def _shown(headers: Mapping[str, str]) -> tuple[str, str]:
    """The scheme, and the credentials."""
    if own := headers.get(TOKEN_HEADER, ""):
        return _BEARER, own
    scheme, _, token = headers.get("Authorization", "").strip().partition(" ")
    return scheme, token


def identify(
    access: Access,
    headers: Mapping[str, str],
    certificate: Callable[[], Mapping[str, Any] | None] = lambda: None,
) -> Identity:
    """Whose token the headers have, TOKEN_HEADER before `Authorization`; without one, whose certificate the connection has.

    Raises AuthenticationError.
    """
    scheme, token = _shown(headers)
    if (
        not (scheme or headers.get("Authorization"))
        and access.takes_certificates
        and certificate() is not None
    ):
        return access.identify(AuthMethod.TLS.value, b"", certificate)
    if access.is_on and scheme.lower() != _BEARER:
        msg = f"this broker asks who you are: send the header `Authorization: Bearer TOKEN`, or through a proxy `{TOKEN_HEADER}: TOKEN`"
        raise AuthenticationError(msg)
    return access.identify(AuthMethod.TOKEN.value, token.encode(errors="surrogateescape"), lambda: None)
