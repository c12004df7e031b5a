"""The life of the process: everything started in order, a wait for the end, everything ended in order.

One event loop does all the work; health and metrics have threads of their own, so that a probe is answered while the loop is busy.
The health server comes first and registration last, so that no client is sent to a broker that does not serve. At SIGTERM the
broker unloads its topics, which names the next owner to their clients, within a bound; what is not unloaded by then is taken over as
after a crash.
"""

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from typing import Final, TypedDict

from prometheus_client import CollectorRegistry

import daybook
from daybook.client.placement_settings import placement_policy
from daybook.core.errors import DaybookError
from daybook.metadata.store.settings import options_of_process
from daybook.runtime.clock import monotonic_s
from daybook.runtime.descriptors import raise_descriptor_limit
from daybook.runtime.garbage import collect_rarely
from daybook.runtime.health import Check, HealthServer, Progress
from daybook.runtime.logs import get_logger
from daybook.runtime.metrics import MetricsServer, new_registry
from daybook.runtime.ports import parse_address, reachable
from daybook.runtime.scheduling import ask_for_short_slices
from daybook.runtime.settings import SettingsError
from daybook.runtime.signals import StopEvent, stop_on_signals
from daybook.runtime.tls import FollowingContext, TlsError, TlsFiles, client_credentials
from daybook_broker.admin.server import AdminServer
from daybook_broker.broker import Broker
from daybook_broker.metrics import BrokerMetrics
from daybook_broker.settings import BrokerSettings

_LOG: Final = get_logger(__name__)

EXIT_STOPPED: Final = 0
EXIT_NOT_STARTED: Final = 1
EXIT_FAILED: Final = 3

SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread (of a probe, of ZooKeeper's connection) keeps the interpreter from the event loop."""
HEARTBEAT_S: Final = 0.25
CLOSE_S: Final = 5.0
"""A bound for what follows the unloading: nothing of it is needed by anybody."""


def run(settings: BrokerSettings) -> int:
    """Serve until a signal or a failure; the exit code."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    ask_for_short_slices()
    raise_descriptor_limit()
    with stop_on_signals() as stop:
        return asyncio.run(_run(settings, stop))


async def _run(settings: BrokerSettings, stop: StopEvent) -> int:
    asked = asyncio.create_task(stop.wait_async(), name="signals")
    async with AsyncExitStack() as stack:
        starting = asyncio.create_task(start(settings, stack), name="start")
        await asyncio.wait({asked, starting}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            _LOG.info("stopped before it served", reason=stop.reason)
            return EXIT_STOPPED
        try:
            broker = starting.result()
        except (DaybookError, SettingsError, TlsError, OSError, ValueError) as error:
            _LOG.error("the broker cannot start", reason=str(error), kind=type(error).__name__)
            return EXIT_NOT_STARTED
        collect_rarely()
        failing = asyncio.create_task(broker.failed(), name="failures")
        await asyncio.wait({asked, failing}, return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            _LOG.critical("the broker stops: a part of it failed", reason=str(failing.result()))
            return EXIT_FAILED
        failing.cancel()
        await _unload(broker, settings, stop)
        return EXIT_STOPPED


async def start(settings: BrokerSettings, stack: AsyncExitStack) -> Broker:
    """Start everything; what was started is in `stack`, also if something fails."""
    registry = new_registry()
    metrics = BrokerMetrics(registry)
    heartbeat = _Heartbeat(settings, metrics)
    state = State()
    health = HealthServer(parse_address(settings.health_address), **checks(heartbeat.progress, state))
    stack.push_async_callback(asyncio.to_thread, health.close)
    metrics_server = MetricsServer(registry, parse_address(settings.metrics_address))
    stack.push_async_callback(asyncio.to_thread, metrics_server.close)
    heartbeat.start()
    client = _client(settings, registry)
    await client.__aenter__()
    stack.push_async_callback(_close, client)
    broker = Broker(settings, client, metrics)
    metrics.show("registered", "1 while registered in ZooKeeper.", lambda: float(broker.problem() is None))
    admin = AdminServer(broker)
    stack.push_async_callback(admin.stop)
    admin_url, admin_tls_url = await _serve_admin(admin, settings)
    try:
        await broker.start(admin_url=admin_url, admin_tls_url=admin_tls_url)
    except BaseException:
        await broker.stop()
        raise
    state.broker = broker
    _LOG.info(
        "serving",
        service_url=broker.service_url,
        tls_url=broker.tls_url,
        admin_url=admin_url or admin_tls_url,
    )
    _write_ready_file(settings, broker, health, metrics_server)
    return broker


async def _serve_admin(admin: AdminServer, settings: BrokerSettings) -> tuple[str, str]:
    """Where the admin HTTP is, without TLS and with it; empty for the one that is not there."""
    plain = secure = ""
    if settings.admin_address:
        address = await admin.start(parse_address(settings.admin_address))
        plain = f"http://{settings.advertised_admin_address or reachable(address)}"
    if settings.admin_tls_address:
        tls = FollowingContext(settings.tls_files)
        address = await admin.start(parse_address(settings.admin_tls_address), tls)
        secure = f"https://{settings.advertised_admin_tls_address or reachable(address)}"
    return plain, secure


async def _unload(broker: Broker, settings: BrokerSettings, stop: StopEvent) -> None:
    """Give every topic to another broker, as far as the bound allows."""
    _LOG.info("stopping", reason=stop.reason)
    try:
        async with asyncio.timeout(settings.drain_ms / 1000):
            await broker.stop()
    except TimeoutError:
        _LOG.warning(
            "not every topic was unloaded in time; others take them over", drain_ms=settings.drain_ms
        )
    else:
        _LOG.info("stopped")


async def _close(client: daybook.Client) -> None:
    """End the session, so that others need not wait for its time-out."""
    try:
        async with asyncio.timeout(CLOSE_S):
            await client.close()
    except TimeoutError:
        _LOG.warning("the connections to bookies and ZooKeeper did not end in time")


class Checks(TypedDict):
    """What the two services of the probes check."""

    liveness: list[Check]
    readiness: list[Check]


def checks(progress: Progress, state: "State") -> Checks:
    """Liveness depends on the event loop alone: an outage of ZooKeeper must restart nobody (rule 46)."""
    return {"liveness": [progress], "readiness": [state.problem]}


class State:
    """Whether the broker serves, for probes."""

    def __init__(self) -> None:
        """Nothing serves yet."""
        self.broker: Broker | None = None

    def problem(self) -> str | None:
        """Registered, serving and certain of its session, or why not."""
        if self.broker is None:
            return "the broker starts: it connects to ZooKeeper and registers"
        return self.broker.unready()


class _Heartbeat:
    """Shows that the event loop runs, and how late."""

    def __init__(self, settings: BrokerSettings, metrics: BrokerMetrics) -> None:
        """Prepare."""
        self.progress = Progress("the event loop", settings.stuck_after_ms)
        self._delay = metrics.loop_delay_seconds
        self._due_s = 0.0

    def start(self) -> None:
        """Begin to beat on the running loop."""
        self._due_s = monotonic_s()
        self._beat()

    def _beat(self) -> None:
        now_s = monotonic_s()
        self.progress.stamp()
        self._delay.observe(max(0.0, now_s - self._due_s))
        self._due_s = now_s + HEARTBEAT_S
        asyncio.get_running_loop().call_later(HEARTBEAT_S, self._beat)


def _client(settings: BrokerSettings, registry: CollectorRegistry) -> daybook.Client:
    tls = TlsFiles(settings.bookie_tls_certificate, settings.bookie_tls_key, settings.bookie_tls_ca)
    secure = settings.bookie_tls_ca is not None
    return daybook.connect(
        settings.zookeeper,
        cluster=settings.cluster,
        credentials=client_credentials(tls) if secure else lambda: None,
        zone=settings.zone,
        rack=settings.rack,
        placement=placement_policy(),
        zookeeper_options=options_of_process(settings),
        name=settings.broker_id,
        recoveries_max=settings.recoveries_max,
        registry=registry,
        pending_bytes_max=settings.pending_bytes,
        await_cluster_s=settings.connect_timeout_ms / 1000,
    )


def _write_ready_file(
    settings: BrokerSettings, broker: Broker, health: HealthServer, metrics: MetricsServer
) -> None:
    """Tell whoever started this process where it serves, in one step."""
    file = settings.ready_file
    if file is None:
        return
    record = {
        "broker_id": settings.broker_id,
        "pid": os.getpid(),
        "service_url": broker.service_url,
        "tls_url": broker.tls_url,
        "admin_url": broker.admin_url or broker.admin_tls_url,
        "health_address": reachable(health.address),
        "metrics_address": reachable(metrics.address),
    }
    aside = file.with_name(f"{file.name}.tmp")
    aside.write_text(json.dumps(record), encoding="utf-8")
    aside.replace(file)
