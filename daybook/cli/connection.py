"""How a command finds its cluster: `--dir` of a local one, or ZooKeeper's address and the cluster's name.

A person sees each expected error as one red line that says what to do, whichever module raised it.
"""

import asyncio
import os
import ssl
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, ParamSpec, TypeVar

import typer
from rich.markup import escape

import daybook
from daybook.cli.output import err
from daybook.core.errors import DaybookError
from daybook.local.cluster_file import ClusterError, ClusterFile

if TYPE_CHECKING:
    from daybook.metadata.store.store import MetadataStore

P = ParamSpec("P")
T = TypeVar("T")

EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130
EXIT_PIPE_CLOSED: Final = 141
"""The code by which a shell reports a program that SIGPIPE ended."""

Directory = Annotated[
    Path | None,
    typer.Option("--dir", envvar="DAYBOOK_DIR", help="directory of a local cluster (`daybook up --dir DIR`)"),
]
ZooKeeper = Annotated[
    str | None, typer.Option("--zookeeper", envvar="DAYBOOK_ZOOKEEPER", help="host:port[,…] of ZooKeeper")
]
Cluster = Annotated[
    str | None, typer.Option("--cluster", envvar="DAYBOOK_CLUSTER", help="name of the cluster")
]
Password = Annotated[
    str,
    typer.Option("--password", envvar="DAYBOOK_PASSWORD", help="password of the ledger", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="print JSON instead of a table")]


@dataclass(frozen=True, slots=True)
class Tls:
    """The TLS files for connections to bookies and brokers, from the options or the environment."""

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None


_tls = Tls()
_log_level = "WARNING"
_token_file: Path | None = None


def use_options(log_level: str, tls: Tls, token_file: Path | None = None) -> None:
    """Store the options before the command, for any command of this process."""
    global _tls, _log_level, _token_file
    _tls, _log_level, _token_file = tls, log_level, token_file


def tls_files() -> Tls:
    """The TLS files of this process."""
    return _tls


def broker_token() -> str:
    """The token that shows brokers who this is: of the file that is named, else of DAYBOOK_TOKEN; empty for none. Raises OSError."""
    found = os.environ.get("DAYBOOK_TOKEN", "") if _token_file is None else _token_file.read_text("utf-8")
    return found.strip()


def share_token_file() -> None:
    """Let what this process starts find the token's file by DAYBOOK_TOKEN_FILE, if an option names one."""
    if _token_file is not None:
        os.environ["DAYBOOK_TOKEN_FILE"] = str(_token_file.absolute())


def tls_context() -> ssl.SSLContext | None:
    """The context of connections to brokers; None: without TLS. Raises TlsError."""
    from daybook.runtime.tls import TlsFiles, client_credentials

    if _tls == Tls():
        return None
    return client_credentials(TlsFiles(_tls.certificate, _tls.key, _tls.ca)).ssl_context()


@dataclass(frozen=True, slots=True)
class Where:
    """A cluster to connect to."""

    zookeeper: str
    cluster: str

    def connect(self) -> "daybook.Client":
        """A client of the cluster; use it with `async with`. Raises TlsError, SettingsError."""
        from daybook.client.placement_settings import placement_policy
        from daybook.metadata.store.environment import zookeeper_options
        from daybook.runtime.tls import TlsFiles, client_credentials

        options: dict[str, Any] = {}
        if _tls != Tls():
            options["credentials"] = client_credentials(TlsFiles(_tls.certificate, _tls.key, _tls.ca))
        return daybook.connect(
            self.zookeeper,
            cluster=self.cluster,
            zookeeper_options=zookeeper_options(),
            placement=placement_policy(),
            **options,
        )

    async def open_store(self) -> "MetadataStore":
        """The ZooKeeper alone, whether the cluster exists there or not; close it. Raises MetadataUnavailableError, SettingsError."""
        from daybook.metadata.store.environment import zookeeper_options
        from daybook.metadata.store.zookeeper import ZooKeeperStore

        return await ZooKeeperStore.open(self.zookeeper, zookeeper_options())


def _check_name(cluster: str) -> None:
    from daybook.metadata.layout import Layout

    try:
        Layout(cluster)
    except ValueError as error:
        msg = f"--cluster: {error}"
        raise ClusterError(msg) from error


def find_cluster(directory: Path | None, zookeeper: str | None, cluster: str | None) -> Where:
    """The cluster that the options name. Raises ClusterError when they name none, or one that cannot be."""
    if cluster:
        _check_name(cluster)
    if zookeeper is not None:
        return Where(zookeeper, cluster or "daybook")
    if directory is None:
        msg = "which cluster? Give --dir DIR of a local cluster, or --zookeeper HOST:PORT and --cluster NAME"
        raise ClusterError(msg)
    file = ClusterFile.read(directory)
    return Where(file.zookeeper, cluster or file.cluster)


def explain_errors(command: Callable[P, T]) -> Callable[P, T]:
    """Send logs to standard error, and show each expected error of Daybook as one red line."""

    @wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        from daybook.runtime.log_output import configure_logs

        configure_logs(_log_level)
        try:
            return command(*args, **kwargs)
        except BrokenPipeError as error:
            _close_output()
            raise typer.Exit(EXIT_PIPE_CLOSED) from error
        except KeyboardInterrupt as error:
            err.print("interrupted")
            raise typer.Exit(EXIT_INTERRUPTED) from error
        except (DaybookError, ClusterError) as error:
            raise _failed(str(error)) from error
        except OSError as error:
            raise _failed(_about_file(error)) from error
        except Exception as error:
            if not _is_of_settings(error):
                raise
            raise _failed(str(error)) from error

    return wrapper


def _failed(text: str) -> typer.Exit:
    err.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)
    return typer.Exit(EXIT_FAILED)


def _is_of_settings(error: Exception) -> bool:
    """Whether `error` is an expected error of a module that is slow to import and therefore not imported here."""
    from daybook.runtime.settings import SettingsError
    from daybook.runtime.tls import TlsError

    return isinstance(error, SettingsError | TlsError)


def _about_file(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)


def _close_output() -> None:
    """Redirect output that nobody reads to the null device, so that the interpreter's flush at exit does not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def with_client(where: Where, work: Callable[["daybook.Client"], Awaitable[T]]) -> T:
    """Run `work` with a connected client."""

    async def run() -> T:
        async with where.connect() as client:
            return await work(client)

    coroutine: Coroutine[Any, Any, T] = run()
    return asyncio.run(coroutine)


def with_store(where: Where, work: Callable[["MetadataStore"], Awaitable[T]]) -> T:
    """Run `work` with the ZooKeeper of a cluster that need not exist."""

    async def run() -> T:
        store = await where.open_store()
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())
