"""The command `daybook-broker`: settings in, a serving broker out, and an exit code that says how it ended.

0: asked to stop, and its topics are unloaded, or the bound for that has passed. 1: it could not start, and the last line says
why and what to do. 3: a part of it failed while it served; its topics pass to other brokers once its session is over.

What takes long to import is imported once the allocator's settings are in place, since those take a fresh start.
"""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from daybook.runtime.allocator import start_with_allocator

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def _commands() -> None:
    """A broker of Daybook: owns topics and serves them to Pulsar clients."""


@app.command("version")
def show_version() -> None:
    """Print the release."""
    typer.echo(version("daybook-broker"))


@app.command()
def start(
    config: Annotated[Path | None, typer.Option(help="TOML file with settings.")] = None,
    broker_id: Annotated[str | None, typer.Option(help="The broker's name.")] = None,
    zookeeper: Annotated[str | None, typer.Option(help="host:port[,host:port…]")] = None,
    cluster: Annotated[str | None, typer.Option(help="The cluster's name.")] = None,
    address: Annotated[str | None, typer.Option(help="host:port of pulsar://; port 0: a free one.")] = None,
    advertised_address: Annotated[str | None, typer.Option(help="host:port that clients use.")] = None,
    tls_address: Annotated[str | None, typer.Option(help="host:port of pulsar+ssl://.")] = None,
    admin_address: Annotated[str | None, typer.Option(help="host:port of the admin HTTP.")] = None,
    health_address: Annotated[str | None, typer.Option(help="host:port of grpc.health.v1.")] = None,
    metrics_address: Annotated[str | None, typer.Option(help="host:port for Prometheus.")] = None,
    ready_file: Annotated[str | None, typer.Option(help="Gets the addresses once the broker serves.")] = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = None,
) -> None:
    """Serve until SIGTERM. Every setting also has a variable DAYBOOK_BROKER_…, and a name in the file."""
    flags = {name: value for name, value in locals().items() if name != "config"}
    start_with_allocator("daybook_broker")
    from daybook.runtime.log_output import configure_logs
    from daybook.runtime.settings import SettingsError, load_settings
    from daybook_broker.process import EXIT_NOT_STARTED, run
    from daybook_broker.settings import BrokerSettings

    try:
        settings = load_settings(BrokerSettings, config, flags)
        configure_logs(
            settings.log_level,
            settings.log_format,
            context={"component": "broker", "broker": settings.broker_id},
        )
    except (SettingsError, ValueError) as error:
        typer.echo(f"daybook-broker: {error}", err=True)
        raise typer.Exit(EXIT_NOT_STARTED) from error
    raise typer.Exit(run(settings))
