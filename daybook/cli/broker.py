"""`daybook broker …`: restart the brokers of a local cluster."""

from pathlib import Path
from typing import Annotated

import typer

from daybook.cli.connection import explain_errors
from daybook.cli.output import out

app = typer.Typer(no_args_is_help=True, help="Manage brokers.")


@app.callback()
def _commands() -> None:
    """Manage brokers."""


@app.command()
@explain_errors
def start(
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="the broker's id")],
    directory: Annotated[
        Path, typer.Option("--dir", envvar="DAYBOOK_DIR", help="directory of the local cluster")
    ],
) -> None:
    """Start a broker of a local cluster again, where its clients found it."""
    from daybook.local.cluster import start_one_broker

    entry = start_one_broker(directory, broker)
    out.print(f"broker {entry.id} serves at {entry.service_url} as process {entry.pid}", soft_wrap=True)
