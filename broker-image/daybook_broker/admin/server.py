"""The port of the admin API: routes, limits, and errors as answers with a text that says what to do.

It listens before the broker is registered, because the registration carries its address; until the broker serves, all but the health
is answered "not ready".
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from aiohttp import web

from daybook.core.errors import (
    CompactionError,
    DaybookError,
    LedgersNeededError,
    ManagedTopicError,
    MetadataUnavailableError,
    NoSuchTopicError,
    NotOwnerError,
    PlanOutdatedError,
    PolicyError,
    RestoreError,
    TopicExistsError,
    TopicFullError,
    TopicNameError,
    TopicTerminatedError,
)
from daybook.metadata.store.store import BadVersionError, NotEmptyError
from daybook.offload.errors import OffloadError
from daybook.runtime.logs import get_logger
from daybook.runtime.ports import Address, check_port_free
from daybook_broker.admin import (
    brokers,
    jobs,
    known,
    lookup,
    namespaces,
    offloads,
    owned,
    partitioned,
    permissions,
    settings,
    topics,
)
from daybook_broker.admin.api import (
    BODY_BYTES_MAX,
    Answer,
    Api,
    BadRequestError,
    Handle,
    OwnedElsewhere,
    Route,
    scope_of,
)
from daybook_broker.auth.http import operation_of
from daybook_broker.broker import Broker
from daybook_broker.errors import (
    AlreadyRunningError,
    AuthenticationError,
    AuthorizationError,
    NoSuchSubscriptionError,
    NotAllowedError,
    NotReadyError,
    TooManyError,
)
from daybook_broker.topics.ledger_reads import ReadDelayedError

log = get_logger(__name__)

REQUESTS_MAX: Final = 500
"""Requests at once; more are answered "not ready"."""
STOP_S: Final = 1.0
"""How long a stopping broker waits for requests to end."""

ROUTES: Final[tuple[Route, ...]] = (
    *brokers.ROUTES,
    *lookup.ROUTES,
    *namespaces.ROUTES,
    *permissions.ROUTES,
    *settings.ROUTES,
    *topics.ROUTES,
    *owned.ROUTES,
    *partitioned.ROUTES,
    *known.ROUTES,
    *jobs.ROUTES,
    *offloads.ROUTES,
)

_STATUS: Final[tuple[tuple[type[Exception], int], ...]] = (
    (BadRequestError, 400),
    (AuthenticationError, 401),
    (AuthorizationError, 403),
    (TopicNameError, 400),
    (PolicyError, 400),
    (NoSuchTopicError, 404),
    (NoSuchSubscriptionError, 404),
    (TopicTerminatedError, 405),
    (TopicExistsError, 409),
    (ManagedTopicError, 409),
    (PlanOutdatedError, 409),
    (BadVersionError, 409),
    (NotEmptyError, 409),
    (AlreadyRunningError, 409),
    (NotAllowedError, 412),
    (LedgersNeededError, 412),
    (CompactionError, 412),
    (OffloadError, 412),
    (RestoreError, 412),
    (TopicFullError, 412),
    (NotOwnerError, 503),
    (NotReadyError, 503),
    (ReadDelayedError, 503),
    (TooManyError, 503),
    (MetadataUnavailableError, 503),
    (DaybookError, 500),
)
"""The first class that fits counts."""


class AdminServer:
    """The admin API of one broker. `start` serves it, `stop` ends it."""

    def __init__(self, broker: Broker) -> None:
        """No I/O yet."""
        self._broker = broker
        self._api = Api(broker)
        self._under_way = 0
        application = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[self._guard])
        for method, path, handle in ROUTES:
            application.router.add_route(method, path, partial(self._answer, handle))
        self._runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=STOP_S
        )

    async def start(self, address: Address, tls: ssl.SSLContext | None = None) -> Address:
        """Listen, also with TLS in a second call; the address with the port that was taken. Raises OSError."""
        check_port_free(address, "admin_address" if tls is None else "admin_tls_address")
        if self._runner.server is None:
            await self._runner.setup()
        others = len(self._runner.addresses)
        await web.TCPSite(self._runner, address.host, address.port, ssl_context=tls).start()
        return Address(address.host, self._runner.addresses[others][1])

    async def stop(self) -> None:
        """End."""
        await self._runner.cleanup()

    async def _answer(self, handle: Handle, request: web.Request) -> web.StreamResponse:
        answer: Answer = await handle(self._api, request)
        if isinstance(answer, web.StreamResponse):
            return answer
        return web.Response(status=204) if answer is None else web.json_response(answer)

    async def _admit(self, request: web.Request) -> None:
        """Return if whoever asks may do this. Raises AuthenticationError, AuthorizationError."""
        role = self._api.role_of(request)
        resource = request.match_info.route.resource
        if resource is not None:  # nothing else is carried out
            operation = operation_of(request.method, resource.canonical)
            await self._broker.access.check(role, operation, *scope_of(request))

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Carry a request out, within the limits, and make answers of errors."""
        if request.path not in brokers.ALWAYS and (problem := self._broker.problem()) is not None:
            return _refused(503, problem)
        if self._under_way >= REQUESTS_MAX:
            return _refused(503, f"{REQUESTS_MAX} requests are under way: try again later")
        self._under_way += 1
        try:
            if request.path not in brokers.ALWAYS:
                await self._admit(request)
            return await handler(request)
        except (web.HTTPRedirection, OwnedElsewhere):
            raise
        except web.HTTPException as error:
            return _refused(error.status, f"{request.method} {request.path[:200]}: {error.reason}")
        except (DaybookError, BadRequestError) as error:
            status = next(code for kind, code in _STATUS if isinstance(error, kind))
            return _refused(status, str(error))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.error(
                "an admin request failed after an error of the broker", path=request.path, exc_info=error
            )
            return _refused(
                500, f"the request failed after an error of the broker: {error}; its log says more"
            )
        finally:
            self._under_way -= 1


def _refused(status: int, reason: str) -> web.Response:
    """An error as Pulsar's brokers answer it."""
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return web.json_response({"reason": reason}, status=status, headers=headers)
