"""Health: `grpc.health.v1` on a separate plaintext port, with separate threads.

A streaming call occupies a worker of a data server, and the kubelet's probes use no TLS; if a probe queued behind data, the
kubelet would kill healthy processes. Liveness depends only on whether this process makes progress: if it depended on other
processes, their outage would restart everything. Readiness may depend on anything.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self, TypeAlias

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger
from daybook.runtime.ports import Address, check_port_free

LIVENESS: Final = "liveness"
READINESS: Final = "readiness"
OVERALL: Final = health.OVERALL_HEALTH
"""The service without a name: the same as liveness, so that a probe without a service name is harmless."""

Check: TypeAlias = Callable[[], str | None]
"""Returns the problem, or None if there is none. Must not block."""

_LOCK_WAIT_S: Final = 0.2
_HUNG_AFTER_MS: Final = 5_000

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_LOG: Final = get_logger(__name__)


class Progress:
    """A time stamp that a working thread renews; as a Check it reports a thread that has been stuck for too long."""

    def __init__(self, name: str, stuck_after_ms: int, now_ms: Callable[[], int] = monotonic_ms) -> None:
        """The progress of the thread `name`, which is idle at first."""
        self._name = name
        self._stuck_after_ms = stuck_after_ms
        self._now_ms = now_ms
        self._since_ms: int | None = None

    def stamp(self) -> None:
        """Record that a piece of work begins or continues."""
        self._since_ms = self._now_ms()

    def rest(self) -> None:
        """Record that the thread is idle: until the next stamp, it need not make progress."""
        self._since_ms = None

    def __call__(self) -> str | None:
        """The problem, if there is one."""
        since_ms = self._since_ms
        if since_ms is None or (silent_ms := self._now_ms() - since_ms) <= self._stuck_after_ms:
            return None
        return f"{self._name} has made no progress for {silent_ms} ms (allowed: {self._stuck_after_ms} ms)"


class HealthServer:
    """Answers Check and Watch for the services "liveness" and "readiness" from the checks of each."""

    def __init__(
        self,
        address: Address,
        *,
        liveness: Sequence[Check],
        readiness: Sequence[Check],
        refresh_ms: int = 500,
    ) -> None:
        """Listen on `address` (port 0: a free one) and serve. Check calls the checks anew, Watch sees a change within
        `refresh_ms`, and a change is logged with its reasons. Raises PortInUseError.
        """
        check_port_free(address, "health address")
        self._checks = {LIVENESS: tuple(liveness), READINESS: tuple(readiness)}
        self._reasons: dict[str, list[str] | None] = dict.fromkeys(self._checks)
        self._locks = {service: threading.Lock() for service in self._checks}
        self._progress = {name: Progress(f"the check of {name}", _HUNG_AFTER_MS) for name in self._checks}
        self._closing = threading.Event()
        self._servicer = _Servicer(self)
        self._server = grpc.server(ThreadPoolExecutor(max_workers=2, thread_name_prefix="health"))
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, self._server)
        self.address = Address(address.host, self._server.add_insecure_port(str(address)))
        self.refresh()
        self._server.start()
        self._ticker = threading.Thread(
            target=self._tick, args=(refresh_ms / 1000,), name="health-ticker", daemon=True
        )
        self._ticker.start()

    def refresh(self, *services: str) -> None:
        """Call the checks of `services` (of both, if none is named) now; log and publish changes.

        A check that hangs blocks only the thread that called it: other callers get the last known result, and after a while
        the fact that the check hangs. Otherwise all workers could wait for readiness, and none would be left for liveness.
        """
        for service in services or self._checks:
            if self._locks[service].acquire(timeout=_LOCK_WAIT_S):
                try:
                    self._progress[service].stamp()
                    self._publish(
                        service, [reason for check in self._checks[service] if (reason := _call(check))]
                    )
                finally:
                    self._progress[service].rest()
                    self._locks[service].release()
            elif hung := self._progress[service]():
                self._publish(service, [hung])

    def reasons(self, service: str) -> list[str]:
        """The reasons for which `service` was not serving at the last refresh; empty if it was."""
        return list(self._reasons[service] or [])

    def close(self) -> None:
        """Report NOT_SERVING to watchers, then stop and wait until the port is free."""
        self._closing.set()
        self._ticker.join()
        self._servicer.enter_graceful_shutdown()
        self._server.stop(grace=0).wait()

    def __enter__(self) -> Self:
        """Return the server."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _publish(self, service: str, reasons: list[str]) -> None:
        """Notify watchers and write a log line, if the state has changed."""
        before = self._reasons[service]
        if before == reasons:
            return
        self._reasons[service] = reasons
        status = _NOT_SERVING if reasons else _SERVING
        if before is None or bool(before) != bool(reasons):
            self._servicer.set(service, status)
            if service == LIVENESS:
                self._servicer.set(OVERALL, status)
        if before != reasons:
            (_LOG.warning if reasons else _LOG.info)(
                "health", service=service, serving=not reasons, reasons=reasons
            )

    def _tick(self, seconds: float) -> None:
        """Refresh until the server is closed."""
        while not self._closing.wait(seconds):
            self.refresh()


class _Servicer(health.HealthServicer):  # type: ignore[misc]  # grpc_health has no types
    """The reference servicer, whose Check refreshes before it answers."""

    def __init__(self, owner: HealthServer) -> None:
        """Answer for `owner`."""
        super().__init__()
        self._owner = owner

    def Check(  # noqa: N802 - the name is gRPC's
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        """Answer with the present state; a slow readiness never delays liveness."""
        self._owner.refresh(READINESS if request.service == READINESS else LIVENESS)
        return super().Check(request, context)


def _call(check: Check) -> str | None:
    """The result of `check`; an exception counts as a problem."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - the probe needs an answer whatever a check raises
        return f"a health check failed: {type(error).__name__}: {error}"
