"""The `daybook` command."""

from pathlib import Path
from typing import Annotated, Final

import typer

from daybook.cli.lazy import LazyGroup

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

app = typer.Typer(
    name="daybook",
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def main(
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="DAYBOOK_TLS_CA", help="PEM file of the CA that signed the bookies' certificates"
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(
            envvar="DAYBOOK_TLS_CERTIFICATE", help="PEM certificate to present to bookies that require one"
        ),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(envvar="DAYBOOK_TLS_KEY", help="PEM key of that certificate")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="DAYBOOK_TOKEN_FILE",
            help="file with the token for brokers that ask who one is; the token itself may be in DAYBOOK_TOKEN",
        ),
    ] = None,
    log_level: Annotated[
        str, typer.Option(envvar="DAYBOOK_LOG_LEVEL", help="DEBUG, INFO, WARNING or ERROR")
    ] = "WARNING",
) -> None:
    """A replicated, segmented log: append entries to ledgers; processes and disks may fail, and no acknowledged entry is lost.

    Try it: `daybook up --dir /tmp/daybook` in one terminal, and in another

    - `export DAYBOOK_DIR=/tmp/daybook`
    - `ls | daybook ledger write` prints the new ledger's id
    - `daybook ledger read 0`

    Results go to standard output, everything else to standard error. Exit code 0: done; 1: failed, and the last line
    says why; 2: wrong usage.
    """
    from daybook.cli.connection import Tls, use_options

    if log_level.upper() not in LEVELS:
        msg = f"{log_level!r} is not a log level: use one of {', '.join(LEVELS)}"
        raise typer.BadParameter(msg, param_hint="--log-level")
    use_options(log_level, Tls(tls_certificate, tls_key, tls_ca), token_file)
