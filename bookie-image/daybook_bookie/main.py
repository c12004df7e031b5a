"""The command `daybook-bookie`: settings in, a serving bookie out, and an exit code that says how it ended.

0: asked to stop, drained and flushed. 1: it could not start, and the last line says why and what to do. 3: journal or
store failed while it served (rule 23); the next start replays. 4: its disks are empty and it has served before; 5: its
disks are its own and the cluster has forgotten it: both wait for an authorised replacement (rule 29).

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
    """A bookie of Daybook: keeps the entries of ledgers."""


@app.command("version")
def show_version() -> None:
    """Print the release."""
    typer.echo(version("daybook-bookie"))


@app.command()
def start(
    config: Annotated[Path | None, typer.Option(help="TOML file with settings.")] = None,
    bookie_id: Annotated[str | None, typer.Option(help="The bookie's name for life.")] = None,
    zookeeper: Annotated[str | None, typer.Option(help="host:port[,host:port…]")] = None,
    cluster: Annotated[str | None, typer.Option(help="The cluster's name.")] = None,
    journal_dir: Annotated[str | None, typer.Option(help="Directory of the journal.")] = None,
    store_dir: Annotated[str | None, typer.Option(help="Directory of the entry store.")] = None,
    address: Annotated[str | None, typer.Option(help="host:port to serve on; port 0: a free one.")] = None,
    advertised_address: Annotated[str | None, typer.Option(help="host:port that clients use.")] = None,
    health_address: Annotated[str | None, typer.Option(help="host:port of grpc.health.v1.")] = None,
    metrics_address: Annotated[str | None, typer.Option(help="host:port for Prometheus.")] = None,
    ready_file: Annotated[str | None, typer.Option(help="Gets the addresses once the bookie serves.")] = None,
    rack: Annotated[str | None, typer.Option(help="The bookie's rack.")] = None,
    zone: Annotated[str | None, typer.Option(help="The bookie's zone.")] = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = None,
) -> None:
    """Serve until SIGTERM. Every setting also has a variable DAYBOOK_BOOKIE_…, and a name in the file."""
    flags = {name: value for name, value in locals().items() if name != "config"}
    start_with_allocator("daybook_bookie")
    from daybook.core.bookie.exits import EXIT_NOT_STARTED
    from daybook.runtime.log_output import configure_logs
    from daybook.runtime.settings import SettingsError, load_settings
    from daybook_bookie.process import run
    from daybook_bookie.settings import BookieSettings

    try:
        settings = load_settings(BookieSettings, config, flags)
        configure_logs(
            settings.log_level,
            settings.log_format,
            context={"component": "bookie", "bookie": settings.bookie_id},
        )
    except (SettingsError, ValueError) as error:
        typer.echo(f"daybook-bookie: {error}", err=True)
        raise typer.Exit(EXIT_NOT_STARTED) from error
    raise typer.Exit(run(settings))
