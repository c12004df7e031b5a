"""Identities of clients, and whether they may do what they ask for.

Permissions are read from ZooKeeper and kept for a moment, so that a change counts soon and thousands of clients that connect do not
each read them. While ZooKeeper does not answer, what is not known is not allowed: the broker asks the client to try again.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from daybook.core.errors import NoSuchTopicError, PolicyError
from daybook.core.topics.permissions import Operation, Permissions, check_role, is_allowed
from daybook.metadata.policies import PolicyManager
from daybook.metadata.store.shared import SharedRequest
from daybook.runtime.clock import monotonic_s
from daybook_broker.auth.tokens import FollowedKey, Identity, public_key, secret_key
from daybook_broker.errors import AuthenticationError, AuthorizationError
from daybook_broker.settings import AuthMethod, BrokerSettings

VALID_S: Final = 1.0
"""How long permissions that were read count: one that is taken away is still good for so long."""
NAMESPACES_MAX: Final = 1_000
"""Namespaces whose permissions are kept."""

EVERYBODY: Final = Identity("")
"""The identity of each client while nobody is asked who it is."""

_WORDS: Final = {
    Operation.LOOK: "look up topics of",
    Operation.PRODUCE: "produce to",
    Operation.CONSUME: "consume from",
    Operation.MANAGE: "change topics of",
    Operation.MAINTAIN: "ask for upkeep of topics of",
    Operation.OBSERVE: "see the topics of",
    Operation.GOVERN: "change or list what belongs to",
}


class Access:
    """What the settings say about clients, over the permissions of namespaces."""

    def __init__(self, settings: BrokerSettings, policies: PolicyManager) -> None:
        """Read the keys. Raises KeyFileError."""
        self._methods = settings.authentication
        self.is_on: Final = bool(settings.authentication)
        """Whether clients are asked who they are."""
        self._superusers = frozenset(settings.superuser_roles)
        self._jobs = frozenset(settings.jobs_roles)
        self._policies = policies
        self._key: FollowedKey | None = None
        if settings.token_secret_file is not None:
            self._key = FollowedKey(settings.token_secret_file, settings.token_role_claim, secret_key)
        if settings.token_public_key_file is not None:
            self._key = FollowedKey(settings.token_public_key_file, settings.token_role_claim, public_key)
        self._known: dict[tuple[str, str], tuple[float, Permissions]] = {}
        self._reading: dict[tuple[str, str], SharedRequest[Permissions]] = {}

    @property
    def takes_certificates(self) -> bool:
        """Whether a client's certificate says who it is."""
        return AuthMethod.TLS in self._methods

    def identify(
        self, method: str, data: bytes, certificate: Callable[[], Mapping[str, Any] | None]
    ) -> Identity:
        """Who says CONNECT: by Pulsar's name of the method, its data, and the certificate of the connection. Raises AuthenticationError."""
        if not self.is_on:
            return EVERYBODY
        if method == AuthMethod.TOKEN.value and self._key is not None:
            return self._key.identify(data.decode(errors="replace").strip())
        if method == AuthMethod.TLS.value and self.takes_certificates:
            return Identity(_common_name(certificate()))
        names = " or ".join(each.value for each in self._methods)
        msg = f"this broker asks clients who they are, by {names}, and this one came with {method[:50] or 'nothing'!r}: set the client's authentication"
        raise AuthenticationError(msg)

    async def check(self, role: str, operation: Operation, tenant: str = "", namespace: str = "") -> None:
        """Raise AuthorizationError unless the role may do that in the namespace, or the cluster if none is named."""
        if not self.is_on or is_allowed(role, operation, {}, self._superusers, self._jobs):
            return
        permissions = await self._permissions(tenant, namespace) if operation.actions and namespace else {}
        if is_allowed(role, operation, permissions, ()):
            return
        what = f"{tenant}/{namespace}" if namespace else tenant or "the cluster"
        needed = " or ".join(sorted(each.value for each in operation.actions))
        settings = "superuser_roles or jobs_roles" if operation.is_for_jobs else "superuser_roles"
        advice = (
            f"ask a superuser for the permission {needed} there"
            if needed
            else f"use a token of a role that the broker's {settings} names"
        )
        msg = f"role {role!r} may not {_WORDS[operation]} {what}: {advice}"
        raise AuthorizationError(msg)

    async def _permissions(self, tenant: str, namespace: str) -> Permissions:
        key = (tenant, namespace)
        read_at_s, known = self._known.get(key, (0.0, {}))
        if monotonic_s() < read_at_s + VALID_S:
            return known
        if len(self._reading) >= NAMESPACES_MAX:  # most of these have no clients any more
            self._reading.clear()
            self._known.clear()
        reading = self._reading.setdefault(key, SharedRequest(partial(self._read, tenant, namespace)))
        read_at_s = monotonic_s()
        known = await reading.answer()
        self._known[key] = (read_at_s, known)
        return known

    async def _read(self, tenant: str, namespace: str) -> Permissions:
        try:
            return (await self._policies.namespace(tenant, namespace)).value.permissions
        except NoSuchTopicError:
            return {}  # the namespace gives nothing to anybody yet


def _common_name(certificate: Mapping[str, Any] | None) -> str:
    """The common name of the subject of a certificate that TLS has checked. Raises AuthenticationError."""
    names = [
        value
        for part in (certificate or {}).get("subject", ())
        for kind, value in part
        if kind == "commonName"
    ]
    if len(names) != 1:
        msg = "the connection has no client certificate with one common name, which is the role: connect to pulsar+ssl:// with one"
        raise AuthenticationError(msg)
    try:
        return check_role(names[0])
    except PolicyError as error:
        raise AuthenticationError(str(error)) from error
