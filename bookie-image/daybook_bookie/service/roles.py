"""Who may have a bookie do what: roles in the client's certificate, and one table of calls.

Whoever has a ledger's key may write, read and fence it; the calls that change or occupy the bookie itself take no key.
They ask for a role, which is a URI among the certificate's alternative names: `daybook://<cluster>/role/<role>`. It names
the cluster, so that a company's CA can serve many. A certificate without one is a client's.

An upgrade must not stop repair, whose certificates have no role yet. So unless the settings say otherwise, roles are
enforced once the bookie's own certificate carries one: who makes certificates makes them for all parts of a cluster.
Until then a call without its role passes, and is counted and logged. Where no certificates are asked for, nobody can be
told from anybody, and all who reach the port may do everything.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
from cryptography import x509

from daybook.runtime.logs import get_logger
from daybook.runtime.ports import Address
from daybook.wire import service
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.settings import Enforcement

_LOG: Final = get_logger(__name__)
_URI: Final = "daybook://{cluster}/role/{role}"
_REFUSED: Final = "refused"
_ALLOWED: Final = "allowed"
_LOGGED_MAX: Final = 256
"""Callers that are logged by name; whoever comes later is only counted."""

T = TypeVar("T")


class Role(Enum):
    """What a certificate is for."""

    CLIENT = "client"
    """Writes, reads and recovers ledgers whose keys it has; every certificate may."""
    BOOKIE = "bookie"
    """A bookie's own; says that the certificates of this cluster have roles."""
    OPERATOR = "operator"
    """Looks after bookies: the operator, and people."""
    REPAIR = "repair"
    """Auditors, and workers that copy what is missing and end limbo."""


_ANYBODY: Final = frozenset({Role.CLIENT})
_OPERATOR: Final = frozenset({Role.OPERATOR})
_REPAIR: Final = frozenset({Role.OPERATOR, Role.REPAIR})

ROLES_OF_CALLS: Final[Mapping[str, frozenset[Role]]] = {
    service.APPEND: _ANYBODY,
    service.READ: _ANYBODY,
    service.READ_LAC.name: _ANYBODY,
    service.FENCE.name: _ANYBODY,
    service.RECOVER.name: _ANYBODY,
    service.FORCE.name: _ANYBODY,
    service.GET_INFO.name: _ANYBODY,
    service.LIST_LEDGERS.name: _ANYBODY,
    service.ENTRY_INTERVALS.name: _ANYBODY,
    service.LIST_LIMBO.name: _REPAIR,  # its nonces are what ClearLimbo asks for
    service.CLEAR_LIMBO.name: _REPAIR,
    service.SET_READ_ONLY.name: _OPERATOR,
    service.SCRUB.name: _OPERATOR,
    service.COLLECT_GARBAGE.name: _OPERATOR,
    service.ACCEPT_ROLL_BACK.name: _OPERATOR,
}
"""Each call of the service, and any of which roles it takes. Fences, reads and appends ask for the ledger's key."""


def roles_of(uris: Iterable[str], cluster: str) -> frozenset[Role]:
    """The roles that these alternative names give in `cluster`."""
    by_uri = {_URI.format(cluster=cluster, role=role.value): role for role in Role}
    return frozenset({Role.CLIENT, *(by_uri[uri] for uri in uris if uri in by_uri)})


class Gate:
    """Decides over the calls of one bookie."""

    def __init__(
        self,
        cluster: str,
        enforcement: Enforcement,
        metrics: BookieMetrics,
        *,
        certificate: Path | None,
        asks_for_certificates: bool,
    ) -> None:
        """`certificate`: the bookie's own; without `asks_for_certificates` everybody is let pass."""
        self._cluster = cluster
        self._enforcement = enforcement
        self._metrics = metrics
        self._certificate = certificate
        self._asks = asks_for_certificates
        self._lock = threading.Lock()
        self._logged: set[tuple[str, str]] = set()

    def tell(self, address: Address) -> None:
        """Log what the settings mean for who reaches `address`."""
        if self._asks:
            _LOG.info("calls that change this bookie take a role", enforced=self._enforces())
        elif not _is_loopback(address):
            _LOG.warning(
                "no client certificates are asked for: whoever reaches the port may make this bookie read-only, delete "
                "what is collected and end limbo, after which recovery may cut a ledger off; set tls_ca, or let a network "
                "policy keep everybody else away",
                address=str(address),
            )

    def guarded(
        self, call: str, handler: Callable[[Any, grpc.ServicerContext], T]
    ) -> Callable[[Any, grpc.ServicerContext], T]:
        """`handler`, behind the roles that `call` takes."""
        wanted = ROLES_OF_CALLS[call]
        if Role.CLIENT in wanted or not self._asks:
            return handler
        for outcome in (_REFUSED, _ALLOWED):  # an alert sees a counter rise only if it was there before
            self._metrics.calls_without_role.labels(call, outcome)

        def guarded(request: Any, context: grpc.ServicerContext) -> T:
            auth: Mapping[str, Any] = context.auth_context()
            have = roles_of((uri.decode(errors="replace") for uri in auth.get("peer_uri", ())), self._cluster)
            if not wanted & have:
                self._lacks_role(call, wanted, b"".join(auth.get("x509_subject", ())), context)
            return handler(request, context)

        return guarded

    def _lacks_role(
        self, call: str, wanted: frozenset[Role], subject: bytes, context: grpc.ServicerContext
    ) -> None:
        refused = self._enforces()
        who = subject.decode(errors="replace")
        self._metrics.calls_without_role.labels(call, _REFUSED if refused else _ALLOWED).inc()
        with self._lock:
            is_new = (call, who) not in self._logged and len(self._logged) < _LOGGED_MAX
            if is_new:
                self._logged.add((call, who))
        if is_new:
            _LOG.warning("a call without its role", call=call, subject=who, refused=refused)
        if refused:
            names = " or ".join(sorted(role.value for role in wanted))
            uris = " or ".join(sorted(_URI.format(cluster=self._cluster, role=role.value) for role in wanted))
            context.abort(
                grpc.StatusCode.PERMISSION_DENIED,
                f"{call} takes the role {names}, and the client's certificate ({who or 'no name'}) has it not: use one with "
                f"the URI {uris} among its alternative names, or set the bookie's `roles` to warn for now",
            )

    def _enforces(self) -> bool:
        """The own certificate is read each time: it may have been renewed."""
        if self._enforcement is not Enforcement.AUTO:
            return self._enforcement is Enforcement.ENFORCE
        assert self._certificate is not None
        try:
            return roles_of(_uris_in(self._certificate), self._cluster) != _ANYBODY
        except (OSError, ValueError) as error:
            _LOG.warning("the own certificate cannot be read; roles are enforced", reason=str(error))
            return True


def _uris_in(file: Path) -> list[str]:
    """The URIs among the alternative names of a PEM file's first certificate. Raises OSError, ValueError."""
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def _is_loopback(address: Address) -> bool:
    return address.host == "localhost" or address.host.startswith("127.") or address.host == "::1"
