"""The command `daybook-operator`: one process of several, of which the holder of the Lease works and the others wait.

Exit code 0: asked to stop. 1: it could not start, or lost the Lease, or a part of it ended; the last line says why, and
a new process is the cure.
"""

import asyncio
import json
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final

import typer

from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.core.errors import DaybookError
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.health import Progress
from daybook.runtime.log_output import configure_logs
from daybook.runtime.logs import get_logger
from daybook.runtime.metrics import MetricsServer, new_registry
from daybook.runtime.ports import PortInUseError, parse_address
from daybook.runtime.settings import SettingsError, load_settings
from daybook.runtime.signals import StopEvent, stop_on_signals
from daybook_operator.health import HealthEndpoint
from daybook_operator.kube.api import Kube, load_configuration
from daybook_operator.kube.lease import LeaderLease, LeaseSettings
from daybook_operator.leading import Leading
from daybook_operator.metrics import LabelledRegistries, OperatorMetrics
from daybook_operator.settings import OperatorSettings

_LOG: Final = get_logger(__name__)
_STAMP_S: Final = 1.0
EXIT_FAILED: Final = 1

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def _commands() -> None:
    """Daybook's operator: pools of bookies, ledgers and their repair on Kubernetes."""


@app.command("version")
def show_version() -> None:
    """Print the release."""
    typer.echo(version("daybook-operator"))


@app.command()
def run(
    config: Annotated[Path | None, typer.Option(help="TOML file with settings.")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="How to reach the API server.")] = None,
    namespaces: Annotated[str | None, typer.Option(help="Namespaces to manage; default: all.")] = None,
    zookeeper: Annotated[str | None, typer.Option(help="ZooKeeper of pools whose spec names none.")] = None,
    bookie_image: Annotated[str | None, typer.Option(help="Image where the spec names none.")] = None,
    health_address: Annotated[str | None, typer.Option(help="host:port of /healthz and /readyz.")] = None,
    metrics_address: Annotated[str | None, typer.Option(help="host:port for Prometheus.")] = None,
    ready_file: Annotated[str | None, typer.Option(help="Gets the addresses once they are known.")] = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = None,
) -> None:
    """Work, or wait to lead, until SIGTERM. Every setting also has a variable DAYBOOK_OPERATOR_…."""
    flags = {name: value for name, value in locals().items() if name != "config"}
    try:
        settings = load_settings(OperatorSettings, config, flags)
        auditing = load_settings(AutoRecoverySettings)
        configure_logs(settings.log_level, settings.log_format, context={"component": "operator"})
        with stop_on_signals() as stop:
            asyncio.run(serve(settings, auditing, stop))
    except (SettingsError, DaybookError, PortInUseError, ValueError) as error:
        typer.echo(f"daybook-operator: {error}", err=True)
        raise typer.Exit(EXIT_FAILED) from error


class Standing:
    """What the probes ask for: the state of this process."""

    def __init__(self, settings: OperatorSettings) -> None:
        """Starting."""
        self.loop = Progress("the event loop", settings.stuck_after_ms)
        self.leading: Leading | None = None
        self.reached = False
        self._silent_after_ms = settings.silent_after_ms

    def lease_answered(self) -> None:
        """The API server answered a request for the Lease."""
        self.reached = True

    def why_not_alive(self) -> str | None:
        """A leader that receives nothing for long has dead watches."""
        if self.leading is None:
            return None
        silent_ms = monotonic_ms() - self.leading.last_received_ms
        return (
            f"nothing was received from the API server for {silent_ms} ms"
            if silent_ms > self._silent_after_ms
            else None
        )

    def why_not_ready(self) -> str | None:
        """Ready is leading, or waiting to lead."""
        if self.leading is not None:
            return self.leading.waits_for or None
        return None if self.reached else "the API server was not reached yet"


async def serve(settings: OperatorSettings, auditing: AutoRecoverySettings, stop: StopEvent) -> None:
    """Serve until `stop`. Raises DaybookError when the process has to end for another reason."""
    registry, registries, standing = new_registry(), LabelledRegistries("cluster"), Standing(settings)
    registry.register(registries)
    metrics = OperatorMetrics(registry)
    kube = Kube(
        load_configuration(settings.kubeconfig),
        threads=settings.api_threads,
        timeout_s=settings.api_timeout_ms / 1000,
        metrics=metrics,
    )
    with (
        HealthEndpoint(
            parse_address(settings.health_address),
            alive=[standing.loop, standing.why_not_alive],
            ready=[standing.why_not_ready],
        ) as health,
        MetricsServer(registry, parse_address(settings.metrics_address)) as served,
    ):
        _LOG.info("serving", health=str(health.address), metrics=str(served.address))
        if settings.ready_file is not None:
            addresses = {"health_address": str(health.address), "metrics_address": str(served.address)}
            settings.ready_file.write_text(json.dumps(addresses), encoding="utf-8")
        working = asyncio.create_task(_work(kube, settings, auditing, metrics, registries, standing))
        stamping = asyncio.create_task(_stamp(standing))
        stopped = asyncio.create_task(stop.wait_async())
        try:
            await asyncio.wait({working, stamping, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            for task in (working, stamping, stopped):
                task.cancel()
            await asyncio.gather(working, stamping, stopped, return_exceptions=True)
            kube.close()


async def _work(
    kube: Kube,
    settings: OperatorSettings,
    auditing: AutoRecoverySettings,
    metrics: OperatorMetrics,
    registries: LabelledRegistries,
    standing: Standing,
) -> None:
    """Wait for the Lease, then lead while it is held."""
    lease = LeaderLease(
        kube,
        LeaseSettings(
            settings.lease_namespace,
            settings.lease_name,
            settings.lease_identity,
            settings.lease_duration_ms,
            settings.lease_renew_ms,
        ),
        on_answer=standing.lease_answered,
    )
    try:
        await lease.acquire()
        standing.leading = Leading(kube, settings, auditing, metrics, registries)
        metrics.leading.set(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(lease.hold())
            group.create_task(standing.leading.run())
    except (
        BaseExceptionGroup
    ) as failed:  # not `except*`: before 3.11.4, Python puts what that raises into a group, too
        errors, others = failed.split(DaybookError)
        if errors is None or others is not None:
            raise
        raise _first_of(errors) from failed
    finally:
        metrics.leading.set(0)
        await lease.release()


def _first_of(errors: BaseExceptionGroup[DaybookError]) -> DaybookError:
    """The first error of a tree of them: its message is the last line of the process."""
    first = errors.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


async def _stamp(standing: Standing) -> None:
    while True:
        standing.loop.stamp()
        await asyncio.sleep(_STAMP_S)
