"""For how long a connection's credentials hold: a client whose token is about to expire is asked for another, or its connection ends.

A client that says in CONNECT that it refreshes gets AUTH_CHALLENGE a while before, and sends its present token. If that is still the old
one, because whoever renews it is late, the broker asks again after half of the time that is left. Whoever has not shown a newer token when
the old one expires is sent away, and so is a client that comes with another role: what it has opened was allowed to the first.
"""

import asyncio
from typing import TYPE_CHECKING, Final

import daybook
from daybook.runtime.clock import unix_ms
from daybook.wire.pulsar.pulsar_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthChallenge,
    CommandAuthResponse,
)
from daybook_broker.auth.tokens import Identity
from daybook_broker.errors import AuthenticationError, NotAllowedError

if TYPE_CHECKING:
    from daybook_broker.connection.connection import Connection

REFRESH: Final = b"PulsarAuthRefresh"
"""The data of a challenge by which clients know that they are to read their credentials again."""
LEAD_S_MAX: Final = 60.0
"""So long before the end a client is asked, and before half of the time that is left if that is later."""
LEAD_S_MIN: Final = 0.5
"""Nearer to the end nobody is asked any more."""
EXPIRY_S_MAX: Final = 1e8
"""A token of more years does not keep a connection for longer."""


class Credentials:
    """Those of one connection, from CONNECT on."""

    __slots__ = ("_can_refresh", "_connection", "_identity", "_is_asked", "_method", "_timer")

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._identity = Identity("")
        self._method = ""
        self._can_refresh = self._is_asked = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, identity: Identity, method: str, *, can_refresh: bool) -> None:
        """The client is `identity`, by Pulsar's name of the method."""
        self._method = method
        self._can_refresh = can_refresh
        self._hold(identity)

    def stop(self) -> None:
        """The connection is lost."""
        if self._timer is not None:
            self._timer.cancel()

    def answered(self, answer: CommandAuthResponse) -> None:
        """The client shows who it is once more. Raises AuthenticationError, and NotAllowedError if nobody asked."""
        if not self._is_asked:
            msg = "AUTH_RESPONSE came, and this broker has not asked for it: send it after AUTH_CHALLENGE"
            raise NotAllowedError(msg)
        self._is_asked = False
        shown, connection = answer.response, self._connection
        identity = connection.broker.access.identify(
            shown.auth_method_name, shown.auth_data, connection.certificate
        )
        if identity.role != self._identity.role:
            msg = f"this connection is of role {self._identity.role!r}, and its new token is of {identity.role!r}: connect again"
            raise AuthenticationError(msg)
        self._hold(identity)

    def _hold(self, identity: Identity) -> None:
        self._identity = identity
        self.stop()
        if identity.expires_at_s is None:
            return
        left_s = self._left_s()
        lead_s = min(LEAD_S_MAX, left_s / 2)
        if self._can_refresh and lead_s >= LEAD_S_MIN:
            self._timer = asyncio.get_running_loop().call_later(left_s - lead_s, self._ask)
        else:
            self._timer = asyncio.get_running_loop().call_later(left_s, self._expired)

    def _left_s(self) -> float:
        assert self._identity.expires_at_s is not None
        return min(self._identity.expires_at_s - unix_ms() / 1000, EXPIRY_S_MAX)

    def _ask(self) -> None:
        self._is_asked = True
        challenge = CommandAuthChallenge(
            server_version=f"Daybook {daybook.__version__}",
            challenge=AuthData(auth_method_name=self._method, auth_data=REFRESH),
            protocol_version=self._connection.protocol_version,
        )
        self._connection.send_command(BaseCommand(type=BaseCommand.AUTH_CHALLENGE, authChallenge=challenge))
        self._timer = asyncio.get_running_loop().call_later(self._left_s(), self._expired)

    def _expired(self) -> None:
        self._connection.fail(AuthenticationError("the token has expired: connect again with a new one"))
