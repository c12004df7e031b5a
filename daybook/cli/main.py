"""The `daybook` command."""

import os
import sys

import typer

from daybook.cli import audit, bookie, demo, ledger
from daybook.cli.up import up
from daybook.runtime.logs import configure_logs

app = typer.Typer(
    name="daybook",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help="A replicated, segmented log: ledgers over bookies, metadata in ZooKeeper.",
)
app.add_typer(ledger.app, name="ledger")
app.add_typer(bookie.app, name="bookie")
app.command()(up)
app.command()(demo.demo)
app.command()(audit.audit)
app.command()(audit.recover)
app.command()(audit.autorecovery)


@app.callback()
def main() -> None:
    """Logs go to standard error; DAYBOOK_LOG_LEVEL says how many (default: WARNING)."""
    configure_logs(os.environ.get("DAYBOOK_LOG_LEVEL", "WARNING"), stream=sys.stderr)
